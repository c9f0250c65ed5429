#include "shim/frameworks/python_packages.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace udnnmem::frameworks {
namespace {

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('/') + 1); }  // npos + 1 is 0

std::string folder_of(std::string_view path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string_view::npos ? "." : slash == 0 ? "/" : std::string(path.substr(0, slash));
}

bool is_python_name(std::string_view name) { return name.starts_with("python") || name.starts_with("pypy"); }

bool executable(const std::string& path) { return ::access(path.c_str(), X_OK) == 0; }

std::string resolved(const std::string& path) {
    char real[PATH_MAX];
    return ::realpath(path.c_str(), real) ? real : path;
}

// The start of a file; "" if it cannot be read.
std::string text_of(const std::string& path) {
    char text[4096];
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return {};
    const ssize_t n = ::read(file, text, sizeof text);
    ::close(file);
    return std::string(text, n > 0 ? static_cast<std::size_t>(n) : 0);
}

template <class Body>
void each_entry(const std::string& folder, Body body) {
    DIR* const open = ::opendir(folder.c_str());
    if (!open) return;
    while (const dirent* entry = ::readdir(open)) body(std::string_view(entry->d_name));
    ::closedir(open);
}

template <class Body>
void each_part(std::string_view list, char separator, Body body) {
    while (!list.empty()) {
        const std::size_t end = std::min(list.find(separator), list.size());
        if (end > 0) body(list.substr(0, end));
        list.remove_prefix(std::min(end + 1, list.size()));
    }
}

std::optional<std::string> search_path(std::string_view name, const Lookup& lookup) {
    std::optional<std::string> found;
    const char* const path = lookup("PATH");
    each_part(path ? path : "/usr/local/bin:/usr/bin:/bin", ':', [&](std::string_view folder) {
        std::string candidate = std::string(folder) + "/" + std::string(name);
        if (!found && executable(candidate)) found = std::move(candidate);
    });
    return found;
}

// PREFIX/lib/python3.N/{site,dist}-packages for each N that is there, and Debian's PREFIX/lib/python3/dist-packages.
void add_prefix(const std::string& prefix, std::vector<std::string>& folders) {
    for (const char* lib : {"/lib", "/lib64"})
        each_entry(prefix + lib, [&](std::string_view name) {
            if (!is_python_name(name)) return;
            for (const char* packages : {"/site-packages", "/dist-packages"}) folders.push_back(prefix + lib + "/" + std::string(name) + packages);
        });
}

// "torch-2.11.0+cu130.dist-info" -> torch, 2.11.0+cu130. Empty name: no distribution.
Distribution distribution_of(std::string_view entry) {
    for (const std::string_view end : {".dist-info", ".egg-info"}) {
        if (!entry.ends_with(end)) continue;
        entry.remove_suffix(end.size());
        const std::size_t dash = entry.find('-');
        if (dash == std::string_view::npos) return {};
        const std::string_view rest = entry.substr(dash + 1);
        return {std::string(entry.substr(0, dash)), std::string(rest.substr(0, rest.find('-')))};
    }
    return {};
}

}  // namespace

std::optional<Python> this_python() {
    char exe[PATH_MAX];
    const ssize_t n = ::readlink("/proc/self/exe", exe, sizeof exe);
    if (n <= 0 || !is_python_name(last_part(std::string_view(exe, static_cast<std::size_t>(n))))) return {};
    // What was executed: the path given to exec, unless that was a script; then its first line's, which is argv[0].
    const std::string own(exe, static_cast<std::size_t>(n));
    const auto leads_here = [&](const std::string& path) { return path.find('/') != std::string::npos && resolved(path) == own; };
    if (const char* given = reinterpret_cast<const char*>(::getauxval(AT_EXECFN)); given && leads_here(given)) return Python{given};
    const std::string words = text_of("/proc/self/cmdline");
    std::string first(words.c_str());
    if (first.find('/') == std::string::npos && !first.empty())
        if (auto found = search_path(first, [](const char* variable) -> const char* { return std::getenv(variable); })) first = *found;
    return Python{leads_here(first) ? first : own};
}

std::optional<Python> python_on_path(const char* name, const Lookup& lookup) {
    auto found = search_path(name, lookup);
    if (!found) return {};
    return Python{std::move(*found)};
}

std::vector<std::string> package_folders(const Python& python, const Lookup& lookup) {
    std::vector<std::string> folders;
    if (const char* path = lookup("PYTHONPATH")) each_part(path, ':', [&](std::string_view folder) { folders.emplace_back(folder); });
    const std::string prefix = folder_of(folder_of(python.invoked)), base = folder_of(folder_of(resolved(python.invoked)));
    const std::string config = text_of(prefix + "/pyvenv.cfg");
    add_prefix(prefix, folders);
    const bool closed = !config.empty() && config.find("include-system-site-packages = true") == std::string::npos;
    if (closed) return folders;
    if (const char* home = lookup("HOME"); home && *home && !lookup("PYTHONNOUSERSITE")) add_prefix(std::string(home) + "/.local", folders);
    if (base != prefix) add_prefix(base, folders);
    if (base == "/usr") add_prefix("/usr/local", folders);
    return folders;
}

std::vector<Distribution> distributions(const std::vector<std::string>& folders) {
    std::vector<Distribution> all;
    for (const std::string& folder : folders)
        each_entry(folder, [&](std::string_view entry) {
            Distribution d = distribution_of(entry);
            if (!d.name.empty() && std::none_of(all.begin(), all.end(), [&](const Distribution& a) { return a.name == d.name; })) all.push_back(std::move(d));
        });
    return all;
}

bool version_at_least(std::string_view version, std::string_view bound) {
    const auto next = [](std::string_view& text) {
        long value = 0;
        std::size_t at = 0;
        for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) value = std::min(value * 10 + (text[at] - '0'), 1'000'000'000L);
        text.remove_prefix(at);
        if (!text.empty() && text[0] == '.') text.remove_prefix(1);
        else text = {};
        return value;
    };
    while (!bound.empty()) {
        const long has = next(version), needs = next(bound);
        if (has != needs) return has > needs;
    }
    return true;
}

}  // namespace udnnmem::frameworks
