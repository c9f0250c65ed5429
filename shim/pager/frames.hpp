// Frames of one place (the device, or the host), recycled: making and releasing physical memory is dear. Size classes
// are powers of two of the granule up to 64 MiB; a buffer's capacity is a sum of them.
//
// Invariants
//   - bytes made (in use and free) never exceed the budget, except by what is taken over it and is still in use.
//   - what was written off counts as made by nobody: budget and bytes made are without it, frames() with it.
//   - free frames of one class that another class needs are released first ("stranded": counted).
// Guarded by the device's mutex.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "shim/pager/backing.hpp"

namespace udnnmem::pager {

class FramePool {
  public:
    FramePool(Backing& backing, Place place, std::size_t budget) : backing_(backing), place_(place), promised_(budget), budget_(budget) {}
    ~FramePool();

    // A frame made anew costs an H200's driver 200 to 800 us, and what gives way for it 100 more; one more frame of a buffer costs 35 us at
    // each change of its mapping. So up to this many frames that are free stand in for one that would have to be made.
    static constexpr std::size_t kFramesForOne = 8;

    // Frames for `capacity` bytes (a multiple of the granule), in address order: few ones, but rather some smaller ones that are free than
    // one for which others have to be given back to the driver. False: not within the budget (or the driver refuses);
    // then nothing was taken. `over_budget` ignores the budget.
    bool take(std::size_t capacity, std::vector<Frame*>& out, bool over_budget = false);
    void give_back(std::vector<Frame*>& frames);
    // Bytes of the largest frame for which take() would give others back to the driver; 0: it would not.
    std::size_t lacking(std::size_t capacity) const;

    std::size_t budget() const { return budget_; }
    // What is in use beyond it stays until it is given back.
    void set_budget(std::size_t bytes);
    // As long as somebody else holds what was promised; never more than that.
    void set_budget_for_now(std::size_t bytes);
    std::size_t promised() const { return promised_; }  // the budget, were there nobody else
    std::size_t in_use() const { return in_use_; }
    // The most that was in use since this was asked last.
    std::size_t take_peak() { return std::exchange(peak_in_use_, in_use_); }
    std::size_t made() const { return made_; }
    std::size_t peak_made() const { return peak_made_; }
    void forget_peak() { peak_made_ = made_; }
    std::uint64_t recreated() const { return recreated_; }
    std::uint64_t shrunk() const { return shrunk_; }  // times that the driver had less than the budget
    CUresult last_error() const { return last_error_; }
    // How much a request may still take: the budget less what is in use.
    std::size_t available() const { return budget_ > in_use_ ? budget_ - in_use_ : 0; }
    void trim(std::size_t keep);
    // Called before frames cease to exist: nothing may be looking at them any more. False: nobody can say so; they are written off.
    std::function<bool()> before_drop;
    // Frames that may be in use for as long as the process lives: the driver keeps them and the budget is the less for them.
    void write_off(std::vector<Frame*>& frames);
    std::size_t frames() const { return frames_; }  // that the driver holds
    // Empty if the invariants hold, else the first that does not.
    std::string is_valid() const;

  private:
    static constexpr int kClasses = 32;
    int largest_class() const;
    struct Choice {   // of each class, how many that are free and how many anew
        std::array<std::size_t, kClasses> free{}, anew{};
    };
    Choice choose(std::size_t capacity, bool over_budget) const;
    Frame* make(int c, bool over_budget);
    void forget(Frame*);

    Backing& backing_;
    Place place_;
    std::size_t promised_, budget_, in_use_ = 0, peak_in_use_ = 0, made_ = 0, peak_made_ = 0;
    std::size_t over_ = 0;   // in use when the budget was last exceeded on purpose, or fell below it
    std::size_t written_off_ = 0;
    std::size_t frames_ = 0;
    std::uint64_t recreated_ = 0, shrunk_ = 0;
    CUresult last_error_ = CUDA_SUCCESS;
    std::array<std::vector<Frame*>, kClasses> free_;
};

}  // namespace udnnmem::pager
