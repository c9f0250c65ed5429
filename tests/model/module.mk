# The pager's own sources under a scheduler that tries every interleaving. Not in sanitised builds: its threads run in turn.
ifeq ($(VARIANT),)
FLAGS_tests_model_ := -I$(B)/gen -DUDNNMEM_BREAKABLE -fno-omit-frame-pointer -fno-optimize-sibling-calls
$(call objects,$(wildcard tests/model/*.cpp)): $(B)/gen/shim/pager/hash_ptx.hpp
$(call program,tests/model-check,$(wildcard tests/model/*.cpp),)
TEST_NEEDS += $(B)/tests/model-check
TEST_SUITES += tests/model/suite.py
endif
