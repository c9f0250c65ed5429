$(call library,trace,$(wildcard profiler/trace/*.cpp))
