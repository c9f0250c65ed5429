// Words inside structures that lead somewhere by chance: they hide no iteration, and are no part of what is told.
#include <set>
#include <utility>

#include "profiler/trace/trace_io.hpp"
#include "tests/catch.hpp"
#include "tests/unit/recorder/program.hpp"

using namespace udnnmem;
using namespace udnnmem::profiler;

namespace {

const char* const kKernel = "kernel";
constexpr int kLayers = 20;

Touch in_structure(std::uint64_t address, std::uint16_t word, Mode mode = Mode::read_write) {
    Touch t{address, mode};
    t.word = word;
    return t;
}

// Each layer's op is given a structure: what it reads at word 16, what it writes at 32; at word 8, and at `high` behind them, what was there.
struct Layers {
    MadeUp& made;
    std::uint16_t high = 40;
    int seldom = 29;
    std::vector<std::uint64_t> x, others;
    int launches = 0;
    void start() {
        for (int l = 0; l <= kLayers; ++l) x.push_back(made.make(1000));
        for (int i = 0; i < 7; ++i) others.push_back(made.make(3000));
    }
    void step() {
        made.op("begin", {{x[0], Mode::write}});
        for (int l = 0; l < kLayers; ++l) {
            const int n = launches++;
            const Touch from = in_structure(x[static_cast<std::size_t>(l)], 16, Mode::read), to = in_structure(x[static_cast<std::size_t>(l + 1)], 32, Mode::write);
            const std::uint64_t other = others[static_cast<std::size_t>(n) % others.size()];
            if (n % 23 == 6) made.op(kKernel, {in_structure(other, 8), from, to});
            else if (n % seldom == 7) made.op(kKernel, {from, to, in_structure(other, high)});
            else made.op(kKernel, {from, to});
        }
    }
};

// What is told of eight steps.
std::string told(IterationFinder::Chance chance, std::uint16_t high = 40, int seldom = 29) {
    Recorder::Settings settings = settings_for_test();
    settings.chance = std::move(chance);
    Recorder recorder(settings);
    MadeUp made{.recorder = recorder};
    Layers layers{made, high, seldom};
    layers.start();
    std::string text;
    for (int i = 0; i < 8; ++i) layers.step(), text += recorder.drain(false);
    return text + recorder.drain(true);
}

bool is_not_found(const std::string& text) { return text.find("\"searched\"") != std::string::npos; }

Trace read_back(const std::string& lines) {
    auto trace = parse_trace("lines", "{\"kind\":\"header\",\"schema\":1,\"name\":\"made up\"}\n" + lines);
    REQUIRE(trace);
    return *trace;
}

}  // namespace

TEST_CASE("what a word inside a structure leads to by chance hides no iteration") {
    std::set<std::pair<const char*, std::uint16_t>> asked;
    const Trace trace = read_back(told([&](const char* kernel, std::uint16_t word) { return asked.insert({kernel, word}), word == 8 || word == 40; }));
    CHECK(asked == std::set<std::pair<const char*, std::uint16_t>>{{kKernel, 8}, {kKernel, 40}});
    REQUIRE(trace.ops.size() == 1 + kLayers);
    for (const TraceOp& op : trace.ops)
        if (op.name == kKernel) {
            REQUIRE((op.reads.size() == 1 && op.writes.size() == 1));
            CHECK(trace.buffers[static_cast<std::size_t>(op.reads[0].value)].bytes.value == 1000);
        }
}

TEST_CASE("a word that is no chance is what tells ops apart") {
    int asked = 0;
    CHECK(is_not_found(told([&](const char*, std::uint16_t) { return ++asked, false; })));
    CHECK(asked);
}

TEST_CASE("ops that differ in more than words of structures are others, whatever is said of those") {
    const auto any = [](const char*, std::uint16_t) { return true; };
    CHECK_FALSE(is_not_found(told(any, 40, 17)));
    CHECK(is_not_found(told(any, 0, 17)));   // the word behind is a parameter of its own
}

TEST_CASE("of two words where both vary the op is another") {
    Recorder::Settings settings = settings_for_test();
    int asked = 0;
    settings.chance = [&](const char*, std::uint16_t) { return ++asked, true; };
    Recorder recorder(settings);
    MadeUp made{.recorder = recorder};
    const std::uint64_t a = made.make(1000), b = made.make(1000), c = made.make(1000);
    std::string text;
    for (int i = 0; i < 12; ++i) {
        for (int k = 0; k < 30; ++k) made.op("step", {{a}, {k % 2 ? b : a}, {k % 3 ? c : a}, {k % 5 ? c : b}});
        const std::uint64_t both[] = {a, b, c};
        made.op(kKernel, {in_structure(both[i % 3], 8), in_structure(both[(i + 1) % 3], 16)});
        text += recorder.drain(false);
    }
    CHECK_FALSE(asked);
}
