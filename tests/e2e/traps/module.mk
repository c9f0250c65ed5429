# Programs that do what is hardest on paging, one by one (traps.py runs them).
TRAPS := tests/e2e/traps
FLAGS_tests_e2e_traps_ = -DTRAPS_PTX='"$(B)/obj/$(TRAPS)/traps.ptx"' -Wno-volatile -Wno-deprecated-declarations
$(B)/obj/$(TRAPS)/ptx.cpp.o: $(B)/obj/$(TRAPS)/traps.ptx
$(call program,workloads/traps,$(wildcard $(TRAPS)/*.cpp) tests/workloads/small/ptx.cpp,,-L$(B)/softgpu -lcuda)
$(B)/workloads/traps: | $(B)/softgpu/libcuda.so
DEFAULT += $(B)/workloads/traps
TEST_SUITES += tests/e2e/traps/traps.py

# Each rule taken out is missed.
CHECK_SUITES += tests/e2e/traps/rules.py
