$(call unit_test,pager,$(wildcard tests/pager/*.cpp),pager,-lrapidcheck)
$(call objects,$(BUILD)/gen/tests/unit-pager.cpp): CPPFLAGS += -I$(B)/gen
