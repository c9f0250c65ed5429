$(call unit_test,recorder,$(wildcard tests/unit/recorder/*.cpp),recorder trace_writer trace,-l:libzstd.a)
