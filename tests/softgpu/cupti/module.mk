$(call program,softgpu/cupti/libcupti.so.13,tests/softgpu/cupti/cupti.cpp,,-shared -static-libstdc++ -static-libgcc -ldl)
TEST_NEEDS += $(B)/softgpu/cupti/libcupti.so.13
