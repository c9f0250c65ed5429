$(call library,trace_writer,$(wildcard profiler/trace/writer/*.cpp))
