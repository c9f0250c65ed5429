// How fast the link is, from the pager's own copies: the first ones of each direction are timed by events on their stream, and
// after them those that are larger (small ones are mostly latency), which take the place of the smallest.
// For the mover alone, with the device's context current; rate() under the device's mutex.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>

#include "shim/pager/driver.hpp"

namespace udnnmem::pager {

class LinkMeter {
  public:
    static constexpr int kSamples = 32;

    explicit LinkMeter(const Driver& driver) : driver_(driver) {}
    // Around the copies of one move. One move is timed at a time; others pass by.
    void begin(CUstream, std::size_t bytes);
    void end(CUstream);
    // Takes in what has been timed.
    void poll();
    // The events go with the context.
    void forget_context();

    // Bytes per second that half of the bytes timed so far were at least carried with: what was held up on its way (the host was
    // late with a copy) counts for little. 0: none yet.
    double rate() const { return rate_; }

  private:
    enum class State : unsigned char { idle, begun, ended };
    const Driver& driver_;
    CUevent begin_ = nullptr, end_ = nullptr;
    State state_ = State::idle;
    std::size_t pending_ = 0;
    struct Sample {
        double rate;
        std::size_t bytes;
    };
    Sample& smallest();
    double rate_of_half() const;
    std::array<Sample, kSamples> timed_;
    int samples_ = 0;
    double rate_ = 0;   // of them: the mover asks each time that it looks
};

}  // namespace udnnmem::pager
