// Device code of the small workloads, embedded as PTX by the driver-API ones.
extern "C" {

__global__ void fill(unsigned* out, unsigned seed, unsigned count) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    unsigned v = i * 2654435761u + seed;
    v ^= v >> 15;
    out[i] = v * 2246822519u;
  }
}

__global__ void add(const unsigned* a, const unsigned* b, unsigned* out, unsigned count) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) out[i] = a[i] + b[i];
}

// Sum over all words modulo 2^32: integer atomics, so that the order does not matter.
__global__ void sum(const unsigned* in, unsigned* total, unsigned count) {
  unsigned s = 0;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) s += in[i];
  atomicAdd(total, s);
}

}
