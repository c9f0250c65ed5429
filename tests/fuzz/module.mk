# Fuzz targets; each is a suite that builds its own target with clang, or is skipped.
TEST_SUITES += tests/fuzz/ptx_fuzz.py
TEST_SUITES += tests/fuzz/trace_fuzz.py
# Their samples in `make test` are drawn by unit tests (tests/pager/programs_test.cpp, tests/interpose/images_test.cpp).
CHECK_SUITES += tests/fuzz/pager_fuzz.py tests/fuzz/code_fuzz.py
