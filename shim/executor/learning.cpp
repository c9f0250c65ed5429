// Executor: what the recorder has found, and passages that come again, as courses to plan for.
#include <algorithm>
#include <cmath>
#include <utility>

#include "policy/compiled.hpp"
#include "shim/executor/executor.hpp"

namespace udnnmem::executor {
namespace {

constexpr int kTimesBesideRecorder = 4;   // that a passage has to come while the recorder may still find it

}  // namespace

// Whether a course has that fingerprint.
bool Executor::known(std::uint64_t fingerprint) {
    std::lock_guard lock(mutex_);
    return std::any_of(courses_.begin(), courses_.end(), [&](const CoursePointer& c) { return c->fingerprint() == fingerprint; });
}

// A course of its own from now on, followed so that demand paging is measured too.
void Executor::learn(const profiler::Iteration& iteration, pager::DevicePager& device) {
    Sequence sequence = make_sequence(iteration, device.small_below(), device.granule(), [this](std::uint64_t at) { return pager_.find(at); });
    if (sequence.steps.empty() && !iteration.steps.empty()) settings_.say("an iteration of " + std::to_string(iteration.steps.size()) + " ops is not planned for: memory that seemed to outlive it was freed");
    if (sequence.steps.size() < Sequence::fewest) return kept_back_.store(!on());
    auto made = std::make_shared<Course>(learned_, std::move(sequence), pager_);
    if (known(made->fingerprint())) return;
    {
        std::lock_guard lock(mutex_);
        note_stranger();
    }
    const Sequence& learned = made->sequence;
    const auto room = device.room();
    if (!on() && policy::CompiledTrace(learned.plan_trace).peak_live <= static_cast<std::int64_t>(static_cast<double>(room.movable) * (1 - kSpare)) &&
        device.memory().live <= room.movable) {
        kept_ = std::make_unique<profiler::Iteration>(iteration);   // nothing to plan, until something is moved
        kept_back_.store(true);
        return;
    }
    note_prices(learned);
    std::lock_guard lock(mutex_);
    if (courses_.size() == kMostCourses) {
        const auto oldest = std::min_element(courses_.begin(), courses_.end(), [&](const CoursePointer& a, const CoursePointer& b) {
            const auto worth = [&](const CoursePointer& c) { return std::tuple(c.get() == active_, c->followed_at, c->sequence.steps.size()); };
            return worth(a) < worth(b);
        });
        if (last_ == oldest->get()) last_ = nullptr;
        end_proof(**oldest, false);
        const Course::Figures gone = (*oldest)->figures();
        retired_.iterations += gone.iterations, retired_.planned_iterations += gone.planned_iterations, retired_.given_up += gone.given_up;
        unknown_.forget((*oldest)->fingerprint());
        courses_.erase(oldest);
    }
    device_ = &device;
    courses_.push_back(std::move(made));
    ++learned_;
    settings_.say("sequence " + std::to_string(learned_ - 1) + " of " + std::to_string(learned.steps.size()) + " ops is known");
    watching_.store(true);
    on_.store(true);
}

void Executor::take_passages(pager::DevicePager& device) {
    std::vector<Passage> taken;
    {
        std::lock_guard lock(mutex_);
        taken.swap(passages_);
    }
    // The recorder sees more of a sequence: its times, and what lies in slabs.
    const int times = !taken.empty() && settings_.recorder_listens && settings_.recorder_listens() ? kTimesBesideRecorder : 2;
    for (Passage& passage : taken)
        if (const auto found = unknown_.take(std::move(passage), [this](std::uint64_t print) { return known(print); }, times)) learn(*found, device);
}

void Executor::note_prices(const Sequence& sequence) {
    double ns = 0, bytes = 0;
    for (std::size_t k = 0; k < sequence.steps.size(); ++k) {
        const Sequence::Step& step = sequence.steps[k];
        const Nanoseconds took = sequence.plan_trace.ops[k].duration;
        double named = 1;
        for (std::uint32_t i = step.first; i < step.first + step.count; ++i) named += static_cast<double>(sequence.plan_trace.buffers[static_cast<std::size_t>(sequence.uses[i].buffer)].bytes.value);
        prices_[step.shape] = took;
        price_per_byte_[step.name] = static_cast<double>(took.value) / named;
        ns += static_cast<double>(took.value), bytes += named;
    }
    price_per_byte_[""] = ns / bytes;
}

// Of an op that was not measured: what the same op took, or one of that name for each byte, or any.
Nanoseconds Executor::price(const char* name, std::uint64_t shape, std::size_t bytes) {
    if (const auto same = prices_.find(shape); same != prices_.end()) return same->second;
    const auto like = price_per_byte_.find(name);
    return Nanoseconds(static_cast<std::int64_t>((like != price_per_byte_.end() ? like->second : price_per_byte_[""]) * static_cast<double>(bytes)));
}

}  // namespace udnnmem::executor
