#include "shim/cli/installation.hpp"

#include <unistd.h>

#include <filesystem>

namespace udnnmem::cli {

Expected<std::string> find_library(bool hidden_exports) {
    std::error_code error;
    const auto tool = std::filesystem::read_symlink("/proc/self/exe", error);
    const auto folder = tool.parent_path();
    const std::string name = hidden_exports ? "libudnnmem-hidden.so" : "libudnnmem.so";
    const auto beside = folder / name, installed = folder.parent_path() / "lib" / name;
    for (const auto& path : {beside, installed})
        if (::access(path.c_str(), R_OK) == 0) {
            if (path.string().find_first_of(": ") == std::string::npos) return path.string();
            return tl::make_unexpected(Error{path.string() + ": LD_PRELOAD cannot hold a path with a space or a colon: install udnnmem at a path without them"});
        }
    return tl::make_unexpected(Error{name + " is neither at " + beside.string() + " nor at " + installed.string() +
                                     ": build it (make) or install it beside the tool (make install)"});
}

}  // namespace udnnmem::cli
