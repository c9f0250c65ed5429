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

# Driver programs of these tests link the fake driver, found beside them.
LINK_FAKE_DRIVER = -L$(B)/tests/interpose -l:libcuda.so.1 -Wl,-rpath,'$$ORIGIN/interpose' -ldl
$(call unit_test,doors,tests/interpose/doors_test.cpp,,$$(LINK_FAKE_DRIVER))
$(B)/tests/unit-doors: $(FAKE_DRIVER) $(DOORS_PROBE)

# Small libraries and programs that do what others do with the loader.
DOORS_LIBRARY = $(CC) $(SANITISE) $(CFLAGS) -shared -o $@ $<
DOORS_SMALL := $(patsubst %,$(B)/tests/interpose/%,libnext_a.so libnext_b.so libouter.so sub/libdoor_inner.so libdata_names.so libneeds_data_names.so libdeep.so libdeep_sealed.so libdeep_own.so)
$(B)/tests/interpose/libnext_a.so: tests/interpose/next_a.c
	@mkdir -p $(@D) && $(DOORS_LIBRARY) -ldl
$(B)/tests/interpose/libnext_b.so: tests/interpose/next_b.c
	@mkdir -p $(@D) && $(DOORS_LIBRARY)
$(B)/tests/interpose/sub/libdoor_inner.so: tests/interpose/next_b.c
	@mkdir -p $(@D) && $(DOORS_LIBRARY) -DOTHER
$(B)/tests/interpose/libouter.so: tests/interpose/outer.c
	@mkdir -p $(@D) && $(DOORS_LIBRARY) -Wl,-rpath,'$$ORIGIN/sub' -ldl
$(B)/tests/interpose/libdata_names.so: tests/interpose/data_names.c
	@mkdir -p $(@D) && $(DOORS_LIBRARY)
$(B)/tests/interpose/libneeds_data_names.so: tests/interpose/needs_data_names.c $(B)/tests/interpose/libdata_names.so
	@mkdir -p $(@D) && $(DOORS_LIBRARY) -L$(@D) -ldata_names -Wl,-rpath,'$$ORIGIN'
# Bound as they are called, all bound at the start and then protected, with a dlsym of its own.
$(B)/tests/interpose/libdeep.so: tests/interpose/deep.c
	@mkdir -p $(@D) && $(DOORS_LIBRARY) -Wl,-z,lazy -ldl
$(B)/tests/interpose/libdeep_sealed.so: tests/interpose/deep.c
	@mkdir -p $(@D) && $(DOORS_LIBRARY) -Wl,-z,now -Wl,-z,relro -ldl
$(B)/tests/interpose/libdeep_own.so: tests/interpose/deep.c
	@mkdir -p $(@D) && $(DOORS_LIBRARY) -DOWN_DLSYM -ldl
$(B)/tests/interpose/door_program: tests/interpose/door_program.c $(DOORS_SMALL)
	@mkdir -p $(@D) && $(CC) $(SANITISE) $(CFLAGS) -o $@ $< -L$(@D) -Wl,--no-as-needed -lnext_a -lnext_b -louter -Wl,-rpath,'$$ORIGIN' -ldl

# The toolkit's runtime, where it has one.
CUDART_SHARED := $(firstword $(wildcard $(CUDA_HOME)/lib64/libcudart.so.13 $(CUDA_HOME)/lib/libcudart.so.13))
CUDART_STATIC := $(firstword $(wildcard $(CUDA_HOME)/lib64/libcudart_static.a $(CUDA_HOME)/lib/libcudart_static.a))
DOORS_RUNTIME := $(if $(CUDART_SHARED),$(B)/tests/interpose/runtime_shared) $(if $(CUDART_STATIC),$(B)/tests/interpose/runtime_static)
$(B)/tests/interpose/runtime_shared: tests/interpose/runtime_program.c
	@mkdir -p $(@D) && $(CC) -o $@ $< $(CUDART_SHARED) -Wl,-rpath,$(dir $(CUDART_SHARED))
