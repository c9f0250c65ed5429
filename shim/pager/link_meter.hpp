// How fast the link is, from the pager's own copies: the first ones of each direction are timed by events on their stream.
// For the mover alone, with the device's context current; rate() under the device's mutex.
#pragma once

#include <cuda.h>

#include <cstddef>

#include "shim/pager/driver.hpp"

namespace udnnmem::pager {

class LinkMeter {
  public:
    static constexpr int kSamples = 32;

    explicit LinkMeter(const Driver& driver) : driver_(driver) {}
    // Around the copies of one move. One move is timed at a time; others pass by.
    void begin(CUstream);
    void end(CUstream, std::size_t bytes);
    // Takes in what has been timed.
    void poll();
    // The events go with the context.
    void forget_context();

    // Bytes per second over the samples so far; 0: none yet.
    double rate() const { return seconds_ > 0 ? static_cast<double>(bytes_) / seconds_ : 0; }
    int samples() const { return samples_; }

  private:
    enum class State : unsigned char { idle, begun, ended };
    const Driver& driver_;
    CUevent begin_ = nullptr, end_ = nullptr;
    State state_ = State::idle;
    std::size_t pending_ = 0, bytes_ = 0;
    double seconds_ = 0;
    int samples_ = 0;
};

}  // namespace udnnmem::pager
