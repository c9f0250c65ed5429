#include "shim/preload/stray_words.hpp"

#include <algorithm>

namespace udnnmem::preload {
namespace {
bool is_in(const StrayWords::Offsets& offsets, std::uint32_t offset) { return std::find(offsets.begin(), offsets.end(), offset) != offsets.end(); }
}  // namespace

// Null: there is no room for another.
StrayWords::Kernel* StrayWords::find(const char* kernel) {
    const auto found = kernels_.find(kernel);
    if (found != kernels_.end()) return &found->second;
    return kernels_.size() < most_kernels ? &kernels_[kernel] : nullptr;
}

void StrayWords::publish(const char* kernel, const Kernel& is) {
    const Table* const old = table_.load(std::memory_order_relaxed);
    auto table = old ? std::make_unique<Table>(*old) : std::make_unique<Table>();
    Known known{is.varying, is.freed.size() > most};
    if (!known.many) known.strays.insert(known.strays.end(), is.freed.begin(), is.freed.end());
    (*table)[kernel] = std::move(known);
    table_.store(tables_.emplace_back(std::move(table)).get(), std::memory_order_release);
}

std::size_t StrayWords::note(const char* kernel, std::size_t offset) {
    if (const Known* const known = look_up(kernel); known && (known->many || is_in(known->strays, static_cast<std::uint32_t>(offset)))) return 0;   // launch after launch
    std::lock_guard lock(mutex_);
    Kernel* const k = find(kernel);
    if (!k || k->freed.size() > most || is_in(k->freed, static_cast<std::uint32_t>(offset))) return 0;
    k->freed.push_back(static_cast<std::uint32_t>(offset));
    publish(kernel, *k);
    return k->freed.size();
}

void StrayWords::count(const char* kernel, const Offsets& leading) {
    std::lock_guard lock(mutex_);
    Kernel* const k = find(kernel);
    if (!k) return;
    ++k->launches;
    for (const std::uint32_t offset : leading) ++k->led[offset];
}

bool StrayWords::varies(const char* kernel, std::uint32_t offset) {
    std::lock_guard lock(mutex_);
    const auto found = kernels_.find(kernel);
    if (found == kernels_.end()) return false;
    Kernel& k = found->second;
    if (is_in(k.varying, offset)) return true;
    const auto led = k.led.find(offset);
    if (led == k.led.end() || std::uint64_t{led->second} * seldom > k.launches || k.varying.size() == most_varying) return false;
    k.varying.push_back(offset);
    publish(kernel, k);
    return true;
}

}  // namespace udnnmem::preload
