# Small programs: on the driver API (vadd, bigop, random, loop, detours, graph_steps, player, beside), and a check of our own runtime (runtime_calls).
SMALL := tests/workloads/small
SMALL_OBJ := $(B)/obj/$(SMALL)
FLAGS_tests_workloads_small_ = -DSMALL_PTX='"$(SMALL_OBJ)/kernels.ptx"'
$(SMALL_OBJ)/ptx.cpp.o: $(SMALL_OBJ)/kernels.ptx

$(call program,workloads/vadd,$(SMALL)/vadd.cpp $(SMALL)/ptx.cpp,,-L$(B)/softgpu -lcuda)
$(call program,workloads/bigop,$(SMALL)/bigop.cpp $(SMALL)/ptx.cpp,,-L$(B)/softgpu -lcuda)
$(B)/workloads/vadd $(B)/workloads/bigop: | $(B)/softgpu/libcuda.so
$(call program,workloads/random,$(SMALL)/random.cpp $(SMALL)/ptx.cpp,,-L$(B)/softgpu -lcuda)
$(B)/workloads/random: | $(B)/softgpu/libcuda.so
$(call program,workloads/loop,$(SMALL)/loop.cpp $(SMALL)/ptx.cpp,,-L$(B)/softgpu -lcuda)
$(B)/workloads/loop: | $(B)/softgpu/libcuda.so
$(call program,workloads/detours,$(SMALL)/detours.cpp $(SMALL)/ptx.cpp,,-L$(B)/softgpu -lcuda)
$(B)/workloads/detours: | $(B)/softgpu/libcuda.so
$(call program,workloads/player,$(SMALL)/player.cpp $(SMALL)/ptx.cpp,,-L$(B)/softgpu -lcuda)
$(B)/workloads/player: | $(B)/softgpu/libcuda.so
$(call program,workloads/ranges,$(SMALL)/ranges.cpp $(SMALL)/ptx.cpp,,-L$(B)/softgpu -lcuda)
$(B)/workloads/ranges: | $(B)/softgpu/libcuda.so
$(call program,workloads/graph_steps,$(SMALL)/graph_steps.cpp $(SMALL)/ptx.cpp,,-L$(B)/softgpu -lcuda)
$(B)/workloads/graph_steps: | $(B)/softgpu/libcuda.so
$(call program,workloads/beside,$(SMALL)/beside.cpp $(SMALL)/ptx.cpp,,-L$(B)/softgpu -lcuda)
$(B)/workloads/beside: | $(B)/softgpu/libcuda.so
DEFAULT += $(addprefix $(B)/workloads/,vadd bigop random loop detours graph_steps player ranges beside)

# A tool that NVTX_INJECTION64_PATH names.
$(B)/workloads/nvtx_tool.so: $(SMALL)/nvtx_tool.c
	@mkdir -p $(@D)
	@echo "  cc    $<"
	@$(CC) $(CPPFLAGS) -O2 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -o $@ $< -ldl
DEFAULT += $(B)/workloads/nvtx_tool.so

# A neighbour: another preload that takes dlsym.
$(B)/workloads/other_dlsym.so: $(SMALL)/other_dlsym.c
	@mkdir -p $(@D)
	@echo "  cc    $<"
	@$(CC) -O2 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -o $@ $< -ldl
DEFAULT += $(B)/workloads/other_dlsym.so

# $(call runtime_calls,NAME,NVCC FLAGS,LIBRARIES,NEEDS)
define runtime_calls_rule
$(SMALL_OBJ)/runtime_calls-$(1).o: $(SMALL)/runtime_calls.cu
	@mkdir -p $$(@D)
	@echo "  nvcc  $$< ($(1))"
	@$$(NVCC) $$(NVCC_FLAGS) $$(PTX_ARCH) $(2) -c -o $$@ $$<
$(B)/workloads/runtime-calls-$(1): $(SMALL_OBJ)/runtime_calls-$(1).o $(4)
	@mkdir -p $$(@D)
	@echo "  link  $$@"
	@$$(LINK) -o $$@ $$< $(3) -ldl
DEFAULT += $(B)/workloads/runtime-calls-$(1)
endef
runtime_calls = $(eval $(call runtime_calls_rule,$(1),$(2),$(3),$(4)))
$(call runtime_calls,shared,,-L$(B)/softgpu -lcudart,$(B)/softgpu/libcudart.so)
$(call runtime_calls,ptds,--default-stream per-thread,-L$(B)/softgpu -lcudart,$(B)/softgpu/libcudart.so)
$(call runtime_calls,static,,$(B)/softgpu/libcudart_static.a,$(B)/softgpu/libcudart_static.a)
