// What the hash of hash.cu is made of: two sums over the words of a range, each mixed with its place. In a header of its own so that
// its quality can be tested where there is no device.
#pragma once

#ifdef __CUDACC__
#define UDNNMEM_ON_DEVICE __host__ __device__
#else
#define UDNNMEM_ON_DEVICE
#endif

namespace udnnmem::pager {

struct HashSums {
    using Word = unsigned long long;
    static constexpr Word key = 0x9e3779b97f4a7c15ull;   // times a word's place

    Word low = 0, high = 0;
    Word addresses = 0;   // words that look like addresses in the arena

    // A bijection of (word + its key) goes into each sum, so that a change of one word changes both. Multiplied twice, the first
    // time for both sums. The first fold is not by 32: the signs of two floats would meet in one bit and cancel.
    UDNNMEM_ON_DEVICE void add(Word word, Word place_times_key, Word arena_begin, Word arena_bytes) {
        const Word keyed = word + place_times_key;
        const Word once = folded((keyed ^ keyed >> 29) * 0xd6e8feb86659fd93ull);
        low += folded(once * 0xd6e8feb86659fd93ull);
        high += folded(once * 0xa0761d6478bd642full);
        addresses += word - arena_begin < arena_bytes;
    }

  private:
    // By 32 costs nothing where registers have 32 bits.
    UDNNMEM_ON_DEVICE static Word folded(Word x) { return x ^ x >> 32; }
};

}  // namespace udnnmem::pager

#undef UDNNMEM_ON_DEVICE
