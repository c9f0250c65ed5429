# Whole programs under the library. They need everything that `make` builds.
ifneq ($(wildcard shim/preload/module.mk),)
TEST_SUITES += $(addprefix tests/e2e/,digits.py host_frames.py plain_process.py random_programs.py real_cudart.py runtime_calls.py)
endif
