# A chain of activations made by kernels that may be run again, and by such that must not be.
REPLAYS := tests/workloads/replays
FLAGS_tests_workloads_replays_ = -DREPLAYS_PTX='"$(B)/obj/$(REPLAYS)/kernels.ptx"'
$(B)/obj/$(REPLAYS)/ptx.cpp.o: $(B)/obj/$(REPLAYS)/kernels.ptx
$(call program,workloads/replays,$(REPLAYS)/replays.cpp $(REPLAYS)/ptx.cpp,,-L$(B)/softgpu -lcuda)
$(B)/workloads/replays: | $(B)/softgpu/libcuda.so
DEFAULT += $(B)/workloads/replays
