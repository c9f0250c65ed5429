# Whole programs under the library. They need everything that `make` builds.
TEST_SUITES += $(addprefix tests/e2e/,cli.py digits.py host_frames.py iterations.py misuse.py neighbours.py plain_process.py random_programs.py real_cudart.py runtime_calls.py)
