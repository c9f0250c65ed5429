$(call unit_test,trace-io,tests/policy/test_trace_io.cpp,policy trace,-lzstd)
$(call unit_test,simulator,tests/policy/test_simulator.cpp,policy trace,-lzstd)
$(call unit_test,reference,tests/policy/test_reference.cpp,policy trace,-lzstd)
$(call unit_test,udnn,tests/policy/test_udnn.cpp,policy trace,-lzstd)
$(call program,bench/plan_bench,tests/bench/plan_bench.cpp,networks policy trace,-lzstd)
BENCHES += $(B)/bench/plan_bench
$(call library,networks,tests/policy/networks.cpp)
$(call unit_test,agreement,tests/policy/test_agreement.cpp,networks policy trace,-lzstd)
$(call unit_test,planners,tests/policy/test_planners.cpp,networks policy trace,-lzstd -lrapidcheck)
$(call unit_test,checkpoints,tests/policy/test_checkpoints.cpp,networks policy trace,-lzstd)
$(call unit_test,tails,tests/policy/test_tails.cpp,networks policy trace,-lzstd)
$(call unit_test,oracle,tests/policy/test_oracle.cpp,networks policy trace,-lzstd)
TEST_SUITES += tests/policy/plan_cli.py tests/policy/milp.py
