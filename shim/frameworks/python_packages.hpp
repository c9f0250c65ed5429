// What a Python would import, found from its files alone: the folders that it searches for packages, and the names and
// versions of the distributions there. It is run nowhere.
//
// Invariants: nothing throws save for want of memory; what cannot be read is passed over. Thread-safe as far as the
// environment is left alone.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace udnnmem::frameworks {

using Lookup = std::function<const char*(const char* variable)>;

// A Python as it is started: `invoked` is the path by which it was executed (a virtual environment's link, not what that
// leads to).
struct Python {
    std::string invoked;
};

// This process as a Python; nothing if its executable is none.
std::optional<Python> this_python();
// The Python that a shell would start as `name` (PATH); nothing if there is none.
std::optional<Python> python_on_path(const char* name, const Lookup& lookup);

// In the order of the search: PYTHONPATH, the environment's own, the user's, the system's.
std::vector<std::string> package_folders(const Python& python, const Lookup& lookup);

struct Distribution {
    std::string name;     // as its folder spells it: lower case or not, '_' for '-'
    std::string version;
};
// All in `folders`; the first of a name counts.
std::vector<Distribution> distributions(const std::vector<std::string>& folders);

// Whether a version such as 2.11.0+cu130 or 0.10.2.dev1 is at least / before another, by its leading numbers.
bool version_at_least(std::string_view version, std::string_view bound);

}  // namespace udnnmem::frameworks
