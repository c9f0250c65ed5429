TEST_SUITES += tests/bench/test_run.py
$(call program,tests/launch_path,tests/bench/launch_path.cpp tests/workloads/small/ptx.cpp,,-L$(B)/softgpu -lcuda)
$(call program,tests/launch_planned,tests/bench/launch_planned.cpp tests/workloads/small/ptx.cpp,,-L$(B)/softgpu -lcuda)
$(B)/tests/launch_planned: | $(B)/softgpu/libcuda.so
tests/bench/launch_planned.py: $(B)/tests/launch_planned
$(B)/tests/launch_path: | $(B)/softgpu/libcuda.so
tests/bench/launch.py: $(B)/tests/launch_path
BENCHES += tests/bench/launch.py tests/bench/launch_planned.py tests/bench/paging.py tests/bench/plans.py tests/bench/networks.py
tests/bench/networks.py: $(BUILD)/real/base/ready
