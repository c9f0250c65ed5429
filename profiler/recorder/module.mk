$(call library,recorder,$(wildcard profiler/recorder/*.cpp))
