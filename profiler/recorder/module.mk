$(call library,recorder,$(call together,$(wildcard profiler/recorder/*.cpp)))
