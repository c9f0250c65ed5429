// The recorder on made-up programs: the iteration is found whatever surrounds it, once, and told exactly.
#include <algorithm>
#include <functional>
#include <random>
#include <thread>

#include "profiler/recorder/iteration.hpp"
#include "profiler/trace/run_record.hpp"
#include "profiler/trace/trace_io.hpp"
#include "tests/catch.hpp"
#include "tests/unit/recorder/program.hpp"

using namespace udnnmem;
using namespace udnnmem::profiler;

namespace {

const std::string header = "{\"kind\":\"header\",\"schema\":1,\"name\":\"made up\"}\n";

Trace parsed(const std::string& lines) {
    auto trace = parse_trace("lines", header + lines);
    REQUIRE(trace);
    REQUIRE(validate(*trace));
    return *trace;
}

// What the recorder tells first, after one of at most `most` steps; `step` is handed how many there were before.
std::string until_told(Recorder& recorder, int most, const std::function<void(int)>& step) {
    std::string text;
    for (int i = 0; i < most && text.empty(); ++i) step(i), text = recorder.drain(false);
    return text;
}

std::string steps(MadeUp& program, int most, int* taken = nullptr) {
    return until_told(program.recorder, most, [&](int i) {
        program.step();
        if (taken) *taken = i + 1;
    });
}

Bytes bytes_of(const Trace& trace, bool persistent) {
    Bytes sum;
    for (const TraceBuffer& b : trace.buffers)
        if (b.persistent == persistent) sum += b.bytes;
    return sum;
}

}  // namespace

TEST_CASE("an iteration is found when it was seen twice") {
    const bool shuffled = GENERATE(false, true);
    const bool cached = GENERATE(false, true);
    Recorder recorder(settings_for_test());
    MadeUp program{.layers = 6, .shuffled = shuffled, .cached = cached, .recorder = recorder};
    program.start();
    int taken = 0;
    const Trace trace = parsed(steps(program, 10, &taken));
    CHECK(taken <= 3);
    REQUIRE(trace.ops.size() == static_cast<std::size_t>(program.ops()));
    CHECK(trace.ops[0].name == "cuMemcpyHtoDAsync");
    CHECK(trace.ops[0].reads.empty());
    CHECK(trace.ops[1].name == "forward");
    CHECK(bytes_of(trace, true) == Bytes(500 + 12 * 1000 + (cached ? 6 * 2000 : 0)));
    CHECK(bytes_of(trace, false) == Bytes(cached ? 0 : 6 * 2000));
    CHECK(peak_live(trace) == Bytes(500 + 12 * 1000 + 6 * 2000));
    for (std::size_t k = 1; k < trace.ops.size(); ++k) {
        CHECK(trace.ops[k].duration == trace.ops[k - 1].duration + Nanoseconds(10));
        CHECK(trace.ops[k].start == Nanoseconds(100 * trace.ops[k].duration.value));
    }
    // Transient memory lives exactly as long as the program had it.
    for (const TraceBuffer& b : trace.buffers) {
        if (b.persistent) continue;
        const auto first = std::find_if(trace.ops.begin(), trace.ops.end(), [&](const TraceOp& op) { return std::count(op.writes.begin(), op.writes.end(), b.id); });
        CHECK(first->index == b.alloc_op);
        CHECK(b.run_id > 0);
        CHECK(trace.ops[static_cast<std::size_t>(b.free_op.value)].name == "backward");
    }
    // It stops once the period has held long enough, and then costs nothing and says no more.
    CHECK(steps(program, 40).empty());
    CHECK(recorder.on());
    CHECK(steps(program, 120).empty());
    CHECK_FALSE(recorder.on());
    CHECK_FALSE(recorder.timing());
}

TEST_CASE("an iteration in a stream of its own each time is one") {
    Recorder recorder(settings_for_test());
    MadeUp program{.layers = 6, .recorder = recorder};
    program.start();
    const std::string text = until_told(recorder, 10, [&](int i) {
        program.stream = 100 + static_cast<std::uint64_t>(i);
        program.step();
    });
    CHECK(parsed(text).ops.size() == static_cast<std::size_t>(program.ops()));
}

