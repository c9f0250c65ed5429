// Made-up training iterations of many shapes, for tests and benchmarks of planners: a graph of layers with
// its backward pass and its updates derived from it. All from a seed: the same numbers on every machine.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "profiler/trace/trace.hpp"

namespace udnnmem::tests {

using Random = std::mt19937_64;

// A whole number between low and high, both included; the same on every standard library.
std::int64_t between(Random& random, std::int64_t low, std::int64_t high);
bool chance(Random& random, int percent);

struct Layer {
    std::vector<int> inputs;          // earlier layers
    std::int64_t output = 0;          // bytes
    std::int64_t weight = 0;          // bytes; 0: none
    std::int64_t workspace = 0;
    std::int64_t forward_ns = 0, backward_ns = 0;
    bool in_place = false;            // writes its only input's buffer; that input must have no other reader
    bool state = false;               // reads and writes running statistics
    bool replayable = true;
    bool saves_input = true, saves_output = false;  // what its backward op reads
};

struct Update {
    int state_buffers = 0;            // of a weight's size each: 2 for Adam
    bool at_once = false;             // after each gradient, else all at the end
};

profiler::Trace make_iteration(const std::string& name, const std::vector<Layer>& layers, const Update& update);

// Shapes of real networks, at the size asked for.
profiler::Trace transformer(int blocks, std::uint64_t seed = 1);
profiler::Trace residual(int blocks, std::uint64_t seed = 1);   // about three layers a block
profiler::Trace u_net(int depth, std::uint64_t seed = 1);
profiler::Trace dense_net(int layers, std::uint64_t seed = 1);
profiler::Trace random_dag(int layers, std::uint64_t seed = 1);
profiler::Trace recurrent(int steps, int layers, std::uint64_t seed = 1);  // unrolled in time

// Anything: a small network of a random shape, with ties, ops of no length, buffers of one byte or of one
// granule, workspaces larger than the rest, in-place chains, state, ops that cannot be replayed, alloc_op
// and free_op that differ from the uses.
profiler::Trace anything(Random& random, int most_layers);

}  // namespace udnnmem::tests
