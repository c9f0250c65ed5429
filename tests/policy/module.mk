$(call unit_test,trace-io,tests/policy/test_trace_io.cpp,policy trace,-lzstd)
$(call unit_test,simulator,tests/policy/test_simulator.cpp,policy trace,-lzstd)