// Two streams: what the second does waits for the forward pass, the update for it, and the host for the loss.
TEST_CASE("what orders ops is told with them: waits of streams for each other, and of the host") {
    Recorder recorder(settings_for_test());
    MadeUp program{.layers = 2, .recorder = recorder};
    program.start();
    const std::uint64_t side = 7, forked = 21, joined = 22;
    const std::string text = until_told(recorder, 10, [&](int) {
        program.stream = 1;
        program.op("cuMemcpyHtoDAsync", {{program.input, Mode::write}});       // 0
        program.forward();                                                     // 1, 2
        recorder.event_recorded(forked, 1);
        recorder.stream_waits(side, forked);
        recorder.stream_waits(side, forked);
        recorder.stream_waits(1, forked);                                      // its own order already
        recorder.stream_waits(1, 99);                                          // never recorded
        program.stream = side;
        program.op("loss", {{program.activations[1], Mode::read}});            // 3
        recorder.event_recorded(joined, side);
        program.stream = 1;
        for (int l = 1; l >= 0; --l) program.op("backward", {{program.weights[MadeUp::at(l)]}, {program.gradients[MadeUp::at(l)], Mode::write}});   // 4, 5
        recorder.stream_waits(1, joined);
        recorder.host_waited(0, joined);
        for (const auto a : program.activations) program.drop(a);
        program.activations.clear();
        program.update();                                                      // 6, 7
        for (int k = 0; k < 10'000; ++k) recorder.host_waited(1, 0);           // asks on and on
    });
    const Trace trace = parsed(text);
    REQUIRE(trace.ops.size() == 8);
    for (const TraceOp& op : trace.ops) {
        INFO("op " << op.index.value);
        CHECK(op.waits == (op.index.value == 3 ? std::vector{OpIndex(2)} : op.index.value == 6 ? std::vector{OpIndex(3)} : std::vector<OpIndex>()));
        CHECK(op.host_waited == OpIndex(op.index.value == 0 ? 7 : op.index.value == 6 ? 3 : -1));
    }
    const auto again = parse_trace("again", format_trace(trace));
    REQUIRE(again);
    CHECK((again->ops[3].waits == trace.ops[3].waits && again->ops[0].host_waited == OpIndex(7)));
    // A file that ends before the op that is waited for does not name it.
    const Trace half = parsed(text.substr(0, text.find("\"name\":\"backward\"")));
    REQUIRE(half.ops.size() == 4);
    CHECK((half.ops[0].host_waited == OpIndex(-1) && half.ops[3].waits == std::vector{OpIndex(2)}));
}

TEST_CASE("a call that returns when its op has completed is a wait of the host") {
    Recorder recorder(settings_for_test());
    MadeUp program{.layers = 4, .recorder = recorder};
    program.start();
    const std::string text = until_told(recorder, 10, [&](int) {
        program.step();
        program.blocking = true;
        program.op("cuMemcpyDtoH", {{program.input, Mode::read}});
        program.blocking = false;
    });
    const Trace trace = parsed(text);
    REQUIRE(trace.ops.size() == static_cast<std::size_t>(program.ops()) + 1);
    for (const TraceOp& op : trace.ops) {
        INFO("op " << op.index.value);
        CHECK(op.host_waited.value == (op.index.value ? -1 : program.ops()));
    }
}

TEST_CASE("the largest op is known before any iteration is") {
    Recorder recorder(settings_for_test());
    MadeUp program{.layers = 2, .recorder = recorder};
    CHECK(recorder.largest_op().name.empty());
    program.start();
    const std::uint64_t large = program.make(7000), small = program.make(10);
    program.op("most", {{large}, {small, Mode::read}, {large + 8, Mode::read}, {1 << 10}});   // one of them twice, one unknown
    program.op("less", {{large}});
    CHECK_FALSE(recorder.caught_up());
    recorder.drain(false);
    CHECK(recorder.caught_up());
    CHECK((recorder.largest_op().name == "most" && recorder.largest_op().bytes == Bytes(7010)));
}

TEST_CASE("launches that are alike, many in a row, are no reason to look no further") {
    Recorder recorder(settings_for_test());
    MadeUp program{.recorder = recorder};
    program.start();
    for (int i = 0; i < 100; ++i) program.op("fill", {{program.input, Mode::write}});
    recorder.drain(false);
    std::string text;
    for (int i = 0; i < 4; ++i) {
        program.step();
        text = std::max(text, recorder.drain(false), [](const auto& a, const auto& b) { return a.size() < b.size(); });
    }
    CHECK(parsed(text).ops.size() == static_cast<std::size_t>(program.ops()));
}

TEST_CASE("equal layers are no iteration") {
    Recorder recorder(settings_for_test());
    MadeUp program{.layers = 300, .recorder = recorder};
    program.start();
    CHECK(parsed(steps(program, 4)).ops.size() == 901);
}

TEST_CASE("times are taken until a period is known, and again when it is lost") {
    Recorder recorder(settings_for_test());
    MadeUp program{.layers = 4, .recorder = recorder};
    program.start();
    CHECK(recorder.timing());
    CHECK_FALSE(steps(program, 4).empty());
    CHECK_FALSE(recorder.timing());
    program.evaluate();
    recorder.drain(false);
    CHECK(recorder.timing());
}

TEST_CASE("gradient accumulation: the whole iteration replaces its steps") {
    Recorder recorder(settings_for_test());
    MadeUp program{.layers = 5, .recorder = recorder};
    program.start();
    std::string text;
    for (int i = 0; i < 4; ++i) {
        for (int micro = 0; micro < 4; ++micro) {
            program.op("cuMemcpyHtoDAsync", {{program.input, Mode::write}});
            program.forward();
            for (int l = 4; l >= 0; --l) {
                program.op("backward", {{program.weights[MadeUp::at(l)]}, {program.activations[MadeUp::at(l)]}, {program.gradients[MadeUp::at(l)]}});
                program.drop(program.activations[MadeUp::at(l)]);
            }
            program.activations.clear();
            text += recorder.drain(false);
        }
        program.update();
        text += recorder.drain(false);
    }
    CHECK(std::count(text.begin(), text.end(), '\n') > 0);
    const Trace trace = parsed(text);  // the later one stands
    CHECK(trace.ops.size() == 4 * 11 + 5);
}

TEST_CASE("training is found at once after a longer loop that set it up") {
    Recorder recorder(settings_for_test());
    MadeUp program{.layers = 4, .recorder = recorder};
    program.start();
    for (int i = 0; i < 3; ++i)
        for (int part = 0; part < 10; ++part)
            for (int l = 0; l < program.layers; ++l) program.op("set up", {{program.weights[MadeUp::at(l)] + 8 * static_cast<std::uint64_t>(part)}});
    CHECK(parsed(recorder.drain(false)).ops.size() == 40);
    int taken = 0;
    const std::string text = steps(program, 10, &taken);
    CHECK(taken <= 3);
    CHECK(parsed(text).ops.size() == static_cast<std::size_t>(program.ops()));
    CHECK(steps(program, 10).empty());
}

TEST_CASE("one disturbance in a long iteration is forgiven, in a search that could not see it 16 times again") {
    Recorder::Settings settings = settings_for_test();
    settings.most_ops = settings.search_ops = 4096;
    Recorder recorder(settings);
    MadeUp program{.layers = 100, .recorder = recorder};
    program.start();
    program.step(), program.step();
    CHECK_FALSE(recorder.drain(false).empty());
    program.forward();
    program.op("odd", {{program.input}});
    for (const auto a : program.activations) program.drop(a);
    program.activations.clear();
    for (int i = 0; i < 30 && recorder.hears_ops(); ++i) program.step(), recorder.drain(false);
    CHECK_FALSE(recorder.on());   // the period stands again: the search has ended, and does not rest for want of one
}

TEST_CASE("an evaluation loop, a last batch of another size, and a warm-up of any length do not hide it") {
    Recorder recorder(settings_for_test());
    MadeUp program{.layers = 6, .recorder = recorder};
    program.start();
    std::mt19937 random(3);
    for (int i = 0; i < 500; ++i) program.op("warm", {{program.weights[random() % 6]}});
    CHECK(recorder.drain(false).empty());
    program.step();
    program.op("odd", {{program.input}});
    program.evaluate();
    CHECK(recorder.drain(false).empty());
    const Trace trace = parsed(steps(program, 6));
    CHECK(trace.ops.size() == 19);
    // An evaluation that repeats later does not replace it.
    for (int i = 0; i < 40; ++i) program.evaluate();
    CHECK(recorder.drain(true).empty());
}

TEST_CASE("what is told late is told the same: training is not lost to the evaluation at the end") {
    const bool late = GENERATE(false, true);
    Recorder recorder(settings_for_test());
    MadeUp program{.layers = 6, .recorder = recorder};
    program.start();
    std::string text;
    for (int i = 0; i < 8; ++i) {
        program.step();
        if (!late) text += recorder.drain(false);
    }
    for (int i = 0; i < 40; ++i) {
        program.evaluate();
        if (!late) text += recorder.drain(false);
    }
    text += recorder.drain(true);
    const Trace trace = parsed(text);
    CHECK(trace.ops.size() == static_cast<std::size_t>(program.ops()));
    CHECK(std::all_of(trace.ops.begin(), trace.ops.end(), [](const TraceOp& op) { return op.start.value >= 0; }));
}

TEST_CASE("a program that never repeats is told as such") {
    Recorder recorder(settings_for_test());
    MadeUp program{.layers = 6, .recorder = recorder};
    program.start();
    std::mt19937 random(5);
    for (int i = 0; i < 3000; ++i) program.op("any", {{program.weights[random() % 6]}, {program.gradients[random() % 6]}});
    const std::string text = recorder.drain(true);
    CHECK(text == "{\"kind\":\"learned\",\"ops\":0,\"searched\":3006}\n");
    CHECK(parsed(text).ops.empty());
    CHECK_FALSE(recorder.on());
}

namespace {
Recorder::Settings settings_with_rests(std::int64_t& clock) {
    Recorder::Settings s = settings_for_test();
    s.timed_ops = 64, s.search_ops = 256, s.most_ops = 1024, s.searches = 4, s.rest = 3;
    s.now = [&clock] { return Nanoseconds(clock); };
    return s;
}
// Ops that never repeat, one a microsecond, told while they are heard.
void wander(MadeUp& program, std::mt19937& random, std::int64_t& clock, int ops) {
    for (int i = 0; i < ops; ++i, clock += 1000) {
        if (program.recorder.hears_ops()) program.op("any", {{program.weights[random() % 6]}, {program.gradients[random() % 6]}});
        const bool told = !program.recorder.drain(false).empty();
        CHECK(told == !program.recorder.on());   // that it found nothing
    }
}
}  // namespace

TEST_CASE("a search that finds nothing rests, and each one longer than the one before, until they are used up") {
    std::int64_t clock = 0;
    Recorder recorder(settings_with_rests(clock));
    MadeUp program{.layers = 6, .recorder = recorder};
    program.start();
    std::mt19937 random(5);
    std::vector<std::int64_t> heard, rested;   // us, in turn
    for (std::int64_t since = clock; recorder.on() && clock < 100'000'000; since = clock) {
        while (recorder.hears_ops()) wander(program, random, clock, 1);
        heard.push_back((clock - since) / 1000), since = clock;
        while (recorder.on() && !recorder.hears_ops()) {
            CHECK_FALSE(recorder.timing());
            wander(program, random, clock, 1);
        }
        rested.push_back((clock - since) / 1000);
    }
    REQUIRE(heard.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) CHECK(std::abs(heard[i] - std::min(1024, 256 << i)) <= 8);
    for (std::size_t i = 0; i < 3; ++i) CHECK(std::abs(rested[i] - heard[i] * (3 << 2 * i)) <= 8);
    CHECK_FALSE(recorder.on());
}

TEST_CASE("a search rests after some time too, of which a program's pauses are none") {
    std::int64_t clock = 0;
    Recorder::Settings settings = settings_with_rests(clock);
    settings.search_time = Nanoseconds(10'000'000'000);
    Recorder recorder(settings);
    MadeUp program{.layers = 6, .recorder = recorder};
    program.start();
    std::mt19937 random(5);
    recorder.drain(false);
    for (int pause = 0; pause < 5; ++pause) {
        for (int i = 0; i < 100; ++i, clock += 1'000'000'000) recorder.drain(false);
        wander(program, random, clock, 1);
    }
    CHECK(recorder.hears_ops());
    for (int i = 0; i < 20; ++i, clock += 500'000'000) wander(program, random, clock, 1);
    CHECK(recorder.on());
    CHECK_FALSE(recorder.hears_ops());
}

TEST_CASE("a search rests when its ops used much memory, however few they are") {
    std::int64_t clock = 0;
    Recorder::Settings settings = settings_with_rests(clock);
    settings.most_kept = 200;
    Recorder recorder(settings);
    MadeUp program{.layers = 6, .recorder = recorder};
    program.start();
    std::mt19937 random(5);
    wander(program, random, clock, 80);
    CHECK(recorder.hears_ops());
    wander(program, random, clock, 40);
    CHECK(recorder.on());
    CHECK_FALSE(recorder.hears_ops());
}

TEST_CASE("it ends once, also when somebody else says so") {
    Recorder::Settings settings = settings_for_test();
    int ended = 0;
    settings.ended = [&] { ++ended; };
    Recorder recorder(settings);
    MadeUp program{.recorder = recorder};
    program.start();
    recorder.drain(false);
    recorder.end();
    CHECK_FALSE(recorder.on());
    CHECK(ended == 1);
    program.step();
    CHECK(recorder.drain(false).empty());
    CHECK(recorder.drain(true).empty());
    CHECK(ended == 1);
}

TEST_CASE("an iteration that begins in a rest is found after it, of memory that was made meanwhile") {
    std::int64_t clock = 0;
    Recorder recorder(settings_with_rests(clock));
    MadeUp program{.layers = 6, .recorder = recorder};
    program.start();
    std::mt19937 random(5);
    while (recorder.hears_ops()) wander(program, random, clock, 1);
    for (int i = 0; i < 20000; ++i) program.drop(program.make(100));
    program.cached = true;
    for (int l = 0; l < 6; ++l) program.activations.push_back(program.make(2000));
    while (!recorder.hears_ops()) wander(program, random, clock, 1);
    const Trace trace = parsed(steps(program, 6));
    CHECK(trace.ops.size() == 19);
    CHECK(peak_live(trace) == Bytes(500 + 12 * 1000 + 6 * 2000));
    for (const TraceOp& op : trace.ops) CHECK(op.duration.value > 0);
}

TEST_CASE("in a search that is no longer young an iteration is told once it was timed") {
    std::int64_t clock = 0;
    Recorder::Settings settings = settings_with_rests(clock);
    settings.search_ops = settings.most_ops = 1 << 16;
    Recorder recorder(settings);
    MadeUp program{.layers = 6, .recorder = recorder};
    program.start();
    std::mt19937 random(5);
    wander(program, random, clock, 40);
    CHECK(recorder.timing());
    wander(program, random, clock, 100);
    CHECK_FALSE(recorder.timing());
    std::string text;
    int taken = 0;
    while (text.empty() && ++taken < 10) text = (program.step(), recorder.drain(false));
    CHECK(taken == 3);   // two to see that it repeats, one more
    const Trace trace = parsed(text);
    REQUIRE(trace.ops.size() == 19);
    for (const TraceOp& op : trace.ops) CHECK(op.duration.value > 0);
    recorder.drain(false);
    CHECK_FALSE(recorder.timing());
}

TEST_CASE("ops that were dropped cost time, not truth") {
    Recorder::Settings settings = settings_for_test();
    settings.queue = 64;
    Recorder recorder(settings);
    MadeUp program{.layers = 12, .recorder = recorder};
    program.start();
    program.step(), program.step(), program.step();  // more than the queue holds
    CHECK(recorder.drain(false).empty());
    const Trace trace = parsed(steps(program, 6));
    CHECK(trace.ops.size() == 37);
    CHECK(peak_live(trace) == Bytes(500 + 24 * 1000 + 12 * 2000));
}

TEST_CASE("an op of many addresses is told whole") {
    Recorder recorder(settings_for_test());
    std::vector<std::uint64_t> all;
    for (std::uint64_t i = 0; i < 50; ++i) recorder.allocated(all.emplace_back((i + 1) << 12), 4096);
    for (int i = 0; i < 20; ++i) {
        ObservedOp op;
        op.name = "graph";
        op.count = 50;
        op.more = new std::vector<Touch>;
        for (std::uint32_t k = 0; k < 50; ++k) {
            if (k < ObservedOp::inline_touches) op.touches[k] = {all[k], Mode::read};
            else op.more->push_back({all[k] + 100, Mode::read});
        }
        recorder.op(op);
    }
    const Trace trace = parsed(recorder.drain(true));
    REQUIRE(trace.ops.size() == 1);
    CHECK(trace.ops[0].reads.size() == 50);
    CHECK(trace.ops[0].writes.empty());
}

TEST_CASE("memory that lives across the iteration's begin is counted as the program has it") {
    Recorder recorder(settings_for_test());
    recorder.allocated(1 << 12, 100);
    std::uint64_t before = 0, at = 1 << 20;
    const std::string text = until_told(recorder, 30, [&](int) {  // each step frees what the step before made
        at += 4096;
        recorder.allocated(at, 1000);
        for (int k = 0; k < 5; ++k) {
            ObservedOp op;
            op.name = k == 0 ? "first" : "more";
            op.shape = static_cast<std::uint64_t>(k);
            op.touches[op.count++] = {1 << 12, Mode::read_write};
            op.touches[op.count++] = {at, Mode::read_write};
            recorder.op(op);
            if (k == 2 && before) recorder.released(before);
        }
        before = at;
    });
    const Trace trace = parsed(text);
    CHECK(trace.ops.size() == 5);
    CHECK(peak_live(trace) == Bytes(100 + 2 * 1000));
}

// `x = to_device(batch); step(x)`: the batch lives until the next one was made, `late` steps later.
TEST_CASE("a batch that goes when the next one came is none that lasts") {
    const int late = GENERATE(1, 2, 3);
    Recorder recorder(settings_for_test());
    recorder.allocated(1 << 12, 100);
    std::vector<std::uint64_t> batches;
    const std::string text = until_told(recorder, 30, [&](int i) {
        batches.push_back((1u << 20) + static_cast<std::uint64_t>(i) * 4096);
        recorder.allocated(batches.back(), 1000);
        for (int k = 0; k < 5; ++k) {
            ObservedOp op;
            op.name = k == 0 ? "cuMemcpyHtoDAsync_v2" : "more";
            op.shape = static_cast<std::uint64_t>(k);
            op.touches[op.count++] = {batches.back(), k ? Mode::read : Mode::write, 1000};
            if (k) op.touches[op.count++] = {1 << 12, Mode::read_write};
            recorder.op(op);
            if (k == 0 && i >= late) recorder.released(batches[static_cast<std::size_t>(i - late)]);
        }
    });
    const Trace trace = parsed(text);
    REQUIRE(trace.ops.size() == 5);
    CHECK(trace.ops[0].name == "cuMemcpyHtoDAsync_v2");
    const auto& batch = trace.buffers[static_cast<std::size_t>(trace.ops[0].writes.at(0).value)];
    CHECK_FALSE(batch.persistent);
    CHECK(bytes_of(trace, true) == Bytes(100 + (late - 1) * 1000));   // what waits to be freed is there all the time
}

// What a program makes in each of its first steps, before op `made`, and keeps once it has captured one. `other` bytes are made in
// each step before op 2 and freed in the next one before op 1, where the fewest transient bytes are alive once the first is kept.
TEST_CASE("memory that an iteration makes, and the next one uses too, lasts") {
    const int captured = GENERATE(0, 1, 2, 30), made = GENERATE(0, 2);
    const std::uint64_t other = GENERATE(0u, 500u);
    Recorder recorder(settings_for_test());
    recorder.allocated(1 << 12, 100);
    if (other) recorder.allocated(1 << 22, other);
    std::string text;
    int i = 0;
    for (; i < 30 && text.empty(); ++i) {
        for (int k = 0; k < 5; ++k) {
            static const char* const names[] = {"op 0", "op 1", "op 2", "op 3", "op 4"};
            if (k == made && i <= captured) recorder.allocated(1 << 20, 1000);
            if (k == 1 && other) recorder.released(1 << 22);
            if (k == 2 && other) recorder.allocated(1 << 22, other);
            ObservedOp op;
            op.name = names[k];
            op.touches[op.count++] = {1 << 12, Mode::read_write};
            if (k >= made) op.touches[op.count++] = {1 << 20, k == made ? Mode::write : Mode::read, 1000};
            recorder.op(op);
        }
        if (i < captured) recorder.released(1 << 20);
        text = recorder.drain(false);
    }
    const Trace trace = parsed(text);
    REQUIRE(trace.ops.size() == 5);
    INFO(other << " other bytes, made before op " << made << ", captured in " << captured << ", found after " << i << " iterations");
    const bool kept = i > captured + 1;
    CHECK(bytes_of(trace, true) == Bytes(kept ? 1100 : 100));
    CHECK(peak_live(trace) == Bytes(1100 + static_cast<std::int64_t>(other)));
    if (other && !made) CHECK(trace.ops.front().name == (kept ? "op 1" : "op 0"));
}

TEST_CASE("many threads tell at once") {
    Recorder recorder(settings_for_test());
    std::vector<std::thread> threads;
    std::atomic<int> left{4};
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            for (int i = 0; i < 20000; ++i) {
                const auto at = static_cast<std::uint64_t>((t << 20) + (i % 100 + 1) * 4096);
                recorder.allocated(at, 64);
                ObservedOp op;
                op.touches[op.count++] = {at, Mode::read};
                if (i % 7 == 0) op.more = new std::vector<Touch>{{at, Mode::read}};
                recorder.op(op);
                recorder.released(at);
            }
            --left;
        });
    std::string text;
    while (left) text += recorder.drain(false);
    for (auto& thread : threads) thread.join();
    text += recorder.drain(true);
    CHECK(parse_trace("lines", header + text));
}

TEST_CASE("an iteration runs from mark to mark where the program has marks that fit") {
    const int halves = GENERATE(1, 2, 3);
    Recorder recorder(settings_for_test());
    MadeUp program{.layers = 6, .recorder = recorder};
    program.start();
    const std::string text = until_told(recorder, 12 * halves, [&](int i) {
        if (i % halves == 0) recorder.mark();
        program.step();
    });
    const Trace trace = parsed(text);
    CHECK(trace.ops.size() == static_cast<std::size_t>(halves * program.ops()));
    CHECK(trace.ops[0].name == "cuMemcpyHtoDAsync");
    CHECK(recorder.marks() <= 4);
}

TEST_CASE("a mark that does not come back is passed over when the search ends") {
    Recorder recorder(settings_for_test());
    MadeUp program{.layers = 6, .recorder = recorder};
    program.start();
    std::string text;
    int taken = 0;
    for (; taken < 300 && text.empty(); ++taken) {
        if (taken == 0) recorder.mark();
        program.step();
        text = recorder.drain(false);
    }
    CHECK(taken > 100);
    CHECK(parsed(text).ops.size() == static_cast<std::size_t>(program.ops()));
    CHECK_FALSE(recorder.on());
}

TEST_CASE("the FLOPs of a call are shared by its ops, also where the iteration begins in the middle of one") {
    const int first = GENERATE(0, 1, 2, 3);
    Recorder recorder(settings_for_test());
    recorder.allocated(1 << 20, 1000);
    std::uint64_t call = 0;
    std::int32_t timer = 0;
    // Two calls of two ops each, over and over; what came before decides where the period is seen to begin.
    const std::string text = until_told(recorder, 100, [&](int i) {
        const int k = (i + first) % 4;
        ObservedOp op;
        op.name = k % 2 ? "compute" : "prepare";
        op.shape = static_cast<std::uint64_t>(k);
        op.touches[op.count++] = {1 << 20, Mode::read_write};
        if (k % 2 == 0 || i == 0) ++call;
        op.call = k < 2 ? "a" : "b", op.call_number = call, op.call_flops = k < 2 ? 1000 : 500;
        op.timer = timer++ % 4;
        recorder.op(op);
    });
    double a = 0, b = 0;
    const Trace trace = parsed(text);
    for (const TraceOp& op : trace.ops) (op.call == "a" ? a : b) += op.flops;
    const double turns = static_cast<double>(trace.ops.size()) / 4;
    CHECK(a / turns == Approx(1000));
    CHECK(b / turns == Approx(500));
}

TEST_CASE("where a table leads is known of the iteration though it was found out in the middle of it") {
    Recorder recorder(settings_for_test());
    MadeUp program{.recorder = recorder};
    program.start();
    const std::uint64_t led = program.make(4000);
    const std::string text = until_told(recorder, 10, [&](int i) {
        program.step();
        if (i == 0) program.op("through", {{program.input}});
        else program.op("through", {{program.input}, {led, Mode::read_write, UINT64_MAX, true}});
    });
    const Trace trace = parsed(text);
    const auto op = std::find_if(trace.ops.begin(), trace.ops.end(), [](const TraceOp& o) { return o.name == "through"; });
    REQUIRE(op != trace.ops.end());
    CHECK(std::count_if(op->writes.begin(), op->writes.end(), [&](BufferId b) { return trace.buffers[static_cast<std::size_t>(b.value)].bytes == Bytes(4000); }) == 1);
}

TEST_CASE("where nothing came of what was told the recorder rests until it is asked again, and tells what runs then") {
    std::int64_t clock = 0;
    Recorder::Settings settings = settings_with_rests(clock);
    bool spare = true;
    settings.spare = [&] { return spare; };
    Recorder recorder(settings);
    MadeUp large{.layers = 12, .recorder = recorder}, small{.layers = 6, .recorder = recorder};
    small.next = 1 << 30;
    large.start(), small.start();
    CHECK(parsed(steps(large, 4)).ops.size() == static_cast<std::size_t>(large.ops()));
    CHECK(steps(large, 120).empty());
    CHECK(recorder.on());
    CHECK_FALSE(recorder.hears_ops());
    CHECK_FALSE(recorder.timing());
    clock += 1'000'000'000'000'000;   // no rest ends of itself
    recorder.drain(false);
    CHECK_FALSE(recorder.hears_ops());

    recorder.again();
    recorder.drain(false);
    REQUIRE(recorder.hears_ops());
    CHECK(parsed(steps(small, 4)).ops.size() == static_cast<std::size_t>(small.ops()));   // of the same kernels, and shorter
    spare = false;
    const std::string last = steps(small, 200);   // how often which was there
    CHECK((std::count(last.begin(), last.end(), '\n') == 2 && last.find("\"kind\":\"repeated\",\"ops\":37") == 1));
    CHECK_FALSE(recorder.on());
}

TEST_CASE("of several iterations the trace shows the one that was most of the run") {
    Recorder recorder(settings_for_test());
    MadeUp program{.layers = 6, .recorder = recorder};
    program.start();
    const bool mostly_training = GENERATE(true, false);
    std::string text;
    for (int i = 0; i < (mostly_training ? 60 : 3); ++i) program.step(), text += recorder.drain(false);
    for (int i = 0; i < 40; ++i) {   // of other kernels: told too
        for (int k = 0; k < 10; ++k) program.op("score", {{program.weights[MadeUp::at(k % 6)]}, {program.input}});
        for (int k = 0; k < 10; ++k) program.op("rank", {{program.weights[MadeUp::at(k % 6)]}, {program.input}});
        text += recorder.drain(false);
    }
    text += recorder.drain(true);
    REQUIRE(text.find("\"name\":\"rank\"") != std::string::npos);
    REQUIRE(text.find("\"name\":\"update\"") != std::string::npos);
    CHECK(parsed(text).ops.size() == (mostly_training ? 19u : 20u));
    const std::size_t shown = parsed(text).ops.size();
    CHECK(parsed(text.substr(0, text.find("{\"kind\":\"repeated\""))).ops.size() == 20);
    // What was followed says more.
    const std::size_t second = text.find("{\"kind\":\"learned\"", 5);
    CHECK(parsed(text.substr(0, second)).ops.size() == 19);
    const auto followed = [&](std::size_t record, int ops, int iterations) {
        const std::string begin = "\"first_op\":";
        const std::size_t at = text.find(begin, record) + begin.size();
        return "{\"kind\":\"sequence\",\"id\":0,\"ops\":" + std::to_string(ops) + ",\"iterations\":" + std::to_string(iterations) + "," + begin + text.substr(at, text.find(',', at) - at) + "}\n";
    };
    CHECK(parsed(text + followed(0, 19, 5) + followed(second, 20, 4)).ops.size() == 19);
    CHECK(parsed(text + followed(0, 19, 4) + followed(second, 20, 5)).ops.size() == 20);
    CHECK(parsed(text + followed(0, 19, 0)).ops.size() == shown);
    // Most of it was a stored one, of which this file has no ops.
    const std::string stored = "{\"kind\":\"sequence\",\"id\":0,\"ops\":20,\"iterations\":900}\n";
    CHECK(parsed(text + stored + (mostly_training ? followed(second, 20, 4) : followed(0, 19, 4))).ops.size() == shown);
}

TEST_CASE("two waits of the host in a row are two, however they come") {
    Recorder recorder(settings_for_test());
    MadeUp program{.layers = 4, .recorder = recorder};
    program.start();
    const std::string text = until_told(recorder, 10, [&](int) {
        program.stream = 1;
        program.step();
        recorder.event_recorded(30, 1);
        program.stream = 2;
        program.op("other", {{program.input, Mode::read}});
        recorder.host_waited(0, 29);   // an old event, long done
        recorder.host_waited(0, 30);
        recorder.host_waited(2, 0);
    });
    CHECK(parsed(text).ops[0].host_waited == OpIndex(program.ops()));
}

TEST_CASE("a stream that only hands a wait on is waited for by what it waits for") {
    Recorder recorder(settings_for_test());
    MadeUp program{.layers = 4, .recorder = recorder};
    program.start();
    const std::string text = until_told(recorder, 10, [&](int) {
        program.stream = 1;
        program.step();
        recorder.event_recorded(30, 1);
        recorder.stream_waits(2, 30);
        recorder.event_recorded(31, 2);
        recorder.stream_waits(3, 31);
        program.stream = 3;
        program.op("other", {{program.input, Mode::read}});
    });
    CHECK(parsed(text).ops.back().waits == std::vector{OpIndex(program.ops() - 1)});
}

TEST_CASE("the recorder is asked again so often, and no more") {
    std::int64_t clock = 0;
    Recorder::Settings settings = settings_with_rests(clock);
    settings.spare = [] { return true; };
    Recorder recorder(settings);
    MadeUp program{.recorder = recorder};
    program.start();
    int searches = 0;
    for (int i = 0; i < 2000 && recorder.on(); ++i) {
        if (!recorder.hears_ops()) recorder.again(), ++searches;
        program.step();
        recorder.drain(false);
    }
    CHECK_FALSE(recorder.on());
    CHECK(searches == settings.searches - 1);
}
