# build/libudnnmem.so: everything in one object that depends on libc alone; libudnnmem-hidden.so is the same without the
# driver's names among its exports.
PRELOAD_OBJECTS := $(call objects,$(wildcard shim/preload/*.cpp))
PRELOAD_LIBRARIES := $(patsubst %,$(B)/lib/lib%.a,interpose executor replay frameworks ipc policy pager recorder cupti_activity math_calls nvtx options host live_publisher log trace_writer trace)
$(call library,preload,$(wildcard shim/preload/*.cpp))
define preload_rule
$(B)/$(1): $(PRELOAD_OBJECTS) $(PRELOAD_LIBRARIES) $(2)
	@echo "  link  $$@"
	@$$(LINK) -shared -o $$@ $(PRELOAD_OBJECTS) -Wl,--start-group $(PRELOAD_LIBRARIES) -Wl,--end-group -l:libzstd.a \
	  -Wl,--version-script=$(2) $$(INTERPOSE_LINK) $$(OLDER_GLIBC) -Wl,-soname,$(1)
DEFAULT += $(B)/$(1)
endef
$(eval $(call preload_rule,libudnnmem.so,$(INTERPOSE_EXPORTS)))
$(eval $(call preload_rule,libudnnmem-hidden.so,$(INTERPOSE_HIDDEN_EXPORTS)))
