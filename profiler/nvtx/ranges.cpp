#include "profiler/nvtx/ranges.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace udnnmem::profiler::nvtx {
namespace {

constexpr std::size_t kLongest = 128;       // bytes of a name
constexpr std::size_t kDeepest = 64;        // ranges at a time
constexpr std::size_t kMostPaths = 1 << 17;

struct Range {
    std::uintptr_t domain;
    std::uint64_t id;       // of a started one
    std::uint64_t turn;     // when it began, among all
    std::string name;
};

// Of a thread. `beyond` counts what is open and was not kept, by no domain: such ranges end first.
struct Stack {
    std::vector<Range> open;
    std::size_t beyond = 0;
    std::uint64_t changes = 1, seen_changes = 0, seen_starts = 0;  // here() as it was then
    const char* path = "";
};
thread_local bool g_gone = false;   // the thread's stack is: calls come from what its end destroys later
struct OwnedStack : Stack {
    ~OwnedStack() { g_gone = true; }
};
thread_local OwnedStack g_stack;

std::atomic<bool> g_listening{true};
std::atomic<std::uint64_t> g_turn{0}, g_starts{1};   // starts: how often g_open has changed
std::atomic<bool> g_watching{false};

// Leaked: programs end ranges from their own destructors.
struct Shared {
    std::mutex mutex;
    std::vector<Range> open;                                      // started, not ended
    std::unordered_map<std::uintptr_t, std::string> domains;
    std::unordered_set<std::string> paths;
    std::string watched;
    void (*told)() noexcept = nullptr;
};
Shared& shared() {
    static Shared* const s = [] {
        pthread_atfork(nullptr, nullptr, [] { g_listening.store(false); });  // a lock may be held by a thread that the child has not
        return new Shared;
    }();
    return *s;
}

void watch_for(std::string_view name) {
    if (!g_watching.load(std::memory_order_acquire)) return;
    Shared& s = shared();
    if (name == s.watched) s.told();
}

}  // namespace

bool listening() noexcept { return g_listening.load(std::memory_order_relaxed); }
void stop_listening() noexcept { g_listening.store(false); }

void pushed(std::uintptr_t domain, std::string_view name) noexcept try {
    if (!listening() || g_gone) return;
    Stack& s = g_stack;
    if (s.beyond || s.open.size() == kDeepest) {
        ++s.beyond;
        return;
    }
    s.open.push_back({domain, 0, g_turn.fetch_add(1, std::memory_order_relaxed), std::string(name.substr(0, kLongest))});
    ++s.changes;
    watch_for(name);
} catch (...) {
    stop_listening();
}

int popped(std::uintptr_t domain) noexcept {
    if (!listening() || g_gone) return -1;
    Stack& s = g_stack;
    const int level = depth(domain) - 1;
    if (s.beyond) {
        --s.beyond;
        return level;
    }
    for (std::size_t i = s.open.size(); i-- > 0;) {
        if (s.open[i].domain != domain) continue;
        s.open.erase(s.open.begin() + static_cast<std::ptrdiff_t>(i));
        ++s.changes;
        break;
    }
    return level;
}

int depth(std::uintptr_t domain) noexcept {
    if (g_gone) return 0;
    const Stack& s = g_stack;
    return static_cast<int>(s.beyond) + static_cast<int>(std::count_if(s.open.begin(), s.open.end(), [&](const Range& r) { return r.domain == domain; }));
}

void started(std::uintptr_t domain, std::uint64_t id, std::string_view name) noexcept try {
    if (!listening()) return;
    Shared& s = shared();
    {
        std::lock_guard lock(s.mutex);
        if (s.open.size() == kDeepest) return;
        s.open.push_back({domain, id, g_turn.fetch_add(1, std::memory_order_relaxed), std::string(name.substr(0, kLongest))});
        g_starts.fetch_add(1, std::memory_order_release);
    }
    watch_for(name);
} catch (...) {
    stop_listening();
}

void ended(std::uintptr_t domain, std::uint64_t id) noexcept {
    if (!listening()) return;
    Shared& s = shared();
    std::lock_guard lock(s.mutex);
    if (std::erase_if(s.open, [&](const Range& r) { return r.domain == domain && r.id == id; })) g_starts.fetch_add(1, std::memory_order_release);
}

void marked(std::uintptr_t, std::string_view name) noexcept {
    if (listening()) watch_for(name);
}

void name_domain(std::uintptr_t domain, std::string_view name) noexcept try {
    Shared& s = shared();
    std::lock_guard lock(s.mutex);
    s.domains[domain] = name.substr(0, kLongest);
} catch (...) {
}

const char* here() noexcept try {
    if (!listening() || g_gone) return "";
    Stack& mine = g_stack;
    const std::uint64_t starts = g_starts.load(std::memory_order_acquire);
    if (mine.seen_changes == mine.changes && mine.seen_starts == starts) return mine.path;
    Shared& s = shared();
    std::lock_guard lock(s.mutex);
    std::vector<const Range*> all;
    for (const Range& r : s.open) all.push_back(&r);
    for (const Range& r : mine.open) all.push_back(&r);
    std::sort(all.begin(), all.end(), [](const Range* a, const Range* b) { return a->turn < b->turn; });
    std::string path;
    for (const Range* r : all) {
        if (!path.empty()) path += '/';
        if (r->domain)
            if (const auto domain = s.domains.find(r->domain); domain != s.domains.end()) path += domain->second + ":";
        path += r->name;
    }
    mine.seen_changes = mine.changes;
    mine.seen_starts = g_starts.load(std::memory_order_relaxed);
    mine.path = "";
    if (auto known = s.paths.find(path); known != s.paths.end()) mine.path = known->c_str();
    else if (s.paths.size() < kMostPaths) mine.path = s.paths.insert(std::move(path)).first->c_str();
    return mine.path;
} catch (...) {
    stop_listening();
    return "";
}

void watch(std::string_view name, void (*told)() noexcept) noexcept try {
    Shared& s = shared();
    if (g_watching.load()) return;
    s.watched = name;
    s.told = told;
    g_watching.store(true, std::memory_order_release);
} catch (...) {
}

}  // namespace udnnmem::profiler::nvtx
