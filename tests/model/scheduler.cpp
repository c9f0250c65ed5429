#include "tests/model/scheduler.hpp"

#include <exception>
#include <map>
#include <memory>
#include <semaphore>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include <time.h>

namespace model {

struct Stop {};
std::uint64_t name_of(const void* object);

namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = (a ^ (a >> 32)) * 0x9e3779b97f4a7c15u + b;
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 32);
}

struct Thread {
    enum class State { ready, wants_lock, waits, joins, done } state = State::ready;
    std::thread os;
    std::binary_semaphore go{0};
    std::function<void()> body;
    std::uint64_t label = 0, history = 0;  // where it is, and what it has done and learned since
    bool loops = false;               // one of the pager's: it begins anew each time that it takes its lock
    const void* mutex = nullptr;      // wanted, or to be had again after a wait
    const void* condition = nullptr;  // waited for
    bool timed = false;
    std::uint64_t waits_since = 0;    // what the threads shared when the wait began
    int joined = -1;
};

struct Frame {
    std::vector<int> choices;
    std::vector<int> costs;           // preemptions spent on each
    std::size_t taken = 0;
    int spent = 0;                    // before
};

struct Explorer {
    Limits limits;
    World* world = nullptr;
    std::vector<Frame> frames;        // the decisions of this execution, and at its beginning those to repeat
    std::size_t depth = 0;
    std::unordered_map<std::uint64_t, int> seen;  // state -> fewest preemptions spent when it was reached
    Outcome outcome;

    // One execution.
    std::vector<std::unique_ptr<Thread>> threads;
    std::map<const void*, int> owners;
    struct Known {
        std::size_t bytes;
        std::uint64_t name;
    };
    std::map<const void*, Known> known;
    std::uint64_t shared = 0;         // the world's hash, as of the decision under way
    std::size_t steps = 0;
    std::uint64_t random = 0;
    std::int64_t clock = 0;
    bool stopping = false, clock_jumped = false, quiet = false, inspecting = false;
    int spent = 0;
    std::vector<int> schedule;
    std::binary_semaphore over{0};
};
Explorer* g = nullptr;
thread_local int t_me = -1;
thread_local bool t_unwinding = false;

bool managed() { return g && t_me >= 0 && !g->stopping && !g->inspecting; }
Thread& me() { return *g->threads[static_cast<std::size_t>(t_me)]; }

bool can_run(const Thread& t) {
    switch (t.state) {
        case Thread::State::ready: return true;
        case Thread::State::wants_lock: return !g->owners.contains(t.mutex);
        case Thread::State::waits: return t.timed && g->shared != t.waits_since && !g->owners.contains(t.mutex);
        case Thread::State::joins: return g->threads[static_cast<std::size_t>(t.joined)]->state == Thread::State::done;
        case Thread::State::done: return false;
    }
    return false;
}

// Nothing can go on: time passes for those who wait for so long at most.
bool let_time_pass() {
    if (g->clock_jumped) return false;  // it has, and nothing came of it
    bool any = false;
    for (auto& t : g->threads)
        if (t->state == Thread::State::waits && t->timed) t->waits_since = 0, any = true;
    g->clock += 1'000'000'000;
    g->clock_jumped = true;
    return any;
}

void fail(const std::string& what) {
    if (!g->outcome.wrong.empty()) return;
    g->outcome.wrong = what + "\n  schedule:";
    int last = -1, times = 0;
    auto flush = [&] {
        if (last >= 0) g->outcome.wrong += " " + (last < device_base ? std::to_string(last) : g->world->describe(last - device_base)) + (times > 1 ? "x" + std::to_string(times) : "");
    };
    for (int s : g->schedule) {
        if (s == last) {
            ++times;
            continue;
        }
        flush();
        last = s, times = 1;
    }
    flush();
}

// The pager's own walkers read atomics: those reads are no steps.
void inspect() {
    g->inspecting = true;
    const std::string wrong = g->world->wrong();
    g->inspecting = false;
    if (!wrong.empty()) fail(wrong);
}

std::uint64_t state_hash() {
    std::uint64_t h = mix(g->shared, static_cast<std::uint64_t>(g->clock));
    for (auto& t : g->threads) {
        h = mix(h, static_cast<std::uint64_t>(t->state));
        h = mix(h, t->history);
        h = mix(h, t->state == Thread::State::waits ? name_of(t->condition) * 4 + t->timed * 2 + (g->shared != t->waits_since) : 0);
        h = mix(h, t->state == Thread::State::wants_lock ? name_of(t->mutex) : 0);
    }
    h = mix(h, static_cast<std::uint64_t>(t_me));
    return h;
}

