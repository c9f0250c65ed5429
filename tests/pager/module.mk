$(call unit_test,pager,$(wildcard tests/pager/*.cpp),pager,-lrapidcheck)
$(call objects,$(wildcard tests/pager/*.cpp)): CPPFLAGS += -I$(B)/gen
