// Which variables are set for which framework that a Python has: the table frameworks.def, applied to what is installed and
// to what the user has set himself.
//
// Invariants: a variable that the user has set is never changed, save for PYTHONPATH, which keeps all it held; nothing is
// set for a framework that is not there, or whose version is out of the line's range. Nothing throws save for want of memory.
#pragma once

#include <string>
#include <vector>

#include "shim/frameworks/python_packages.hpp"

namespace udnnmem::frameworks {

// One line of the table, decided for one Python.
struct Switch {
    const char* framework;
    std::string version;
    const char* variable;
    std::string value;     // whole, as it would be set
    std::string chosen;    // "VARIABLE=value" of the user's that decides instead; empty: ours does
};

// `site`: the folder of sitecustomize.py; empty: there is none, and lines that need it are left out.
std::vector<Switch> decide(const std::vector<Distribution>& installed, const Lookup& lookup, const std::string& site);

// The folder of sitecustomize.py for a library or tool that lies in `folder`; empty if it is not there.
std::string site_folder(const std::string& folder);

// Sets what is decided for this process, which is `python`. For the library's constructor: before Python reads its
// environment, while there is one thread.
void set_for(const Python& python) noexcept;

}  // namespace udnnmem::frameworks
