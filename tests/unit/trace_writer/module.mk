$(call unit_test,trace_writer,$(wildcard tests/unit/trace_writer/*.cpp),trace_writer trace,-l:libzstd.a)
