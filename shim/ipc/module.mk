$(call library,ipc,$(wildcard shim/ipc/*.cpp))
