# Mathematics libraries of our own, in build/workloads/math, and a program that uses them.
MATH := tests/workloads/math
MATH_LIBRARIES := $(B)/workloads/math
FLAGS_tests_workloads_math_ = -DMATH_PTX='"$(B)/obj/$(MATH)/kernels.ptx"'
$(B)/obj/$(MATH)/ptx.cpp.o: $(B)/obj/$(MATH)/kernels.ptx
$(call program,workloads/math/libcublas.so.13,$(MATH)/fake_cublas.cpp $(MATH)/ptx.cpp,,-shared -Wl$(COMMA)-soname$(COMMA)libcublas.so.13 -L$(B)/softgpu -lcuda)
$(call program,workloads/math/libcudnn.so.9,$(MATH)/fake_cudnn.cpp $(MATH)/ptx.cpp,,-shared -Wl$(COMMA)-soname$(COMMA)libcudnn.so.9 -L$(B)/softgpu -lcuda)
$(call program,workloads/math/libproducts.so,$(MATH)/products.cpp $(MATH)/ptx.cpp,,-shared $(MATH_LIBRARIES)/libcublas.so.13 $(MATH_LIBRARIES)/libcudnn.so.9 -L$(B)/softgpu -lcuda)
$(MATH_LIBRARIES)/libproducts.so: $(MATH_LIBRARIES)/libcublas.so.13 $(MATH_LIBRARIES)/libcudnn.so.9
$(MATH_LIBRARIES)/libcublas.so.13 $(MATH_LIBRARIES)/libcudnn.so.9 $(MATH_LIBRARIES)/libproducts.so: | $(B)/softgpu/libcuda.so
$(call program,workloads/products,$(MATH)/main.cpp,,-ldl)
DEFAULT += $(MATH_LIBRARIES)/libproducts.so $(B)/workloads/products
