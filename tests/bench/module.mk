TEST_SUITES += tests/bench/test_run.py
$(call program,tests/launch_path,tests/bench/launch_path.cpp tests/workloads/small/ptx.cpp,,-L$(B)/softgpu -lcuda)
$(call program,tests/executor_bench,tests/bench/executor_bench.cpp tests/workloads/small/ptx.cpp,executor replay policy pager recorder trace_writer trace host log,-L$(B)/softgpu -lcuda -l:libzstd.a)
$(B)/tests/executor_bench: | $(B)/softgpu/libcuda.so
TEST_NEEDS += $(B)/tests/executor_bench
tests/bench/executor.py: $(B)/tests/executor_bench
$(B)/tests/launch_path: | $(B)/softgpu/libcuda.so
tests/bench/launch.py: $(B)/tests/launch_path
BENCHES += tests/bench/start.py tests/bench/launch.py tests/bench/executor.py tests/bench/paging.py tests/bench/plans.py tests/bench/networks.py
tests/bench/networks.py: $(BUILD)/real/base/ready
