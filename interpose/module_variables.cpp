#include "interpose/internal.hpp"

#include "interpose/module_variables.hpp"

#include <charconv>

#include "interpose/image_layouts.hpp"

namespace udnnmem::interpose {
namespace {

// Itanium's C++ ABI: a name is its length in decimal digits and so many characters. Takes one from the front; {}: there is none.
std::string_view take_name(std::string_view& mangled) {
    std::size_t length = 0;
    const auto [end, error] = std::from_chars(mangled.data(), mangled.data() + mangled.size(), length);
    const auto digits = static_cast<std::size_t>(end - mangled.data());
    if (error != std::errc() || length > mangled.size() - digits) return {};
    const std::string_view name = mangled.substr(digits, length);
    mangled.remove_prefix(digits + length);
    return name;
}

// The outermost namespace of a mangled name, but for the one that nvcc puts around what is static in a file.
std::string_view outermost_namespace(std::string_view symbol) {
    if (!symbol.starts_with("_ZN")) return {};
    symbol.remove_prefix(3);
    const std::string_view first = take_name(symbol);
    return first.starts_with("_INTERNAL_") ? take_name(symbol) : first;
}

}  // namespace

bool never_written(std::string_view symbol, std::uint64_t bytes) noexcept {
    for (const char* start : {"$str", "__unnamed_", "__cudart_", "__internal_", "__cr_", "precalc_xorwow_", "mrg32k3aM"})
        if (symbol.starts_with(start)) return true;
    if (bytes != 1) return false;
    const std::string_view owner = outermost_namespace(symbol);
    return owner == "cuda" || owner == "thrust" || owner == "cub" || owner == "cute";
}

bool has_written_variables(const unsigned char* elf, std::size_t bytes) {
    bool some = false;
    for_each_variable(elf, bytes, [](void* to, std::string_view name, std::uint64_t size) { *static_cast<bool*>(to) |= !never_written(name, size); }, &some);
    return some;
}

}  // namespace udnnmem::interpose
