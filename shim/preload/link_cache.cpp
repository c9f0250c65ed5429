#include "shim/preload/link_cache.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "profiler/trace/descriptor.hpp"
#include "shim/host/write_signals.hpp"

namespace udnnmem::preload {
namespace {

constexpr const char* kFirst = "udnnmem link 1\n";
constexpr std::size_t kLongest = 4096;
constexpr std::size_t kMostCards = 64;   // that are remembered; of more (cards of a cloud, software GPUs) the newest

// Empty: there is no place for it.
std::string folder() {
    const char* const cache = std::getenv("XDG_CACHE_HOME");
    const char* const home = std::getenv("HOME");
    if (cache && *cache == '/') return std::string(cache) + "/udnnmem";
    return home && *home == '/' ? std::string(home) + "/.cache/udnnmem" : std::string();
}

std::string file_of(const std::string& card) {
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    for (char& c : host)
        if (c == '/') c = '_';
    return "/link-" + std::string(host) + "-" + card;
}

// Numbers that are rates or sizes, one after another; read alike in every locale of the program.
struct Numbers {
    const char* at;
    const char* end;

    bool more() {
        while (at < end && (*at == ' ' || *at == '\n')) ++at;
        return at < end;
    }
    template <class Number>
    bool take(Number& to) {
        if (!more()) return false;
        const auto [next, error] = std::from_chars(at, end, to);
        at = next;
        return error == std::errc() && std::isfinite(static_cast<double>(to)) && to >= 0;
    }
};

void forget_oldest(const std::string& place) {
    namespace fs = std::filesystem;
    std::vector<std::pair<fs::file_time_type, fs::path>> files;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(place, error))
        if (entry.path().filename().string().starts_with("link-")) files.emplace_back(entry.last_write_time(error), entry.path());
    if (files.size() <= kMostCards) return;
    std::sort(files.begin(), files.end());
    for (std::size_t i = 0; i + kMostCards < files.size(); ++i) fs::remove(files[i].second, error);
}

}  // namespace

pager::LinkSpeeds read_link(const std::string& card) noexcept try {
    pager::LinkSpeeds speeds;
    const std::string place = folder();
    const int file = place.empty() ? -1 : ::open((place + file_of(card)).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return {};
    char text[kLongest];
    const ssize_t n = ::read(file, text, sizeof text);
    ::close(file);
    if (n <= 0 || !std::string_view(text, static_cast<std::size_t>(n)).starts_with(kFirst)) return {};
    Numbers numbers{text + std::strlen(kFirst), text + n};
    if (!numbers.take(speeds.in) || !numbers.take(speeds.out) || !numbers.take(speeds.both_in) || !numbers.take(speeds.both_out)) return {};
    while (numbers.more() && speeds.by_size.size() < 16) {
        pager::LinkSpeeds::Size size{};
        if (!numbers.take(size.bytes) || !numbers.take(size.in) || !numbers.take(size.out)) return {};
        speeds.by_size.push_back(size);
    }
    return speeds;
} catch (...) {
    return {};
}

void write_link(const std::string& card, const pager::LinkSpeeds& speeds) noexcept try {
    const std::string place = folder();
    if (place.empty()) return;
    ::mkdir(place.substr(0, place.rfind('/')).c_str(), 0700);
    ::mkdir(place.c_str(), 0700);
    std::string text = kFirst + fmt::format("{} {} {} {}\n", speeds.in, speeds.out, speeds.both_in, speeds.both_out);
    for (const auto& size : speeds.by_size) text += fmt::format("{} {} {}\n", size.bytes, size.in, size.out);
    // Whole or not at all: other processes read it.
    const std::string path = place + file_of(card), made = fmt::format("{}.{}", path, ::getpid());
    const int file = above_standard(::open(made.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (file < 0) return;
    const host::WithoutWriteSignals quietly;
    const bool written = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::close(file);
    if (!written || ::rename(made.c_str(), path.c_str()) != 0) ::unlink(made.c_str());
    forget_oldest(place);
} catch (...) {
}

}  // namespace udnnmem::preload
