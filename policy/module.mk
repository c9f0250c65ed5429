$(call library,policy,$(call together,$(wildcard policy/*.cpp policy/*/*.cpp)))
