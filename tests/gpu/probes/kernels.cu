// The kernels that the probes embed as PTX text (ptx.cpp).
#include <cstdint>
typedef unsigned long long u64;
#ifndef SIM_KERNEL_SIDE
struct __align__(16) Pair { u64 a, b; };
__device__ inline u64 gridStart() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline u64 gridStep() { return (u64)gridDim.x * blockDim.x; }
__device__ inline u64 nowNs() { u64 t; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)); return t; }
__device__ inline u64 warpSum(u64 v) { for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d); return v; }
__device__ inline bool warpLeader() { return (threadIdx.x & 31) == 0; }
#endif

// Bijective in v for a fixed key, so that a change of one word always changes the sum it goes into.
__device__ inline u64 mix(u64 v, u64 key) {
  v ^= key;
  v *= 0xff51afd7ed558ccdull;
  v ^= v >> 32;
  return v * 0xc4ceb9fe1a85ec53ull;
}

__device__ inline u64 patternWord(u64 i, u64 seed) { return mix(i, seed * 0x9e3779b97f4a7c15ull + 1); }

extern "C" __global__ void probe_fill(u64* p, u64 words, u64 seed) {
  for (u64 i = gridStart(); i < words; i += gridStep()) p[i] = patternWord(i, seed);
}

// Counts the words that are not what probe_fill wrote.
extern "C" __global__ void probe_verify(const u64* p, u64 words, u64 seed, u64* wrong) {
  u64 bad = 0;
  for (u64 i = gridStart(); i < words; i += gridStep()) bad += p[i] != patternWord(i, seed);
  if (bad) atomicAdd(wrong, bad);
}

// Keeps one thread busy for a wall time. `started` (host-mapped) tells the host that the kernel is on the device.
extern "C" __global__ void probe_spin(u64 ns, volatile unsigned* started, unsigned value) {
  u64 begin = nowNs();
  *started = value;
  __threadfence_system();
  while (nowNs() - begin < ns) {}
}

extern "C" __global__ void probe_copy(Pair* to, const Pair* from, u64 pairs) {
#pragma unroll 4
  for (u64 i = gridStart(); i < pairs; i += gridStep()) to[i] = from[i];
}

extern "C" __global__ void probe_read(const Pair* p, u64 pairs, u64* out) {
  u64 sum = 0;
#pragma unroll 4
  for (u64 i = gridStart(); i < pairs; i += gridStep()) { Pair v = p[i]; sum += v.a ^ v.b; }
  if (sum == 0x5eed5eed5eed5eedull) *out = sum;   // practically never: it only keeps the loads alive
}

extern "C" __global__ void probe_write(Pair* p, u64 pairs, u64 value) {
  for (u64 i = gridStart(); i < pairs; i += gridStep()) p[i] = Pair{value + i, value - i};
}

extern "C" __global__ void probe_flip(u64* p, u64 word, u64 mask) {
  if (gridStart() == 0) p[word] ^= mask;
}

// 128-bit content hashes: sums of terms that depend on word and position, so blocks may add them in any order.
// "mix" is the strong one (three 64-bit multiplies a word), "nh" the cheap one (two 32x32 multiplies a word, as in UMAC).
extern "C" __global__ void probe_hash_mix(const Pair* p, u64 pairs, u64* out) {
  u64 h0 = 0, h1 = 0;
#pragma unroll 4
  for (u64 i = gridStart(); i < pairs; i += gridStep()) {
    Pair v = p[i];
    u64 key = (i + 1) * 0x9e3779b97f4a7c15ull;
    u64 x = mix(v.a, key), y = mix(v.b, ~key);
    x ^= x >> 29; y ^= y >> 31;
    h0 += x + y;
    x *= 0xbf58476d1ce4e5b9ull; y *= 0x94d049bb133111ebull;
    h1 += (x ^ (x >> 32)) + (y ^ (y >> 32));
  }
  h0 = warpSum(h0); h1 = warpSum(h1);
  if (warpLeader()) { atomicAdd(out, h0); atomicAdd(out + 1, h1); }
}

__device__ inline u64 nhTerm(u64 v, u64 key) {
  return (u64)(uint32_t)((uint32_t)v + (uint32_t)key) * (uint32_t)((uint32_t)(v >> 32) + (uint32_t)(key >> 32));
}

extern "C" __global__ void probe_hash_nh(const Pair* p, u64 pairs, u64* out) {
  u64 h0 = 0, h1 = 0;
#pragma unroll 4
  for (u64 i = gridStart(); i < pairs; i += gridStep()) {
    Pair v = p[i];
    u64 k = (i + 1) * 0x9e3779b97f4a7c15ull, l = (i + 1) * 0xd1b54a32d192ed03ull;
    h0 += nhTerm(v.a, k) + nhTerm(v.b, l);
    h1 += nhTerm(v.a, ~l) + nhTerm(v.b, k ^ 0xa5a5a5a55a5a5a5aull);
  }
  h0 = warpSum(h0); h1 = warpSum(h1);
  if (warpLeader()) { atomicAdd(out, h0); atomicAdd(out + 1, h1); }
}
