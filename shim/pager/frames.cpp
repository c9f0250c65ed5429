#include "shim/pager/frames.hpp"

#include <algorithm>

namespace udnnmem::pager {
namespace {
constexpr std::size_t kLargestFrame = 64u << 20;
}

FramePool::~FramePool() { trim(0); }

int FramePool::largest_class() const {
    int c = 0;
    while (c + 1 < kClasses && (backing_.granule() << (c + 1)) <= kLargestFrame) ++c;
    return c;
}

// Releases free frames, largest first, until no more than `keep` bytes are made.
void FramePool::trim(std::size_t keep) {
    for (int c = kClasses - 1; c >= 0; --c) {
        while (made_ > keep && !free_[c].empty()) {
            Frame* frame = free_[c].back();
            free_[c].pop_back();
            made_ -= frame->bytes;
            backing_.drop(*frame);
            delete frame;
        }
    }
}

Frame* FramePool::take_class(int c, bool over_budget) {
    if (!free_[c].empty()) {
        Frame* frame = free_[c].back();
        free_[c].pop_back();
        in_use_ += frame->bytes;
        return frame;
    }
    const std::size_t bytes = backing_.granule() << c;
    if (!over_budget && made_ + bytes > budget_) {
        if (in_use_ + bytes > budget_) return nullptr;
        trim(budget_ - bytes);  // free frames of other classes stand in the way
        ++recreated_;
    }
    auto* frame = new Frame;
    last_error_ = backing_.make(place_, bytes, *frame);
    if (last_error_ != CUDA_SUCCESS && made_ > in_use_) {  // the device itself is full: give up what we only keep
        trim(in_use_);
        last_error_ = backing_.make(place_, bytes, *frame);
    }
    if (last_error_ != CUDA_SUCCESS) {
        delete frame;
        // Somebody else holds what the budget promised: what is ours now is what there is to work with.
        if (last_error_ == CUDA_ERROR_OUT_OF_MEMORY && !over_budget && in_use_ < budget_) {
            budget_ = in_use_;
            ++shrunk_;
        }
        return nullptr;
    }
    made_ += bytes;
    in_use_ += bytes;
    peak_made_ = std::max(peak_made_, made_);
    return frame;
}

bool FramePool::take(std::size_t capacity, std::vector<Frame*>& out, bool over_budget) {
    if (!over_budget && in_use_ + capacity > budget_) return false;
    std::size_t left = capacity;
    int c = largest_class();
    while (left) {
        const std::size_t bytes = backing_.granule() << c;
        if (bytes > left) {
            --c;
            continue;
        }
        Frame* frame = take_class(c, over_budget);
        if (!frame) {
            give_back(out);
            return false;
        }
        out.push_back(frame);
        left -= bytes;
    }
    return true;
}

void FramePool::give_back(std::vector<Frame*>& frames) {
    for (Frame* frame : frames) {
        in_use_ -= frame->bytes;
        int c = 0;
        while ((backing_.granule() << c) < frame->bytes) ++c;
        free_[c].push_back(frame);
    }
    frames.clear();
}

}  // namespace udnnmem::pager
