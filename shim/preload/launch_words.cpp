#include "shim/preload/launch_words.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "shim/pager/rules.hpp"
#include "shim/preload/accesses.hpp"
#include "shim/preload/unmanaged_ranges.hpp"

namespace udnnmem::preload {
namespace {

using interpose::KernelLayout;
using interpose::Launch;

// What comes before the parameters: the kernel, the launch, and the bounds within which no word of it leads.
constexpr std::size_t kHead = 7;
[[gnu::always_inline]] inline std::array<std::uint64_t, kHead> head_of(const Launch& l) {
    const auto two = [](unsigned low, unsigned high) { return low | std::uint64_t{high} << 32; };
    const auto [begin, bytes] = unmanaged_ranges.bounds();
    return {reinterpret_cast<std::uintptr_t>(l.layout), two(l.grid[0], l.grid[1]), two(l.grid[2], l.block[0]), two(l.block[1], l.block[2]), l.shared_bytes, begin, bytes};
}

std::uint64_t word_at(const char* at) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    return word;
}

// Calls body(word) for each word of the parameters in which an address may be, as name_accesses() has it, until it says no. Whether none did.
template <class Body>
[[gnu::always_inline]] inline bool every_word(const Launch& l, Body body) {
    void* const* param = l.params;
    for (const KernelLayout::Param& p : l.layout->params) {
        const char* const data = static_cast<const char*>(*param++);
        if (may_hold_tensor_map(p.size)) return false;
        for (std::size_t at = first_address(p.offset); at + 8 <= p.size; at += 8)
            if (!body(word_at(data + at))) return false;
    }
    return true;
}

}  // namespace

std::size_t WorkWords::count() const {
    const Launch* const l = work_.launch;
    if (!l || !l->params || l->buffer || work_.part_count || work_.span_count || !work_.proven || !l->layout->known || l->layout->follows_variables) return 0;
    std::size_t count = kHead;
    for (const KernelLayout::Param& p : l->layout->params)
        for (std::size_t at = first_address(p.offset); at + 8 <= p.size; at += 8) ++count;
    return count;
}

bool WorkWords::copy(std::uint64_t* to) const {
    const Launch& l = *work_.launch;
    to = std::ranges::copy(head_of(l), to).out;
    return every_word(l, [&](std::uint64_t word) {
        *to++ = word;
        if (!pager_.in_arena(word)) return !unmanaged_ranges.may_contain(word);
        const pager::Buffer* const b = pager_.find(word);
        return b && b->live;
    });
}

[[gnu::hot]] bool WorkWords::match(const std::uint64_t* words) const {
    const Launch& l = *work_.launch;
    std::uint64_t other = l.params ? 0 : 1;
    const auto head = head_of(l);
#pragma GCC unroll 7
    for (std::size_t i = 0; i < kHead; ++i) other |= head[i] ^ words[i];
    if (other) return false;
    words += kHead;
    const auto leads = [&](std::uint64_t word) { return pager_.in_arena(word) || unmanaged_ranges.may_contain(word); };
    const auto as_then = [&](std::uint64_t word) {
        const std::uint64_t then = *words++;
        return word == then || !(leads(word) || leads(then)) || !pager::holds("recall");
    };
    if (!l.layout->words) return every_word(l, as_then);
    return std::all_of(l.params, l.params + l.layout->params.size(), [&](const void* param) { return as_then(word_at(static_cast<const char*>(param))); });
}

}  // namespace udnnmem::preload
