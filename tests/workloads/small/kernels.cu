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

__global__ void blend(const unsigned* a, const unsigned* b, unsigned* out, unsigned count, unsigned salt) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) out[i] = a[i] * 3 + b[i] + salt;
}

// Of the first 4096 words; given nothing but addresses.
__global__ void stir(unsigned* a, const unsigned* b) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 4096) a[i] = a[i] * 3 + b[i];
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

// Arguments inside a struct by value, one of them an interior pointer; the last is what lay there before.
struct Pair {
  unsigned tag;
  const unsigned* from;
  unsigned* to;
  unsigned count;
  unsigned* stray;
};
extern "C" __global__ void shift(Pair p) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < p.count; i += gridDim.x * blockDim.x) p.to[i] = p.from[i] * 3 + p.tag;
}

extern "C" __global__ void nothing(float*, float*, float*, float*, float*, float*, float*, float*) {}

// One op of a played trace: every 64th word of what it writes becomes a function of its other words, of what it reads and
// of `salt`; the words between follow from that one, unless the buffer is also read. `ns` is for the table of modelled time.
struct AccessSet {
  unsigned reads, writes;                 // the reads come first; a buffer may be in both
  unsigned* address[320];
  unsigned words[320];
};
extern "C" __global__ void play(unsigned long long ns, unsigned salt, AccessSet set) {
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  for (unsigned w = set.reads; w < set.reads + set.writes; w++)
    for (unsigned i = thread * 64; i < set.words[w]; i += threads * 64) {
      unsigned v = salt * 2654435761u + i;
      bool in_place = false;
      for (unsigned r = 0; r < set.reads; r++) {
        in_place |= set.address[r] == set.address[w];
        // A buffer that is also written is read at its own place only: other threads write the others.
        const bool own = set.address[r] == set.address[w];
        bool written = false;
        for (unsigned o = set.reads; o < set.reads + set.writes; o++) written |= set.address[o] == set.address[r];
        if (written && !own) continue;
        v = (v ^ set.address[r][own ? i : i % set.words[r] / 64 * 64]) * 2246822519u;
        v ^= v >> 13;
      }
      set.address[w][i] = v;
      for (unsigned j = i + 1; !in_place && j < i + 64 && j < set.words[w]; j++) set.address[w][j] = v + j;
    }
}
