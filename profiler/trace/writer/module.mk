$(call library,trace_writer,$(call together,$(wildcard profiler/trace/writer/*.cpp)))
