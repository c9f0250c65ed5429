$(call library,log,shim/log/log.cpp)
