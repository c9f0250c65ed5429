#include "tests/model/scheduler.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <vector>

#include <time.h>

#include "tests/model/image.hpp"

namespace model {

std::uint64_t name_of(const void* object);

namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = (a ^ (a >> 32)) * 0x9e3779b97f4a7c15u + b;
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 32);
}

struct Thread {
    enum class State { ready, wants_lock, waits, joins, done } state = State::ready;
    Fiber* fiber = nullptr;
    std::uint64_t label = 0, history = 0;  // where it is, and what it has done and learned since
    std::uint64_t place = 0;          // in the code
    bool loops = false;               // one of the pager's: it begins anew each time that it takes its lock
    const void* mutex = nullptr;      // wanted, or to be had again after a wait
    const void* condition = nullptr;  // waited for
    std::uint64_t streams = 0;        // what it does next is not to be exchanged with what the device does on these
    bool timed = false;
    std::uint64_t waits_since = 0;    // what the threads shared when the wait began
    bool changed = false;             // that is another now
    int joined = -1;
};

// What an execution can change; made inside the image.
struct Execution {
    std::unique_ptr<World> world;
    std::vector<std::unique_ptr<Thread>> threads;
    std::map<const void*, int> owners;
    struct Known {
        std::size_t bytes;
        std::uint64_t name;
    };
    std::map<const void*, Known> known;
    std::vector<const void*> locks;
    std::function<void(World&)> body;
    std::int64_t clock = 0;
    bool quiet = false, inspecting = false;
    int me = 0;                       // who ran last
    bool ran = false;                 // since `shared`, the world's hash, was computed
    std::uint64_t shared = 0;
    std::string wrong;
};
Execution* x = nullptr;

// Who uses an object: a bit for each thread. What is used under one of the known locks alone needs no point of its own.
struct Use {
    std::uint64_t name = 0;
    std::uint32_t users = 0;
    bool changes = false, unlocked = false, shared = false;
};
constexpr std::size_t kUses = 4096;

constexpr std::uint32_t kEnd = 0;     // the node that all ends are
struct Node {
    std::uint64_t state = 0;
    std::uint64_t first_edge = 0;
    std::uint32_t before = kEnd;      // where it was met first ...
    std::int16_t by = 0;              // ... and what led from there to it
    std::int8_t edges = -1;           // not known yet
};
// The nodes by their states; open addressing, for there are many.
class Seen {
    std::vector<std::uint32_t> table_ = std::vector<std::uint32_t>(1 << 16);
    std::size_t mask_ = table_.size() - 1, count_ = 0;

  public:
    // The place of the node of that state, or where it would be (0).
    std::uint32_t& find(std::uint64_t state, const std::vector<Node>& nodes) {
        std::size_t at = state & mask_;
        while (table_[at] && nodes[table_[at]].state != state) at = (at + 1) & mask_;
        return table_[at];
    }
    void insert(std::uint32_t node, const std::vector<Node>& nodes) {
        if (++count_ * 2 > table_.size()) {
            table_.assign(table_.size() * 4, 0);
            mask_ = table_.size() - 1;
            for (std::uint32_t n = 1; n < node; ++n) find(nodes[n].state, nodes) = n;
        }
        find(nodes[node].state, nodes) = node;
    }
    void clear() { *this = {}; }
};
struct Frame {
    std::uint32_t node;
    std::vector<int> choices;
    std::vector<std::uint32_t> to;
    std::size_t next = 0;
    Snapshot here;                    // if there is more than one choice
    std::size_t schedule;             // how long it was
};

struct Explorer {
    Limits limits;
    Outcome outcome;
    Use uses[kUses];
    bool found_shared = false;
    Seen seen;
    std::vector<Node> nodes;
    std::vector<std::uint32_t> edges;
    std::vector<int> choices, device;
    std::vector<int> schedule;
    std::uint64_t random = 1;
};
Explorer* g = nullptr;

bool managed() { return x && inside() && !x->inspecting; }
Thread& me() { return *x->threads[static_cast<std::size_t>(x->me)]; }

// Into g->device.
void device_can_step() {
    g->device.clear();
    x->world->device_choices(g->device);
}
bool can_run(const Thread& t) {
    switch (t.state) {
        case Thread::State::ready: return true;
        case Thread::State::wants_lock: return !x->owners.contains(t.mutex);
        case Thread::State::waits: return t.timed && (t.changed || !g->device.empty()) && (t.loops || x->world->worth_waking()) && !x->owners.contains(t.mutex);
        case Thread::State::joins: return x->threads[static_cast<std::size_t>(t.joined)]->state == Thread::State::done;
        case Thread::State::done: return false;
    }
    return false;
}

