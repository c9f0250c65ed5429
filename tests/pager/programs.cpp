#include "tests/pager/programs.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <ostream>
#include <set>

#include "tests/pager/fake_gpu.hpp"

namespace udnnmem::pager::test {
namespace {

constexpr std::size_t kDevice = 9, kHost = 64, kMostLive = 20, kMostBuffers = 10;   // granules
constexpr int kStreams = 3;
constexpr const char* kNames[] = {"allocate",  "allocate in order", "free",  "free in order", "launch", "launch that may use everything", "fill", "fill that the driver refuses", "hold",
                                  "let go",    "evict",             "clean", "fetch",         "pin",    "yield",                          "fill up the device", "refuse to map",
                                  "follow a plan", "follow none"};

struct Item {
    CUdeviceptr at;
    std::vector<std::uint64_t> model;   // a word a granule
    bool ordered, known = false, used = false;
    int born_on;
};
using ItemPtr = std::shared_ptr<Item>;

// An op that was submitted to a held stream.
struct Submitted {
    std::vector<ItemPtr> named;
    std::vector<std::pair<CUdeviceptr, FakeGpu::Place>> places;
    std::function<void()> run;
};

class Run {
  public:
    explicit Run(bool lands) : lands_(lands), p_({.device = kDevice, .host = kHost, .lands = lands, .deadline_ns = 200'000}) {}

    std::string of(const std::vector<Call>& calls) {
        for (const Call& call : calls) {
            make(call);
            look();
            if (!wrong_.empty()) return wrong_;
        }
        for (int s = 0; s < kStreams; ++s) let_go(s);
        p_.gpu.fill_up(8192);
        p_.gpu.refuse_to_map(0, 0, 0);
        for (const ItemPtr& i : items_) launch(0, {i}, false);
        look();
        return wrong_;
    }

  private:
    void wrong(const std::string& what) {
        if (wrong_.empty()) wrong_ = what;
    }

    void make(const Call& call) {
        const int stream = call.stream % kStreams;
        switch (call.kind) {
            case Call::Kind::allocate: return allocate(call.a, -1);
            case Call::Kind::allocate_in_order: return allocate(call.a, stream);
            case Call::Kind::yield: {
                std::size_t lowered = 0;
                if (p_.device->yield(call.a % 4 * granule, lowered) == CUDA_SUCCESS) p_.device->reclaim(lowered);
                return;
            }
            case Call::Kind::fill_up: scarce_ = true; return p_.gpu.fill_up(call.a % 2 ? 8192 : call.b % 6);
            case Call::Kind::follow: return p_.device->plan_step(++step_, 1000);
            case Call::Kind::forget: return p_.device->forget_orders();
            case Call::Kind::hold: held_.insert(stream); return p_.gpu.hold(stream + 1);
            case Call::Kind::let_go: return let_go(stream);
            default: break;
        }
        if (items_.empty()) return;
        const ItemPtr a = items_[call.a % items_.size()], b = items_[call.b % items_.size()], c = items_[call.c % items_.size()];
        switch (call.kind) {
            case Call::Kind::free: return free(a, -1);
            case Call::Kind::free_in_order: return free(a, stream);
            case Call::Kind::launch: return launch(stream, {a, b, c}, false);
            case Call::Kind::launch_everything: return launch(stream, {a}, true);
            case Call::Kind::fill: return fill(stream, a, true);
            case Call::Kind::fill_refused: return fill(stream, a, false);
            case Call::Kind::evict: return order(Order::Kind::evict, a);
            case Call::Kind::clean: return order(Order::Kind::clean, a);
            case Call::Kind::fetch: return order(Order::Kind::fetch, a);
            case Call::Kind::pin:
                if (pinned_ + a->model.size() > kDevice / 2) return;
                pinned_ += a->model.size();
                if (p_.device->pin(p_.at(a->at)) != CUDA_SUCCESS && lands_ && !scarce_ && !refused_) wrong("a buffer cannot be pinned");
                return;
            case Call::Kind::refuse_to_map: refused_ = true; return p_.gpu.refuse_to_map(a->at, a->model.size() * granule, 1 + call.c % 5);
            default: return;
        }
    }

    void allocate(std::size_t granules, int stream) {
        constexpr std::size_t kSizes[] = {1, 2, 2, 2, 4, 5};
        granules = kSizes[granules % std::size(kSizes)];
        std::size_t live = 0;
        for (const ItemPtr& i : items_) live += i->model.size();
        if (live + granules > kMostLive || items_.size() == kMostBuffers) return;
        const bool ordered = stream >= 0;
        CUdeviceptr at = 0;
        if (p_.device->allocate(granules * granule, ordered ? stream_of(stream + 1) : CU_STREAM_LEGACY, ordered, ordered ? reinterpret_cast<CUmemoryPool>(7) : nullptr, at) != CUDA_SUCCESS) {
            if (!scarce_) wrong("memory that fits is not given");
            return;
        }
        items_.push_back(std::make_shared<Item>(Item{at, std::vector<std::uint64_t>(granules), ordered, false, false, stream}));
    }

    void free(const ItemPtr& item, int stream) {
        const bool ordered = stream >= 0;
        for (int s = 0; s < kStreams; ++s)
            if (!ordered || (s != stream && (uses(s, item) || item->born_on == s))) let_go(s);   // as the program, or cuMemFree, waits
        if (p_.device->free(item->at, ordered ? stream_of(stream + 1) : CU_STREAM_LEGACY, ordered) != CUDA_SUCCESS) wrong("what was allocated is not freed");
        std::erase(items_, item);
    }

    bool uses(int stream, const ItemPtr& item) const {
        return std::ranges::any_of(queue_[stream], [&](const Submitted& s) { return std::ranges::find(s.named, item) != s.named.end(); });
    }

    // Other streams that an op which names those would have to wait for are let go.
    void let_others_go(int stream, const std::vector<ItemPtr>& named) {
        const auto waits_for = [&](int s) {
            return !queue_[s].empty() && std::ranges::any_of(named, [&](const ItemPtr& i) { return uses(s, i) || i->born_on == s; });
        };
        for (int s = 0; s < kStreams; ++s)
            if (s != stream && waits_for(s)) let_go(s);
    }

    // Now, or once the stream is let go.
    void submit(int stream, std::vector<ItemPtr> named, std::function<void()> run) {
        if (!held_.contains(stream)) return run();
        Submitted s{std::move(named), {}, std::move(run)};
        for (const ItemPtr& i : s.named)
            for (std::size_t g = 0; g < i->model.size(); ++g) s.places.emplace_back(i->at + g * granule, p_.gpu.behind(i->at + g * granule));
        queue_[stream].push_back(std::move(s));
    }

    void let_go(int stream) {
        look();
        for (Submitted& s : queue_[stream]) s.run();
        queue_[stream].clear();
        held_.erase(stream);
        p_.gpu.let_go(stream + 1);
    }

    // Refused for want of memory: only where that may be.
    void refused(const std::vector<ItemPtr>& named, bool everything) {
        if (scarce_ || refused_) return;
        std::set<ItemPtr> there(named.begin(), named.end());
        for (const auto& q : queue_)
            for (const Submitted& s : q) there.insert(s.named.begin(), s.named.end());
        std::size_t granules = pinned_;
        for (const ItemPtr& i : there) granules += i->model.size();
        if (lands_ || (!everything && granules < kDevice)) wrong("an op is refused whose memory can be had");
    }

    void launch(int stream, std::vector<ItemPtr> named, bool everything) {
        if (everything) named.insert(named.end(), items_.begin(), items_.end());
        let_others_go(stream, named);
        std::vector<CUdeviceptr> addresses;
        for (const ItemPtr& i : named)
            if (!everything) addresses.push_back(i->at);
        Op op;
        if (p_.begin(op, stream + 1, addresses, everything) != CUDA_SUCCESS) return refused(named, everything);
        submit(stream, named, [this, named, value = ++value_] {
            for (const ItemPtr& i : named) {
                for (std::size_t g = 0; g < i->model.size(); ++g)
                    if (const std::uint64_t word = p_.gpu.word(i->at + g * granule); i->known && word != i->model[g])
                        wrong("a buffer's granule " + std::to_string(g) + " holds " + std::to_string(word) + " instead of " + std::to_string(i->model[g]));
            }
            write(*named.front(), value);
        });
        p_.pager->leave(op, CUDA_SUCCESS);
    }

    void fill(int stream, const ItemPtr& item, bool works) {
        let_others_go(stream, {item});
        Op op;
        p_.begin_fill(op, stream + 1, item->at);
        if (p_.pager->enter(op) != CUDA_SUCCESS) return refused({item}, false);
        if (works) submit(stream, {item}, [this, item, value = ++value_] { write(*item, value); });
        p_.pager->leave(op, works ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    }

    void write(Item& item, std::uint64_t value) {
        for (std::size_t g = 0; g < item.model.size(); ++g) p_.gpu.word(item.at + g * granule) = item.model[g] = value * 100 + g;
        item.known = true;
    }

    void order(Order::Kind kind, const ItemPtr& item) {
        Buffer* const b = p_.at(item->at);
        const Order o{kind, b, b->id, p_.pager->ops(), kind == Order::Kind::fetch ? &p_.pager->streams().slot(stream_of(1)) : nullptr};
        p_.device->order(&o, 1);
    }

    // What holds after each call.
    void look() {
        if (const std::string invalid = p_.device->is_valid(); !invalid.empty()) wrong(invalid);
        for (const std::string& violation : p_.gpu.violations()) wrong(violation);
        if (p_.pager->failed()) wrong("the pager gave up");
        for (const auto& q : queue_)
            for (const Submitted& s : q)
                for (const auto& [at, place] : s.places)
                    if (p_.gpu.behind(at) != place) wrong("memory is moved under an op that was submitted");
    }

    const bool lands_;
    Paged p_;
    std::vector<ItemPtr> items_;
    std::deque<Submitted> queue_[kStreams];
    std::set<int> held_;
    std::size_t pinned_ = 0;
    std::uint64_t value_ = 0, step_ = 0;
    bool scarce_ = false, refused_ = false;
    std::string wrong_;
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const Call& c) {
    return out << kNames[static_cast<std::size_t>(c.kind)] << " (stream " << c.stream % kStreams << ", " << int{c.a} << ' ' << int{c.b} << ' ' << int{c.c} << ')';
}

Call::Kind Call::drawn(std::uint8_t number) {
    constexpr int kOften[] = {3, 3, 2, 4, 6, 1, 3, 1, 3, 2, 2, 1, 1, 1, 1, 1, 1, 2, 1};
    static_assert(std::size(kOften) == static_cast<std::size_t>(Kind::kinds));
    int left = number % 39;
    std::size_t kind = 0;
    while ((left -= kOften[kind]) >= 0) ++kind;
    return static_cast<Kind>(kind);
}

std::vector<Call> calls_of(const std::uint8_t* data, std::size_t size) {
    std::vector<Call> calls;
    for (std::size_t i = 0; i + 4 < size; i += 5)
        calls.push_back({Call::drawn(data[i]), data[i + 1], data[i + 2], data[i + 3], data[i + 4]});
    return calls;
}

std::string wrong_with(const std::vector<Call>& calls, bool lands) { return Run(lands).of(calls); }

}  // namespace udnnmem::pager::test
