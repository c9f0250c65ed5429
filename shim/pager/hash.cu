// The device side of "nothing is lost": a 128-bit hash of a range of memory, and how many of its words look like
// addresses in the arena. Sums of mixed words, so that blocks may come in any order; 64-bit integer atomics, so that
// the result is exact. Compiled to PTX when the library is built, loaded by the driver when paging starts.
//
// result: {hash low, hash high, words that look like addresses}. The caller zeroes it. `words` counts 8-byte words.

__device__ static unsigned long long mix(unsigned long long x) {
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    x ^= x >> 32;
    return x;
}

extern "C" __global__ void udnnmem_hash(const unsigned long long* data, unsigned long long words, unsigned long long first,
                                        unsigned long long arena_begin, unsigned long long arena_bytes,
                                        unsigned long long* result) {
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long low = 0, high = 0, addresses = 0;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) {
        const unsigned long long word = data[i];
        const unsigned long long key = (first + i) * 0x9e3779b97f4a7c15ull;
        low += mix(word + key);
        high += mix((word ^ 0xa0761d6478bd642full) + 3 * key) ^ key;
        addresses += word - arena_begin < arena_bytes;
    }
    atomicAdd(&result[0], low);
    atomicAdd(&result[1], high);
    if (addresses) atomicAdd(&result[2], addresses);
}

// Writes where the arena addresses that a range holds stand (`place` is where the range itself stands in the arena) and
// what they are, as pairs, to `out` (at most `most` pairs), their number to *count.
extern "C" __global__ void udnnmem_find_addresses(const unsigned long long* data, unsigned long long words,
                                                  unsigned long long place, unsigned long long arena_begin,
                                                  unsigned long long arena_bytes, unsigned long long* out,
                                                  unsigned long long most, unsigned long long* count) {
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) {
        const unsigned long long word = data[i];
        if (word - arena_begin >= arena_bytes) continue;
        const unsigned long long at = atomicAdd(count, 1ull);
        if (at >= most) continue;
        out[2 * at] = place + 8 * i;
        out[2 * at + 1] = word;
    }
}
