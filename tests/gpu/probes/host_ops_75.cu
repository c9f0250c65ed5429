// Atomics of every width that frameworks use, on whatever memory they are given. Each word gets `rounds` times 1.
#include <cuda_fp16.h>

extern "C" __global__ void add_half2(__half2* p, unsigned words, unsigned rounds) {
    for (unsigned r = 0; r < rounds; ++r)
        for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) atomicAdd(p + i, __floats2half2_rn(1.f, 1.f));
}
extern "C" __global__ void add_float(float* p, unsigned words, unsigned rounds) {
    for (unsigned r = 0; r < rounds; ++r)
        for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) atomicAdd(p + i, 1.f);
}
// All threads on few words: the atomics of different multiprocessors must see each other.
extern "C" __global__ void add_float_contended(float* p, unsigned words, unsigned rounds) {
    for (unsigned r = 0; r < rounds; ++r) atomicAdd(p + threadIdx.x % words, 1.f);
}
extern "C" __global__ void add_long(unsigned long long* p, unsigned words, unsigned rounds) {
    for (unsigned r = 0; r < rounds; ++r)
        for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) atomicAdd(p + i, 1ull);
}
extern "C" __global__ void cas_long(unsigned long long* p, unsigned words, unsigned rounds) {
    for (unsigned r = 0; r < rounds; ++r)
        for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) {
            unsigned long long seen = p[i], old;
            do old = seen, seen = atomicCAS(p + i, old, old + 1);
            while (seen != old);
        }
}
