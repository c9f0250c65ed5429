// DevicePager: what waiting launches need.
#include <algorithm>
#include <chrono>
#include <utility>

#include "shim/pager/pager.hpp"
#include "shim/pager/rules.hpp"

namespace udnnmem::pager {
namespace {
constexpr std::chrono::milliseconds kMarkAgain(2);
constexpr std::int64_t kPaceOfDeadline = 8;   // a launch is held back for its plan's sake for so much of the deadline at most
constexpr std::int64_t kOpsInDeadline = 24;   // of a plan, and of the longest: it holds back for a few of them ...
constexpr int kMostHalvings = 9;              // of the deadline: the mover still wakes within it
constexpr std::int64_t kLongWait = 20;   // deadlines, after which the user is told, once
constexpr std::int64_t kGivenUp = 120;   // ... after which, without any progress there is no hope
constexpr std::int64_t kLongestDeadline = 10'000'000'000;   // ... but what was measured may have waited for something itself
}

// Whether nobody else waits and it needs nothing but memory for new buffers, which there is: then its thread maps it without a word to
// the mover, for being woken and waking takes about as long. (Nobody else maps with the mutex let go meanwhile: such a call of the
// mover's has its frames already.)
bool DevicePager::lacks_first_memory_alone(const Request& r) const {
    if (requests_.size() > 1 || r.everything || r.yields || pager_.failed() || pager_.settings().force_host) return false;
    std::size_t bytes = 0;
    for (const Buffer* b : r.need) {
        const Residency at = b->residency;
        if (b->moving || b->unfilled || b->dropped.load() || (at != Residency::device && at != Residency::unbacked)) return false;
        if (at == Residency::unbacked) bytes += b->capacity;
    }
    return bytes && bytes <= device_pool_->available();
}

CUresult DevicePager::acquire(Request& r) {
    BriefLock lock(*this);
    if (stopping_) return CUDA_ERROR_DEINITIALIZED;
    if (CUresult result = start_context(lock); result != CUDA_SUCCESS) return result;
    r.since_ns = now_ns();
    requests_.push_back(&r);
    if (lacks_first_memory_alone(r)) {
        Relaxed relaxed(driver_);   // the thread's own capture must not refuse our calls
        try {
            serve_requests();
        } catch (...) {
            r.in_hands = false;   // no memory: the mover tries, the request is in the line
        }
        check();
    }
    if (!r.done) mover_wake_.notify_one();
    // Other threads' tails, too, have to be marked for the mover to see them complete: what they launch meanwhile may be
    // what holds this up.
    while (!granted_.wait_for(lock, kMarkAgain, [&] { return r.done || stopping_; })) {
        // The mover's context may be gone meanwhile, another thread's.
        if (CUresult result = start_context(lock); result != CUDA_SUCCESS) {
            grant(r, result);
            break;
        }
        const std::int64_t waited = now_ns() - r.since_ns;
        const bool tell = !r.need.empty() && waited > kLongWait * deadline_ns() && !std::exchange(long_wait_warned_, true);
        std::size_t bytes = 0;
        for (const Buffer* b : r.need) bytes += b->capacity;
        lock.unlock();
        if (tell)
            pager_.sink().line(Sink::Level::warn, "device " + std::to_string(device_) + ": an op has waited for " + std::to_string(waited / 1'000'000'000) + " s for the memory of ops that do not end; it uses " +
                                                      std::to_string(bytes) + " bytes");
        pager_.streams().mark_tails();
        lock.lock();
    }
    while (r.in_hands) granted_.wait_for(lock, kMarkAgain);
    requests_.remove(&r);
    if (r.moved) {
        ++stats_.stalls;
        stats_.stall_ns += now_ns() - r.since_ns;
    }
    if (!r.done) return CUDA_ERROR_DEINITIALIZED;
    if (r.moved && !r.need.empty()) tell(profiler::EventKind::stall, r.need[0], r.need[0]->capacity, r.since_ns);
    return r.result;
}

void DevicePager::wait_for_pace(StreamSlot* by, std::uint64_t number) {
    if (!by || pager_.streams().complete(by->bit(), number)) return;
    Request nothing;
    nothing.paced_by = by;
    nothing.paced_number = number;
    nothing.takes = true;
    if (acquire(nothing) == CUDA_SUCCESS) release(nothing, true);
}

void DevicePager::release(Request& r, bool submitted_ok) {
    BriefLock lock(*this);
    if (!r.holding) return;
    for (Buffer* b : r.need) --b->holds, --b->granted;
    if (r.everything) --frozen_;
    for (Buffer* b : r.uncopied) {
        if (!b->unfilled) continue;  // it did not come: the op was granted its host frames
        if (submitted_ok || !holds("failure")) {
            b->host_valid = b->hash_known = b->unfilled = false;
            host_pool_->give_back(b->host_frames);
            b->residency.store(Residency::device, std::memory_order_seq_cst);
        } else {
            // The call wrote nothing: what counts is still in the host frames.
            revert_to_host(b);
        }
    }
    r.holding = false;
    check();
    mover_wake_.notify_one();
}

// The buffer's device frames hold nothing of worth; its host frames do. Nothing of the failed op was submitted.
void DevicePager::revert_to_host(Buffer* b) {
    out_of_place();
    if (unmap(b) != CUDA_SUCCESS) return lost(b, "could not be given back its contents after a call that failed");
    device_pool_->give_back(b->device_frames);
    b->unfilled = false;
    b->residency = Residency::unbacked;
    if (reaches_host() && land(b) != CUDA_SUCCESS)
        lost(b, "could not be mapped again after a call that failed");
    b->residency = Residency::host;
}

void DevicePager::note_everything(std::uint64_t number, std::uint64_t stream_bit) {
    Lock lock(mutex_);
    everything_use_ = std::max(everything_use_, number);
    everything_streams_ |= stream_bit;
    if (all_noted_) return;
    all_noted_ = all_in_place();
    for (Buffer* b : buffers_) {
        b->touched = true;
        if (b->residency == Residency::host) b->host_changed = true;
    }
}

// What was freed, before the op came or while it waits, is found by an address that it is given and does not use: what lies there may
// be nobody's, or another's.
void DevicePager::forget_gone(Request& r) {
    if (r.holding) return;
    const auto gone = [this](const Buffer* b) { return (!b->live && !b->slab) || pager_.find(b->base) != b; };
    std::erase_if(r.need, gone);
    std::erase_if(r.loose, gone);
    std::erase_if(r.overwrites, gone);
}

void DevicePager::hold(Request& r) {
    if (r.holding) return;
    r.holding = true;
    for (Buffer* b : r.need) ++b->holds;
    if (r.everything) ++frozen_;
}

// Until the op was submitted nothing may change under it, not even where it was granted a buffer on host frames.
void DevicePager::grant(Request& r, CUresult result) {
    if (r.done) return;   // its thread gave it up while the mover was at it
    if (result == CUDA_SUCCESS)
        for (Buffer* b : r.need) ++b->granted;
    if (result != CUDA_SUCCESS && r.holding) {
        for (Buffer* b : r.need) --b->holds;
        if (r.everything) --frozen_;
        r.holding = false;
        for (Buffer* b : r.uncopied)  // nobody will write over it: what counts is still in the host frames
            if (!cancel(b) && b->unfilled && !b->moving) revert_to_host(b);
        r.uncopied.clear();
    }
    r.result = result;
    r.done = true;
    granted_.notify_all();
}

std::int64_t DevicePager::deadline_ns() const {
    const std::int64_t ops = follows_plan() ? std::min(kLongestDeadline, kOpsInDeadline * longest_op_ns_.load(std::memory_order_relaxed)) : 0;
    return std::max(pager_.settings().deadline_ns, ops);
}

bool DevicePager::past_deadline(const Request& r, int halvings) const {
    return holds("deadline") && now_ns() - std::max(r.since_ns, last_progress_ns_) > deadline_ns() >> halvings && !copies_go_on();
}

// What waits for this very launch waits for the next ones too: each that went ahead without anything moved since leaves half
// the time to those behind it, so that all of them together take little longer than two deadlines.
bool DevicePager::overdue(const Request& r) const { return past_deadline(r, fired_in_vain()); }

// Whether the request waits for room that can only come of ops which do not end, for they wait for it.
bool DevicePager::hopeless(const Request& r) const {
    return now_ns() - std::max(r.since_ns, last_progress_ns_) > kGivenUp * deadline_ns();
}

// Whether the plan wants its memory left alone for now: the launching thread is further ahead of the device than it reckons with.
bool DevicePager::paced(const Request& r) const {
    return r.paced_by && follows_plan() && now_ns() - r.since_ns < deadline_ns() / kPaceOfDeadline &&
           !pager_.streams().complete(r.paced_by->bit(), r.paced_number);
}

// What was given up is computed again before anybody gets its memory. True: the request has its answer.
bool DevicePager::refuses_dropped(Request& r, const std::vector<Buffer*>& among) {
    if (r.recomputes) return false;
    const auto dropped = std::find_if(among.begin(), among.end(), [](const Buffer* b) { return b->dropped.load(); });
    if (dropped == among.end()) return false;
    r.dropped = *dropped;
    grant(r, CUDA_ERROR_NOT_READY);
    return true;
}

// Who gets frames: a request that has begun, until it is granted; else the oldest, save launches that are held back, which want
// no memory so far. (An op that may touch anything never is.)
const Request* DevicePager::first_in_line() const {
    auto first = std::ranges::find_if(requests_, [](const Request* r) { return !r->done && r->holding; });
    if (first == requests_.end()) first = std::ranges::find_if(requests_, [this](const Request* r) { return !r->done && (r->everything || !paced(*r)); });
    return first == requests_.end() ? nullptr : *first;
}

// Serves requests in order; true if something changed.
bool DevicePager::serve_requests() {
    bool progress = false;
    for (Request* r : requests_) {
        if (r->done) continue;
        r->in_hands = true;
        if (pager_.failed()) {
            grant(*r, CUDA_ERROR_UNKNOWN);
            r->in_hands = false;
            progress = true;
            continue;
        }
        forget_gone(*r);
        const bool first = r == first_in_line();
        progress |= r->yields ? (first && serve_yield(*r)) : r->everything ? (first && serve_everything(*r)) : serve(*r, first);
        r->in_hands = false;
    }
    return progress;
}

// Whether it is about to go, but has not begun to: an op that is let through is waited for.
bool DevicePager::is_still_there(const Buffer* b) const {
    return b->residency == Residency::evicting && std::ranges::any_of(moves_, [b](const Move& m) { return m.buffer == b && m.stage == Move::Stage::quiesce; });
}

bool DevicePager::serve(Request& r, bool first) {
    if (refuses_dropped(r, r.need)) return true;
    const bool lands = reaches_host();
    // Those behind the first pass only if they need nothing. What has not landed yet does as it is granted, which takes no frames.
    auto ready = [&](Buffer* b) {
        const Residency res = b->residency;
        if (b->unfilled && !b->moving) return std::find(r.uncopied.begin(), r.uncopied.end(), b) != r.uncopied.end();
        const bool loose = lands && r.is_loose(b);
        return res == Residency::device || (res == Residency::host && (r.host_allowed || b->pinned || loose) && lands && !b->moving) ||
               (loose && is_still_there(b));
    };
    const bool here = std::all_of(r.need.begin(), r.need.end(), ready);
    if ((!first && !here) || ((!here || r.takes) && paced(r))) return false;
    const bool first_look = !r.holding;
    hold(r);
    if (first_look && pager_.settings().force_host && backing_->host_frames_can_be_mapped()) r.host_allowed = true;

    if (first && !r.host_allowed) {
        // What cannot all be on the device at once runs partly from host frames.
        std::size_t wanted = 0;
        for (Buffer* b : r.need)
            if (!b->pinned && !r.is_loose(b)) wanted += b->capacity;
        const bool enough = or_without_slabs([&] { return wanted + fixed_bytes() <= device_pool_->budget(); });
        if (!enough && backing_->host_frames_can_be_mapped()) r.host_allowed = true;
    }
    bool progress = false, waiting = false;
    const bool late = overdue(r);   // looked at once: what is done because of it is counted
    const bool deadline = !first_look && late;   // room is looked for first, however long others have waited
    if (deadline && !r.host_allowed && backing_->host_frames_can_be_mapped()) {
        r.host_allowed = true;
        ++stats_.deadline_firings;
        fired_in_a_row_ = std::min(fired_in_vain() + 1, kMostHalvings);
        fired_ns_ = now_ns();
        if (!r.need.empty()) tell(profiler::EventKind::deadline, r.need[0], r.need[0]->capacity, r.since_ns);
        progress = true;
    }
    // What has to be copied comes first: it takes time once it has room.
    std::stable_partition(r.need.begin(), r.need.end(), [](const Buffer* b) { return b->residency == Residency::host; });
    for (Buffer* b : r.need) {
        if (b->moving) r.moved = true;
        if (b->residency == Residency::evicting && !(lands && r.is_loose(b)) && cancel(b)) progress = true;
        if (b->residency == Residency::fetching && deadline && cancel(b)) progress = true;
        if (b->refused != CUDA_SUCCESS) {  // the driver will not bring it: from host frames, or an error
            const CUresult why = std::exchange(b->refused, CUDA_SUCCESS);
            if (!backing_->host_frames_can_be_mapped()) return grant(r, why), true;
            r.host_allowed = true;
        }
        if (ready(b)) continue;
        const bool still = (b->granted || frozen_) && b->residency != Residency::unbacked;
        if (!b->moving && !still) {
            if (bring(r, b, late)) progress = true;
            if (r.done) return true;
        }
        if (!ready(b)) waiting = true;
    }
    if (waiting) return progress;
    bool from_host = false;
    for (Buffer* b : r.need) {
        if (b->residency != Residency::host) continue;
        const CUresult result = let_in(b, r.by_cpu);
        if (result != CUDA_SUCCESS && first && std::erase(r.loose, b)) return true;   // then it is brought
        if (result != CUDA_SUCCESS) return grant(r, result), true;
        if (r.is_loose(b)) continue;
        from_host = true;
        tell(profiler::EventKind::served_from_host, b, b->capacity, r.since_ns);
    }
    if (from_host) ++stats_.served_from_host;
    grant(r, CUDA_SUCCESS);
    return true;
}

// Starts bringing one buffer that is not on the device; `late`: its request is overdue. False: nothing could be done now.
bool DevicePager::bring(Request& r, Buffer* b, bool late) {
    std::vector<Frame*> frames;
    const bool force = pager_.settings().force_host && r.host_allowed && !b->slab;
    if (!force && release_for_frames(b->capacity)) return true;
    if (!force && device_pool_->take(b->capacity, frames)) {
        if (b->residency == Residency::unbacked) {
            if (map_now(b, std::move(frames)) != CUDA_SUCCESS) grant(r, CUDA_ERROR_OUT_OF_MEMORY);
            return true;
        }
        r.moved = true;
        const bool overwritten = std::find(r.overwrites.begin(), r.overwrites.end(), b) != r.overwrites.end();
        if (overwritten && b->touched) {
            r.uncopied.push_back(b);
            b->unfilled = true;
        }
        start_fetch(b, std::move(frames), b->touched && !overwritten);
        return true;
    }
    r.moved = true;
    std::size_t so_far = 0, for_all = 0;   // of what lacks memory: to `b` with it, and all
    for (const Buffer* each : r.need) {
        const Residency at = each->residency;
        const bool lacks = each == b || (!each->moving && (at == Residency::unbacked || (at == Residency::host && !r.host_allowed && !each->pinned)));
        for_all += lacks ? std::size_t{each->capacity} : 0;
        if (each == b) so_far = for_all;
    }
    // By a plan, what frees itself soon is worth waiting for, as are the plan's evictions.
    const std::size_t freed = follows_plan() && !late ? bytes_freed_in_use(so_far) : 0;
    if (!force && make_room(so_far, for_all, freed)) return true;
    // Room is on its way as long as something moves out, or is held only until an op that was let through is submitted.
    const std::size_t granted = bytes_granted();
    const bool coming = moves_of(Move::Kind::evict, Move::Kind::evict) || bytes_ordered_out() || (freed && device_pool_->available() + freed >= b->capacity) ||
                        (holds("submission") && (frozen_ || (granted && device_pool_->available() + granted >= b->capacity)));
    if (coming && !late && !force) return false;
    if (!b->slab && backing_->host_frames_can_be_mapped() && (b->residency == Residency::host || land_on_host(b))) {
        r.host_allowed = true;
        return true;
    }
    if ((freed_in_use() || moves_that_end()) && !late && !force) return false;
    if (exceed_budget(r, b, frames)) {
        if (b->residency == Residency::unbacked) {
            if (map_now(b, std::move(frames)) != CUDA_SUCCESS) grant(r, CUDA_ERROR_OUT_OF_MEMORY);
        } else {
            start_fetch(b, std::move(frames), b->touched);
        }
        return true;
    }
    if (regain_host()) return true;
    if (coming && !hopeless(r)) return false;
    grant(r, CUDA_ERROR_OUT_OF_MEMORY);
    return true;
}

// Nothing begins to move: an op that may touch anything is next, or is on its way to the driver.
bool DevicePager::halted() const {
    const Request* const next = first_in_line();
    return frozen_ || (next && next->everything);
}

// An op that may touch anything: every buffer is mapped, on the device or on the host, and nothing moves until the op
// was submitted.
bool DevicePager::serve_everything(Request& r) {
    const bool landing = backing_->host_frames_can_be_mapped();
    // A move that waits for ops may wait for what is launched after this one; what copies ends by itself. (A fetch from where
    // no op can be is this op's own.)
    for (Move& m : moves_)
        if (m.stage == Move::Stage::quiesce && (landing || m.kind != Move::Kind::fetch) && holds("everything")) m.cancelled = true;
    if (!moves_.empty()) return false;
    if (refuses_dropped(r, buffers_)) return true;
    for (Buffer* b : buffers_) {
        if (!b->live || b->residency == Residency::device || (landing && b->residency == Residency::host)) continue;
        if (b->unfilled) {  // an op that writes over all of it is about to be submitted, unless it waits for this one
            if (!past_deadline(r)) return false;
            continue;
        }
        if (b->refused != CUDA_SUCCESS) return grant(r, std::exchange(b->refused, CUDA_SUCCESS)), true;
        std::vector<Frame*> frames;
        if (!device_pool_->take(b->capacity, frames)) {
            if (release_parked(b->capacity - std::min<std::size_t>(b->capacity, device_pool_->available()))) return true;
            if (landing && land_on_host(b)) return true;   // there may be other buffers now
            if (freed_in_use() && !past_deadline(r)) return false;
            if (!exceed_budget(r, b, frames)) return grant(r, CUDA_ERROR_OUT_OF_MEMORY), true;
        }
        if (b->residency == Residency::unbacked) {
            if (map_now(b, std::move(frames)) != CUDA_SUCCESS) grant(r, CUDA_ERROR_OUT_OF_MEMORY);
            return true;   // there may be other buffers now
        }
        start_fetch(b, std::move(frames), b->touched);
        return true;
    }
    for (Buffer* b : buffers_)
        if (b->live && b->residency == Residency::host && (!b->landed || (r.by_cpu && !b->cpu_reaches))) {
            if (const CUresult result = let_in(b, r.by_cpu); result != CUDA_SUCCESS) grant(r, result);
            return true;   // there may be other buffers now
        }
    all_in_place_.store(true, std::memory_order_seq_cst);
    if (std::any_of(r.need.begin(), r.need.end(), [](const Buffer* b) { return b->residency == Residency::host; })) ++stats_.served_from_host;
    hold(r);
    grant(r, CUDA_SUCCESS);
    return true;
}

// For an op that is about to be granted `b` in host frames: it reaches it there, until it is mapped elsewhere.
CUresult DevicePager::let_in(Buffer* b, bool by_cpu) {
    CUresult result = b->landed ? CUDA_SUCCESS : land(b);
    if (result != CUDA_SUCCESS || !by_cpu || b->cpu_reaches) return result;
    result = backing_->allow_cpu(b->base, b->host_frames);
    b->cpu_reaches = result == CUDA_SUCCESS;
    return result;
}

CUresult DevicePager::map_now(Buffer* b, std::vector<Frame*> frames) {
    const std::int64_t begin = now_ns();
    const CUresult result = map(b, frames);
    if (result != CUDA_SUCCESS) {
        device_pool_->give_back(frames);
        return result;
    }
    first_maps_ns_[first_maps_++ % first_maps_ns_.size()] = now_ns() - begin;
    b->device_frames = std::move(frames);
    b->residency = Residency::device;
    last_progress_ns_ = now_ns();
    return CUDA_SUCCESS;
}

}  // namespace udnnmem::pager
