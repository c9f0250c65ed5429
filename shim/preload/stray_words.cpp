#include "shim/preload/stray_words.hpp"

#include <algorithm>

namespace udnnmem::preload {

std::size_t StrayWords::note(const interpose::KernelLayout* kernel, std::size_t offset) {
    const auto at = static_cast<std::uint32_t>(offset);
    const auto knows = [&](const Table* t) {
        const auto found = t ? t->find(kernel) : Table::const_iterator();
        if (!t || found == t->end()) return t && t->size() >= most_kernels;
        return found->second.size() > most || std::find(found->second.begin(), found->second.end(), at) != found->second.end();
    };
    if (knows(table_.load(std::memory_order_acquire))) return 0;
    std::lock_guard lock(mutex_);
    const Table* const old = table_.load(std::memory_order_relaxed);
    if (knows(old)) return 0;
    auto table = old ? std::make_unique<Table>(*old) : std::make_unique<Table>();
    Offsets& offsets = (*table)[kernel];
    offsets.push_back(at);
    table_.store(tables_.emplace_back(std::move(table)).get(), std::memory_order_release);
    return offsets.size();
}

}  // namespace udnnmem::preload
