// 128-bit exchanges, and bulk copies by the tensor memory accelerator, 4 KiB each. sm_90 and later.
extern "C" __global__ void exchange_128(uint4* p, unsigned words, unsigned rounds) {
    for (unsigned r = 0; r < rounds; ++r)
        for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) {
            const unsigned long long low = r + 1, high = i;
            asm volatile("{\n.reg .b128 mine, old;\nmov.b128 mine, {%1, %2};\natom.global.exch.b128 old, [%0], mine;\n}" ::"l"(p + i), "l"(low), "l"(high) : "memory");
        }
}

extern "C" __global__ void copy_bulk(const uint4* in, uint4* out, unsigned long long count) {
    __shared__ alignas(128) uint4 part[256];
    __shared__ alignas(8) unsigned long long barrier;
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(part)), done = static_cast<unsigned>(__cvta_generic_to_shared(&barrier));
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::"r"(done) : "memory");
    __syncthreads();
    unsigned phase = 0;
    for (unsigned long long i = blockIdx.x * 256ull; i + 256 <= count; i += gridDim.x * 256ull, phase ^= 1) {
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 4096;" ::"r"(done) : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 4096, [%2];" ::"r"(to), "l"(in + i), "r"(done) : "memory");
        }
        unsigned over = 0;
        while (!over) asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(over) : "r"(done), "r"(phase) : "memory");
        out[i + threadIdx.x] = part[threadIdx.x];
        __syncthreads();
    }
}
