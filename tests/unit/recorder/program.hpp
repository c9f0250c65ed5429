// A made-up training program: tells a recorder what a real one would, and can be disturbed in every way that real ones
// disturb a search for their iteration.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "profiler/recorder/recorder.hpp"

namespace udnnmem::profiler {

struct MadeUp {
    int layers = 6;
    bool shuffled = false;       // transient memory has another address each iteration
    bool blocking = false;       // calls return when their ops have completed
    bool cached = false;         // transient memory is never given back: one allocation for all iterations
    std::uint64_t layer_bytes = 1000;

    Recorder& recorder;
    std::int32_t timers = 0;     // timer n took 10 * n ns; ops have one while the recorder wants it
    std::uint64_t next = 1 << 20, ordinal = 0;
    std::map<std::uint64_t, std::vector<std::uint64_t>> kept;

    std::uint64_t make(std::uint64_t bytes) {
        const std::uint64_t at = next;
        next += (bytes + 511) / 512 * 512;
        recorder.allocated(at, bytes, static_cast<std::int32_t>(at >> 9));
        return at;
    }
    void drop(std::uint64_t at) { recorder.released(at); }
    void op(const char* name, std::initializer_list<Touch> touches) {
        ObservedOp op;
        op.name = name;
        op.stream = stream;
        op.blocking = blocking;
        op.timer = recorder.timing() ? ++timers : -1;
        for (const Touch& t : touches) op.touches[op.count++] = t;
        recorder.op(op);
    }

    std::vector<std::uint64_t> weights, gradients, activations;
    std::uint64_t input = 0, stream = 0;
    void start() {
        input = make(500);
        for (int l = 0; l < layers; ++l) {
            weights.push_back(make(layer_bytes)), gradients.push_back(make(layer_bytes));
            op("init", {{weights.back(), Mode::write}});
        }
        if (cached)
            for (int l = 0; l < layers; ++l) activations.push_back(make(2000));
    }
    void step() {
        if (shuffled) next += 4096 * (1 + ++ordinal % 3);
        op("cuMemcpyHtoDAsync", {{input, Mode::write}});
        forward();
        for (int l = layers - 1; l >= 0; --l) {
            op("backward", {{weights[at(l)]}, {activations[at(l)]}, {gradients[at(l)], Mode::write}});
            if (!cached) drop(activations[at(l)]);
        }
        if (!cached) activations.clear();
        update();
    }
    void forward() {
        for (int l = 0; l < layers; ++l) {
            if (!cached) activations.push_back(make(2000));
            op("forward", {{weights[at(l)], Mode::read}, {l ? activations[at(l - 1)] : input, Mode::read}, {activations[at(l)], Mode::write}});
        }
    }
    void update() {
        for (int l = 0; l < layers; ++l) op("update", {{weights[at(l)]}, {gradients[at(l)] + 8, Mode::read}});
    }
    void evaluate() {
        op("cuMemcpyHtoDAsync", {{input, Mode::write}});
        forward();
        for (const auto a : activations)
            if (!cached) drop(a);
        if (!cached) activations.clear();
        op("score", {{input, Mode::read}});
    }
    int ops() const { return 1 + 3 * layers; }
    static std::size_t at(int l) { return static_cast<std::size_t>(l); }
};

inline Recorder::Settings settings_for_test() {
    Recorder::Settings s;
    s.read_timer = [](std::int32_t timer, Nanoseconds& start, Nanoseconds& duration) {
        start = Nanoseconds(1000 * timer);
        duration = Nanoseconds(10 * timer);
        return Recorder::Reading::done;
    };
    return s;
}

}  // namespace udnnmem::profiler
