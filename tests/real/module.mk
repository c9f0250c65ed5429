# Real frameworks under the library. The virtual environment is made once, by the targets that need it; the suites
# preload into an ordinary Python, so they are not for the sanitised builds.
$(BUILD)/real/ready: tests/real/setup.sh
	@tests/real/setup.sh $(BUILD)/real $(CUDA_HOME)

ifeq ($(VARIANT),)
TEST_SUITES += tests/real/tinygrad.py
TEST_NEEDS += $(BUILD)/real/ready
endif
CHECK_SUITES += tests/real/memory_viz.py