// Who is next; -1: the execution is over (all done, wrong, or seen before).
int decide() {
    for (;;) {
        const bool ready = me().state == Thread::State::ready;
        if (!g->quiet || !ready) g->shared = g->world->hash();  // timed waits depend on it
        std::vector<int> choices;
        const bool mine = can_run(me());
        if (mine) choices.push_back(t_me);
        for (int i = 0; i < static_cast<int>(g->threads.size()); ++i)
            if (i != t_me && can_run(*g->threads[static_cast<std::size_t>(i)])) choices.push_back(i);
        std::vector<int> device;
        g->world->device_choices(device);
        for (int d : device) choices.push_back(device_base + d);
        if (choices.empty()) {
            if (let_time_pass()) continue;
            bool all = true;
            for (std::size_t i = 0; i < g->threads.size(); ++i) all &= g->threads[i]->state == Thread::State::done;
            if (!all) fail("nothing can go on, and not everything has been submitted");
            return -1;
        }
        std::vector<int> costs;
        for (int c : choices) costs.push_back(mine && c != t_me && c < device_base ? 1 : 0);
        if (g->limits.preemptions >= 0 && !g->quiet)
            for (std::size_t i = choices.size(); i-- > 0;)
                if (g->spent + costs[i] > g->limits.preemptions) {
                    choices.erase(choices.begin() + static_cast<std::ptrdiff_t>(i));
                    costs.erase(costs.begin() + static_cast<std::ptrdiff_t>(i));
                }
        std::size_t taken = 0;
        if (g->quiet) {
            if (!ready) taken = choices.size() - 1;
        } else if (choices.size() > 1 && g->limits.seed) {
            // Mostly on with the same; else whoever.
            g->random ^= g->random << 13, g->random ^= g->random >> 7, g->random ^= g->random << 17;
            if (!mine || g->random % 8 == 0) taken = g->random / 8 % choices.size();
        } else if (choices.size() > 1) {
            if (g->depth < g->frames.size()) {
                taken = g->frames[g->depth].taken;
                if (g->frames[g->depth].choices != choices) {
                    fail("the model is not deterministic");
                    return -1;
                }
            } else {
                const std::uint64_t state = state_hash();
                auto [it, fresh] = g->seen.emplace(state, g->spent);
                if (!fresh && it->second <= g->spent) return -1;
                it->second = g->spent;
                g->outcome.states += fresh;
                g->frames.push_back({choices, costs, 0, g->spent});
            }
            ++g->depth;
        }
        if (!g->quiet) g->spent += costs[taken];
        const int next = choices[taken];
        g->schedule.push_back(next);
        if (++g->steps > g->limits.steps) {
            fail("no end after " + std::to_string(g->steps) + " steps: the same things are done again and again");
            return -1;
        }
        ++g->outcome.points;
        if (next < device_base) return next;
        g->clock_jumped = false;
        g->world->device_step(next - device_base);
        inspect();
        if (!g->outcome.wrong.empty()) return -1;
    }
}

[[noreturn]] void give_up() {
    t_unwinding = true;
    throw Stop();
}

void end_execution() {
    g->stopping = true;
    g->over.release();
}

// The calling thread's state is set; somebody goes on, perhaps the caller.
void hand_over() {
    const int next = decide();
    if (next == t_me) return;
    const bool done = me().state == Thread::State::done;
    if (next < 0) end_execution();
    else g->threads[static_cast<std::size_t>(next)]->go.release();
    if (done) return;
    me().go.acquire();
    if (g->stopping) give_up();
}

void take_lock(const void* mutex) {
    while (g->owners.contains(mutex)) {
        me().state = Thread::State::wants_lock;
        me().mutex = mutex;
        hand_over();
        me().state = Thread::State::ready;
    }
    g->owners[mutex] = t_me;
}

void step_made() {
    g->clock_jumped = false;
    inspect();
    if (!g->outcome.wrong.empty()) {
        end_execution();
        me().go.acquire();
        give_up();
    }
}

}  // namespace

