# The driver: build/softgpu/libcuda.so.1, and libcuda.so for programs that look for that name. Where the
# translator is not in the tree, a driver that refuses every image is built.
softgpu_comma := ,
softgpu_wl = $(addprefix -Wl$(softgpu_comma),$(1))
softgpu_translator := $(if $(wildcard tests/softgpu/ptx/module.mk),softgpu_ptx)
softgpu_driver := $(filter-out $(if $(softgpu_translator),%/no_translator.cpp),$(wildcard tests/softgpu/driver/*.cpp))
$(call program,softgpu/libcuda.so.1,$(softgpu_driver),$(softgpu_translator),-shared -static-libstdc++ -static-libgcc \
  $(call softgpu_wl,-soname=libcuda.so.1 -Bsymbolic --exclude-libs=ALL --version-script=tests/softgpu/driver/exports.map $(if $(VARIANT),,-z$(softgpu_comma)defs)) \
  -lpthread -ldl -l:libzstd.a)
$(B)/softgpu/libcuda.so.1: tests/softgpu/driver/exports.map
$(B)/softgpu/libcuda.so: $(B)/softgpu/libcuda.so.1
	@ln -sf libcuda.so.1 $@
DEFAULT += $(B)/softgpu/libcuda.so.1 $(B)/softgpu/libcuda.so
