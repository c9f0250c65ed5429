// Dropped buffers, as the launch path meets them: what may be dropped, what is computed again before which op, and when all of it has
// to be, for nobody could say any more what it is made of.
#include <utility>

#include "shim/executor/executor.hpp"

namespace udnnmem::executor {

CUresult Executor::replay_for(const Place& place, pager::Op& op, const replay::LaunchSource* source) noexcept try {
    turns_.wait_for(place.after);
    struct Turn {
        Turns& turns;
        const std::uint64_t number;
        ~Turn() {
            if (number) turns.over(number);
        }
    } const turn{turns_, place.turn};
    replay::Replayer& replayer = *replayer_.load();
    CUresult result = CUDA_SUCCESS;
    const Rows* const rows = place.rows.get();
    const auto k = static_cast<std::size_t>(place.step);
    replayer.check();
    using Stored = replay::Replayer::Stored;
    if (const Stored is = rows && place.course->restored && place.course->known ? replayer.is_as_stored(*place.course->known, place.step, source) : Stored::same; is != Stored::same) {
        result = is == Stored::changed ? discard_changed(place.course, place.course->sequence.steps[k].name) : restore_now(false);
        return result == CUDA_SUCCESS ? replayer.follow_replays(op) : result;
    }
    if (replayer.any()) {
        if (place.breaks) result = replayer.restore_all(false, place.epoch);
        else if (op.stray_count) result = replayer.restore_readers(led_to(op), op.stream);
        if (!place.breaks && rows && !rows->first_replay.empty())
            for (std::uint32_t i = rows->first_replay[k]; i < rows->first_replay[k + 1] && result == CUDA_SUCCESS; ++i) {
                // Memory is taken at the plan's pace by what is computed again, too; the op itself then need not wait once more.
                if (op.takes) device_->wait_for_pace(std::exchange(op.paced_by, nullptr), op.paced_number);
                result = replayer.replay(*rows->replays[i].slice, op.stream);
            }
    }
    if (result == CUDA_SUCCESS) result = replayer.follow_replays(op);   // a proof copies what it names
    if (result == CUDA_SUCCESS && replays(rows) && place.course->known &&
        replayer.keep(place.course->known, place.step, place.epoch, place.op, rows->kept[k] && !op.stray_count, source, op.stream) == replay::Replayer::Kept::another)
        result = takes_all(place, op);
    if (proves_.load(std::memory_order_relaxed)) {
        std::lock_guard lock(proof_mutex_);
        if (proving_ && proving_ != place.course) proving_->proof->lost(op.stream);
        else if (proving_) proving_->proof->before(place.step, source, op.stream, op.stray_count);
    }
    return result;
} catch (...) {
    return CUDA_ERROR_OUT_OF_MEMORY;
}

// The allocations that stray words lead the op to.
std::vector<CUdeviceptr> Executor::led_to(const pager::Op& op) {
    std::vector<CUdeviceptr> bases;
    for (std::uint32_t i = 0; i < op.stray_count && i < pager::Op::kFewLoose; ++i)
        if (const pager::Buffer* const b = pager_.find(op.strays[i]))
            if (const auto there = b->device->allocation_at(op.strays[i])) bases.push_back(there->base);
    return bases;
}

// With mutex_ held. Behind gates the order of telling is not that of running.
void Executor::note_led(const Place& place, const std::vector<CUdeviceptr>& bases) {
    for (const CUdeviceptr base : bases) led_[base] = gates_.load() ? UINT64_MAX : place.op;
}

// The op is not the one that was proven: it may write to whatever it names.
CUresult Executor::takes_all(const Place& place, const pager::Op& op) {
    replay::Replayer& replayer = *replayer_.load();
    if (op.small_count > pager::Op::kFewSmall) return replayer.restore_all(false, new_epoch());
    std::vector<CUdeviceptr> bases = led_to(op);
    for (std::uint32_t i = 0; i < op.count; ++i)
        if (!op.buffers[i]->slab) bases.push_back(op.buffers[i]->base);
    for (const pager::Buffer* b : op.more)
        if (!b->slab) bases.push_back(b->base);
    for (std::uint32_t i = 0; i < op.small_count; ++i)
        if (const auto there = device_->allocation_at(op.small[i])) bases.push_back(there->base);
    {
        std::lock_guard lock(mutex_);
        note_led(place, bases);
        place.course->differed(place.step);
    }
    return replayer.restore_readers(bases, op.stream);
}

// With mutex_ held. An op with stray words may be using what they lead to in any way. So its launch is not kept; what reads that is
// computed again before it, and nothing is dropped that would be made of it from here on (Replayer::may_drop()). False: not all that
// it may be using is known.
bool Executor::note_strays(const Place& place, const pager::Op& op) {
    if (op.stray_count > pager::Op::kFewLoose) return false;
    for (std::uint32_t i = 0; i < op.stray_count; ++i) {
        pager::Buffer* const b = pager_.find(op.strays[i]);
        if (b && b->device->holds_addresses(b, op.strays[i])) return false;
    }
    note_led(place, led_to(op));
    if (place.step != Follower::nowhere && replays(active_->rows())) active_->differed(place.step);
    return true;
}

// With mutex_ held, of an op that was placed: what compute_again() has to know.
void Executor::note_epoch(Place& place, const pager::Op& op, bool goes_on) {
    place.breaks = !goes_on || place.step == 0 || op.everything || replayer_.load()->owes() || (op.stray_count && !note_strays(place, op));
    // In a slab only what the op was given counts, where that is listed.
    const bool listed = op.small_count <= pager::Op::kFewSmall;
    for (std::uint32_t i = 0; i < op.count; ++i) place.breaks |= op.buffers[i]->table.load(std::memory_order_relaxed) && !(op.buffers[i]->slab && listed);
    for (std::uint32_t i = 0; listed && !place.breaks && i < op.small_count; ++i)
        if (pager::Buffer* const slab = pager_.find(op.small[i])) place.breaks = slab->device->holds_addresses(slab, op.small[i]);
    for (const pager::Buffer* b : op.more) place.breaks |= b->table.load(std::memory_order_relaxed);
    const bool keeps = place.step != Follower::nowhere && active_->rows() && !active_->rows()->replays.empty();
    const auto follows_small = [&] { return !keeps || active_->small.follow(place.step, op, *device_); };
    place.breaks = place.breaks || !follows_small();
    if (place.breaks) {
        ++epoch_;
        led_.clear();
        if (active_) active_->small.forget();
    }
    place.epoch = epoch_;
    if (place.breaks && !follows_small()) ++epoch_;   // of what it reads not all is known: its launch is of no use
    if (place.step == Follower::nowhere) return;
    place.rows = active_->in_force();
    for (const CoursePointer& c : courses_)
        if (c.get() == active_) place.course = c;
}

// With mutex_ held, last of what before() does: whoever has a turn gives it up in replay_for().
void Executor::take_turn(Place& place, const pager::Op& op) noexcept {
    place.after = turns_.taken();
    const Rows* const rows = place.rows.get();
    const auto k = static_cast<std::size_t>(place.step);
    const bool due = place.breaks || op.stray_count || (rows && !rows->first_replay.empty() && rows->first_replay[k] < rows->first_replay[k + 1]);
    if (due && replayer_.load()->any()) place.turn = turns_.take();
}

// A replay that comes before the drop is no use.
bool Executor::may_drop(const Rows& rows, const Rows::Entry& entry, std::int32_t step, pager::Buffer* b, std::uint64_t used) {
    if (entry.replay < 0 || !replayer_ || !active_->proven || active_->discarded || !drops_) return false;
    const Rows::Replay& replay = rows.replays[static_cast<std::size_t>(entry.replay)];
    if (step >= replay.before) return false;
    const auto may = replayer_.load()->may_drop(active_->known, replay.slice, entry.buffer, b, used, epoch_, led_);
    if (may == replay::Replayer::Drop::tries) whole_ = false;   // it stays, and that takes its time
    return may == replay::Replayer::Drop::yes;
}

void Executor::releasing_now(CUdeviceptr address, CUstream stream, bool in_order) noexcept try {
    replay::Replayer& replayer = *replayer_.load();
    if (replayer.freed(address)) {
        // A drop that another thread had remembered may not be ordered yet: once the lock was free it is, and can be taken back.
        if (replayer.restore_all(false, new_epoch()) != CUDA_SUCCESS) replayer.lose_readers(address);   // there is no memory for it
    }
    if (in_order) replayer.follow_users(address, stream);   // who has the memory next on the stream comes behind replays, too
} catch (...) {
}

// What was kept is of no use any more, and what is dropped is computed again, on none of the program's streams. `waits`: for all replays.
CUresult Executor::restore_now(bool waits) noexcept try {
    return replayer_.load()->restore_all(waits, new_epoch());
} catch (...) {
    return CUDA_ERROR_OUT_OF_MEMORY;
}

std::uint64_t Executor::new_epoch() {
    std::lock_guard lock(mutex_);
    return ++epoch_;
}

void Executor::forget_functions() noexcept try {
    std::lock_guard lock(mutex_);
    std::lock_guard proof(proof_mutex_);
    for (const CoursePointer& c : courses_)
        if (c->known) replayer_.load()->forget_functions(*c->known);
} catch (...) {
}

CUresult Executor::restore_beside_capture(bool waits) noexcept {
    pager::Relaxed relaxed(pager_.driver());
    return restore_now(waits);
}

void Executor::context_destroying(CUcontext context) noexcept {
    if (replay::Replayer* const replayer = replayer_.load()) {
        // Memory of pools outlives the context.
        if (replayer->keeps() && replayer->work().context() == context) restore_now();
        {
            std::lock_guard lock(mutex_);
            std::lock_guard proof(proof_mutex_);
            for (const CoursePointer& c : courses_)
                if (c->proof) c->proof->context_destroying(context);
        }
        replayer->context_destroying(context);
    }
    std::lock_guard lock(mutex_);
    timer_.context_destroying(context);
    clock_of_ops_.context_destroying(context);
    for (const CoursePointer& c : courses_)
        if (c->watch) c->watch->context_destroying(context);
}

}  // namespace udnnmem::executor
