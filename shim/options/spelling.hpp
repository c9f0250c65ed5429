// What a misspelt word most likely stands for: options, flags and commands.
#pragma once

#include <span>
#include <string_view>

namespace udnnmem {

// The nearest of `candidates` that is at most two slips away (a letter changed, left out, added, or swapped with its neighbour),
// and at most one for three letters: what differs more is another word. Empty: none is.
std::string_view nearest_spelling(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace udnnmem
