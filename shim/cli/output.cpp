// How commands end: their output written whole or not at all, their complaints in one shape.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "shim/cli/commands.hpp"

namespace udnnmem::cli {

void fail(const std::string& message) {
    std::fflush(stdout);
    std::fprintf(stderr, "udnnmem: %s\n", message.c_str());
    throw CLI::RuntimeError(2);
}

CLI::Validator within(double low, double high) {
    const auto wrong = [=](std::string& text) {
        double value = 0;
        return CLI::detail::lexical_cast(text, value) && value >= low && value <= high ? std::string() : fmt::format("expected a number from {} to {}, is {}", low, high, text);
    };
    return {wrong, fmt::format("{} to {}", low, high)};
}

void write_output(const std::string& path, const std::string& text, bool force) {
    if (path.empty()) {
        if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
            fail(std::string("cannot write to standard output: ") + std::strerror(errno));
        return;
    }
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (force ? O_TRUNC : O_EXCL), 0666);
    if (file < 0 && errno == EEXIST) fail(path + ": exists already; -f overwrites it");
    if (file < 0) fail(path + ": " + std::strerror(errno));
    for (std::size_t done = 0; done < text.size();) {
        const ssize_t n = ::write(file, text.data() + done, text.size() - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            const int reason = errno;
            ::close(file);
            struct stat status {};
            if (::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode)) ::unlink(path.c_str());  // no half of a report
            fail(path + ": " + std::strerror(reason));
        }
        done += static_cast<std::size_t>(n);
    }
    ::close(file);
}

}  // namespace udnnmem::cli
