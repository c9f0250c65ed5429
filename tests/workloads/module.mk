# What the workloads share. Device code is compiled by nvcc to PTX only, so that the software GPU executes the code that
# a card would be given; host code by the same compiler as everything else. Programs find libcudart.so.13 and
# libcuda.so.1 by LD_LIBRARY_PATH: build/softgpu puts them on the software GPU.
NVCC_FLAGS := -std=c++17 -O3 -Xcompiler -fPIC,-fvisibility=hidden -cudart none -I$(ROOT)
PTX_ARCH := -gencode arch=compute_75,code=compute_75
WORKLOAD_CPPFLAGS := -I$(ROOT) -isystem $(CUDA_INCLUDE)
WORKLOAD_CXXFLAGS := -std=c++20 $(OPTIMISE) -g -pthread -Wall -Wextra $(SANITISE)

$(B)/obj/%.cu.o: %.cu
	@mkdir -p $(@D)
	@echo "  nvcc  $<"
	@$(NVCC) $(NVCC_FLAGS) $(PTX_ARCH) -MD -MF $(@:.o=.d) -MT $@ -c -o $@ $<

$(B)/obj/%.ptx: %.cu tests/workloads/module.mk
	@mkdir -p $(@D)
	@echo "  nvcc  $< (PTX)"
	@$(NVCC) $(NVCC_FLAGS) -arch compute_75 -ptx -o $@ $<
	@sed -i 's/^\.target .*/.target sm_60/' $@   # they use nothing newer, and run on older cards too
