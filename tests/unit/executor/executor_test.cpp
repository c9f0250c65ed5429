// Sequences and where a program is in them: plain data, no device.
#include <catch2/catch.hpp>

#include <deque>

#include "policy/planner.hpp"
#include "shim/executor/executor.hpp"
#include "shim/options/option_types.hpp"
#include "shim/pager/buffer.hpp"

using namespace udnnmem;
using executor::Follower;
using executor::Sequence;

namespace {

constexpr std::size_t kGranule = 1024;

// A chain of `layers`, forwards and backwards: layer i has a weight (persistent) and an activation (transient); one small
// persistent buffer is named by every op.
struct Network {
    explicit Network(int layers) : layers(layers), weights(static_cast<std::size_t>(layers)) {
        for (pager::Buffer& w : weights) w.live = true;
        profiler::Trace& t = iteration.trace;
        auto add = [&](std::size_t bytes, bool persistent) {
            auto& b = t.buffers.emplace_back();
            b.id = BufferId(static_cast<std::int32_t>(t.buffers.size()) - 1);
            b.bytes = Bytes(static_cast<std::int64_t>(bytes));
            b.persistent = persistent;
            iteration.address.push_back(t.buffers.size() * 0x10000);
            return b.id.value;
        };
        const std::int32_t small = add(64, true);
        std::vector<std::int32_t> w, a;
        for (int i = 0; i < layers; ++i) w.push_back(add(1500, true));
        for (int i = 0; i < layers; ++i) a.push_back(add(2000, false));
        auto op = [&](const char* name, std::vector<std::int32_t> used) {
            auto& o = t.ops.emplace_back();
            o.index = OpIndex(static_cast<std::int32_t>(t.ops.size()) - 1);
            o.duration = Nanoseconds(1000);
            auto sorted = used;
            std::sort(sorted.begin(), sorted.end());
            for (std::int32_t b : sorted) o.reads.push_back(BufferId(b));
            iteration.steps.push_back({name, shape(name), static_cast<std::uint32_t>(iteration.used.size()), static_cast<std::uint32_t>(used.size())});
            iteration.used.insert(iteration.used.end(), used.begin(), used.end());
        };
        for (int i = 0; i < layers; ++i) op(forward, i ? std::vector{w[i], a[i - 1], a[i], small} : std::vector{w[i], a[i], small});
        for (int i = layers - 1; i >= 0; --i) op(backward, {a[i], small, w[i]});
    }
    Sequence sequence() {
        return executor::make_sequence(iteration, 512, kGranule, [this](std::uint64_t at) -> pager::Buffer* {
            const auto i = static_cast<std::size_t>(at / 0x10000) - 2;
            return i < weights.size() ? &weights[i] : nullptr;
        });
    }
    static std::uint64_t shape(const char* name) { return static_cast<std::uint64_t>(name[0]); }
    // As the executor asks: where the program is lost, by its last ops.
    std::int32_t at(Follower& follower, const char* name, const std::vector<pager::Buffer*>& named) {
        const executor::Seen seen{shape(name), named};
        const std::uint64_t run = follower.run();
        const std::int32_t expected = follower.expected();
        std::int32_t step = follower.at(seen);
        if (follower.run() == run + 1) return step;
        recent.push(follower, run, expected);
        if (step != Follower::nowhere) return step;
        recent.push(seen);
        step = follower.find(seen, recent);
        if (step != Follower::nowhere) recent.take_back();
        return step;
    }
    // Plays the ops [from, to) of an iteration with activations of its own; what at() answers for each.
    std::vector<std::int32_t> play(Follower& follower, int from, int to, std::deque<pager::Buffer>& activations) {
        std::vector<std::int32_t> steps;
        while (activations.size() < weights.size()) activations.emplace_back();
        for (int k = from; k < to; ++k) {
            const auto i = static_cast<std::size_t>(k < layers ? k : 2 * layers - 1 - k);
            std::vector<pager::Buffer*> named{&weights[i]};
            if (k < layers && i) named.push_back(&activations[i - 1]);
            named.push_back(&activations[i]);
            if (k >= layers) named = {&activations[i], &weights[i]};
            steps.push_back(at(follower, k < layers ? forward : backward, named));
        }
        return steps;
    }
    static constexpr const char* forward = "forward";
    static constexpr const char* backward = "backward";
    int layers;
    std::deque<pager::Buffer> weights;
    profiler::Iteration iteration;
    executor::Recent recent;
};

std::vector<std::int32_t> range(int from, int to) {
    std::vector<std::int32_t> r;
    for (int i = from; i < to; ++i) r.push_back(i);
    return r;
}

}  // namespace

