$(call unit_test,replay,$(wildcard tests/unit/replay/*.cpp) tests/pager/fake_gpu.cpp,executor replay policy pager recorder host trace_writer trace,-l:libzstd.a)
