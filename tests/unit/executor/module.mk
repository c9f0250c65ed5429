$(call unit_test,executor,$(wildcard tests/unit/executor/*.cpp) tests/pager/fake_gpu.cpp,executor replay policy pager recorder trace_writer trace,-l:libzstd.a)
