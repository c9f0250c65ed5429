# Fakes of closed libraries, found beside the program that is linked with them.
CLOSED := $(B)/tests/closed
FLAGS_tests_closed_ = -DCLOSED_PTX='"$(B)/obj/tests/closed/kernels.ptx"'
$(B)/obj/tests/closed/ptx.cpp.o: $(B)/obj/tests/closed/kernels.ptx
LINK_AS_NCCL = -shared -Wl,-soname,libnccl.so.2 -L$(B)/softgpu -lcuda
LINK_AS_CUBLAS = -shared -Wl,-soname,libcublas.so.13 -L$(B)/softgpu -lcuda
LINK_AS_CUDNN = -shared -Wl,-soname,libcudnn.so.9 -L$(B)/softgpu -lcuda
LINK_AS_CUFFT = -shared -Wl,-soname,libcufft.so.12 -L$(B)/softgpu -lcuda
LINK_CLOSED = -L$(B)/softgpu -lcuda -L$(CLOSED) -l:libnccl.so.2 -l:libcublas.so.13 -l:libcudnn.so.9 -l:libcufft.so.12 -Wl,-rpath,'$$ORIGIN'
CLOSED_LIBRARIES := $(addprefix $(CLOSED)/,libnccl.so.2 libcublas.so.13 libcudnn.so.9 libcufft.so.12)
$(call program,tests/closed/libnccl.so.2,tests/closed/fake_nccl.cpp tests/closed/ptx.cpp,,$$(LINK_AS_NCCL))
$(call program,tests/closed/libcublas.so.13,tests/closed/fake_cublas.cpp tests/closed/ptx.cpp,,$$(LINK_AS_CUBLAS))
$(call program,tests/closed/libcudnn.so.9,tests/closed/fake_cudnn.cpp tests/closed/ptx.cpp,,$$(LINK_AS_CUDNN))
$(call program,tests/closed/libcufft.so.12,tests/closed/fake_cufft.cpp tests/closed/ptx.cpp,,$$(LINK_AS_CUFFT))
$(call program,tests/closed/programs,tests/closed/programs.cpp tests/workloads/small/ptx.cpp,,$$(LINK_CLOSED))
$(CLOSED)/programs: $(CLOSED_LIBRARIES)
$(CLOSED)/programs $(CLOSED_LIBRARIES): | $(B)/softgpu/libcuda.so
TEST_NEEDS += $(CLOSED)/programs
TEST_SUITES += tests/closed/suite.py
