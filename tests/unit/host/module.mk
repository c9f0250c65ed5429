$(call unit_test,host,$(wildcard tests/unit/host/*.cpp),host)