// Nothing can go on: time passes for those who wait for so long at most.
bool let_time_pass() {
    if (x->clock > 100'000'000'000) return false;  // it has, and nothing came of it
    bool any = false;
    for (auto& t : x->threads)
        if (t->state == Thread::State::waits && t->timed) t->changed = any = true;
    x->clock += 1'000'000'000;
    return any;
}

void fail(const std::string& what) {
    if (x->wrong.empty()) x->wrong = what;
}
std::string schedule_text() {
    std::string text = "\n  schedule:";
    for (std::size_t i = 0, n; i < g->schedule.size(); i += n) {
        const int s = g->schedule[i];
        for (n = 1; i + n < g->schedule.size() && g->schedule[i + n] == s;) ++n;
        text += " " + (s < device_base ? std::to_string(s) : x->world->describe(s - device_base)) + (n > 1 ? "x" + std::to_string(n) : "");
    }
    return text;
}

// The pager's own walkers read atomics: those reads are no steps.
std::uint64_t look(bool check) {
    Inside here(true);
    x->inspecting = true;
    if (check)
        if (const std::string wrong = x->world->wrong(); !wrong.empty()) fail(wrong);
    const std::uint64_t shared = x->world->hash();
    x->inspecting = false;
    return shared;
}

std::uint64_t state_hash(std::uint64_t shared) {
    std::uint64_t h = mix(shared, static_cast<std::uint64_t>(x->clock));
    for (auto& t : x->threads) {
        h = mix(h, static_cast<std::uint64_t>(t->state));
        h = mix(h, t->history);
        h = mix(h, t->place + t->streams);
        h = mix(h, t->state == Thread::State::waits ? name_of(t->condition) * 4 + t->timed * 2 + t->changed : 0);
        h = mix(h, t->state == Thread::State::wants_lock ? name_of(t->mutex) : 0);
    }
    for (const auto& [mutex, owner] : x->owners) h += mix(name_of(mutex), static_cast<std::uint64_t>(owner) + 3);
    return h;
}

void apply(int choice) {
    g->schedule.push_back(choice);
    ++g->outcome.steps;
    if (choice >= device_base) {
        Inside here(true);
        x->inspecting = true;
        x->world->device_step(choice - device_base);
        x->inspecting = false;
        return;
    }
    x->me = choice;
    x->ran = true;
    run_fiber(me().fiber);
    me().place = place_of(me().fiber);
}

// On to where there is a decision to make, whose choices are g->choices then, to the end, or to what is wrong.
enum class Stop { decision, end, wrong };
Stop settle(std::uint64_t& state) {
    for (std::size_t steps = 0;; ++steps) {
        if (steps > g->limits.steps) fail("no end: the same things are done again and again");
        const std::uint64_t shared = look(true);
        if (!x->wrong.empty()) return Stop::wrong;
        if (x->ran && shared != x->shared) me().history = mix(me().history, 7);  // what it has changed it may remember
        x->ran = false;
        x->shared = shared;
        if (g->found_shared) return Stop::end;
        bool all_done = true;
        for (auto& t : x->threads) {
            if (t->state == Thread::State::waits && t->timed && shared != t->waits_since) t->changed = true;
            all_done &= t->state == Thread::State::done;
        }
        if (all_done) return Stop::end;
        auto& choices = g->choices;
        choices.clear();
        device_can_step();
        const bool mine = can_run(me());
        if (mine) choices.push_back(x->me);
        for (int i = 0; i < static_cast<int>(x->threads.size()); ++i)
            if (i != x->me && can_run(*x->threads[static_cast<std::size_t>(i)])) choices.push_back(i);
        // What the device does can wait for what has nothing to do with it.
        std::uint64_t matters = x->quiet || choices.empty() ? ~std::uint64_t{0} : 0;
        for (int c : choices) matters |= x->threads[static_cast<std::size_t>(c)]->streams;
        for (int d : g->device)
            if (matters >> d & 1) choices.push_back(device_base + d);
        if (choices.empty()) {
            if (let_time_pass()) continue;
            fail("nothing can go on, and not everything has been submitted");
            return Stop::wrong;
        }
        if (!x->quiet) {
            std::sort(choices.begin() + mine, choices.end());
            state = state_hash(shared);
            return Stop::decision;
        }
        apply(me().state == Thread::State::ready ? choices.front() : choices.back());
    }
}

// The thread that runs gives way; it goes on when it is its turn again.
void hand_over() { give_way(); }

void take_lock(const void* mutex) {
    while (x->owners.contains(mutex)) {
        me().state = Thread::State::wants_lock;
        me().mutex = mutex;
        hand_over();
        me().state = Thread::State::ready;
    }
    x->owners[mutex] = x->me;
}

// Whether others may be using the object too.
bool shared(const void* object, bool changes) {
    const std::uint64_t name = name_of(object);
    if (name <= 1) return true;
    std::size_t at = mix(name, 7) % kUses;
    while (g->uses[at].name && g->uses[at].name != name) at = (at + 1) % kUses;
    Use& use = g->uses[at];
    use.name = name;
    use.users |= 1u << x->me;
    use.changes |= changes;
    use.unlocked |= std::none_of(x->locks.begin(), x->locks.end(), [](const void* l) {
        const auto it = x->owners.find(l);
        return it != x->owners.end() && it->second == x->me;
    });
    if (!use.shared && use.changes && use.unlocked && std::popcount(use.users) > 1) use.shared = g->found_shared = true;
    return use.shared;
}

}  // namespace

