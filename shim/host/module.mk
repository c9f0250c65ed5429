$(call library,host,shim/host/host_memory.cpp)
