#include "shim/options/spelling.hpp"

#include <algorithm>
#include <vector>

namespace udnnmem {
namespace {

// Damerau's and Levenshtein's distance, where no letter takes part in two slips; names are short.
std::size_t distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before, above, row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        before = above;
        above = row;
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
        }
    }
    return row.back();
}

}  // namespace

std::string_view nearest_spelling(std::string_view name, std::span<const std::string_view> candidates) {
    std::size_t least = std::min<std::size_t>(2, name.size() / 3) + 1;
    std::string_view nearest;
    for (const std::string_view candidate : candidates)
        if (const std::size_t slips = distance(name, candidate); slips < least) least = slips, nearest = candidate;
    return nearest;
}

}  // namespace udnnmem