void point(std::uint64_t streams) {
    if (!managed() || x->quiet) return;
    me().streams = streams;
    hand_over();
    me().streams = 0;
}
void point(const void* object, bool changes) {
    if (managed() && !x->quiet && shared(object, changes)) hand_over();
}
void note(std::uint64_t what) {
    if (managed()) me().history = mix(me().history, what);
}
std::uint64_t name_of(const void* object) {
    if (!object || !x) return 0;
    for (auto it = x->known.upper_bound(object); it != x->known.begin();) {
        --it;
        const auto offset = static_cast<std::size_t>(static_cast<const char*>(object) - static_cast<const char*>(it->first));
        if (offset < it->second.bytes) return mix(it->second.name, offset) | 2;
    }
    const std::uint64_t name = x->world ? x->world->name_of(object) : 0;
    return name ? name | 2 : 1;
}
void lock(void* mutex) {
    if (!managed()) return;
    if (std::find(x->locks.begin(), x->locks.end(), mutex) != x->locks.end()) {
        if (!x->quiet) hand_over();
        if (me().loops) me().history = 0;
    }
    note(name_of(mutex));
    take_lock(mutex);
}
bool try_lock(void* mutex) {
    if (!managed()) return true;
    const bool free = !x->owners.contains(mutex);
    note(free);
    if (free) x->owners[mutex] = x->me;
    return free;
}
void unlock(void* mutex) {
    if (managed()) x->owners.erase(mutex);
}
void wait(void* condition, void* mutex, bool timed) {
    x->owners.erase(mutex);
    Thread& t = me();
    t.state = Thread::State::waits;
    t.condition = condition;
    t.mutex = mutex;
    t.timed = timed;
    t.changed = false;
    t.waits_since = x->world->hash();
    t.history = mix(name_of(condition), t.label);  // a loop that waits begins anew
    hand_over();
    t.state = Thread::State::ready;
    take_lock(mutex);
}
void notify(void* condition, bool) {
    if (!managed()) return;
    point(condition, true);
    for (auto& t : x->threads)  // one is as good as all: those that it does not concern look and wait again
        if (t->state == Thread::State::waits && t->condition == condition) t->state = Thread::State::wants_lock;
}
int start_thread(std::function<void()> body) {
    const int id = static_cast<int>(x->threads.size());
    x->threads.push_back(std::make_unique<Thread>());
    Thread* t = x->threads.back().get();
    t->loops = true;
    t->fiber = make_fiber([t, body = std::move(body)] {
        body();
        t->state = Thread::State::done;
    });
    return id;
}
void join_thread(int id) {
    while (x->threads[static_cast<std::size_t>(id)]->state != Thread::State::done) {
        me().state = Thread::State::joins;
        me().joined = id;
        hand_over();
        me().state = Thread::State::ready;
    }
}
void quietly(const std::function<void()>& part) {
    x->quiet = true;
    part();
    x->quiet = false;
    hand_over();
}
int spawn(std::function<void()> body) {
    const int id = start_thread(std::move(body));
    x->threads[static_cast<std::size_t>(id)]->loops = false;
    return id;
}
void join(int id) { join_thread(id); }
void label(std::uint64_t where) {
    if (managed()) me().label = where, me().history = mix(where, 1);
}
void violation(const std::string& what) {
    if (x) fail(what);
}
std::int64_t clock_ns() { return x ? x->clock : 0; }
void know(const void* object, std::size_t bytes, std::uint64_t name) { x->known[object] = {bytes, name}; }
void know_lock(const void* mutex) { x->locks.push_back(mutex); }
bool locked(const void* mutex) { return x->owners.contains(mutex); }

