$(call unit_test,learner,$(wildcard tests/unit/learner/*.cpp) tests/pager/fake_gpu.cpp,preload recorder cupti_activity math_calls nvtx pager host log options interpose trace_writer trace,$$(LINK_SCRIPTED))
$(B)/tests/unit-learner: $(FAKE_DRIVER)
