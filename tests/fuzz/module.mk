# Fuzz targets; each is a suite that builds its own target with clang, or is skipped.
TEST_SUITES += tests/fuzz/ptx_fuzz.py
TEST_SUITES += tests/fuzz/trace_fuzz.py
# Its sample in `make test` is drawn by rapidcheck (tests/pager/programs_test.cpp).
CHECK_SUITES += tests/fuzz/pager_fuzz.py
