$(call unit_test,options,$(wildcard tests/unit/options/*.cpp),options)
