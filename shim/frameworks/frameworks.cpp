#include "shim/frameworks/frameworks.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace udnnmem::frameworks {
namespace {

struct Row {
    const char* framework;
    const char* packages;
    const char* from;
    const char* variable;
    const char* value;
    const char* unless;
};

constexpr Row rows[] = {
#define SWITCH(framework, packages, from, variable, value, unless) {framework, packages, from, variable, value, unless},
#include "shim/frameworks/frameworks.def"
#undef SWITCH
};

// The parts of "a|b" until `test` holds for one.
template <class Test>
bool any_of(std::string_view list, Test test) {
    while (!list.empty()) {
        const std::size_t end = std::min(list.find('|'), list.size());
        if (test(list.substr(0, end))) return true;
        list.remove_prefix(std::min(end + 1, list.size()));
    }
    return false;
}

bool is_named(std::string_view name, std::string_view packages) {
    return any_of(packages, [&](std::string_view package) {
        if (!package.ends_with('*')) return name == package;
        package.remove_suffix(1);
        return name.starts_with(package);
    });
}

const Distribution* find(const std::vector<Distribution>& installed, const char* packages) {
    for (const Distribution& d : installed)
        if (is_named(d.name, packages)) return &d;
    return nullptr;
}

const char* environment(const char* variable) { return std::getenv(variable); }

}  // namespace

std::vector<Switch> decide(const std::vector<Distribution>& installed, const Lookup& lookup, const std::string& site) {
    std::vector<Switch> all;
    for (const Row& row : rows) {
        const Distribution* const found = find(installed, row.packages);
        if (!found || !version_at_least(found->version, row.from)) continue;
        Switch s{row.framework, found->version, row.variable, row.value, {}};
        if (s.value == "+SITE") {
            if (site.empty()) continue;
            const char* const held = lookup(row.variable);
            const std::string before = held ? held : "";
            if ((":" + before + ":").find(":" + site + ":") != std::string::npos) s.value = before;
            else s.value = before.empty() ? site : site + ":" + before;
        }
        any_of(row.unless, [&](std::string_view variable) {
            const char* const held = lookup(std::string(variable).c_str());
            if (held) s.chosen = std::string(variable) + "=" + held;
            return held != nullptr;
        });
        all.push_back(std::move(s));
    }
    return all;
}

std::string site_folder(const std::string& folder) {
    for (const char* place : {"/udnnmem-site", "/../lib/udnnmem-site"})
        if (const std::string site = folder + place; ::access((site + "/sitecustomize.py").c_str(), R_OK) == 0) return site;
    return {};
}

void set_for(const Python& python) noexcept try {
    Dl_info own{};
    std::string folder;
    if (::dladdr(reinterpret_cast<const void*>(&set_for), &own) && own.dli_fname) folder = own.dli_fname;
    folder.resize(folder.rfind('/') == std::string::npos ? 0 : folder.rfind('/'));
    for (const Switch& s : decide(distributions(package_folders(python, environment)), environment, site_folder(folder)))
        if (s.chosen.empty()) ::setenv(s.variable, s.value.c_str(), 1);
} catch (const std::bad_alloc&) {
}

}  // namespace udnnmem::frameworks
