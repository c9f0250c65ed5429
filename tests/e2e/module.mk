# Whole programs under the library. They need everything that `make` builds.
TEST_SUITES += $(addprefix tests/e2e/,cli.py cupti.py detours.py digits.py frameworks.py graph_steps.py host_frames.py idle.py iterations.py changing_plans.py checkpoints.py flips.py lies.py misuse.py models.py neighbours.py out_of_memory.py packages.py plain_process.py platforms.py plans.py phases.py played.py random_programs.py random_replays.py ranks.py real_cudart.py replays.py reports.py runtime_calls.py scarce.py sequences.py stored_plans.py surroundings.py)
# What the profiler sees and says.
TEST_SUITES += $(addprefix tests/e2e/,flops.py learning.py link.py nvtx.py recorded.py releases.py top.py)

# The library whose own driver calls can fail and whose rules can be taken out.
ifeq ($(VARIANT),)
$(BUILD)/breakable/libudnnmem.so: $(B)/libudnnmem.so
	@$(MAKE) --no-print-directory VARIANT=breakable $@
TEST_NEEDS += $(BUILD)/breakable/libudnnmem.so
TEST_SUITES += tests/e2e/faults.py tests/e2e/ipc.py
endif

CHECK_SUITES += tests/e2e/soak.py
