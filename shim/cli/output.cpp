// How commands end: their output written whole or not at all, their complaints in one shape.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fmt/core.h>

#include "profiler/trace/record.hpp"
#include "shim/cli/commands.hpp"
#include "shim/cli/format.hpp"

namespace udnnmem::cli {

namespace {

[[noreturn]] void end(const std::string& message, int code) {
    std::fflush(stdout);
    std::fprintf(stderr, "udnnmem: %s\n", shown(message).c_str());
    throw CLI::RuntimeError(code);
}

}  // namespace

void fail(const std::string& message) { end(message, 2); }

void fail_at_work(const std::string& message) { end(message, 1); }

void warn(const std::string& message) { std::fprintf(stderr, "udnnmem: warning: %s\n", shown(message).c_str()); }

CLI::Validator within(double low, double high) {
    const auto wrong = [=](std::string& text) {
        double value = 0;
        return CLI::detail::lexical_cast(text, value) && value >= low && value <= high ? std::string() : fmt::format("expected a number from {} to {}, is {}", low, high, text);
    };
    return {wrong, fmt::format("{} to {}", low, high)};
}

CLI::Validator whole_within(std::int64_t low, std::int64_t high) {
    const auto wrong = [=](std::string& text) {
        std::int64_t value = 0;
        return CLI::detail::lexical_cast(text, value) && value >= low && value <= high ? std::string() : fmt::format("expected a whole number from {} to {}, is {}", low, high, text);
    };
    return {wrong, fmt::format("{} to {}", low, high)};
}

CLI::Validator file_name() {
    return {[](std::string& text) { return text.empty() ? std::string("is empty: name a file, or - for standard input or output") : std::string(); }, ""};
}

bool is_stdout(const std::string& path) {
    if (path.empty() || path == "-") return true;
    struct stat named {}, out {};
    return ::stat(path.c_str(), &named) == 0 && ::fstat(STDOUT_FILENO, &out) == 0 && named.st_dev == out.st_dev && named.st_ino == out.st_ino;
}

void check_output(const std::string& path, bool force, std::span<const std::string> inputs) {
    struct stat to {}, from {};
    if (is_stdout(path)) return;
    if (::lstat(path.c_str(), &to) != 0) {
        const std::string folder = path.substr(0, path.rfind('/') + 1);
        if (errno != ENOENT || ::access(folder.empty() ? "." : folder.c_str(), W_OK) != 0) fail(path + ": " + std::strerror(errno));
        return;
    }
    if (::stat(path.c_str(), &to) != 0) return;
    if (S_ISDIR(to.st_mode)) fail(path + ": " + std::strerror(EISDIR));
    if (::access(path.c_str(), W_OK) != 0) fail(path + ": " + std::strerror(errno));
    if (!S_ISREG(to.st_mode)) return;
    for (const std::string& input : inputs)
        if (::stat(input.c_str(), &from) == 0 && from.st_dev == to.st_dev && from.st_ino == to.st_ino) fail(path + ": is what is read (" + input + "): name another file to write");
    if (!force) fail(path + ": exists already; -f overwrites it");
}

void write_output(const std::string& path, const std::string& text, bool force) {
    if (is_stdout(path)) {
        if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
            fail_at_work(std::string("cannot write to standard output: ") + std::strerror(errno));
        return;
    }
    check_output(path, force, {});
    if (const auto written = profiler::write_file(path, text, force); !written) fail_at_work(written.error().message);
}

}  // namespace udnnmem::cli
