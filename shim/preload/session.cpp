#include "shim/preload/session.hpp"

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "interpose/driver.hpp"
#include "shim/log/log.hpp"

extern char** environ;

namespace udnnmem::preload {
namespace {

std::atomic<Session*> g_session{nullptr};
std::atomic<bool> g_over{false};     // never again in this process
std::mutex g_starting;

// Bytes of memory that pinned frames may take by default are a share of this: MemAvailable, or the cgroup's limit if that
// is tighter.
std::size_t host_memory_available() {
    std::size_t available = static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    auto read_number = [](const char* path, const char* key) -> std::size_t {
        std::FILE* file = std::fopen(path, "re");
        if (!file) return 0;
        char text[256];
        unsigned long long value = 0;
        while (std::fgets(text, sizeof text, file)) {
            if (!key) {
                value = std::strtoull(text, nullptr, 10);
                break;
            }
            if (std::string_view(text).starts_with(key)) {
                value = std::strtoull(text + std::string_view(key).size(), nullptr, 10) * 1024;
                break;
            }
        }
        std::fclose(file);
        return value;
    };
    if (std::size_t m = read_number("/proc/meminfo", "MemAvailable:")) available = m;
    const std::size_t limit = read_number("/sys/fs/cgroup/memory.max", nullptr);
    const std::size_t used = read_number("/sys/fs/cgroup/memory.current", nullptr);
    if (limit && limit > used) available = std::min(available, limit - used);
    return available;
}

pager::Driver driver_table(const char** missing) {
    pager::Driver d;
    *missing = nullptr;
#define UDNNMEM_FILL(symbol, required)                             \
    d.symbol = UDNNMEM_REAL(symbol);                               \
    if (required && !d.symbol && !*missing) *missing = #symbol;
    UDNNMEM_PAGER_DRIVER_CALLS(UDNNMEM_FILL)
#undef UDNNMEM_FILL
    return d;
}

void forked_child() {
    // The mover's thread and the driver's state are the parent's.
    g_over.store(true);
    g_session.store(nullptr);
    interpose::install(nullptr);
}

void at_exit() {
    if (Session* s = g_session.load()) {
        s->pager().stop();
        s->summary();
        s->close_trace();
    }
}

}  // namespace

// Whoever starts it holds the guard, so that the driver's answers to our own questions do not come back here.
Session* Session::get(bool start) noexcept {
    Session* s = g_session.load(std::memory_order_acquire);
    if (s || !start || g_over.load(std::memory_order_relaxed)) return s;
    std::lock_guard lock(g_starting);
    s = g_session.load();
    if (s || g_over.load()) return s;
    try {
        auto made = std::make_unique<Session>();
        if (!made->start()) {
            g_over.store(true);
            interpose::install(nullptr);
            return nullptr;
        }
        s = made.release();
    } catch (...) {
        g_over.store(true);
        interpose::install(nullptr);
        return nullptr;
    }
    g_session.store(s, std::memory_order_release);
    pthread_atfork(nullptr, nullptr, forked_child);
    std::atexit(at_exit);
    return s;
}

void Session::end_paging(const std::string& why) noexcept {
    Session* s = g_session.load();
    if (!s) {
        g_over.store(true);
        interpose::install(nullptr);
    } else {
        s->accepting_.store(false);
    }
    log::warn("{}: memory allocated from now on is not managed", why);
}

bool Session::start() {
    auto parsed = parse_options();
    if (!parsed) {
        log::error("{}; this run is not managed", parsed.error().message);
        return false;
    }
    options_ = *parsed;
    log::configure(options_.debug, options_.debug_file);
    if (options_.disable || !is_managed_process(options_)) return false;
    for (const std::string& text : unknown_options(environ)) log::warn("{}", text);
    if (!interpose::resolve_driver()) {
        log::warn("{}: this run is not managed", interpose::driver_error());
        return false;
    }
    int version = 0;
    if (auto ask = UDNNMEM_REAL(cuDriverGetVersion); !ask || ask(&version) != CUDA_SUCCESS || version < 12040) {
        log::warn("needs a driver of CUDA 12.4 or later, this one is {}.{}: update the driver; this run is not managed",
                  version / 1000, version % 1000 / 10);
        return false;
    }
    const char* missing = nullptr;
    const pager::Driver driver = driver_table(&missing);
    if (missing) {
        log::warn("the driver lacks {}, which paging needs: this run is not managed", missing);
        return false;
    }
    pager::Settings settings;
    if (options_.budget.form == Size::Form::absolute) settings.device_budget = static_cast<std::size_t>(options_.budget.bytes.value);
    if (options_.budget.form == Size::Form::share) settings.device_share = options_.budget.share;
    const Bytes available{static_cast<std::int64_t>(host_memory_available())};
    settings.host_budget = static_cast<std::size_t>(options_.host_budget.resolve(available, available).value);
    settings.verify = options_.verify;
    settings.lazy_free = options_.lazy_free;
    pager_ = std::make_unique<pager::Pager>(driver, settings, *this);
    open_trace();
    return true;
}

void Session::line(Level level, const std::string& text) {
    switch (level) {
        case Level::error: log::error("{}", text); break;
        case Level::warn: log::warn("{}", text); break;
        case Level::info: log::info("{}", text); break;
    }
}

void Session::thread_started() {
    interpose::hold_guard_for_life();
    pthread_setname_np(pthread_self(), "udnnmem-mover");
}

// At the first managed allocation: what a user wants to know before the program's own output.
void Session::banner() {
    if (options_.quiet || banner_said_.exchange(true)) return;
    for (pager::DevicePager* d : pager_->devices()) {
        const auto s = d->stats();
        log::note("{} on device {}: budget {:.1f} MiB, host budget {:.1f} MiB, policy demand", UDNNMEM_VERSION,
                  static_cast<int>(d->device()), static_cast<double>(s.budget) / (1 << 20), static_cast<double>(s.host_budget) / (1 << 20));
    }
}

void Session::summary() {
    if (options_.quiet) return;
    for (pager::DevicePager* d : pager_->devices()) {
        const auto s = d->stats();
        auto mib = [](std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
        log::note("device {}: budget {:.1f} MiB, peak {:.1f} of {:.1f} MiB live, moved in {:.1f} out {:.1f} MiB ({} clean evictions), "
                  "{} stalls {:.3f} s, {} launches from host frames, {} verified moves",
                  static_cast<int>(d->device()), mib(s.budget), mib(s.peak_resident), mib(s.peak_live), mib(s.bytes_in),
                  mib(s.bytes_out), s.clean_evictions, s.stalls, static_cast<double>(s.stall_ns) / 1e9, s.served_from_host,
                  s.verified_moves);
    }
}

}  // namespace udnnmem::preload
