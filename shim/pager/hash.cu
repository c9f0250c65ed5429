// The device side of "nothing is lost": a 128-bit hash of a range of memory, and how many of its words look like
// addresses in the arena. Sums of mixed words, so that blocks may come in any order; 64-bit integer atomics, so that
// the result is exact. Compiled to PTX when the library is built, loaded by the driver when paging starts.
//
// slot: {hash low, hash high, words that look like addresses, blocks done}, zero when a hash begins and again when it has
// ended: the last of its `blocks` blocks, over all launches for it, moves the answer to `answer`, in host memory.
// `words` counts 8-byte words, `first` those before them.

#include "shim/pager/hash_sums.hpp"

using udnnmem::pager::HashSums;

constexpr int kThreads = 256;
constexpr int kSummers = 16;  // of one warp, and few meetings: a block often has but a few words a thread

// `tail`: bytes of one more word, whose others count as zero.
static __device__ void hash_words(const unsigned long long* data, unsigned long long words, unsigned tail, unsigned long long first,
                                  unsigned long long arena_begin, unsigned long long arena_bytes,
                                  unsigned long long* slot, unsigned long long blocks, unsigned long long* answer) {
    __shared__ unsigned long long sums[3][kThreads];
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    const unsigned long long begin = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned long long key_step = step * HashSums::key;
    unsigned long long key = (first + begin) * HashSums::key;
    HashSums mine;
#pragma unroll 4
    for (unsigned long long i = begin; i < words; i += step, key += key_step) mine.add(data[i], key, arena_begin, arena_bytes);
    if (tail && begin == 0) {
        unsigned long long word = 0;
        for (unsigned b = 0; b < tail; ++b) word |= (unsigned long long)((const unsigned char*)(data + words))[b] << (8 * b);
        mine.add(word, (first + words) * HashSums::key, arena_begin, arena_bytes);
    }
    sums[0][threadIdx.x] = mine.low;
    sums[1][threadIdx.x] = mine.high;
    sums[2][threadIdx.x] = mine.addresses;
    __syncthreads();
    if (threadIdx.x >= kSummers) return;
    for (int k = 0; k < 3; ++k)
        for (int t = threadIdx.x + kSummers; t < kThreads; t += kSummers) sums[k][threadIdx.x] += sums[k][t];
    __syncwarp((1u << kSummers) - 1);
    if (threadIdx.x) return;
    for (int k = 0; k < 3; ++k)
        for (int t = 1; t < kSummers; ++t) sums[k][0] += sums[k][t];
    atomicAdd(&slot[0], sums[0][0]);
    atomicAdd(&slot[1], sums[1][0]);
    if (sums[2][0]) atomicAdd(&slot[2], sums[2][0]);
    __threadfence();
    if (atomicAdd(&slot[3], 1ull) + 1 != blocks) return;
    for (int k = 0; k < 3; ++k) answer[k] = atomicExch(&slot[k], 0ull);
    atomicExch(&slot[3], 0ull);
}

extern "C" __global__ void udnnmem_hash(const unsigned long long* data, unsigned long long words, unsigned long long first,
                                        unsigned long long arena_begin, unsigned long long arena_bytes,
                                        unsigned long long* slot, unsigned long long blocks, unsigned long long* answer) {
    hash_words(data, words, 0, first, arena_begin, arena_bytes, slot, blocks, answer);
}

// Of `bytes` bytes and none beyond: what lies behind an allocation's end is nobody's.
extern "C" __global__ void udnnmem_hash_bytes(const unsigned long long* data, unsigned long long bytes,
                                              unsigned long long arena_begin, unsigned long long arena_bytes,
                                              unsigned long long* slot, unsigned long long blocks, unsigned long long* answer) {
    hash_words(data, bytes / 8, (unsigned)(bytes % 8), 0, arena_begin, arena_bytes, slot, blocks, answer);
}

// Stops the context for good unless `answer` (of a hash that came before in the stream) is what is expected: nobody reads
// what was computed wrongly. `report`, in host memory, then says which buffer it was.
extern "C" __global__ void udnnmem_expect(const volatile unsigned long long* answer, unsigned long long low, unsigned long long high,
                                          volatile unsigned long long* report, unsigned long long which) {
    if (answer[0] == low && answer[1] == high) return;
    *report = which;
    __threadfence_system();
    __trap();
}

struct Range {
    const unsigned long long* data;
    unsigned long long words;
    unsigned long long place;  // where the range itself stands in the arena
};

// Writes where the arena addresses that ranges hold stand and what they are, as pairs, to `out` (at most `most` pairs), their
// number to *count. Everything but the data lies in host memory: there is next to nothing to write.
extern "C" __global__ void udnnmem_find_addresses(const Range* ranges, unsigned long long arena_begin, unsigned long long arena_bytes,
                                                  unsigned long long* out, unsigned long long most, unsigned long long* count) {
    const Range range = ranges[blockIdx.y];
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < range.words; i += step) {
        const unsigned long long word = range.data[i];
        if (word - arena_begin >= arena_bytes) continue;
        const unsigned long long at = atomicAdd(count, 1ull);
        if (at >= most) continue;
        out[2 * at] = range.place + 8 * i;
        out[2 * at + 1] = word;
    }
}
