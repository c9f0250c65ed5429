# The hash kernels travel as PTX text. Version and target are lowered, so that a 12.4 driver takes it, and for the oldest cards that
# those serve with virtual memory management on Linux (Pascal): they use nothing newer.
$(B)/gen/shim/pager/hash_ptx.hpp: shim/pager/hash.cu shim/pager/hash_sums.hpp shim/pager/module.mk $(BUILD)/config.mk
	@mkdir -p $(@D)
	@echo "  ptx   $<"
	@$(NVCC) -ptx -arch=compute_75 -std=c++17 -I. -O3 -o $(@:.hpp=.ptx) $<
	@{ echo '#pragma once'; echo 'namespace udnnmem::pager {'; echo 'inline constexpr char kHashPtx[] = R"PTX('; \
	   sed -e 's/^\.version .*/.version 7.0/' -e 's/^\.target .*/.target sm_60/' -e '/^\/\//d' $(@:.hpp=.ptx); echo ')PTX";'; echo '}'; } > $@
PAGER_SOURCES := $(call together,$(wildcard shim/pager/*.cpp))
$(call objects,$(PAGER_SOURCES)): $(B)/gen/shim/pager/hash_ptx.hpp
FLAGS_shim_pager_ := -I$(B)/gen
$(call library,pager,$(PAGER_SOURCES))
