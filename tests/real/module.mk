# Real frameworks under the library. Their environments are made once, by the targets that need them; the suites preload
# into an ordinary Python, so they are not for the sanitised builds.
REAL_READY := $(BUILD)/real/base/ready
$(BUILD)/real/%/ready: tests/real/setup.sh
	@tests/real/setup.sh $(BUILD)/real $(CUDA_HOME) $*

ifeq ($(VARIANT),)
TEST_SUITES += tests/real/tinygrad.py tests/real/drjit.py
TEST_NEEDS += $(REAL_READY)
endif
CHECK_SUITES += tests/real/memory_viz.py tests/real/tinygrad_recorded.py
REAL_SUITES := $(addprefix tests/real/,tinygrad.py tinygrad_recorded.py tinygrad_planned.py drjit.py numba.py numba_loop.py slangpy.py one_script.py)
REAL_NEEDS := $(patsubst %,$(BUILD)/real/%/ready,base numba slangpy taichi quadrants halide cuda_core)
