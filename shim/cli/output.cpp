// How commands end: their output written whole or not at all, their complaints in one shape.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "profiler/trace/record.hpp"
#include "shim/cli/commands.hpp"
#include "shim/cli/format.hpp"

namespace udnnmem::cli {

void fail(const std::string& message) {
    std::fflush(stdout);
    std::fprintf(stderr, "udnnmem: %s\n", shown(message).c_str());
    throw CLI::RuntimeError(2);
}

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
    if (is_stdout(path) || ::stat(path.c_str(), &to) != 0 || !S_ISREG(to.st_mode)) return;
    for (const std::string& input : inputs)
        if (::stat(input.c_str(), &from) == 0 && from.st_dev == to.st_dev && from.st_ino == to.st_ino) fail(path + ": is what is read (" + input + "): name another file to write");
    if (!force) fail(path + ": exists already; -f overwrites it");
}

void write_output(const std::string& path, const std::string& text, bool force) {
    if (is_stdout(path)) {
        if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
            fail(std::string("cannot write to standard output: ") + std::strerror(errno));
        return;
    }
    check_output(path, force, {});
    if (const auto written = profiler::write_file(path, text, force); !written) fail(written.error());
}

}  // namespace udnnmem::cli
