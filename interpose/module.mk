# interpose: the doors. Whoever links it into a shared library adds INTERPOSE_LDFLAGS and the map as a prerequisite.
INTERPOSE_SOURCES := $(wildcard interpose/*.cpp)
$(call library,interpose,$(INTERPOSE_SOURCES))
# dlsym is called before a sanitiser's runtime has started, by that runtime: what it runs is not instrumented.
$(call objects,$(addprefix interpose/,doors.cpp driver.cpp entry_points.cpp loading.cpp)): SANITISE :=

# What a library that holds interpose exports: the loader's functions that it stands before, and the driver's names
# that have a hook.
INTERPOSE_EXPORTS := $(B)/interpose/exports.map
$(INTERPOSE_EXPORTS): interpose/entry_points.def interpose/module.mk
	@mkdir -p $(@D)
	@{ echo '{ global: dlsym; dlopen;'; \
	   sed -nE 's/^ENTRY\(([A-Za-z0-9_]+), .*, (manage|observe|refuse), [a-z]+\)$$/  \1;/p' $<; \
	   echo 'local: *; };'; } > $@
INTERPOSE_LDFLAGS = -Wl,--version-script=$(INTERPOSE_EXPORTS) -Wl,-u,dlsym -Wl,-u,dlopen -Wl,-Bsymbolic -Wl,-z,defs -l:libzstd.a -static-libstdc++ -static-libgcc -ldl
