# Probes for a real card (scripts/gpu_check.sh), on the driver API alone. Linked against the software GPU's driver, which has the
# same name; whatever driver there is runs them.
PROBES := tests/gpu/probes
PROBE_NAMES := vmm_cost vmm_while_running vmm_stress host_numa zero_copy_ops link managed tma hash graph_addresses
PROBE_PTX := $(addprefix $(B)/obj/$(PROBES)/,kernels.ptx host_ops_75.ptx host_ops_80.ptx host_ops_90.ptx)
# The PTX language of an old driver, as far as the code allows.
$(B)/obj/$(PROBES)/%.ptx: $(PROBES)/%.cu
	@mkdir -p $(@D)
	@echo "  nvcc  $< (PTX)"
	@$(NVCC) -std=c++17 -O3 -ptx -arch compute_$(or $(patsubst host_ops_%,%,$(filter host_ops_%,$*)),75) -o $@ $<
	@sed -i 's/^\.version .*/.version $(if $(filter host_ops_90,$*),8.4,7.0)/' $@
FLAGS_tests_gpu_probes_ = -DPROBE_PTX='"$(B)/obj/$(PROBES)"'
$(B)/obj/$(PROBES)/ptx.cpp.o: $(PROBE_PTX)
LINK_PROBE = -L$(B)/softgpu -lcuda -static-libstdc++ -static-libgcc
$(foreach name,$(PROBE_NAMES),$(call program,gpu/$(name),$(PROBES)/$(name).cpp $(PROBES)/ptx.cpp,,$$(LINK_PROBE)))
GPU_PROBES := $(addprefix $(B)/gpu/,$(PROBE_NAMES))
$(GPU_PROBES): | $(B)/softgpu/libcuda.so

# All that a card is asked with, for a machine without a network or a compiler. BUNDLE_OPTIONS: make_gpu_bundle.py's own.
GPU_BUNDLE = $(BUILD)/dist/udnnmem-gpu-$(ARCH).tar.gz
GPU_PROGRAMS := $(addprefix $(B)/workloads/,vadd bigop random replays digits-driver digits-runtime digits-static digits-streams digits-ptds digits-async digits-graph runtime-calls-shared runtime-calls-static runtime-calls-ptds) $(B)/tests/launch_path
gpu-bundle: all $(GPU_PROBES) $(B)/tests/launch_path ## build/dist/udnnmem-gpu-ARCH.tar.gz: what scripts/gpu_check.sh needs on a machine with a card
	@$(PYTHON) scripts/make_gpu_bundle.py --build $(B) --output $(GPU_BUNDLE) $(BUNDLE_OPTIONS) $(patsubst $(B)/%,%,$(GPU_PROBES) $(GPU_PROGRAMS))

test-gpu: all $(GPU_PROBES) $(B)/tests/launch_path ## ask the card of this machine every open question (scripts/gpu_check.sh all)
	@UDNNMEM_BUILD=$(abspath $(B)) scripts/gpu_check.sh all || [ $$? -eq 77 ]  # 77: there is no card
.PHONY: gpu-bundle test-gpu

TEST_NEEDS += $(GPU_PROBES) $(B)/tests/launch_path
TEST_SUITES += tests/gpu/rehearsal.py
