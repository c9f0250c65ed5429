# build/libudnnmem.so: everything in one object that depends on libc alone.
PRELOAD_LIBS := interpose pager options log trace_writer
$(call library,preload,$(wildcard shim/preload/*.cpp))
$(B)/libudnnmem.so: $(call objects,$(wildcard shim/preload/*.cpp)) $(patsubst %,$(B)/lib/lib%.a,$(PRELOAD_LIBS)) interpose/exports.map
	@echo "  link  $@"
	@$(LINK) -shared -o $@ $(call objects,$(wildcard shim/preload/*.cpp)) \
	  -Wl,--whole-archive $(B)/lib/libinterpose.a -Wl,--no-whole-archive \
	  -Wl,--start-group $(patsubst %,$(B)/lib/lib%.a,$(filter-out interpose,$(PRELOAD_LIBS))) -Wl,--end-group \
	  $(if $(SANITISE),,-static-libstdc++ -static-libgcc -Wl,-z,defs) -l:libzstd.a -ldl \
	  -Wl,-Bsymbolic -Wl,--version-script=interpose/exports.map -Wl,-soname,libudnnmem.so
DEFAULT += $(B)/libudnnmem.so