namespace {

// From the beginning to the first decision.
Stop begin(const std::function<std::unique_ptr<World>()>& make, const std::function<void(World&)>& body, std::uint64_t& state) {
    {
        Inside here(true);
        x = new Execution;
        x->quiet = true;
        x->inspecting = true;
        x->world = make();
        x->inspecting = false;
        x->body = body;
        start_thread([] { x->body(*x->world); });
        x->threads[0]->loops = false;
    }
    return settle(state);
}

void push(std::vector<Frame>& path, std::uint64_t state) {
    const auto node = static_cast<std::uint32_t>(g->nodes.size());
    g->nodes.push_back({.state = state});
    if (!path.empty()) {
        g->nodes.back().before = path.back().node;
        g->nodes.back().by = static_cast<std::int16_t>(g->schedule[path.back().schedule]);
    }
    g->seen.insert(node, g->nodes);
    ++g->outcome.states;
    path.push_back({node, g->choices, {}, 0, {}, g->schedule.size()});
    if (g->choices.size() > 1) path.back().here = save();
    g->outcome.deepest = std::max(g->outcome.deepest, path.size());
}

// A state that was met before, on another way: the same must follow.
void audit(std::uint32_t node) {
    const Node n = g->nodes[node];
    if (n.edges < 0) return;
    ++g->outcome.audited;
    Snapshot here = save();
    const std::vector<int> choices = g->choices;
    const auto length = g->schedule.size();
    bool same = choices.size() == static_cast<std::size_t>(n.edges);
    const auto first = g->edges.begin() + static_cast<std::ptrdiff_t>(n.first_edge);
    std::vector<std::uint32_t> before(first, first + n.edges), now;
    for (std::size_t i = 0; same && i < choices.size(); ++i) {
        restore(here);
        g->schedule.resize(length);
        apply(choices[i]);
        std::uint64_t state = 0;
        const Stop stop = settle(state);
        const std::uint32_t to = stop == Stop::decision ? g->seen.find(state, g->nodes) : kEnd;
        now.push_back(stop == Stop::end || to ? to : ~0u);
    }
    std::sort(before.begin(), before.end()), std::sort(now.begin(), now.end());
    g->schedule.resize(length);
    restore(here);
    forget(here);
    if (!same || before != now) fail("two states with one hash are not the same: the model forgets something");
}

// All that can follow. False: something is wrong, or a new object is shared.
bool search(std::uint64_t state) {
    std::vector<Frame> path;
    push(path, state);
    while (!path.empty()) {
        Frame& f = path.back();
        if (f.next == f.choices.size()) {
            Node& n = g->nodes[f.node];
            n.first_edge = g->edges.size();
            n.edges = static_cast<std::int8_t>(f.to.size());
            g->edges.insert(g->edges.end(), f.to.begin(), f.to.end());
            path.pop_back();
            continue;
        }
        if (f.next > 0) restore(f.here);
        g->schedule.resize(f.schedule);
        const int choice = f.choices[f.next++];
        if (f.next == f.choices.size()) forget(f.here);
        apply(choice);
        const Stop stop = settle(state);
        if (stop == Stop::wrong || g->found_shared) {
            for (Frame& left : path) forget(left.here);
            return false;
        }
        if (stop == Stop::end) {
            ++g->outcome.ends;
            f.to.push_back(kEnd);
            continue;
        }
        const std::uint32_t known = g->seen.find(state, g->nodes);
        if (!known) {
            f.to.push_back(static_cast<std::uint32_t>(g->nodes.size()));
            if (g->limits.states && g->outcome.states >= g->limits.states) {
                for (Frame& left : path) forget(left.here);
                return false;
            }
            push(path, state);
            continue;
        }
        f.to.push_back(known);
        g->random = mix(g->random, 1);
        if (g->limits.audit && g->random % g->limits.audit == 0) {
            audit(known);
            if (!x->wrong.empty()) return false;
        }
    }
    return true;
}

// From every state the end can be reached: whatever has happened, all is submitted if only everybody goes on now and then.
bool all_end() {  // else g->schedule leads to where it cannot
    const std::size_t n = g->nodes.size();
    std::vector<std::uint64_t> count(n + 1);
    std::vector<std::uint32_t> from(g->edges.size());
    for (std::uint32_t to : g->edges) ++count[to + 1];
    for (std::size_t i = 0; i < n; ++i) count[i + 1] += count[i];
    std::vector<std::uint64_t> at = count;
    for (std::uint32_t i = 0; i < n; ++i)
        for (int e = 0; e < g->nodes[i].edges; ++e) from[at[g->edges[g->nodes[i].first_edge + static_cast<std::uint64_t>(e)]]++] = i;
    std::vector<bool> ends(n);
    std::vector<std::uint32_t> open{kEnd};
    ends[kEnd] = true;
    std::size_t reached = 0;
    while (!open.empty()) {
        const std::uint32_t node = open.back();
        open.pop_back();
        ++reached;
        for (std::uint64_t i = count[node]; i < count[node + 1]; ++i)
            if (!ends[from[i]]) ends[from[i]] = true, open.push_back(from[i]);
    }
    if (reached == n) return true;
    g->schedule.clear();
    std::uint32_t stuck = 0;
    while (ends[stuck]) ++stuck;
    for (; stuck != kEnd; stuck = g->nodes[stuck].before)
        g->schedule.insert(g->schedule.begin(), g->nodes[stuck].by);
    return false;
}

// Mostly on with the same; else whoever.
int draw(bool mine) {
    auto& r = g->random;
    r ^= r << 13, r ^= r >> 7, r ^= r << 17;
    return g->choices[mine && r % 8 ? 0 : r / 8 % g->choices.size()];
}

}  // namespace

