// A real trace seen as a chain of layers, for the planners that are defined on chains. The forward pass is
// cut after ops where few bytes cross: what crosses the cut is the layer's output, what else its ops leave
// for the backward pass is its inner part. Residual and dense connections cross cuts and are counted there,
// so the cuts fall between blocks by themselves.
#pragma once

#include <cstdint>
#include <vector>

#include "policy/liveness.hpp"
#include "policy/planners/checkpoint.hpp"
#include "policy/player.hpp"

namespace udnnmem::policy {

// A buffer written in the forward pass and used again in the backward pass: the gap between.
struct Saved {
    std::size_t buffer, use;
    std::int32_t written;    // by this op of the forward pass, the last that writes it before the gap
    std::int32_t read_until; // the last op of the forward pass that names it
    bool droppable;
};

class Layers {
public:
    // At most `most` layers.
    Layers(const profiler::Trace& trace, const Liveness& live, const Recovery& recovery, std::size_t most);

    std::size_t count() const { return cuts_.size(); }
    const Chain& chain() const { return chain_; }
    Nanoseconds forward_time(std::size_t layer) const { return times_[layer]; }          // layer from 0
    std::int64_t saved_bytes(std::size_t layer) const { return saved_bytes_[layer]; }    // of all saved buffers written in it
    const std::vector<Saved>& saved(std::size_t layer) const { return saved_[layer]; }

    // Does the saved buffer cross the cut at the end of the layer (0-based)? Such are kept by a checkpoint there.
    bool crosses(const Saved& saved, std::size_t layer) const { return saved.written <= cuts_[layer] && saved.read_until > cuts_[layer]; }

private:
    std::vector<std::int32_t> cuts_;  // the last op of each layer
    Chain chain_;
    std::vector<Nanoseconds> times_;
    std::vector<std::int64_t> saved_bytes_;
    std::vector<std::vector<Saved>> saved_;
};

}  // namespace udnnmem::policy
