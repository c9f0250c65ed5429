$(call unit_test,log,$(wildcard tests/unit/log/*.cpp),log options)
