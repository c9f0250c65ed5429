# Our own runtime on the public driver API: shared (with the soname and symbol version of the real one, so that what
# nvcc links finds them) and static.
cudart_comma := ,
CUDART_OBJECTS := $(call objects,$(addprefix tests/softgpu/cudart/,device.cpp driver.cpp graphs.cpp images.cpp memory.cpp ordered.cpp ordered_ptds.cpp streams.cpp))
DEPENDENCIES += $(CUDART_OBJECTS:.o=.d)

$(B)/softgpu/libcudart.so.13: $(CUDART_OBJECTS) tests/softgpu/cudart/cudart.map
	@mkdir -p $(@D)
	@echo "  link  $@"
	@$(LINK) -shared -o $@ -Wl,-soname,libcudart.so.13 -Wl,--version-script=tests/softgpu/cudart/cudart.map $(if $(VARIANT),,-Wl$(cudart_comma)-z$(cudart_comma)defs) \
	  -static-libstdc++ -static-libgcc $(CUDART_OBJECTS) -ldl

$(B)/softgpu/libcudart.so: $(B)/softgpu/libcudart.so.13
	@ln -sf libcudart.so.13 $@

$(B)/softgpu/libcudart_static.a: $(CUDART_OBJECTS)
	@mkdir -p $(@D)
	@rm -f $@
	@$(AR) rcs $@ $^

DEFAULT += $(B)/softgpu/libcudart.so.13 $(B)/softgpu/libcudart.so $(B)/softgpu/libcudart_static.a
