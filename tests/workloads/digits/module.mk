# Seven builds of one program: $(call digits,NAME,BACKEND SOURCE,DEFINES,LIBRARIES,WHAT THEY NEED)
DIGITS := tests/workloads/digits
DIGITS_OBJ := $(B)/obj/$(DIGITS)
DIGITS_COMMON := $(call objects,$(DIGITS)/main.cpp $(DIGITS)/network.cpp)
$(call objects,$(DIGITS)/main.cpp): $(DIGITS)/digits.bin
DEPENDENCIES += $(DIGITS_COMMON:.o=.d) $(DIGITS_OBJ)/kernels.cu.d

define digits_rule
$(DIGITS_OBJ)/backend-$(1).o: $(DIGITS)/$(2)
	@mkdir -p $$(@D)
	@echo "  c++   $(DIGITS)/$(2) ($(1))"
	@$$(CCACHE) $$(CXX) $$(WORKLOAD_CPPFLAGS) $$(WORKLOAD_CXXFLAGS) $(3) -MMD -MP -MF $$(@:.o=.d) -c -o $$@ $$<
$(B)/workloads/digits-$(1): $(DIGITS_COMMON) $(DIGITS_OBJ)/backend-$(1).o $(5)
	@mkdir -p $$(@D)
	@echo "  link  $$@"
	@$$(LINK) -o $$@ $$(filter %.o,$$^) $(4) -ldl
DEPENDENCIES += $(DIGITS_OBJ)/backend-$(1).d
DEFAULT += $(B)/workloads/digits-$(1)
endef
digits = $(eval $(call digits_rule,$(1),$(2),$(3),$(4),$(5)))

DIGITS_SHARED := -L$(B)/softgpu -lcudart
DIGITS_SHARED_NEEDS := $(DIGITS_OBJ)/kernels.cu.o $(B)/softgpu/libcudart.so
$(call digits,runtime,backend_runtime.cpp,,$(DIGITS_SHARED),$(DIGITS_SHARED_NEEDS))
$(call digits,static,backend_runtime.cpp,,$(B)/softgpu/libcudart_static.a,$(DIGITS_OBJ)/kernels.cu.o $(B)/softgpu/libcudart_static.a)
$(call digits,streams,backend_runtime.cpp,-DDIGITS_STREAMS,$(DIGITS_SHARED),$(DIGITS_SHARED_NEEDS))
$(call digits,ptds,backend_runtime.cpp,-DCUDA_API_PER_THREAD_DEFAULT_STREAM,$(DIGITS_SHARED),$(DIGITS_SHARED_NEEDS))
$(call digits,async,backend_runtime.cpp,-DDIGITS_ASYNC,$(DIGITS_SHARED),$(DIGITS_SHARED_NEEDS))
$(call digits,graph,backend_runtime.cpp,-DDIGITS_GRAPH,$(DIGITS_SHARED),$(DIGITS_SHARED_NEEDS))

$(DIGITS_OBJ)/backend-driver.o: $(DIGITS_OBJ)/kernels.ptx
$(call digits,driver,backend_driver.cpp,-DDIGITS_PTX='"$(DIGITS_OBJ)/kernels.ptx"',-L$(B)/softgpu -lcuda,$(B)/softgpu/libcuda.so)
