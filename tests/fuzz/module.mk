# Fuzz targets; each is a suite that builds its own target with clang, or is skipped. Building them takes longer than their samples
# run; `make test` has unit tests with drawn, damaged or malformed inputs of the same readers.
CHECK_SUITES += tests/fuzz/ptx_fuzz.py tests/fuzz/trace_fuzz.py tests/fuzz/pager_fuzz.py tests/fuzz/code_fuzz.py
