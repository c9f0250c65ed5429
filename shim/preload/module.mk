# build/libudnnmem.so: everything in one object that depends on libc alone; libudnnmem-hidden.so is the same without the
# driver's names among its exports.
PRELOAD_SOURCES := $(call together,$(wildcard shim/preload/*.cpp))
PRELOAD_OBJECTS := $(call objects,$(PRELOAD_SOURCES))
PRELOAD_NEEDS := interpose executor replay frameworks ipc policy pager recorder cupti_activity math_calls nvtx options host live_publisher log trace_writer trace fmt
PRELOAD_LIBRARIES := $(patsubst %,$(B)/lib/lib%.a,$(PRELOAD_NEEDS))
$(call library,preload,$(PRELOAD_SOURCES))
define preload_rule
$(B)/$(1): $(PRELOAD_OBJECTS) $(PRELOAD_LIBRARIES) $(2)
	@echo "  link  $$@"
	@$$(LINK) -shared -o $$@ $(PRELOAD_OBJECTS) -Wl,--start-group $(PRELOAD_LIBRARIES) -Wl,--end-group -l:libzstd.a \
	  -Wl,--version-script=$(2) $$(INTERPOSE_LINK) $$(SHIPPED) -Wl,-soname,$(1)
DEFAULT += $(B)/$(1)
endef
PRELOAD_EXPORTS := $(B)/preload/exports.map
$(PRELOAD_EXPORTS): $(INTERPOSE_EXPORTS) profiler/math/module.mk shim/preload/module.mk
	@mkdir -p $(@D)
	@(cat $< && printf '%s { };\n' $(MATH_VERSIONS)) > $@
PRELOAD_HIDDEN_EXPORTS := $(B)/preload/hidden-exports.map
$(PRELOAD_HIDDEN_EXPORTS): $(INTERPOSE_HIDDEN_EXPORTS) profiler/math/module.mk shim/preload/module.mk
	@mkdir -p $(@D)
	@(cat $< && printf '%s { local: cu*; };\n' $(MATH_VERSIONS)) > $@
$(eval $(call preload_rule,libudnnmem.so,$(PRELOAD_EXPORTS)))
$(eval $(call preload_rule,libudnnmem-hidden.so,$(PRELOAD_HIDDEN_EXPORTS)))
