$(call unit_test,live,$(wildcard tests/unit/live/*.cpp),live_publisher live_reader,-ldl)
