# build/libudnnmem.so: everything in one object that depends on libc alone.
PRELOAD_OBJECTS := $(call objects,$(wildcard shim/preload/*.cpp))
PRELOAD_LIBRARIES := $(patsubst %,$(B)/lib/lib%.a,interpose executor policy pager recorder options host log trace_writer trace)
$(call library,preload,$(wildcard shim/preload/*.cpp))
$(B)/libudnnmem.so: $(PRELOAD_OBJECTS) $(PRELOAD_LIBRARIES) $(INTERPOSE_EXPORTS)
	@echo "  link  $@"
	@$(LINK) -shared -o $@ $(PRELOAD_OBJECTS) -Wl,--start-group $(PRELOAD_LIBRARIES) -Wl,--end-group -l:libzstd.a \
	  $(INTERPOSE_LDFLAGS) -Wl,-soname,libudnnmem.so
DEFAULT += $(B)/libudnnmem.so
