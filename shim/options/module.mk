$(call library,options,$(call together,$(wildcard shim/options/*.cpp)))
