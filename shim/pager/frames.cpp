#include "shim/pager/frames.hpp"

#include <algorithm>

#include "shim/pager/checked.hpp"

namespace udnnmem::pager {
namespace {
constexpr std::size_t kLargestFrame = 64u << 20;
// A frame made anew costs an H200's driver 200 to 800 us, and what gives way for it 100 more; one more frame of a buffer costs 35 us at each
// change of its mapping. So a frame may be made up of others of this many classes below its own: eight of them at most.
constexpr int kClassesBelow = 3;
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

Frame* FramePool::take_class(int c, bool over_budget) {
    if (!free_[c].empty()) {
        Frame* frame = free_[c].back();
        free_[c].pop_back();
        in_use_ += frame->bytes;
        return frame;
    }
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
    peak_in_use_ = std::max(peak_in_use_, in_use_);
    ++frames_;
    peak_made_ = std::max(peak_made_, made_);
    return frame;
}

// What stands in for a frame of that class, of frames that are free; all or nothing.
bool FramePool::take_smaller(int c, std::vector<Frame*>& out) {
    const auto walk = [&](auto take) {
        std::size_t left = backing_.granule() << c;
        for (int d = c - 1; d >= std::max(0, c - kClassesBelow) && left; --d) {
            const std::size_t bytes = backing_.granule() << d, count = std::min(free_[d].size(), left / bytes);
            take(d, count);
            left -= count * bytes;
        }
        return left == 0;
    };
    if (!walk([](int, std::size_t) {})) return false;
    return walk([&](int d, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) out.push_back(take_class(d, false));
    });
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
        if (!over_budget && free_[c].empty() && made_ + bytes > budget_ && take_smaller(c, out)) {
            left -= bytes;
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
