#include "interpose/internal.hpp"

#include "interpose/machine_code.hpp"

#include <elf.h>

#include <cstdint>
#include <cstring>

#include "interpose/hazards.hpp"

namespace udnnmem::interpose {
namespace {

// What decides besides the instruction itself, in its second word.
enum class Asks {
    nothing,
    number,      // an atomic operation: on integers or on floating-point numbers
    reduces,     // a bulk reduction: on 32-bit integers or on others
    source,      // a read of a special register: which
    scope,       // a load: whether the host or other devices may write there. Blocks of one split matrix product wait for each other, too
};
struct Sign {
    std::uint16_t instruction;   // the low nine bits; three bits behind them say where its operands are, four which predicate
    Asks asks;
    const char* hazard;
};
constexpr Sign kSigns[] = {
    {0x18e, Asks::number, kFloatAtomic},    // red.global
    {0x1a8, Asks::number, kFloatAtomic},    // atom.global
    {0x18a, Asks::number, kFloatAtomic},    // atom, red
    {0x1a6, Asks::nothing, kFloatAtomic},   // the same of floating-point numbers, from 9.0 on
    {0x1a3, Asks::nothing, kFloatAtomic},
    {0x1a2, Asks::nothing, kFloatAtomic},
    {0x1b6, Asks::nothing, kFloatAtomic},   // cp.reduce.async.bulk.tensor: its elements are what its map says
    {0x1bb, Asks::reduces, kFloatAtomic},   // cp.reduce.async.bulk
    {0x1a9, Asks::nothing, kSwap},          // atom.global.cas; additions without an instruction of their own are made of it
    {0x18b, Asks::nothing, kSwap},          // atom.cas
    {0x18d, Asks::nothing, kSwap},          // atom.shared.cas
    {0x005, Asks::source, kClock},          // mov from %clock, %globaltimer, %pm
    {0x119, Asks::source, kClock},          // mov from %smid, %warpid, %nwarpid
    {0x1c3, Asks::source, kClock},
    {0x160, Asks::nothing, kTexture},       // tex, tld4, txq
    {0x163, Asks::nothing, kTexture},
    {0x166, Asks::nothing, kTexture},
    {0x16c, Asks::nothing, kTexture},
    {0x16f, Asks::nothing, kTexture},
    {0x199, Asks::nothing, kTexture},       // suld, sust, sured
    {0x19b, Asks::nothing, kTexture},
    {0x19d, Asks::nothing, kTexture},
    {0x19f, Asks::nothing, kTexture},
    {0x181, Asks::scope, kVolatile},        // ld.global
    {0x180, Asks::scope, kVolatile},        // ld
    {0x1a5, Asks::nothing, kVolatile},      // multimem.ld_reduce
};

bool applies(Asks asks, unsigned capability, std::uint64_t second) {
    switch (asks) {
        case Asks::nothing: return true;
        case Asks::number: {
            const unsigned type = second >> 9 & 7;   // 3: f32, 4: f16x2, 6: f64; from 9.0 on floating-point numbers have their own instructions
            return capability < 90 && (type == 3 || type == 4 || type == 6);
        }
        case Asks::reduces: return (second >> 17 & 7) != 0;
        case Asks::source: {
            const unsigned from = second >> 8 & 0xff;   // 2, 3: warps; 0x43: the multiprocessor; 0x50 to 0x53: clocks; 0x64 to 0x73: counters
            return from == 2 || from == 3 || from == 0x43 || (from >= 0x50 && from <= 0x53) || (from >= 0x64 && from <= 0x73);
        }
        case Asks::scope: {
            const unsigned scope = second >> 12 & 31;
            return scope == (capability < 80 ? 0x16 : 0x15);
        }
    }
    return false;
}

// By instruction: its number in kSigns, from 1 on.
struct Index {
    std::uint8_t sign[512] = {};
    constexpr Index() {
        for (std::uint8_t i = 0; i < std::size(kSigns); ++i) sign[kSigns[i].instruction] = static_cast<std::uint8_t>(i + 1);
    }
};
constexpr Index kIndex;

}  // namespace

unsigned compute_capability(const unsigned char* elf, std::size_t bytes) noexcept {
    if (bytes < sizeof(Elf64_Ehdr)) return 0;
    Elf64_Ehdr header;
    std::memcpy(&header, elf, sizeof header);
    const unsigned lowest = header.e_flags & 0xff;   // there until CUDA 12; in the next byte since
    return lowest >= 30 ? lowest : header.e_flags >> 8 & 0xff;
}

const char* hazard_of_machine_code(unsigned capability, const unsigned char* code, std::size_t bytes) noexcept {
    if (capability < 75) return nullptr;   // instructions of other lengths, or not looked at
    for (std::size_t at = 0; at + 16 <= bytes; at += 16) {
        std::uint64_t words[2];
        std::memcpy(words, code + at, sizeof words);
        const unsigned sign = kIndex.sign[words[0] & 0x1ff];
        if (sign && applies(kSigns[sign - 1].asks, capability, words[1])) return kSigns[sign - 1].hazard;
    }
    return nullptr;
}

}  // namespace udnnmem::interpose
