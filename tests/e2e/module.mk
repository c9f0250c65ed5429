# Whole programs under the library. They need everything that `make` builds.
TEST_SUITES += $(addprefix tests/e2e/,plain_process.py cli.py)
ifneq ($(wildcard tests/softgpu/driver/module.mk),)
TEST_SUITES += $(addprefix tests/e2e/,digits.py host_frames.py random_programs.py real_cudart.py runtime_calls.py)
endif
