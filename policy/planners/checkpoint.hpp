// Which layers of a chain to keep: Chen's rule of thumb and the optimal subsets. Plain functions on
// chains of layers 1..n; a set of checkpoints C = {c_1 < ... < c_k} keeps those layers' outputs, all else
// is computed again in the backward pass, one segment between checkpoints at a time.
//
// S(i, j), with c_0 = 0 and c_{k+1} = n + 1, is what the segment between i and j needs while it is in the
// backward pass: the outputs strictly between, and what else its layers hold for it.
//   Objective A, all checkpoints held to the end:   sum of m_c + max_j S(c_j, c_{j+1})
//   Objective B, freed as the backward pass passes: P(0),  P(i) = m_i + max(S(i, next), P(next)),  P(n+1) = 0
#pragma once

#include <cstdint>
#include <vector>

namespace udnnmem::policy {

struct Chain {
    std::vector<std::int64_t> output;  // m_1 .. m_n at [0 .. n-1], bytes
    std::vector<std::int64_t> inner;   // bytes that layer l holds besides its output; same length, or empty: none

    std::size_t size() const { return output.size(); }
};

using Checkpoints = std::vector<std::int32_t>;  // layers, 1-based, ascending

std::int64_t peak_all_held(const Chain& chain, const Checkpoints& kept);      // objective A
std::int64_t peak_freed_behind(const Chain& chain, const Checkpoints& kept);  // objective B

// T. Chen, B. Xu, C. Zhang, C. Guestrin, "Training deep nets with sublinear memory cost", 2016: `segments`
// runs of about equal length (0: the square root of n).
Checkpoints chen(const Chain& chain, std::size_t segments = 0);

// Optimal for objective A in O(n^3): for each of the n^2 values that S takes as the largest segment, the
// cheapest checkpoints by a sliding minimum. D.-Y. Hong et al., "GPU memory usage optimization for backward
// propagation in deep network training", 2025, pose the problem; the recurrence is our own.
Checkpoints best_all_held(const Chain& chain);

// Optimal for objective B in O(n^2), after the same work's revised objective.
Checkpoints best_freed_behind(const Chain& chain);

}  // namespace udnnmem::policy
