$(call library,replay,$(wildcard shim/replay/*.cpp))
