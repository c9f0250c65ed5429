# Tests of the driver: they link it as a program links the real one.
softgpu_tests := $(notdir $(basename $(wildcard tests/softgpu/driver_test*.cpp)))
define softgpu_test
$(call unit_test,softgpu-$(1),tests/softgpu/$(1).cpp,,$(B)/softgpu/libcuda.so.1 -ldl -Wl$$(softgpu_comma)-rpath$$(softgpu_comma)'$$$$ORIGIN/../softgpu')
$(B)/tests/unit-softgpu-$(1): $(B)/softgpu/libcuda.so.1
endef
$(foreach t,$(softgpu_tests),$(eval $(call softgpu_test,$(t))))
