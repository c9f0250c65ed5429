$(call library,math_calls,$(wildcard profiler/math/*.cpp))
