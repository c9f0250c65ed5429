$(call library,executor,$(wildcard shim/executor/*.cpp))
