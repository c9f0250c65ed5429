$(call unit_test,frameworks,$(wildcard tests/unit/frameworks/*.cpp),frameworks)
