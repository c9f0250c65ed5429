$(call library,trace,$(call together,$(wildcard profiler/trace/*.cpp)))
