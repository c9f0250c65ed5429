// What is learned of a program outside of its known sequences.
#include <catch2/catch.hpp>

#include <deque>

#include "shim/executor/passages.hpp"

using namespace udnnmem;
using executor::Passage;
using executor::Passages;

namespace {

// A device's buffers: weights that stay, and activations that come and go under new ids.
struct Device {
    std::deque<pager::Buffer> weights, activations;
    std::uint32_t next = 1;
    explicit Device(int layers) {
        for (int i = 0; i < layers; ++i) make(weights);
    }
    pager::Buffer* make(std::deque<pager::Buffer>& in) {
        pager::Buffer& b = in.emplace_back();
        b.id = next++;
        b.base = 0x10000 * b.id;
        b.bytes = b.capacity = 4096;
        b.live = true;
        return &b;
    }
    // Forwards through the layers; `salt` makes it another program's.
    void run(Passage& passage, std::uint64_t salt, std::size_t layers) {
        pager::Buffer* before = make(activations);
        add(passage, "upload", 99 + salt, {before});
        for (std::size_t i = 0; i < layers; ++i) {
            pager::Buffer* out = make(activations);
            add(passage, "forward", 7 + salt, {&weights[i], before, out});
            before->live = false;
            before = out;
        }
        before->live = false;
    }
    void add(Passage& passage, const char* name, std::uint64_t shape, const std::vector<pager::Buffer*>& named) {
        passage.add(name, {shape, named}, pager::Op());
    }
};

Passages::Price price = [](const char*, std::uint64_t, std::size_t bytes) { return Nanoseconds(static_cast<std::int64_t>(bytes)); };
const auto none_known = [](std::uint64_t) { return false; };

Passage passage(const Device& device, bool ends = true) {
    Passage p;
    p.restart(device.next - 1);
    p.ends = ends;
    return p;
}

}  // namespace

TEST_CASE("a passage is learned when it comes the second time") {
    Device device(20);
    Passages passages(price);
    Passage first = passage(device);
    device.run(first, 0, 20);
    CHECK(!passages.take(std::move(first), none_known));
    Passage other = passage(device);
    device.run(other, 1, 20);
    CHECK(!passages.take(std::move(other), none_known));
    Passage again = passage(device);
    device.run(again, 0, 20);
    const auto found = passages.take(std::move(again), none_known);
    REQUIRE(found);
    REQUIRE(found->trace.ops.size() == 21);
    REQUIRE(found->trace.buffers.size() == 41);
    CHECK(found->trace.ops[1].duration.value == 3 * 4096);
    for (const auto& b : found->trace.buffers) CHECK(b.persistent == (b.run_id <= 20));
    Passage third = passage(device);
    device.run(third, 0, 20);
    CHECK(!passages.take(std::move(third), none_known));   // told once
}

TEST_CASE("a passage that has to come more often is learned then, and once") {
    Device device(20);
    Passages passages(price);
    for (int time = 1; time <= 6; ++time) {
        Passage p = passage(device);
        device.run(p, 0, 20);
        CHECK(passages.take(std::move(p), none_known, 4).has_value() == (time == 4));
    }
}

TEST_CASE("what is known is not learned again") {
    Device device(20);
    Passages passages(price);
    for (int i = 0; i < 3; ++i) {
        Passage p = passage(device);
        device.run(p, 0, 20);
        CHECK(!passages.take(std::move(p), [](std::uint64_t) { return true; }));
    }
}

TEST_CASE("a loop within a passage is learned, from where it begins") {
    Device device(20);
    Passages passages(price);
    Passage p = passage(device);
    device.run(p, 5, 7);
    for (int i = 0; i < 4; ++i) device.run(p, 0, 20);
    const auto found = passages.take(std::move(p), none_known);
    REQUIRE(found);
    REQUIRE(found->steps.size() == 21);
    CHECK(found->steps[0].name == std::string("upload"));
    for (const auto& b : found->trace.buffers) CHECK(b.persistent == (b.run_id <= 20));
}

TEST_CASE("a passage that goes on is looked at piece by piece") {
    Device device(20);
    Passages passages(price);
    int learned = 0;
    for (int i = 0; i < 6; ++i) {
        Passage p = passage(device, false);
        device.run(p, 0, 20);
        if (const auto found = passages.take(std::move(p), [&](std::uint64_t) { return learned > 0; })) {
            ++learned;
            CHECK(found->steps.size() == 21);
        }
    }
    CHECK(learned == 1);
}

TEST_CASE("a passage of few ops that use much is handed on in pieces, and is not kept for ever") {
    Device device(1);
    const std::vector<pager::Buffer*> many(1 << 15, &device.weights[0]);
    Passages passages(price);
    for (std::uint64_t i = 0; i < 80; ++i) {
        Passage p = passage(device, false);
        device.add(p, "graph", 2 * i, many);
        CHECK_FALSE(p.is_piece());
        device.add(p, "graph", 2 * i + 1, many);
        CHECK(p.is_piece());
        CHECK(!passages.take(std::move(p), none_known));
        REQUIRE(passages.uses_kept() <= Passages::most_uses);
    }
}

TEST_CASE("a passage whose sequence made room is learned again when it comes again") {
    Device device(20);
    Passages passages(price);
    std::uint64_t print = 0;
    const auto asked = [&](std::uint64_t p) { return print = p, false; };
    const auto comes = [&] {
        Passage p = passage(device);
        device.run(p, 0, 20);
        return passages.take(std::move(p), asked).has_value();
    };
    CHECK_FALSE(comes());
    CHECK(comes());
    for (int i = 0; i < 3; ++i) CHECK_FALSE(comes());
    passages.forget(print);
    CHECK_FALSE(comes());
    CHECK(comes());
}
