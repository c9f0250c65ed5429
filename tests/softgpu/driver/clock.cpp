#include "tests/softgpu/driver/clock.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

namespace softgpu {
namespace {

constexpr std::int64_t kRest = 400'000;      // ns without a call; longer than any poller sleeps that is to see each op end
constexpr std::int64_t kSpinning = 300'000'000;  // threads that poll without sleeping never look asleep: after so long they wait

struct Clock {
    std::mutex mutex;
    std::condition_variable moved, changed;
    std::vector<std::int64_t> held;          // ends, unordered
    std::vector<int> ours;                   // thread ids
    int running = 0;
    std::atomic<std::int64_t> now{0}, last_call{0};
};
Clock& the_clock() {
    static auto* const c = new Clock;
    return *c;
}

// Whether every thread of the process but `ours` sleeps.
bool all_asleep(const std::vector<int>& ours) {
    DIR* folder = ::opendir("/proc/self/task");
    if (!folder) return true;
    bool asleep = true;
    while (dirent* entry = ::readdir(folder)) {
        const int id = std::atoi(entry->d_name);
        if (id <= 0 || std::find(ours.begin(), ours.end(), id) != ours.end()) continue;
        char path[64], text[512];
        std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", id);
        const int file = ::open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) continue;
        const ssize_t n = ::read(file, text, sizeof text - 1);
        ::close(file);
        if (n <= 0) continue;
        text[n] = 0;
        const char* state = std::strrchr(text, ')');
        if (state && state[1] && (state[2] == 'R' || state[2] == 'D')) {
            asleep = false;
            break;
        }
    }
    ::closedir(folder);
    return asleep;
}

void nap(std::int64_t ns) {
    timespec t{0, ns};
    ::nanosleep(&t, nullptr);
}

void run_clock() {
    engine_thread();
    ::pthread_setname_np(::pthread_self(), "gpu-clock");
    Clock& c = the_clock();
    std::unique_lock lock(c.mutex);
    for (;;) {
        c.changed.wait(lock, [&] { return !c.held.empty() && c.running == 0; });
        const std::vector<int> ours = c.ours;
        lock.unlock();
        const std::int64_t quiet = now_ns() - c.last_call.load();
        bool rest = quiet >= kRest && all_asleep(ours);
        if (!rest && quiet < kSpinning) nap(quiet < kRest ? kRest - quiet : 50'000);
        rest |= quiet >= kSpinning;
        lock.lock();
        if (!rest || c.running || c.held.empty() || now_ns() - c.last_call.load() < kRest) continue;
        c.now.store(std::max(c.now.load(), *std::min_element(c.held.begin(), c.held.end())));
        c.last_call.store(now_ns());
        std::erase_if(c.held, [&](std::int64_t end) {
            if (end > c.now.load()) return false;
            ++c.running;  // it goes on: the clock stands until it has told so
            return true;
        });
        c.moved.notify_all();
    }
}

void start_clock() {
    static const bool started = [] {
        sigset_t all, before;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before);
        std::thread(run_clock).detach();
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        return true;
    }();
    (void)started;
}

}  // namespace

bool modelled() { return options().modelled; }
std::int64_t virtual_now() { return the_clock().now.load(); }

void clock_called(const char* name) {
    for (const char* question : {"cuEventQuery", "cuStreamQuery", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuCtxGetDevice", "cuStreamIsCapturing"})
        if (!std::strcmp(name, question)) return;
    the_clock().last_call.store(now_ns(), std::memory_order_relaxed);
}

void engine_thread() {
    std::lock_guard lock(the_clock().mutex);
    the_clock().ours.push_back(static_cast<int>(::syscall(SYS_gettid)));
}

void engine_runs() {
    start_clock();
    std::lock_guard lock(the_clock().mutex);
    ++the_clock().running;
}

void engine_rests() {
    Clock& c = the_clock();
    std::lock_guard lock(c.mutex);
    --c.running;
    c.last_call.store(now_ns(), std::memory_order_relaxed);
    c.changed.notify_all();
}

void hold_until(std::int64_t end) {
    Clock& c = the_clock();
    if (end <= c.now.load()) return;
    std::unique_lock lock(c.mutex);
    c.held.push_back(end);
    --c.running;
    c.changed.notify_all();
    c.moved.wait(lock, [&] { return c.now.load() >= end; });
}

}  // namespace softgpu
