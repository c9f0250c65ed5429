#include "shim/log/log.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "profiler/trace/descriptor.hpp"
#include "shim/host/write_signals.hpp"
#include "shim/options/pattern.hpp"

namespace udnnmem::log {

namespace detail {
std::atomic<Level> level{Level::warn};
}

namespace {

// Where lines go; -1: nowhere.
std::atomic<int> standard{STDERR_FILENO}, descriptor{STDERR_FILENO};

// Keeps errno as the program left it.
class KeepErrno {
  public:
    ~KeepErrno() { errno = value_; }

  private:
    int value_ = errno;
};

// A line being put together: a prefix, a message, a line end.
struct Line {
    char text[detail::longest + 96];
    std::size_t length = 0;

    void add(const char* from, std::size_t count) {
        const std::size_t room = sizeof text - 1 - length;
        if (count > room) count = room;
        for (std::size_t i = 0; i < count; ++i) text[length++] = static_cast<unsigned char>(from[i]) < ' ' ? ' ' : from[i];
    }
    void add(const char* from) { add(from, std::strlen(from)); }

    void send(int file) {
        text[length++] = '\n';
        const host::WithoutWriteSignals quietly;
        while (::write(file, text, length) < 0 && errno == EINTR) {
        }
    }
};

}  // namespace

namespace detail {

void write(Level level, const char* text, std::size_t length) noexcept {
    const KeepErrno keep;
    const int file = descriptor.load(std::memory_order_acquire);
    if (file < 0) return;
    Line line;
    if (file == STDERR_FILENO) {
        line.add("udnnmem: ");
    } else {
        // A file collects the lines of many threads, maybe of many processes: say when and who.
        timespec now{};
        ::clock_gettime(CLOCK_REALTIME, &now);
        char stamp[64];
        const auto end = fmt::format_to_n(stamp, sizeof stamp, "{}.{:06} {}/{} ", static_cast<long long>(now.tv_sec), now.tv_nsec / 1000,
                                          ::getpid(), ::syscall(SYS_gettid));
        line.add(stamp, end.size < sizeof stamp ? end.size : sizeof stamp);
    }
    constexpr const char* names[] = {"error: ", "warning: ", "info: ", "trace: "};
    line.add(names[static_cast<int>(level)]);
    line.add(text, length);
    line.send(file);
}

void write_note(const char* text, std::size_t length) noexcept {
    const KeepErrno keep;
    const int file = standard.load(std::memory_order_relaxed);
    if (file < 0) return;
    Line line;
    line.add("udnnmem: ");
    line.add(text, length);
    line.send(file);
}

}  // namespace detail

void find_stderr() noexcept {
    const KeepErrno keep;
    if (::fcntl(STDERR_FILENO, F_GETFD) >= 0 || errno != EBADF) return;
    standard.store(-1, std::memory_order_relaxed);
    descriptor.store(-1, std::memory_order_release);
}

void configure(Level level, const Pattern& file) noexcept try {
    const KeepErrno keep;
    detail::level.store(level, std::memory_order_relaxed);
    if (file.off()) return;
    const std::string path = expand_pattern(file.text);
    const int opened = above_standard(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666));
    if (opened < 0) {
        // A pipe without a reader would be waited for.
        warn("cannot open UDNNMEM_DEBUG_FILE {}: {}; messages go to stderr", path, errno == ENXIO ? "nobody reads from it" : std::strerror(errno));
        return;
    }
    ::fcntl(opened, F_SETFL, O_APPEND);
    descriptor.store(opened, std::memory_order_release);
} catch (...) {
}

}  // namespace udnnmem::log
