$(call library,options,$(wildcard shim/options/*.cpp))
