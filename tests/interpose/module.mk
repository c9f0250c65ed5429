# Tests of the doors: a driver that only notes calls, a preload that only counts what it is told, and programs that
# are run under it.
FAKE_DRIVER := $(B)/tests/interpose/libcuda.so.1
$(FAKE_DRIVER): $(call objects,tests/interpose/fake_driver.c)
	@mkdir -p $(@D)
	@echo "  link  $@"
	@$(CC) $(SANITISE) -shared -o $@ $< -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic
	@ln -sf libcuda.so.1 $(@D)/libcuda.so
DEPENDENCIES += $(patsubst %.o,%.d,$(call objects,tests/interpose/fake_driver.c))

DOORS_PROBE := $(B)/tests/interpose/libprobe.so
$(call program,tests/interpose/libprobe.so,tests/interpose/probe.cpp,interpose,-shared $$(subst $$(INTERPOSE_EXPORTS),$$(B)/tests/interpose/probe.map,$$(INTERPOSE_LDFLAGS)))
$(DOORS_PROBE): $(B)/tests/interpose/probe.map
$(B)/tests/interpose/probe.map: $(INTERPOSE_EXPORTS)
	@mkdir -p $(@D)
	@sed 's/global:/global: probe_state; probe_install;/' $< > $@
