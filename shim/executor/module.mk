# The tool reads stored plans too, and needs nothing else from here.
PLAN_FILES := $(addprefix shim/executor/,plan_reader.cpp plan_store.cpp rows.cpp sequence.cpp)
$(call library,executor,$(call together,$(filter-out $(PLAN_FILES),$(wildcard shim/executor/*.cpp))) $(call together,$(PLAN_FILES)))