TEST_CASE("a sequence holds what can move, in granules, with its next uses") {
    Network net(3);
    const Sequence s = net.sequence();
    REQUIRE(s.steps.size() == 6);
    REQUIRE(s.plan_trace.buffers.size() == 6);  // the small one is in a slab
    CHECK(s.plan_trace.buffers[0].bytes.value == 2 * kGranule);
    CHECK(s.plan_trace.buffers[5].bytes.value == 2 * kGranule);
    CHECK(s.persistent[0] == &net.weights[0]);
    CHECK(s.persistent[3] == nullptr);
    // Step 0 names weight 0 (again at step 5) and activation 0 (again at step 1).
    CHECK(s.uses[s.steps[0].first].again == 5);
    CHECK(s.uses[s.steps[0].first + 1].again == 1);
    // Step 5: activation 0 for the last time, weight 0 again at step 0 of the next iteration.
    CHECK(s.uses[s.steps[5].first].again == 0);
    CHECK(s.uses[s.steps[5].first + 1].again == 1);
    CHECK(executor::make_sequence(net.iteration, 512, kGranule, [](std::uint64_t) { return nullptr; }).steps.empty());
}

TEST_CASE("a sequence whose persistent buffer was freed, or is another by now, is none") {
    Network net(3);
    net.iteration.trace.buffers[2].run_id = 5;   // weight 1
    net.weights[1].id = 0x80000005u;
    CHECK(net.sequence().steps.size() == 6);
    net.weights[1].id = 6;
    CHECK(net.sequence().steps.empty());
    net.weights[1].id = 5;
    net.weights[1].live = false;
    CHECK(net.sequence().steps.empty());
}

TEST_CASE("what no op of an iteration uses is no part of its sequence, there or gone") {
    Network net(3);
    auto& idle = net.iteration.trace.buffers.emplace_back();
    idle.id = BufferId(static_cast<std::int32_t>(net.iteration.trace.buffers.size()) - 1);
    idle.bytes = Bytes(4000);
    idle.persistent = true;
    net.iteration.address.push_back(net.iteration.trace.buffers.size() * 0x10000);
    Sequence s = net.sequence();
    CHECK(s.steps.size() == 6);
    CHECK(s.plan_trace.buffers.size() == 6);
    CHECK(s.persistent.size() == 6);
    // What a table leads to is used, though no op is given it.
    idle.bytes = Bytes(64);
    net.iteration.trace.ops[1].reads.push_back(idle.id);
    s = net.sequence();
    CHECK(s.small.reads[1].back() == s.small.buffers.back().id);
}

TEST_CASE("a program is followed through its iterations, whatever its transient buffers are") {
    Network net(20);
    const Sequence s = net.sequence();
    Follower follower(s);
    std::deque<pager::Buffer> first, second;
    CHECK(net.play(follower, 0, 40, first) == range(0, 40));
    CHECK(net.play(follower, 0, 40, second) == range(0, 40));
    CHECK(follower.bound(20) == &second[0]);
    CHECK(follower.run() == 80);
}

