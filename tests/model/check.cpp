// check SCENARIO [--states N] [--walks N] [--seed N] [--audit N] | --list: every schedule of two launching threads, the mover
// and the device, over the pager's own code, with two buffers in a budget of one. Exit status 0: nothing is wrong; 1: the first
// schedule that breaks a promise is printed; 2: usage.
#include "tests/model/driver.hpp"
#include "tests/model/scheduler.hpp"

#include <sys/mman.h>

namespace model {
namespace {

using namespace udnnmem::pager;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = (a ^ (a >> 30)) * 0xbf58476d1ce4e5b9u + b;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

struct NoSink final : Sink {
    void line(Level level, const std::string& text) override {
        if (level == Level::error) violation("the pager gives up: " + text);
    }
    void event(const udnnmem::profiler::RunEvent&) override {}
    void thread_started() override {}
};

// What one scenario may break of its own: how large the budget is, whether host frames can be mapped.
struct Setting {
    int budget = 2;        // granules: the hasher's and one
    bool landing = true;
    bool exceed = false;   // the budget may be exceeded
};

struct Paged final : World {
    FakeDriver fake;
    NoSink sink;
    Settings settings;
    std::unique_ptr<Pager> pager;
    DevicePager* device = nullptr;
    Setting setting;
    CUdeviceptr x = 0, y = 0;
    std::vector<Buffer*> made;
    std::uint64_t expected[2][words] = {};
    const Op* at_work[3] = {};  // of each launching thread

    explicit Paged(const Setting& s) : fake(static_cast<std::size_t>(s.budget + (s.exceed ? 1 : 0)), s.landing), setting(s) {
        driver = &fake;
        fresh_leases(2);  // an execution that was given up leaves some open
        settings.device_budget = static_cast<std::size_t>(s.budget) * granule;
        settings.host_budget = 4 * granule;
        settings.small_below = 1;
        pager = std::make_unique<Pager>(fake.table(), settings, sink);
    }
    // What a buffer holds, wherever it is.
    std::uint64_t word(CUdeviceptr at, int n) const {
        const Buffer* b = pager->find(at);
        const bool copied = b->residency.load() == Residency::host && !setting.landing;
        return fake.word_at(copied ? reinterpret_cast<CUdeviceptr>(b->host_frames[0]->cpu) : at, n);
    }
    void synchronise() {
        for (CUstream s : fake.streams())
            while (fake.can_step(s)) fake.step(s);
    }
    bool busy() const {
        const auto all = fake.streams();
        return std::any_of(all.begin(), all.end(), [&](CUstream s) { return fake.can_step(s); });
    }
    void device_choices(std::vector<int>& out) override {
        int n = 0;
        for (CUstream s : fake.streams()) {
            if (fake.can_step(s)) out.push_back(n);
            ++n;
        }
    }
    void device_step(int choice) override { fake.step(fake.streams()[static_cast<std::size_t>(choice)]); }
    std::string describe(int choice) override { return "s" + std::to_string(reinterpret_cast<std::uintptr_t>(fake.streams()[static_cast<std::size_t>(choice)])); }

    // No one is inside the pager's lock: its state must be whole.
    std::string wrong() override {
        if (!device || locked(&device->mutex_)) return {};
        if (std::string text = device->invariants(); !text.empty()) return text;
        if (!setting.exceed && fake.device_bytes > static_cast<std::size_t>(setting.budget) * granule) return "the budget is exceeded";
        return {};
    }

