$(call unit_test,learner,$(wildcard tests/unit/learner/*.cpp) tests/pager/fake_gpu.cpp,preload $(PRELOAD_NEEDS),$$(LINK_SCRIPTED))
$(B)/tests/unit-learner: $(FAKE_DRIVER)
