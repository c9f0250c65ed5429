CLI_LIBRARIES := options host policy trace
$(call library,cli,$(filter-out shim/cli/main.cpp,$(wildcard shim/cli/*.cpp)))
$(call program,udnnmem,shim/cli/main.cpp,cli $(CLI_LIBRARIES),-l:libzstd.a -ldl -static-libstdc++ -static-libgcc)
DEFAULT += $(B)/udnnmem
