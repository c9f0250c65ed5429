#include "tests/softgpu/driver/clock.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

namespace softgpu {
namespace {

constexpr std::int64_t kRest = 400'000;      // ns without a call; longer than any poller sleeps that is to see each op end
constexpr std::int64_t kSettled = 30'000;    // ns after which whoever polls has gone once more through all that it polls
constexpr std::int64_t kComputing = 240'000; // ns; a thread that goes on without a call is looked at so often in the end
constexpr std::int64_t kSpinning = 300'000'000;  // threads that poll without sleeping never look asleep: after so long they wait

// An op that waits for its end.
struct Held {
    std::int64_t end;
    std::condition_variable reached;
};

struct Clock {
    std::mutex mutex;
    std::condition_variable rested;          // nothing runs and something is held, or the last that polls has done so
    std::vector<Held*> held;                 // unordered
    std::vector<int> ours;                   // thread ids
    std::vector<std::pair<int, std::int64_t>> polled;  // thread ids, when each did last
    int running = 0;
    std::atomic<std::int64_t> now{0}, last_call{0};
};
Clock& the_clock() {
    static auto* const c = new Clock;
    return *c;
}

// The threads of the process but the driver's own, each by its open state file: asked some ten thousand times a second.
class Threads {
public:
    // Whether all but `ours` sleep.
    bool asleep(const std::vector<int>& ours) {
        struct stat now;
        if (folder_ < 0) folder_ = ::open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (folder_ < 0) return true;
        // As many links as threads; one that ended cannot be read.
        if (::fstat(folder_, &now) != 0 || now.st_nlink != links_ || ours.size() != ours_) list(ours, now.st_nlink);
        for (const int file : files_) {
            char text[512];
            const ssize_t n = ::pread(file, text, sizeof text - 1, 0);
            if (n <= 0) {
                links_ = 0;
                return false;
            }
            text[n] = 0;
            const char* state = std::strrchr(text, ')');
            if (state && state[1] && (state[2] == 'R' || state[2] == 'D')) return false;
        }
        return true;
    }

private:
    void list(const std::vector<int>& ours, nlink_t links) {
        for (const int file : files_) ::close(file);
        files_.clear();
        links_ = links;
        ours_ = ours.size();
        DIR* folder = ::opendir("/proc/self/task");
        if (!folder) return;
        while (dirent* entry = ::readdir(folder)) {
            const int id = std::atoi(entry->d_name);
            if (id <= 0 || std::find(ours.begin(), ours.end(), id) != ours.end()) continue;
            char path[64];
            std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", id);
            if (const int file = ::open(path, O_RDONLY | O_CLOEXEC); file >= 0) files_.push_back(file);
        }
        ::closedir(folder);
    }

    int folder_ = -1;
    nlink_t links_ = 0;
    std::size_t ours_ = 0;
    std::vector<int> files_;
};

// When whoever sleeps between polls has seen the last change, if no call comes and no poll: all who polled lately have done so
// since, or poll no more.
std::int64_t settles_at(const Clock& c) {
    const std::int64_t since = c.last_call.load();
    std::int64_t at = since + kSettled;
    for (const auto& [thread, when] : c.polled)
        if (when < since + kSettled) at = std::max(at, std::min(since, when) + kRest);
    return at;
}

void note_poll() {
    static thread_local const int id = static_cast<int>(::syscall(SYS_gettid));
    Clock& c = the_clock();
    std::lock_guard lock(c.mutex);
    const std::int64_t now = now_ns();
    std::erase_if(c.polled, [now](const auto& p) { return p.first == id || p.second < now - kRest; });
    c.polled.emplace_back(id, now);
    if (!c.held.empty() && c.running == 0 && settles_at(c) <= now) c.rested.notify_one();
}

void nap(std::int64_t ns) {
    timespec t{0, ns};
    ::nanosleep(&t, nullptr);
}

void run_clock() {
    engine_thread();
    ::pthread_setname_np(::pthread_self(), "gpu-clock");
    ::prctl(PR_SET_TIMERSLACK, 1);
    Clock& c = the_clock();
    Threads threads;
    std::int64_t called = 0, pause = kSettled;
    std::unique_lock lock(c.mutex);
    for (;;) {
        c.rested.wait(lock, [&] { return !c.held.empty() && c.running == 0; });
        const std::vector<int> ours = c.ours;
        const std::int64_t since = c.last_call.load(), now = now_ns();
        if (const std::int64_t at = settles_at(c); at > now) {
            c.rested.wait_for(lock, std::chrono::nanoseconds(at - now));
            continue;
        }
        pause = since == called ? std::min(2 * pause, kComputing) : kSettled;
        called = since;
        lock.unlock();
        const bool rest = threads.asleep(ours) || now - since >= kSpinning;
        if (!rest) nap(pause);
        lock.lock();
        if (!rest || c.running || c.held.empty() || c.last_call.load() != since) continue;
        const Held* first = *std::min_element(c.held.begin(), c.held.end(), [](const Held* a, const Held* b) { return a->end < b->end; });
        c.now.store(std::max(c.now.load(), first->end));
        c.last_call.store(now_ns());
        std::erase_if(c.held, [&](Held* h) {
            if (h->end > c.now.load()) return false;
            ++c.running;  // it goes on: the clock stands until it has told so
            h->reached.notify_one();
            return true;
        });
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
        if (!std::strcmp(name, question)) {
            if (std::strstr(question, "Query")) note_poll();
            return;
        }
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
    c.last_call.store(now_ns(), std::memory_order_relaxed);
    if (--c.running == 0 && !c.held.empty()) c.rested.notify_one();
}

void hold_until(std::int64_t end) {
    Clock& c = the_clock();
    if (end <= c.now.load()) return;
    std::unique_lock lock(c.mutex);
    Held held{end, {}};
    c.held.push_back(&held);
    if (--c.running == 0) c.rested.notify_one();
    held.reached.wait(lock, [&] { return c.now.load() >= end; });
}

void spend(std::int64_t ns) {
    if (!modelled() || ns <= 0) return;
    engine_runs();   // as an engine of its own
    hold_until(virtual_now() + ns);
    engine_rests();
}

}  // namespace softgpu
