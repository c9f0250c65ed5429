$(call unit_test,trace-io,tests/policy/test_trace_io.cpp,policy trace,-lzstd)
