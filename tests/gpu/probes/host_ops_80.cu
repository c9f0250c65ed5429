// Asynchronous copies to shared memory, 16 bytes a thread; 256 threads a block. sm_80 and later.
extern "C" __global__ void copy_async(const uint4* in, uint4* out, unsigned long long count) {
    __shared__ uint4 part[256];
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(part + threadIdx.x));
    for (unsigned long long i = blockIdx.x * 256ull + threadIdx.x; i < count; i += gridDim.x * 256ull) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\ncp.async.wait_all;" ::"r"(at), "l"(in + i) : "memory");
        out[i] = part[threadIdx.x];
    }
}
