$(call unit_test,math,$(wildcard tests/unit/math/*.cpp),math_calls,-ldl)