$(B)/tests/interpose/runtime_static: tests/interpose/runtime_program.c
	@mkdir -p $(@D) && $(CC) -o $@ $< $(CUDART_STATIC) -ldl -lrt -lpthread

TEST_SUITES += tests/interpose/doors_suite.py
TEST_NEEDS += $(FAKE_DRIVER) $(DOORS_PROBE) $(B)/tests/interpose/door_program $(DOORS_RUNTIME)

# Every form of image that the toolkit's compiler writes. The LZ4 one is packed by the test's own script: compilers
# of earlier toolkits wrote it.
DOORS_IMAGES := $(addprefix $(B)/tests/interpose/images.,cubin ptx plain.fatbin packed.fatbin lz4.fatbin)
$(B)/tests/interpose/images.cubin: tests/interpose/images.cu
	@mkdir -p $(@D) && $(NVCC) -std=c++17 -arch=sm_75 -cubin -o $@ $<
$(B)/tests/interpose/images.ptx: tests/interpose/images.cu
	@mkdir -p $(@D) && $(NVCC) -std=c++17 -arch=compute_75 -ptx -o $@ $<
$(B)/tests/interpose/images.plain.fatbin: tests/interpose/images.cu
	@mkdir -p $(@D) && $(NVCC) -std=c++17 -arch=sm_75 --compress-mode=none -fatbin -o $@ $<
$(B)/tests/interpose/images.packed.fatbin: tests/interpose/images.cu
	@mkdir -p $(@D) && $(NVCC) -std=c++17 -arch=sm_75 --compress-mode=size -fatbin -o $@ $<
$(B)/tests/interpose/images.lz4.fatbin: $(B)/tests/interpose/images.plain.fatbin tests/interpose/pack_lz4.py
	@$(PYTHON) tests/interpose/pack_lz4.py $< $@
$(call unit_test,images,tests/interpose/images_test.cpp tests/interpose/kernel_code_test.cpp,interpose,-l:libzstd.a -ldl)
$(B)/tests/unit-images: $(DOORS_IMAGES)

# What is seen in machine code that the toolkit's assembler makes.
$(call program,tests/interpose/code_of,tests/interpose/code_of.cpp,interpose,-l:libzstd.a -ldl)
TEST_SUITES += tests/interpose/machine_code_suite.py
TEST_NEEDS += $(B)/tests/interpose/code_of

# Tests that play the driver from within. The one behind them is there from the start: a sanitiser's dlopen does not search the
# program's own path.
LINK_SCRIPTED = -Wl,--push-state,--no-as-needed -L$(B)/tests/interpose -l:libcuda.so.1 -Wl,--pop-state -l:libzstd.a -ldl -Wl,-rpath,'$$ORIGIN/interpose' -Wl,-rpath,'$$ORIGIN/../tests/interpose'
$(call unit_test,graphs,tests/interpose/graphs_test.cpp,interpose,$$(LINK_SCRIPTED))
$(call unit_test,launches,tests/interpose/launches_test.cpp,interpose,$$(LINK_SCRIPTED))
$(B)/tests/unit-graphs $(B)/tests/unit-launches: $(FAKE_DRIVER)

# What the doors cost, for `make bench`.
$(call program,bench/door_bench,tests/bench/door_bench.cpp,interpose,$$(LINK_SCRIPTED))
$(B)/bench/door_bench: $(FAKE_DRIVER)
BENCHES += $(B)/bench/door_bench

# Graphs on the software GPU.
ifneq ($(wildcard tests/softgpu/driver/module.mk),)
$(call program,tests/interpose/graph_program,tests/interpose/graph_program.cpp tests/workloads/small/ptx.cpp,,-L$$(B)/softgpu -lcuda)
$(B)/tests/interpose/graph_program: | $(B)/softgpu/libcuda.so
TEST_SUITES += tests/interpose/graphs_suite.py
TEST_NEEDS += $(B)/tests/interpose/graph_program
endif
