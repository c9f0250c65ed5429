// What the library says to people: levelled lines on stderr or in UDNNMEM_DEBUG_FILE. Off the fast path:
// a line that is not wanted costs one relaxed load and nothing is formatted.
//
// Invariants
//   - One line is one write(2) of at most 1 KiB, so that lines of several threads and processes never mix.
//   - No allocation, no lock, no stream; errno is what it was. A line that cannot be written is lost, the
//     program never hears of it, by a signal neither. Line ends and control characters inside a message become spaces.
//   - Before configure() the level is warn and lines go to stderr; without one (find_stderr()), nowhere.
#pragma once

#include <fmt/core.h>

#include <atomic>
#include <string_view>

#include "shim/options/option_types.hpp"

namespace udnnmem::log {

namespace detail {
extern std::atomic<Level> level;
inline constexpr std::size_t longest = 1024;
void write(Level level, const char* text, std::size_t length) noexcept;
void write_note(const char* text, std::size_t length) noexcept;
}  // namespace detail

// Called before the program runs: where stderr is closed by then, what has its number later is a file of the program's.
void find_stderr() noexcept;

// Sets the level, and a file's pattern (off: stderr), which is expanded and opened for appending here.
// Where it cannot be opened lines go to stderr, and one says so. Not to be called from two threads at once.
void configure(Level level, const Pattern& file) noexcept;

inline bool enabled(Level level) noexcept { return level <= detail::level.load(std::memory_order_relaxed); }

// Writes "udnnmem: warning: MESSAGE\n" and so on. Thread-safe; callable from a signal handler if the
// arguments are numbers or text.
template <class... Args>
void line(Level level, fmt::format_string<Args...> format, Args&&... args) noexcept {
    if (!enabled(level)) return;
    char text[detail::longest];
    try {
        const auto end = fmt::format_to_n(text, sizeof text, format, std::forward<Args>(args)...);
        detail::write(level, text, end.size < sizeof text ? end.size : sizeof text);
    } catch (...) {
        detail::write(level, "(a message could not be formatted)", 34);
    }
}

template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) noexcept { line(Level::error, format, std::forward<Args>(args)...); }
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) noexcept { line(Level::warn, format, std::forward<Args>(args)...); }
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) noexcept { line(Level::info, format, std::forward<Args>(args)...); }
template <class... Args>
void trace(fmt::format_string<Args...> format, Args&&... args) noexcept { line(Level::trace, format, std::forward<Args>(args)...); }

// The banner and the summary at exit: always to stderr, whatever the level ("udnnmem: TEXT\n"). Whoever
// calls has looked at Options::quiet.
template <class... Args>
void note(fmt::format_string<Args...> format, Args&&... args) noexcept {
    char text[detail::longest];
    try {
        const auto end = fmt::format_to_n(text, sizeof text, format, std::forward<Args>(args)...);
        detail::write_note(text, end.size < sizeof text ? end.size : sizeof text);
    } catch (...) {
    }
}

// For what is said once however often it happens:  static log::Once once;  if (once.first()) log::warn(...)
class Once {
  public:
    // True for exactly one caller.
    bool first() noexcept { return !done_.load(std::memory_order_relaxed) && !done_.exchange(true, std::memory_order_relaxed); }

  private:
    std::atomic<bool> done_{false};
};

}  // namespace udnnmem::log

// Says a line once for each place in the source.
#define UDNNMEM_LOG_ONCE(how, ...)                                          \
    do {                                                                    \
        static ::udnnmem::log::Once udnnmem_once;                           \
        if (udnnmem_once.first()) ::udnnmem::log::how(__VA_ARGS__);         \
    } while (false)