Outcome explore(const Limits& limits, const std::function<std::unique_ptr<World>()>& make, const std::function<void(World&)>& body) {
    auto explorer = std::make_unique<Explorer>();
    g = explorer.get();
    g->limits = limits;
    std::uint64_t state = 0;
    Stop stop = begin(make, body, state);
    const auto first_choices = g->choices;
    Snapshot first = save();
    if (stop == Stop::decision && limits.walks) {
        for (Use& u : g->uses) u.shared = true;
        for (; g->outcome.walks < limits.walks && x->wrong.empty(); ++g->outcome.walks) {
            restore(first);
            g->schedule.clear();
            g->choices = first_choices;
            g->random = mix(limits.seed, g->outcome.walks) | 1;
            stop = Stop::decision;
            for (std::size_t n = 0; stop == Stop::decision; ++n) {
                if (n > limits.steps) fail("no end: the same things are done again and again");
                apply(draw(can_run(me())));
                stop = settle(state);
            }
        }
    } else if (stop == Stop::decision) {
        const std::uint64_t begun = state;
        for (;;) {
            ++g->outcome.rounds;
            restore(first);
            g->choices = first_choices;
            g->found_shared = false;
            g->seen.clear(), g->nodes.assign(1, {.edges = 0}), g->edges.clear(), g->schedule.clear();
            g->outcome.states = g->outcome.ends = g->outcome.deepest = 0;
            const bool whole = search(begun);
            if (g->found_shared && x->wrong.empty()) continue;
            if (whole && !all_end()) x->wrong = "from some states the end cannot be reached";
            else g->outcome.complete = whole;
            break;
        }
    }
    for (const Use& u : g->uses) g->outcome.shared += u.name && u.shared;
    if (!x->wrong.empty()) {
        Inside here(true);
        const std::string text = x->wrong + schedule_text();
        Inside outside(false);
        g->outcome.wrong = std::string(text.c_str());
    }
    return g->outcome;
}

}  // namespace model

// The pager's clock is the model's, and so is its patience.
extern "C" int usleep(unsigned) { return 0; }
extern "C" int clock_gettime(clockid_t, timespec* now) {
    const std::int64_t ns = 1'000'000'000 + model::clock_ns();
    *now = {ns / 1'000'000'000, ns % 1'000'000'000};
    return 0;
}
