$(call library,cupti_activity,$(wildcard profiler/cupti/*.cpp))
