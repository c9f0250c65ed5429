$(call library,host,shim/host/card.cpp shim/host/host_memory.cpp shim/host/launcher.cpp shim/host/older_glibc.c shim/host/tools.cpp)