TEST_CASE("what was followed joins a passage in the streams that it ran in") {
    Network net(3);
    net.iteration.trace.ops[2].stream = 1;
    const Sequence s = net.sequence();
    Follower follower(s);
    std::deque<pager::Buffer> mine;
    net.play(follower, 0, 4, mine);
    int handles[2];
    executor::StreamsOf streams;
    for (int i : {0, 1}) streams.set(i, reinterpret_cast<CUstream>(&handles[i]));
    executor::Passage passage;
    passage.add(s, follower, streams, 4);
    REQUIRE(passage.ops.size() == 4);
    for (std::size_t k = 0; k < 4; ++k) CHECK(passage.ops[k].stream == reinterpret_cast<std::uintptr_t>(&handles[k == 2]));
    CHECK(streams.of(1 << 20) == 1 << 20);
}

namespace {

// 20 layers were followed for an iteration and ten ops.
struct Halfway {
    Halfway() {
        net.play(follower, 0, 40, first);
        CHECK(net.play(follower, 0, 10, second) == range(0, 10));
    }
    Network net{20};
    const Sequence sequence = net.sequence();
    Follower follower{sequence};
    std::deque<pager::Buffer> first, second;
};

}  // namespace

TEST_CASE_METHOD(Halfway, "a transient is the same one throughout an iteration, or it is lost") {
    // Step 10 made from what step 3 has left instead of step 9.
    CHECK(follower.run() == 50);
    CHECK(net.at(follower, Network::forward, {&net.weights[10], &second[3], &second[10]}) == 10);   // found again ...
    CHECK(follower.run() == 1);                                                                      // ... not followed
    CHECK(net.play(follower, 11, 40, second) == range(11, 40));
}

TEST_CASE_METHOD(Halfway, "what is another buffer of the iteration is no transient that comes for the first time") {
    SECTION("an activation that was made before: the program has strayed") {
        net.at(follower, Network::forward, {&net.weights[10], &second[9], &second[3]});
        CHECK(follower.run() <= 1);
    }
    SECTION("a weight: it has") {
        net.at(follower, Network::forward, {&net.weights[10], &second[9], &net.weights[2]});
        CHECK(follower.run() <= 1);
    }
    SECTION("what has another buffer's place, and is another allocation: it has not") {
        second[3].id = 77;
        CHECK(net.at(follower, Network::forward, {&net.weights[10], &second[9], &second[3]}) == 10);
        CHECK(follower.run() == 51);
    }
}

namespace {

// The network's sequence as the next run reads it, and the activations of that run.
struct StoredNetwork {
    explicit StoredNetwork(int layers) : net(layers), sequence(net.sequence()) {
        std::fill(sequence.persistent.begin(), sequence.persistent.end(), nullptr);
        const auto capacity = [this](int b) { return static_cast<std::size_t>(sequence.plan_trace.buffers[static_cast<std::size_t>(b)].bytes.value); };
        for (int i = 0; i < layers; ++i) net.weights[static_cast<std::size_t>(i)].capacity = capacity(0), mine.emplace_back().capacity = capacity(layers);
    }
    Network net;
    Sequence sequence;
    std::deque<pager::Buffer> mine;
};

}  // namespace

TEST_CASE("nor is it in the first iteration of a sequence that an earlier run stored") {
    StoredNetwork stored(20);
    auto& [net, sequence, mine] = stored;
    Follower follower(sequence, true);
    REQUIRE(!follower.settled());
    REQUIRE(net.play(follower, 0, 10, mine) == range(0, 10));
    SECTION("an activation that was made before") { CHECK(net.at(follower, Network::forward, {&net.weights[10], &mine[9], &mine[3]}) == Follower::nowhere); }
    SECTION("a weight in another one's place") { CHECK(net.at(follower, Network::forward, {&net.weights[2], &mine[9], &mine[10]}) == Follower::nowhere); }
    SECTION("another weight and activation") { CHECK(net.at(follower, Network::forward, {&net.weights[10], &mine[9], &mine[10]}) == 10); }
}

TEST_CASE("what an earlier run stored has come once it was followed around, also if nothing outlives it") {
    StoredNetwork stored(10);
    auto& [net, sequence, mine] = stored;
    for (Sequence::Step& step : sequence.steps) step.lasting = false;
    for (auto& b : sequence.plan_trace.buffers) b.persistent = false;
    Follower follower(sequence, true);
    CHECK(!follower.settled());
    CHECK(net.play(follower, 0, 20, mine) == range(0, 20));
    CHECK(!follower.settled());
    CHECK(net.play(follower, 0, 1, mine) == range(0, 1));
    CHECK(follower.settled());
}

