#include "shim/pager/frames.hpp"

#include <algorithm>

#include "shim/pager/checked.hpp"

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
    const bool unseen = made_ <= keep || !before_drop || before_drop();
    for (int c = kClasses - 1; c >= 0; --c) {
        while (made_ > keep && !free_[c].empty()) {
            Frame* frame = free_[c].back();
            free_[c].pop_back();
            if (!unseen) {
                keep -= std::min(keep, frame->bytes);   // as the budget
                forget(frame);
                continue;
            }
            made_ -= frame->bytes;
            --frames_;
            backing_.drop(*frame);
            delete frame;
        }
    }
}

// Of a frame that is in nobody's hands.
void FramePool::forget(Frame* frame) {
    made_ -= frame->bytes;
    written_off_ += frame->bytes;
    promised_ -= std::min(promised_, frame->bytes);
    budget_ = std::min(budget_ - std::min(budget_, frame->bytes), promised_);
    if (in_use_ > budget_) over_ = in_use_;
    delete frame;
}

void FramePool::write_off(std::vector<Frame*>& frames) {
    for (Frame* frame : frames) {
        in_use_ -= frame->bytes;
        forget(frame);
    }
    frames.clear();
    if constexpr (checked) must_be_valid(is_valid());
}

Frame* FramePool::make(int c, bool over_budget) {
    const std::size_t bytes = backing_.granule() << c;
    if (made_ + bytes > budget_) {
        if (!over_budget && in_use_ + bytes > budget_) return nullptr;
        if (made_ > in_use_) ++recreated_;
        trim(budget_ > bytes ? budget_ - bytes : 0);  // free frames of other classes stand in the way
        if (!over_budget && in_use_ + bytes > budget_) return nullptr;  // they were written off
    }
    auto* frame = new Frame;
    last_error_ = backing_.make(place_, bytes, *frame);
    if (last_error_ != CUDA_SUCCESS && made_ > in_use_) {  // the device itself is full: give up what we only keep
        trim(in_use_);
        last_error_ = backing_.make(place_, bytes, *frame);
    }
    if (last_error_ != CUDA_SUCCESS) {
        delete frame;
        // Somebody else holds what the budget promised: what is ours now is what there is to work with (DevicePager::regain_budget).
        if (last_error_ == CUDA_ERROR_OUT_OF_MEMORY && !over_budget && in_use_ < budget_) {
            budget_ = in_use_;
            ++shrunk_;
        }
        return nullptr;
    }
    made_ += bytes;
    in_use_ += bytes;
    ++frames_;
    peak_made_ = std::max(peak_made_, made_);
    return frame;
}

FramePool::Choice FramePool::choose(std::size_t capacity, bool over_budget) const {
    Choice choice;
    std::size_t left = capacity, made = made_;
    const auto left_free = [&](int c) { return free_[c].size() - choice.free[c]; };
    const auto stand_in = [&](int c) {   // for a frame of that class; all or nothing
        auto with = choice.free;
        std::size_t lacking = backing_.granule() << c, frames = 0;
        for (int d = c - 1; d >= 0 && lacking; --d) {
            const std::size_t bytes = backing_.granule() << d, count = std::min(left_free(d), lacking / bytes);
            with[d] += count;
            frames += count;
            lacking -= count * bytes;
        }
        if (lacking || frames > kFramesForOne) return false;
        choice.free = with;
        return true;
    };
    for (int c = largest_class(); left;) {
        const std::size_t bytes = backing_.granule() << c;
        if (bytes > left) {
            --c;
            continue;
        }
        left -= bytes;
        if (left_free(c)) {
            ++choice.free[c];
        } else if (over_budget || made + bytes <= budget_ || !stand_in(c)) {
            ++choice.anew[c];
            made += bytes;
        }
    }
    return choice;
}

std::size_t FramePool::lacking(std::size_t capacity) const {
    const Choice choice = choose(capacity, false);
    std::size_t anew = 0, largest = 0;
    for (int c = 0; c < kClasses; ++c) {
        anew += choice.anew[c] * (backing_.granule() << c);
        if (choice.anew[c]) largest = backing_.granule() << c;
    }
    return made_ + anew > budget_ ? largest : 0;
}

bool FramePool::take(std::size_t capacity, std::vector<Frame*>& out, bool over_budget) {
    if (!over_budget && in_use_ + capacity > budget_) return false;
    const Choice choice = choose(capacity, over_budget);
    for (int c = kClasses - 1; c >= 0; --c) {   // before any is made: what is free then gives way
        const auto first = free_[c].end() - static_cast<std::ptrdiff_t>(choice.free[c]);
        out.insert(out.end(), first, free_[c].end());
        free_[c].erase(first, free_[c].end());
        in_use_ += choice.free[c] * (backing_.granule() << c);
    }
    for (int c = kClasses - 1; c >= 0; --c) {
        for (std::size_t i = 0; i < choice.anew[c]; ++i) {
            Frame* frame = make(c, over_budget);
            if (!frame) {
                give_back(out);
                return false;
            }
            out.push_back(frame);
        }
    }
    if (over_budget) over_ = in_use_;
    peak_in_use_ = std::max(peak_in_use_, in_use_);
    if constexpr (checked) must_be_valid(is_valid());
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
    if (made_ > budget_) trim(std::max(budget_, in_use_));
    if constexpr (checked) must_be_valid(is_valid());
}

void FramePool::set_budget(std::size_t bytes) {
    promised_ = bytes - std::min(bytes, written_off_);
    set_budget_for_now(bytes);
}

void FramePool::set_budget_for_now(std::size_t bytes) {
    budget_ = std::min(bytes, promised_);
    if (in_use_ > budget_) over_ = in_use_;
    trim(std::max(budget_, in_use_));
    if constexpr (checked) must_be_valid(is_valid());
}

std::string FramePool::is_valid() const {
    std::size_t free = 0, count = 0;
    for (int c = 0; c < kClasses; ++c)
        for (const Frame* f : free_[c]) {
            if (f->bytes != backing_.granule() << c) return "a free frame is in the wrong class";
            free += f->bytes;
            ++count;
        }
    if (made_ != in_use_ + free || count > frames_) return "frames made are not those in use and free";
    if (made_ > std::max(budget_, in_use_)) return "free frames are kept over the budget";
    if (in_use_ > std::max(budget_, over_)) return "frames in use exceed the budget";
    if (budget_ > promised_) return "the budget is more than was promised";
    return {};
}

}  // namespace udnnmem::pager