void point() {
    if (!managed()) {
        if (g && t_me >= 0 && g->stopping && !t_unwinding && !std::uncaught_exceptions()) give_up();
        return;
    }
    step_made();
    hand_over();
}
void note(std::uint64_t what) {
    if (managed()) me().history = mix(me().history, what);
}
std::uint64_t name_of(const void* object) {
    if (!object || !g) return 0;
    auto it = g->known.upper_bound(object);
    if (it != g->known.begin()) {
        --it;
        const auto offset = static_cast<std::size_t>(static_cast<const char*>(object) - static_cast<const char*>(it->first));
        if (offset < it->second.bytes) return mix(it->second.name, offset);
    }
    return 1;
}
void lock(void* mutex) {
    if (!managed()) {
        if (g && t_me >= 0 && g->stopping && !t_unwinding && !std::uncaught_exceptions()) give_up();
        return;
    }
    if (g->known.contains(mutex)) point();
    if (me().loops && g->known.contains(mutex)) me().history = 0;
    note(name_of(mutex));
    take_lock(mutex);
}
bool try_lock(void* mutex) {
    if (!managed()) return true;
    const bool free = !g->owners.contains(mutex);
    note(free);
    if (free) g->owners[mutex] = t_me;
    return free;
}
void unlock(void* mutex) {
    if (!managed()) return;
    g->owners.erase(mutex);
}
void wait(void* condition, void* mutex, bool timed) {
    if (!managed()) give_up();
    step_made();
    g->owners.erase(mutex);
    Thread& t = me();
    t.state = Thread::State::waits;
    t.condition = condition;
    t.mutex = mutex;
    t.timed = timed;
    t.waits_since = g->world->hash();
    t.history = mix(name_of(condition), t.label);  // a loop that waits begins anew
    hand_over();
    t.state = Thread::State::ready;
    take_lock(mutex);
}
void notify(void* condition, bool) {
    if (!managed()) return;
    for (auto& t : g->threads)  // one is as good as all: those that it does not concern look and wait again
        if (t->state == Thread::State::waits && t->condition == condition) t->state = Thread::State::wants_lock;
}
int start_thread(std::function<void()> body) {
    const int id = static_cast<int>(g->threads.size());
    g->threads.push_back(std::make_unique<Thread>());
    Thread* t = g->threads.back().get();
    t->loops = true;
    t->os = std::thread([t, id, body = std::move(body)] {
        t_me = id;
        t->go.acquire();
        try {
            if (g->stopping) give_up();
            body();
        } catch (const Stop&) {
        }
        t->state = Thread::State::done;
        if (!g->stopping) hand_over();
        t_me = -1;
    });
    return id;
}
void join_thread(int id) {
    if (!managed()) return;
    Thread& t = me();
    while (g->threads[static_cast<std::size_t>(id)]->state != Thread::State::done) {
        t.state = Thread::State::joins;
        t.joined = id;
        hand_over();
        t.state = Thread::State::ready;
    }
}
void quietly(const std::function<void()>& part) {
    if (!managed()) give_up();
    g->quiet = true;
    part();
    g->quiet = false;
}
int spawn(std::function<void()> body) {
    const int id = start_thread(std::move(body));
    g->threads[static_cast<std::size_t>(id)]->loops = false;
    return id;
}
void join(int id) { join_thread(id); }
void label(std::uint64_t where) {
    if (managed()) me().label = where, me().history = mix(where, 1);
}
void violation(const std::string& what) {
    if (!g || g->stopping) return;
    fail(what);
}
std::int64_t clock_ns() { return g ? g->clock : 0; }
void know(const void* object, std::size_t bytes, std::uint64_t name) { g->known[object] = {bytes, name}; }
bool locked(const void* mutex) { return g->owners.contains(mutex); }

Outcome explore(const Limits& limits, const std::function<std::unique_ptr<World>()>& make, const std::function<void(World&)>& body) {
    Explorer explorer;
    explorer.limits = limits;
    g = &explorer;
    for (;;) {
        auto world = make();
        explorer.world = world.get();
        explorer.depth = explorer.steps = 0;
        explorer.clock = 0;
        explorer.spent = 0;
        explorer.random = mix(limits.seed, explorer.outcome.executions) | 1;
        explorer.stopping = explorer.clock_jumped = explorer.quiet = false;
        explorer.owners.clear();
        explorer.schedule.clear();
        start_thread([&] { body(*world); });
        explorer.threads[0]->loops = false;
        explorer.threads[0]->go.release();
        explorer.over.acquire();
        // One after the other ends; what they still do is theirs alone.
        for (std::size_t i = 0; i < explorer.threads.size(); ++i) {
            Thread& t = *explorer.threads[i];
            t.go.release();
            t.os.join();
        }
        world.reset();
        explorer.threads.clear();
        explorer.known.clear();
        ++explorer.outcome.executions;
        if (!explorer.outcome.wrong.empty()) break;
        if (limits.seed) {
            if (explorer.outcome.executions == limits.executions) break;
            continue;
        }
        auto& frames = explorer.frames;
        while (!frames.empty() && frames.back().taken + 1 >= frames.back().choices.size()) frames.pop_back();
        if (frames.empty()) {
            explorer.outcome.complete = true;
            break;
        }
        ++frames.back().taken;
        if (limits.executions && explorer.outcome.executions >= limits.executions) break;
    }
    g = nullptr;
    return explorer.outcome;
}

}  // namespace model

// The pager's clock is the model's.
extern "C" int clock_gettime(clockid_t, timespec* now) {
    const std::int64_t ns = 1'000'000'000 + model::clock_ns();
    *now = {ns / 1'000'000'000, ns % 1'000'000'000};
    return 0;
}
