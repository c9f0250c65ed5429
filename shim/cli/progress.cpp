#include "shim/cli/progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace udnnmem::cli {

Progress::Progress(std::string what) : what_(std::move(what)), terminal_(::isatty(STDERR_FILENO)), start_(std::chrono::steady_clock::now()), last_(start_) {}

Progress::~Progress() {
    if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void Progress::show(double part) {
    using namespace std::chrono_literals;
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || now - start_ < 1s || now - last_ < 100ms) return;
    last_ = now;
    drawn_ = true;
    constexpr int width = 40;
    const int done = static_cast<int>(std::clamp(part, 0.0, 1.0) * width);
    std::fprintf(stderr, "\r\x1b[K%s [%-*.*s] %3d %%", what_.c_str(), width, done, "########################################", done * 100 / width);
    std::fflush(stderr);
}

}  // namespace udnnmem::cli
