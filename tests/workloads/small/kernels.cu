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

// Through a table of addresses in device memory: out = sum of the buffers it names.
extern "C" __global__ void gather(const unsigned* const* table, unsigned entries, unsigned* out, unsigned count) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    unsigned s = 0;
    for (unsigned e = 0; e < entries; e++) s += table[e][i];
    out[i] = s;
  }
}

// Arguments inside a struct by value, one of them an interior pointer.
struct Pair {
  unsigned tag;
  const unsigned* from;
  unsigned* to;
  unsigned count;
};
extern "C" __global__ void shift(Pair p) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < p.count; i += gridDim.x * blockDim.x) p.to[i] = p.from[i] * 3 + p.tag;
}

extern "C" __global__ void nothing(float*, float*, float*, float*, float*, float*, float*, float*) {}
