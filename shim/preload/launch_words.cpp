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

// As name_accesses() has it: an address is 8 bytes at a multiple of 8 of the parameter buffer.
std::size_t before_words(const KernelLayout::Param& p) { return (8 - p.offset % 8) % 8; }
std::size_t words_in(const KernelLayout::Param& p) { return p.size < before_words(p) ? 0 : (p.size - before_words(p)) / 8; }

std::uint64_t word_at(const char* at) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    return word;
}

}  // namespace

std::size_t WorkWords::count() const {
    const Launch* const l = work_.launch;
    if (!l || !l->params || l->buffer || work_.part_count || work_.span_count || !work_.proven || !l->layout->known || l->layout->follows_variables) return 0;
    std::size_t count = kHead;
    for (const KernelLayout::Param& p : l->layout->params) count += words_in(p);
    return count;
}

bool WorkWords::copy(std::uint64_t* to) const {
    const Launch& l = *work_.launch;
    to = std::ranges::copy(head_of(l), to).out;
    std::size_t i = 0;
    for (const KernelLayout::Param& p : l.layout->params) {
        if (may_hold_tensor_map(p.size)) return false;
        const char* const data = static_cast<const char*>(l.params[i++]) + before_words(p);
        for (std::size_t k = 0; k < words_in(p); ++k) {
            const std::uint64_t word = *to++ = word_at(data + 8 * k);
            if (const pager::Buffer* b = pager_.find(word); pager_.in_arena(word) ? !b || !b->live : unmanaged_ranges.may_contain(word)) return false;
        }
    }
    return true;
}

bool WorkWords::match(const std::uint64_t* words) const {
    const Launch& l = *work_.launch;
    std::uint64_t other = l.params ? 0 : 1;
    for (const std::uint64_t word : head_of(l)) other |= word ^ *words++;
    if (other) return false;
    const auto leads = [&](std::uint64_t word) { return pager_.in_arena(word) || unmanaged_ranges.may_contain(word); };
    void* const* param = l.params;
    if (l.layout->words) [[likely]] {
        for (void* const* const end = param + l.layout->params.size(); param != end;) {
            const std::uint64_t word = word_at(static_cast<const char*>(*param++)), then = *words++;
            if (word != then && (leads(word) || leads(then)) && pager::holds("recall")) return false;
        }
        return true;
    }
    for (const KernelLayout::Param& p : l.layout->params) {
        const char* const data = static_cast<const char*>(*param++);
        if (p.size == 8 && p.offset % 8 == 0) [[likely]] {
            const std::uint64_t word = word_at(data), then = *words++;
            if (word != then && (leads(word) || leads(then)) && pager::holds("recall")) return false;
            continue;
        }
        if (p.size < 8) continue;
        if (may_hold_tensor_map(p.size)) return false;
        const char* const first = data + before_words(p);
        const std::size_t n = words_in(p);
        for (std::size_t k = 0; k < n; ++k) {
            const std::uint64_t word = word_at(first + 8 * k), then = words[k];
            if (word != then && (leads(word) || leads(then)) && pager::holds("recall")) return false;
        }
        words += n;
    }
    return true;
}

}  // namespace udnnmem::preload
