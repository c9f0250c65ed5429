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

# Releases of cuBLAS, their symbols in the version of their soname, and plugins that are linked with one each: 13 has no versions;
# copy/ has another file of 12's; the one in own/ is a 12 under a soname of its own.
RELEASES := $(MATH_LIBRARIES)/releases
define release_rule
$(RELEASES)/$(1): $(MATH)/release.c $(MATH)/module.mk
	@mkdir -p $$(@D) && echo '$(4)' > $$@.map
	@$$(CC) $$(SANITISE) $$(CFLAGS) -DRELEASE=$(3) -shared -o $$@ $$< -Wl,-soname,$(2) $(if $(4),-Wl$(COMMA)--version-script=$$@.map)
$(RELEASES)/$(5): $(MATH)/release_user.c $(RELEASES)/$(1)
	@$$(CC) $$(SANITISE) $$(CFLAGS) -shared -o $$@ $$< $(RELEASES)/$(1) -Wl,-rpath,'$$$$ORIGIN'
DEFAULT += $(RELEASES)/$(5)
endef
$(eval $(call release_rule,libcublas.so.11,libcublas.so.11,11,libcublas.so.11 { cublas*; };,libuses11.so))
$(eval $(call release_rule,libcublas.so.12,libcublas.so.12,12,libcublas.so.12 { cublas*; };,libuses12.so))
$(eval $(call release_rule,libcublas.so.13,libcublas.so.13,13,,libuses13.so))
$(eval $(call release_rule,copy/libcublas.so.12,libcublas.so.12,120,libcublas.so.12 { cublas*; };,copy/libuses12.so))
$(eval $(call release_rule,own/libcublas-5f0e.so.12,libcublas-5f0e.so.12,121,libcublas.so.12 { cublas*; };,own/libuses12.so))
$(B)/workloads/releases: $(MATH)/releases.c
	@mkdir -p $(@D) && $(CC) $(SANITISE) $(CFLAGS) -o $@ $< -ldl
DEFAULT += $(B)/workloads/releases
