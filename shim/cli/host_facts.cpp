#include "shim/cli/host_facts.hpp"

#include <sys/resource.h>

#include <charconv>
#include <filesystem>
#include <fstream>

namespace udnnmem::cli {
namespace {

// A file that holds one number; nothing for "max", for no file and for a limit that is no limit.
std::optional<Bytes> number_in(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::string word;
    std::int64_t number = 0;
    if (!(file >> word)) return {};
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || end != word.data() + word.size() || number >= std::int64_t{1} << 62) return {};
    return Bytes(number);
}

// The folder of this process in the hierarchy that `controller` names ("" for version 2), relative to its mount.
std::optional<std::string> own_cgroup(const std::string& controller) {
    std::ifstream file("/proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (controllers == controller || (!controller.empty() && ("," + controllers + ",").find("," + controller + ",") != std::string::npos)) return line.substr(second + 1);
    }
    return {};
}

}  // namespace

std::optional<Bytes> memory_available() {
    std::ifstream file("/proc/meminfo");
    std::string name;
    std::int64_t kib = 0;
    for (std::string rest; file >> name >> kib; std::getline(file, rest))
        if (name == "MemAvailable:") return Bytes(kib * 1024);
    return {};
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

std::optional<Bytes> locked_memory_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return {};
    return limit.rlim_cur == RLIM_INFINITY ? Bytes::max() : Bytes(static_cast<std::int64_t>(limit.rlim_cur));
}

}  // namespace udnnmem::cli