    void hash_buffer(std::uint64_t& h, const Buffer* b) const {
        h = mix(h, b->id);
        h = mix(h, static_cast<std::uint64_t>(b->residency.peek()) | b->table.peek() << 4 | b->opaque.peek() << 5 | b->touched.peek() << 6 | b->host_changed.peek() << 7 |
                       b->host_valid << 8 | b->hash_known << 9 | b->pinned << 10 | b->moving << 11 | b->live << 12 | b->slab << 13 | b->unfilled << 14 | b->landed << 15 | b->cpu_reaches << 16);
        h = mix(h, b->last_use.peek() << 32 | b->streams.peek());
        h = mix(h, b->holds << 16 | b->granted);
        h = mix(h, b->looked_through << 32 | b->host_as_of);
        for (const auto& d : b->drags) h = mix(h, d.at + d.target->id);
        for (const Buffer* table : b->through) h = mix(h, table->id + 50);
        const std::uint64_t behind = fake.behind(b->base);
        h = mix(h, !behind                                                              ? 0
                   : !b->device_frames.empty() && behind == b->device_frames[0]->handle ? 1
                   : !b->host_frames.empty() && behind == b->host_frames[0]->handle     ? 2
                                                                                        : 3);
    }
    // Who waits for memory marks the tails of streams that have none, else it looks and waits again.
    bool worth_waking() override {
        for (const auto& s : pager->streams_.slots_)
            if (s->last_op.peek() > s->marked.peek()) return true;
        return false;
    }
    // Leases and streams are made under way.
    std::uint64_t name_of(const void* object) override {
        std::uint64_t n = 1000;
        auto within = [&](const auto* whole) {
            ++n;
            const auto offset = static_cast<std::size_t>(static_cast<const char*>(object) - reinterpret_cast<const char*>(whole));
            return offset < sizeof *whole ? mix(n, offset) : 0;
        };
        if (pager)
            for (const auto& s : pager->streams_.slots_)
                if (const std::uint64_t name = within(s.get())) return name;
        n = 2000;
        for (const Lease* l = udnnmem::pager::first_lease().peek(); l; l = l->next)
            if (const std::uint64_t name = within(l)) return name;
        return 0;
    }
    std::uint64_t hash() override {
        if (!device) return 0;
        std::map<std::uint64_t, std::uint64_t> names;
        auto physical = [&](const Frame* f) { return f->handle ? f->handle : fake.behind(reinterpret_cast<CUdeviceptr>(f->cpu)); };
        for (const Buffer* b : device->buffers_) {
            for (const Frame* f : b->device_frames) names[physical(f)] = b->id * 4 + 1;
            for (const Frame* f : b->host_frames) names[physical(f)] = b->id * 4 + 2;
        }
        for (const Move& m : device->moves_)
            for (const Frame* f : m.frames) names[physical(f)] = m.buffer->id * 4 + 3;
        std::uint64_t h = fake.hash(names);
        h = mix(h, pager->streams_.sequence_.peek());
        h = mix(h, static_cast<std::uint64_t>(pager->streams_.capturing_.peek()));
        for (const auto& s : pager->streams_.slots_) {
            h = mix(h, s->last_op.peek() << 40 | s->marked.peek() << 20 | s->completed.peek());
            h = mix(h, s->unmarked.peek() * 2 + s->alive.peek());
            for (const auto& m : s->marks) h = mix(h, static_cast<std::uint64_t>(fake.pending(m.event)) << 20 | m.value);
        }
        for (const Buffer* b : device->buffers_) hash_buffer(h, b);
        for (const Move& m : device->moves_) {
            h = mix(h, static_cast<std::uint64_t>(m.kind) | static_cast<std::uint64_t>(m.stage) << 4 | m.copy << 8 | m.clean << 9 | m.cancelled << 10 | m.recorded << 11 | m.ordered << 12 | m.remaps << 13);
            h = mix(h, (m.buffer ? std::uint32_t{m.buffer->id} : 99u) << 16 | static_cast<std::uint64_t>(m.ticket + 1));
            h = mix(h, static_cast<std::uint64_t>(fake.pending(m.event)) << 8 | static_cast<std::uint64_t>(m.search + 2));
            if (m.ticket >= 0)
                if (const std::uint64_t* answer = device->hasher_.pinned_->answers[m.ticket]; fake.answered(answer)) h = mix(h, answer[0]);
            if (m.search >= 0)
                if (const std::uint64_t* answer = &device->hasher_.pinned_->searches[m.search].count; fake.answered(answer)) h = mix(h, *answer);
            for (const Buffer* b : m.searched) h = mix(h, b->id);
            h = mix(h, m.seen << 32 | m.used << 1 | m.still);
        }
        for (const Request* r : device->requests_) {
            for (int whose = 0; whose < 3; ++whose)
                if (at_work[whose])
                    for (const auto& asked : at_work[whose]->requests) h = mix(h, &asked.second == r ? whose + 1u : 0u);
            h = mix(h, r->everything | r->host_allowed << 1 | r->moved << 2 | r->holding << 3 | r->done << 4 | r->in_hands << 5 | static_cast<std::uint64_t>(r->result) << 6);
            for (const Buffer* b : r->need) h = mix(h, b->id);
            for (const Buffer* b : r->uncopied) h = mix(h, b->id + 100);
        }
        h = mix(h, static_cast<std::uint64_t>(device->frozen_) | device->everything_use_ << 8 | device->everything_streams_ << 32);
        h = mix(h, device->device_pool_->in_use() | device->host_pool_->in_use() << 32);
        auto hash_orders = [&](const auto& orders) {
            h = mix(h, orders.size());
            for (const Order& o : orders) h = mix(h, o.id * 4 + static_cast<std::uint64_t>(o.kind) + (o.after << 16));
        };
        hash_orders(device->orders_out_), hash_orders(device->orders_in_), hash_orders(device->ordered_);
        h = mix(h, device->any_ordered_.peek() * 2 + device->mover_asleep_.peek() + (device->plan_clock_.peek() << 2));
        h = mix(h, device->all_in_place_.peek() * 4 + device->all_noted_ * 2 + device->unlanded_);
        h = mix(h, device->ways_anywhere_.size() * 4 + device->away_ * 2 + (device->movers_lock_ != nullptr));
        for (const auto& [capacity, b] : device->parked_) h = mix(h, b->id + 7);
        h = mix(h, static_cast<std::uint64_t>(device->last_progress_ns_ / 1'000'000'000));
        h = mix(h, static_cast<std::uint64_t>(device->fired_in_vain()));
        std::uint64_t leases = 0;  // whose is whose is in the threads' own state
        for (const Lease* l = udnnmem::pager::first_lease().peek(); l; l = l->next) {
            std::uint64_t one = l->state.peek();
            if (one == Lease::listed)
                for (std::uint32_t i = 0; i < l->count.peek(); ++i) one = mix(one, l->buffers[i].peek() ? l->buffers[i].peek()->id + 1 : 0);
            leases += mix(one, 5);
        }
        return mix(h, leases);
    }
};

// ---- what launching threads do ----------------------------------------------------------------------------------------

CUstream stream(int n) { return reinterpret_cast<CUstream>(static_cast<std::uintptr_t>(50 + n)); }

struct Launcher {
    Paged& w;
    int number;           // whose word grows
    std::uint64_t turn = 0;

    void begin() { label((static_cast<std::uint64_t>(number) * 16 + ++turn) * 2); }
    // What a launch knows of what it has asked for is in the op: what it saw on the way there is nothing to it any more.
    void entered(const Op& op) {
        std::uint64_t h = mix(op.slow * 2 + op.captured, op.count);
        for (const auto& [device, r] : op.requests) h = mix(h, r.holding * 2 + r.everything + r.need.size() * 4 + r.uncopied.size() * 64);
        label(mix(static_cast<std::uint64_t>(number) * 16 + turn, h) | 1);
    }
    // A kernel that adds one to this thread's word of each buffer, also of those that it is not given but finds.
    CUresult launch(std::vector<CUdeviceptr> buffers, bool everything = false, CUdeviceptr found = 0) {
        begin();
        Op op;
        w.at_work[number] = &op;
        op.stream = stream(number % 2);
        op.kernel = true;
        op.everything = everything;
        if (!everything)
            for (CUdeviceptr at : buffers) op.name(w.pager->find(at));
        const CUresult result = w.pager->enter(op);
        entered(op);
        point();
        if (result != CUDA_SUCCESS) return violation("a launch is refused with " + std::to_string(result)), result;
        if (found) buffers.push_back(found);
        w.fake.submit(op.stream, {.kind = StreamOp::Kind::kernel, .touches = buffers, .word = number});
        for (CUdeviceptr at : buffers) ++w.expected[at == w.y][number];
        w.pager->leave(op, CUDA_SUCCESS);
        w.at_work[number] = nullptr;
        return result;
    }
    // A kernel that writes the address of one buffer into another.
    void put_address(CUdeviceptr table, CUdeviceptr of) {
        begin();
        Op op;
        w.at_work[number] = &op;
        op.stream = stream(number % 2);
        op.kernel = true;
        for (CUdeviceptr at : {table, of}) op.name(w.pager->find(at));
        if (w.pager->enter(op) != CUDA_SUCCESS) return violation("a launch is refused");
        entered(op);
        point();
        w.fake.submit(op.stream, {.kind = StreamOp::Kind::kernel, .touches = {table, of}, .pointer = of});
        w.expected[table == w.y][pointer_word] = of;
        w.pager->leave(op, CUDA_SUCCESS);
        w.at_work[number] = nullptr;
    }
    // Writes over all of a buffer, or is refused by the driver.
    void fill(CUdeviceptr at, std::uint64_t value, bool refused) {
        begin();
        Op op;
        w.at_work[number] = &op;
        op.stream = stream(number % 2);
        Buffer* b = w.pager->find(at);
        op.name(b);
        if (b->residency.load(std::memory_order_relaxed) != Residency::device) op.overwrites.push_back(b);
        if (w.pager->enter(op) != CUDA_SUCCESS) return violation("a memset is refused");
        entered(op);
        point();
        if (!refused) {
            w.fake.submit(op.stream, {.kind = StreamOp::Kind::fill, .touches = {at}, .value = value});
            std::fill(std::begin(w.expected[at == w.y]), std::end(w.expected[at == w.y]), value);
        }
        w.pager->leave(op, refused ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
        w.at_work[number] = nullptr;
    }
    // Recorded into a graph: the driver looks at the addresses.
    void look_at(CUdeviceptr at) {
        begin();
        Op op;
        w.at_work[number] = &op;
        op.stream = stream(number % 2);
        op.looked_at = true;
        op.name(w.pager->find(at));
        if (w.pager->enter(op) != CUDA_SUCCESS) return violation("a look is refused");
        entered(op);
        point();
        if (!w.fake.behind(at)) violation("what the driver looks at is not mapped");
        w.pager->leave(op, CUDA_SUCCESS);
        w.at_work[number] = nullptr;
    }
    void wait_behind_gate() { w.fake.submit(stream(number % 2), {.kind = StreamOp::Kind::gate}); }
    void open_gate() {
        point();
        w.fake.gate_open = true;
    }
    // As after an op whose end a plan has to know.
    void mark() {
        begin();
        w.pager->streams().mark(w.pager->streams().slot(stream(number % 2)));
    }
    void order(Order::Kind kind, CUdeviceptr at) {
        begin();
        Buffer* b = w.pager->find(at);
        const Order o{kind, b, b->id, w.pager->ops()};
        w.device->order(&o, 1);
    }
    CUdeviceptr allocate() {
        begin();
        CUdeviceptr at = 0;
        if (w.device->allocate(granule, stream(number % 2), true, nullptr, at) != CUDA_SUCCESS) violation("an allocation is refused");
        return at;
    }
    void release(CUdeviceptr at) {
        begin();
        if (w.device->free(at, stream(number % 2), true) != CUDA_SUCCESS) violation("a free is refused");
    }
};

struct Scenario {
    const char* name;
    const char* what;
    Setting setting;
    void (*first)(Paged&, Launcher&);
    void (*second)(Paged&, Launcher&);
};

const Scenario scenarios[] = {
    {"each", "one launch each, of different buffers", {}, [](Paged& w, Launcher& a) { a.launch({w.x}); }, [](Paged& w, Launcher& b) { b.launch({w.y}); }},
    {"same", "both launch on the buffer that is out", {}, [](Paged& w, Launcher& a) { a.launch({w.x}); }, [](Paged& w, Launcher& b) { b.launch({w.x}); }},
    {"turns", "two launches each, in opposite order", {}, [](Paged& w, Launcher& a) { a.launch({w.x}), a.launch({w.y}); },
     [](Paged& w, Launcher& b) { b.launch({w.y}), b.launch({w.x}); }},
    {"pinned-host", "the same where the device does not reach host frames", {.landing = false}, [](Paged& w, Launcher& a) { a.launch({w.x}); },
     [](Paged& w, Launcher& b) { b.launch({w.y}); }},
    {"both", "a launch of both buffers, larger than the budget, beside one", {}, [](Paged& w, Launcher& a) { a.launch({w.x, w.y}); },
     [](Paged& w, Launcher& b) { b.launch({w.y}); }},
    {"everything", "a launch that may touch anything, beside one", {}, [](Paged& w, Launcher& a) { a.launch({w.x, w.y}, true); },
     [](Paged& w, Launcher& b) { b.launch({w.x}); }},
    {"everything-again", "two that may touch anything: at the second all may be in place, beside a launch that moves what is out", {},
     [](Paged& w, Launcher& a) { a.launch({w.y}, true), a.launch({w.x, w.y}, true); }, [](Paged& w, Launcher& b) { b.launch({w.x}); }},
    {"overwrite", "a memset over what is out, beside a launch", {}, [](Paged& w, Launcher& a) { a.fill(w.x, 7, false), a.launch({w.x}); },
     [](Paged& w, Launcher& b) { b.launch({w.y}); }},
    {"overwrite-fails", "one that the driver refuses", {}, [](Paged& w, Launcher& a) { a.fill(w.x, 7, true), a.launch({w.x}); },
     [](Paged& w, Launcher& b) { b.launch({w.y}); }},
    {"free", "a buffer freed and another made in its place, beside a launch", {},
     [](Paged& w, Launcher& a) {
         a.launch({w.x}), a.release(w.x);
         const CUdeviceptr z = a.allocate();
         a.fill(z, 3, false);
         w.x = z;
     },
     [](Paged& w, Launcher& b) { b.launch({w.y}); }},
    {"free-other", "a buffer freed while a kernel uses it, another made on another stream", {}, [](Paged& w, Launcher& a) { a.launch({w.x}), a.release(std::exchange(w.x, 0)); },
     [](Paged& w, Launcher& b) {
         const CUdeviceptr z = b.allocate();
         w.y = z;
         b.fill(z, 3, false);
     }},
    {"orders", "a plan orders one out and the other in", {}, [](Paged& w, Launcher& a) { a.launch({w.x}); },
     [](Paged& w, Launcher& b) {
         b.launch({w.y});
         b.order(Order::Kind::evict, w.y), b.order(Order::Kind::fetch, w.x), b.order(Order::Kind::clean, w.x);
         b.launch({w.y});
     }},
    {"planned", "a plan that is followed orders one out, and is given up", {}, [](Paged& w, Launcher& a) { a.launch({w.y}); },
     [](Paged& w, Launcher& b) {
         w.device->plan_step(1, 1);
         b.order(Order::Kind::evict, w.y), b.order(Order::Kind::fetch, w.x);
         b.launch({w.y});
         w.device->forget_orders();
     }},
    {"planned-capture", "the same, and the driver looks at it", {}, [](Paged& w, Launcher& a) { a.look_at(w.y); },
     [](Paged& w, Launcher& b) {
         w.device->plan_step(1, 1);
         b.order(Order::Kind::evict, w.y);
         w.device->forget_orders();
     }},
    {"planned-everything", "the same, and an op may touch anything", {}, [](Paged& w, Launcher& a) { a.launch({w.x, w.y}, true); },
     [](Paged& w, Launcher& b) {
         w.device->plan_step(1, 1);
         b.order(Order::Kind::evict, w.y), b.order(Order::Kind::fetch, w.y);
     }},
    {"capture", "the driver looks at one, beside a launch", {}, [](Paged& w, Launcher& a) { a.look_at(w.x), a.launch({w.x}); }, [](Paged& w, Launcher& b) { b.launch({w.y}); }},
    {"table", "a kernel writes an address, another finds it, beside a launch on what it leads to", {},
     [](Paged& w, Launcher& a) { a.put_address(w.y, w.x), a.launch({w.y}, false, w.x); }, [](Paged& w, Launcher& b) { b.launch({w.x}); }},
    {"late", "a launch that notes late what it used, beside others on the same that are waited for", {}, [](Paged& w, Launcher& a) { a.launch({w.y}); },
     [](Paged& w, Launcher& b) { b.launch({w.y}), b.mark(), b.launch({w.y}), b.launch({w.x}); }},
    {"gate", "a kernel waits for what the other thread does after its launch", {},
     [](Paged& w, Launcher& a) { a.wait_behind_gate(), a.launch({w.y}); }, [](Paged& w, Launcher& b) { b.launch({w.x}), b.open_gate(); }},
};

// Both buffers hold something, X is out and Y is on the device; nothing is under way.
void prepare(Paged& w) {
    w.device = w.pager->device(0);
    know(w.pager.get(), sizeof *w.pager, 1);
    know(w.device, sizeof *w.device, 2);
    know_lock(&w.device->mutex_);
    Launcher setup{w, 2};
    w.x = setup.allocate();
    w.y = setup.allocate();
    for (CUdeviceptr at : {w.x, w.y}) {
        Buffer* b = w.pager->find(at);
        know(b, sizeof *b, at);
        setup.fill(at, at == w.y, false);  // what was there before is not defined
        w.synchronise();
    }
}

Outcome run(const Scenario& s, Limits limits) {
    return explore(limits, [&] { return std::make_unique<Paged>(s.setting); }, [&](World& world) {
        auto& w = static_cast<Paged&>(world);
        quietly([&] { prepare(w); });
        const int other = spawn([&] {
            Launcher b{w, 1};
            s.second(w, b);
            label(1);
        });
        Launcher a{w, 0};
        s.first(w, a);
        label(2);
        join(other);
        while (w.busy() || w.device->away_) point();  // what runs still ends in any order; what is between two mappings is in neither
        quietly([&] {
            for (int i = w.x ? 0 : 1; i < 2; ++i)
                for (int word = 0; word < words; ++word)
                    if (const std::uint64_t found = w.word(i ? w.y : w.x, word); found != w.expected[i][word])
                        violation(std::string("buffer ") + (i ? "Y" : "X") + " holds " + std::to_string(found) + " in word " + std::to_string(word) + " instead of " +
                                  std::to_string(w.expected[i][word]));
            w.pager->stop();
        });
    });
}

}  // namespace
}  // namespace model

int main(int argc, char** argv) {
    using namespace model;
    if (argc > 1 && !std::strcmp(argv[1], "--list")) {
        for (const Scenario& s : scenarios) std::printf("%s\t%s\n", s.name, s.what);
        return 0;
    }
    Limits limits;
    for (int i = 2; i + 1 < argc; i += 2) {
        for (const auto& [name, value] : {std::pair{"--states", &limits.states}, {"--walks", &limits.walks}, {"--seed", &limits.seed}, {"--audit", &limits.audit}})
            if (!std::strcmp(argv[i], name)) *value = std::strtoull(argv[i + 1], nullptr, 10);
    }
    for (const Scenario& s : scenarios) {
        if (argc < 2 || std::strcmp(argv[1], s.name)) continue;
        const Outcome found = run(s, limits);
        auto n = [](std::uint64_t count) { return static_cast<unsigned long long>(count); };
        if (limits.walks) std::printf("%s: %llu walks, %llu steps\n", s.name, n(found.walks), n(found.steps));
        else
            std::printf("%s: %llu states, %llu steps, %llu ways to the end, %zu deep, %d shared objects, %llu audited, %s\n", s.name, n(found.states), n(found.steps), n(found.ends), found.deepest,
                        found.shared, n(found.audited), found.complete ? "complete" : "not complete");
        if (!found.wrong.empty()) std::printf("WRONG: %s\n", found.wrong.c_str());
        std::fflush(stdout);
        _exit(found.wrong.empty() ? 0 : 1);  // what is in the image has no destructors to run
    }
    std::fprintf(stderr, "usage: %s --list | SCENARIO [--states N] [--walks N] [--seed N] [--audit N]\n", argv[0]);
    return 2;
}
