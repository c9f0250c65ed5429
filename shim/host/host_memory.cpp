#include "shim/host/host_memory.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "shim/host/launcher.hpp"

namespace udnnmem::host {
namespace {

// A file of the kernel's, whole; empty where there is none. Not a stream: the preload library carries no iostreams into
// every process.
std::string contents(const std::string& path) {
    std::string text;
    if (std::FILE* const file = std::fopen(path.c_str(), "re")) {
        char part[4096];
        for (std::size_t n = 0; (n = std::fread(part, 1, sizeof part, file)) > 0;) text.append(part, n);
        std::fclose(file);
    }
    return text;
}

// A file that holds one number; nothing for "max", for no file and for a limit that is no limit.
std::optional<Bytes> number_in(const std::filesystem::path& path) {
    const std::string text = contents(path.string());
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || (end != text.data() + text.size() && *end != '\n') || number >= std::int64_t{1} << 62) return {};
    return Bytes(number);
}

// Calls `each` with every line of a file, until it returns true.
template <class Each>
void lines_of(const std::string& path, Each each) {
    const std::string text = contents(path);
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        if (each(text.substr(at, end - at))) return;
        at = end + 1;
    }
}

// The folder of this process in the hierarchy that `controller` names ("" for version 2), relative to its mount.
std::optional<std::string> own_cgroup(const std::string& controller) {
    std::optional<std::string> folder;
    lines_of("/proc/self/cgroup", [&](const std::string& line) {
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) return false;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (controllers == controller || (!controller.empty() && ("," + controllers + ",").find("," + controller + ",") != std::string::npos))
            folder = line.substr(second + 1);
        return folder.has_value();
    });
    return folder;
}

}  // namespace

std::optional<Bytes> memory_available() {
    constexpr std::string_view name = "MemAvailable:";
    std::optional<Bytes> available;
    lines_of("/proc/meminfo", [&](const std::string& line) {
        if (line.starts_with(name)) available = Bytes(std::strtoll(line.c_str() + name.size(), nullptr, 10) * 1024);
        return available.has_value();
    });
    return available;
}

std::optional<CgroupMemory> cgroup_memory() {
    struct Hierarchy { const char* controller; const char* mount; const char* limit; const char* used; };
    constexpr Hierarchy hierarchies[] = {{"", "/sys/fs/cgroup", "memory.max", "memory.current"},
                                         {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"}};
    std::optional<CgroupMemory> tightest;
    for (const Hierarchy& hierarchy : hierarchies) {
        const auto own = own_cgroup(hierarchy.controller);
        if (!own) continue;
        // In a container the folder may lie outside what is mounted: then the mount's root is ours.
        std::filesystem::path folder = std::filesystem::path(hierarchy.mount) / std::filesystem::path(*own).relative_path();
        const std::filesystem::path root(hierarchy.mount);
        for (;; folder = folder.parent_path()) {
            const auto limit = number_in(folder / hierarchy.limit);
            const auto used = number_in(folder / hierarchy.used);
            if (limit && used && (!tightest || *limit - *used < tightest->limit - tightest->used)) tightest = CgroupMemory{folder.string(), *limit, *used};
            if (folder == root || folder.string().size() <= root.string().size()) break;
        }
    }
    return tightest;
}

std::optional<Bytes> usable_memory() {
    const auto available = memory_available();
    if (!available) return {};
    const auto cgroup = cgroup_memory();
    const Bytes usable = cgroup ? std::min(*available, cgroup->limit - cgroup->used) : *available;
    return Bytes(std::max<std::int64_t>(usable.value, 0) / ranks_here());
}

std::vector<int> node_list(std::string_view text) {
    std::vector<int> nodes;
    const char *at = text.data(), *const end = at + text.size();
    while (at < end) {
        int first, last;
        auto read = std::from_chars(at, end, first);
        if (read.ec != std::errc() || first < 0) break;
        last = first;
        if (read.ptr < end && *read.ptr == '-') read = std::from_chars(read.ptr + 1, end, last);
        if (read.ec != std::errc() || last < first || last - first > 4096) break;
        for (int n = first; n <= last; ++n) nodes.push_back(n);
        if (read.ptr == end || *read.ptr != ',') break;
        at = read.ptr + 1;
    }
    return nodes;
}

std::vector<int> memory_nodes() {
    std::vector<int> nodes = node_list(contents("/sys/devices/system/node/has_memory"));
    const std::vector<int> cpus = node_list(contents("/sys/devices/system/node/has_cpu"));
    std::erase_if(nodes, [&](int n) { return std::find(cpus.begin(), cpus.end(), n) == cpus.end(); });
    return nodes;
}

std::optional<Bytes> locked_memory_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return {};
    return limit.rlim_cur == RLIM_INFINITY ? Bytes::max() : Bytes(static_cast<std::int64_t>(limit.rlim_cur));
}

}  // namespace udnnmem::host
