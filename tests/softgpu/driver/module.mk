# The driver: build/softgpu/libcuda.so.1, and libcuda.so for programs that look for that name.
softgpu_comma := ,
softgpu_wl = $(addprefix -Wl$(softgpu_comma),$(1))
# They name every entry point, without its type.
UNTYPED := tests/softgpu/driver/stubs.cpp tests/softgpu/driver/table.cpp
$(call program,softgpu/libcuda.so.1,$(call together,$(filter-out $(UNTYPED),$(wildcard tests/softgpu/driver/*.cpp))) $(UNTYPED),softgpu_ptx,-shared -static-libstdc++ -static-libgcc \
  $(call softgpu_wl,-soname=libcuda.so.1 -Bsymbolic --exclude-libs=ALL --version-script=tests/softgpu/driver/exports.map $(if $(VARIANT),,-z$(softgpu_comma)defs)) \
  -lpthread -ldl -l:libzstd.a)
$(B)/softgpu/libcuda.so.1: tests/softgpu/driver/exports.map
$(B)/softgpu/libcuda.so: $(B)/softgpu/libcuda.so.1
	@ln -sf libcuda.so.1 $@
DEFAULT += $(B)/softgpu/libcuda.so.1 $(B)/softgpu/libcuda.so
