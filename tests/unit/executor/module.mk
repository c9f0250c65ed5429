$(call unit_test,executor,$(wildcard tests/unit/executor/*.cpp),executor replay policy pager recorder trace_writer trace,-l:libzstd.a)
