# interpose: the doors. Whoever links it into a shared library adds INTERPOSE_LDFLAGS and the map as a prerequisite.
INTERPOSE_SOURCES := $(wildcard interpose/*.cpp)
$(call library,interpose,$(INTERPOSE_SOURCES))
# dlsym is called before a sanitiser's runtime has started, by that runtime: what it runs is not instrumented.
$(call objects,$(addprefix interpose/,doors.cpp deep_binding.cpp driver.cpp entry_points.cpp loading.cpp)): SANITISE :=

# What a library that holds interpose exports: the driver's names that have a hook, unversioned as the driver's own are,
# and the loader's functions that it stands before, in each version that glibc gives them: another preload finds the
# next dlsym by dlvsym, which knows none without a version. The hooks (of the driver and of NCCL) are in no node: visibility
# alone exports them.
INTERPOSE_EXPORTS := $(B)/interpose/exports.map
OLD_GLIBC := $(if $(filter aarch64%,$(shell $(CC) -dumpmachine)),GLIBC_2.17,GLIBC_2.2.5)
$(INTERPOSE_EXPORTS): interpose/module.mk
	@mkdir -p $(@D)
	@echo '$(OLD_GLIBC) { }; GLIBC_2.34 { global: dlsym; dlopen; InitializeInjectionNvtx2; local: _*; [!cn]*; c[!u]*; cu[!A-Zbd]*; n[!c]*; nc[!c]*; ncc[!l]*; nccl[!A-Z]*; } $(OLD_GLIBC);' > $@
# The same without the driver's names, for programs linked with a library whose own data has them (loading.cpp).
INTERPOSE_HIDDEN_EXPORTS := $(B)/interpose/hidden-exports.map
$(INTERPOSE_HIDDEN_EXPORTS): interpose/module.mk
	@mkdir -p $(@D)
	@echo '$(OLD_GLIBC) { }; GLIBC_2.34 { global: dlsym; dlopen; InitializeInjectionNvtx2; local: _*; [!n]*; n[!c]*; nc[!c]*; ncc[!l]*; nccl[!A-Z]*; } $(OLD_GLIBC);' > $@
INTERPOSE_LDFLAGS = -Wl,--version-script=$(INTERPOSE_EXPORTS) $(INTERPOSE_LINK)
INTERPOSE_LINK = -Wl,-u,udnnmem_dlsym -Wl,-u,udnnmem_dlopen -Wl,-Bsymbolic -Wl,-z,defs -l:libzstd.a -static-libstdc++ -static-libgcc -ldl