TEST_CASE("an op in between is passed over") {
    Network net(20);
    const Sequence s = net.sequence();
    Follower follower(s);
    std::deque<pager::Buffer> mine;
    pager::Buffer stranger;
    net.play(follower, 0, 10, mine);
    CHECK(net.at(follower, "logging", {&stranger}) == Follower::nowhere);
    CHECK(follower.run() == 0);
    CHECK(net.play(follower, 10, 40, mine) == range(10, 40));
}

TEST_CASE("a program that jumps is found again by its last ops, not by what looks the same") {
    Network net(40);
    const Sequence s = net.sequence();
    Follower follower(s);
    std::deque<pager::Buffer> mine;
    net.play(follower, 0, 5, mine);
    const auto steps = net.play(follower, 50, 80, mine);  // all layers are the same kernel: their weights tell them apart
    CHECK(steps[0] == Follower::nowhere);   // two ops in a row say where it is
    CHECK(std::vector(steps.begin() + 1, steps.end()) == range(51, 80));
    // What came before the jump counts: step 29 behind itself is nowhere.
    net.play(follower, 0, 30, mine);
    CHECK(net.play(follower, 29, 31, mine) == std::vector{Follower::nowhere, 30});
    // Another network of the same kernels is not followed.
    Network other(40);
    std::deque<pager::Buffer> theirs;
    for (const std::int32_t step : other.play(follower, 0, 80, theirs)) CHECK(step == Follower::nowhere);
}

TEST_CASE("a plan's actions are ordered after their ops, those at the start after the last") {
    policy::Plan plan;
    plan.actions = {{policy::Do::prefetch, OpIndex(-1), BufferId(3), {}, {}}, {policy::Do::evict, OpIndex(0), BufferId(1), {}, {}},
                    {policy::Do::clean, OpIndex(1), BufferId(2), {}, {}}, {policy::Do::evict, OpIndex(1), BufferId(3), {}, {}}};
    const executor::Rows rows = executor::make_rows(plan, 2);
    REQUIRE(rows.begin == std::vector<std::uint32_t>{0, 1, 4});
    CHECK(rows.entries[0].buffer == 1);
    CHECK(rows.entries[1].kind == pager::Order::Kind::clean);
    CHECK(rows.entries[2].kind == pager::Order::Kind::evict);
    CHECK(rows.entries[3].kind == pager::Order::Kind::fetch);
}

TEST_CASE("every policy but demand is a planner") {
    for (const char* name : policy_names) {
        const policy::Planner* planner = policy::find_planner(name);
        REQUIRE(planner);
    }
}

TEST_CASE("ops are marked whose end later ones wait for before they take memory") {
    Network net(20);
    const Sequence s = net.sequence();
    policy::Plan plan;
    plan.actions = {{policy::Do::evict, OpIndex(2), BufferId(1), {}, {}}, {policy::Do::prefetch, OpIndex(30), BufferId(1), {}, {}}};
    executor::Rows rows = executor::make_rows(plan, 40);
    rows.lookahead = 3;
    executor::mark_steps(rows, s);
    // Forwards each op has a new activation; backwards only weight 1 comes back, for op 38.
    for (std::size_t k = 0; k < 40; ++k) CHECK(rows.marked[k] == (k < 16 || k >= 36 || k == 34));
    // Op 30 has an order as well.
    for (std::size_t k = 0; k < 40; ++k) CHECK(rows.acts[k] == (rows.marked[k] || k == 30));
    // What is computed again before an op takes memory for it.
    rows.replays.push_back({29, nullptr});
    executor::mark_steps(rows, s);
    for (std::size_t k = 0; k < 40; ++k) CHECK(rows.marked[k] == (k < 16 || k >= 36 || k == 34 || k == 25));
}
