$(call library,replay,$(call together,$(wildcard shim/replay/*.cpp)))
