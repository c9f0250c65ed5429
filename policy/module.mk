$(call library,policy,$(wildcard policy/*.cpp policy/*/*.cpp))
