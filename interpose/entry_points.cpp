// The table as data, and the look-ups by symbol, by base name and version, and by base name and pointer. All are
// constant data and plain loops over a few neighbours: they run in any thread at any time, also before main.
#include "interpose/internal.hpp"

#include <cstring>
#include <string_view>

namespace udnnmem::interpose {

constexpr EntryPoint entry_points[symbol_count] = {
#define ENTRY(symbol, base, version, flavour, kind, need) \
    {#symbol, #base, version, Flavour::flavour, Class::kind, Need::need},
#include "interpose/entry_points.def"
#undef ENTRY
};

namespace {

constexpr bool sorted() {
    for (std::size_t i = 1; i < symbol_count; ++i)
        if (!(std::string_view(entry_points[i - 1].symbol) < std::string_view(entry_points[i].symbol))) return false;
    return true;
}
static_assert(sorted(), "entry_points.def is sorted by symbol");

// The first entry not below `name`.
std::size_t lower_bound(const char* name) noexcept {
    std::size_t low = 0, high = symbol_count;
    while (low < high) {
        const std::size_t middle = (low + high) / 2;
        if (std::strcmp(entry_points[middle].symbol, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Calls `visit(index)` for each symbol of a base name: all start with it, so they are neighbours but for names that
// it is a prefix of.
template <class Visit>
void each_of_base(const char* base, Visit visit) noexcept {
    const std::size_t length = std::strlen(base);
    for (std::size_t i = lower_bound(base); i < symbol_count; ++i) {
        if (std::strncmp(entry_points[i].symbol, base, length) != 0) break;
        if (std::strcmp(entry_points[i].base, base) == 0) visit(i);
    }
}

}  // namespace

Symbol find_symbol(const char* symbol) noexcept {
    const std::size_t i = lower_bound(symbol);
    return i < symbol_count && std::strcmp(entry_points[i].symbol, symbol) == 0 ? static_cast<Symbol>(i) : Symbol::none;
}

Symbol find_version(const char* base, int version, Flavour flavour) noexcept {
    // A base name without a per-thread form answers with the other.
    Symbol best = Symbol::none;
    int best_score = -1;
    each_of_base(base, [&](std::size_t i) {
        const EntryPoint& e = entry_points[i];
        if (e.version > version || (e.flavour == Flavour::per_thread && flavour == Flavour::legacy)) return;
        const int score = e.version + (e.flavour == flavour ? 1'000'000 : 0);
        if (score > best_score) best_score = score, best = static_cast<Symbol>(i);
    });
    return best;
}

Symbol find_pointer(const char* base, const void* pointer, int version, Flavour flavour) noexcept {
    const Symbol asked = find_version(base, version, flavour);
    const auto real = [](std::size_t i) { return slots[i].load(std::memory_order_relaxed); };
    if (asked != Symbol::none && real(static_cast<std::size_t>(asked)) == pointer) return asked;
    Symbol found = Symbol::none;
    each_of_base(base, [&](std::size_t i) {
        if (real(i) == pointer && found == Symbol::none) found = static_cast<Symbol>(i);
    });
    return found;
}

#define HOOK_OF_manage(symbol) reinterpret_cast<void*>(&::symbol)
#define HOOK_OF_observe(symbol) reinterpret_cast<void*>(&::symbol)
#define HOOK_OF_refuse(symbol) reinterpret_cast<void*>(&::symbol)
#define HOOK_OF_pass(symbol) nullptr
void* const hooks[symbol_count] = {
#define ENTRY(symbol, base, version, flavour, kind, need) HOOK_OF_##kind(symbol),
#include "interpose/entry_points.def"
#undef ENTRY
};

}  // namespace udnnmem::interpose
