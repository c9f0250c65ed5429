// DevicePager: the mover, the one thread that moves buffers (a launch may map the first memory of new ones: acquire()). An event
// loop: every move is a state machine that is stepped until nothing advances, then the thread waits for a request or for its own streams.
#include <algorithm>

#include "shim/pager/pager.hpp"
#include "shim/pager/rules.hpp"
#include "shim/pager/told_id.hpp"

namespace udnnmem::pager {
namespace {
constexpr std::chrono::microseconds kLook(200), kLookForOthers(50);   // between looks at what moves; while a launch waits
constexpr int kGiveWay = 64;   // looks at whether a thread that wants the mutex has it, before the mover takes it again
}

void DevicePager::run() {
    pager_.sink().thread_started();
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;  // a program's capture must not refuse our calls
    insist([&] { return driver_.cuThreadExchangeStreamCaptureMode(&mode); });
    CUcontext current = nullptr;
    Lock lock(mutex_);
    movers_lock_ = &lock;
    const auto let_go = [&](auto wait) {
        movers_lock_ = nullptr;
        wait();
        movers_lock_ = &lock;
    };
    auto backoff = std::chrono::microseconds(10);
    while (!stopping_) {
        if (context_ && context_ != current && insist([&] { return driver_.cuCtxSetCurrent(context_); }) == CUDA_SUCCESS) current = context_;
        if (!context_) {  // it was destroyed; whoever needs something moved brings another
            current = nullptr;
            granted_.notify_all();
            let_go([&] { mover_wake_.wait(lock); });
            continue;
        }
        bool progress = step_moves();
        if (!requests_.empty() && device_pool_->budget() < device_pool_->promised() && now_ns() >= regain_from_ns_) [[unlikely]] progress |= regain_budget();
        if (!requests_.empty()) progress |= regain_host();
        progress |= take_orders();   // before requests: what waits for room goes by the orders that came before it
        progress |= serve_requests();
        progress |= serve_orders();
        if (!pager_.settings().budgets.empty()) [[unlikely]] progress |= turn_budget();
        const bool idle = moves_.empty() && requests_.empty() && orders_out_.empty() && orders_in_.empty();
        if (idle && unlanded_ && !follows_plan()) [[unlikely]] progress |= land_next();
        if (progress) {
            check();
            backoff = std::chrono::microseconds(10);
            // Whoever waits for the mutex (a launch, an allocation) gets it between two steps.
            let_go([&] {
                lock.unlock();
                for (int i = 0; i < kGiveWay && coming_in_.load(std::memory_order_relaxed); ++i) std::this_thread::yield();
                lock.lock();
            });
            continue;
        }
        if (moves_.empty()) granted_.notify_all();  // context_destroying() waits for this
        if (idle) {
            mover_asleep_.store(true, std::memory_order_seq_cst);
            if (!any_ordered_.load(std::memory_order_seq_cst)) let_go([&] { mover_wake_.wait(lock); });
            mover_asleep_.store(false, std::memory_order_relaxed);
        } else {
            let_go([&] { mover_wake_.wait_for(lock, backoff); });
            backoff = std::min(backoff * 2, requests_.empty() ? kLook : kLookForOthers);
        }
    }
    // Moves in flight are left as they are: the process is ending.
    movers_lock_ = nullptr;
    mover_left_ = true;
    granted_.notify_all();
}

bool DevicePager::step_moves() {
    bool progress = false;
    for (auto it = moves_.begin(); it != moves_.end();) {
        Move& m = *it;
        progress |= step(m);
        if (!m.buffer) it = moves_.erase(it);
        else ++it;
    }
    return progress;
}

// No launch can be handing an op on `b` to the driver, and every op that was handed over has completed.
bool DevicePager::quiet(Buffer* b) {
    if (holds("lease") && leased(b)) return false;
    while (!ways_anywhere_.empty()) {
        const Buffer* const table = ways_anywhere_.back();
        if (leased(table)) return false;
        everything_use_ = std::max(everything_use_, table->last_use.load());
        everything_streams_ |= table->streams.load();
        ways_anywhere_.pop_back();
    }
    StreamTable& streams = pager_.streams();
    return !holds("completion") || (streams.complete(b->streams.load(), b->last_use.load()) && streams.complete(everything_streams_, everything_use_));
}

void DevicePager::show(Move& m, const char* what) {
    m.shown = pager_.sink().move_began(what, told_id(m.buffer->id), Bytes(static_cast<std::int64_t>(m.buffer->capacity)));
}

// Without a plan nothing says that a buffer comes back before it is used, be it by what nobody sees: what lies unmapped lands, one
// buffer at a time. False: none is left. What the driver does not map then is left to the launch that needs it.
bool DevicePager::land_next() {
    bool tried = unlanded_ = false;
    for (std::size_t i = 0; i < buffers_.size() && !unlanded_; ++i)   // land() lets others make buffers and give them up
        if (Buffer* const b = buffers_[i]; b->live && b->residency == Residency::host && !b->landed) tried = true, unlanded_ = land(b) == CUDA_SUCCESS;
    return tried;   // others may have come meanwhile: the mover looks again before it sleeps
}

void DevicePager::start_evict(Buffer* b, const Order* ordered) {
    Move m;
    m.kind = Move::Kind::evict;
    m.ordered = ordered;
    m.drop = ordered && ordered->kind == Order::Kind::drop;
    m.used = ordered ? ordered->after : 0;
    m.buffer = b;
    m.start_ns = now_ns();
    show(m, m.drop ? "drop" : "evict");
    out_of_place();
    b->moving = true;
    b->residency.store(Residency::evicting, std::memory_order_seq_cst);
    moves_.push_back(std::move(m));
    last_progress_ns_ = m.start_ns;
}

// The buffer stays where it is and open to launches. `still`: no op was at work on it after the one `used`, the last by then.
void DevicePager::start_clean(Buffer* b, std::uint64_t used, bool still) {
    Move m;
    m.kind = Move::Kind::clean;
    m.buffer = b;
    m.used = used;
    m.everything_used = everything_use_;
    m.still = still;
    m.start_ns = now_ns();
    show(m, "clean");
    out_of_place();
    b->moving = true;
    moves_.push_back(std::move(m));
}

void DevicePager::start_fetch(Buffer* b, std::vector<Frame*> frames, bool copy) {
    Move m;
    m.kind = Move::Kind::fetch;
    m.buffer = b;
    m.frames = std::move(frames);
    m.copy = copy;
    m.start_ns = now_ns();
    show(m, "fetch");
    out_of_place();
    b->moving = true;
    b->residency.store(Residency::fetching, std::memory_order_seq_cst);
    last_progress_ns_ = m.start_ns;
    moves_.push_back(std::move(m));
}

// Asks a move to end where it began. True if it will (at its next step); false: too late, it completes.
bool DevicePager::cancel(Buffer* b) {
    for (Move& m : moves_) {
        if (m.buffer != b || m.cancelled || !m.cancellable()) continue;
        m.cancelled = true;
        return true;
    }
    return false;
}

CUevent DevicePager::take_event() {
    CUevent event = nullptr;
    if (!spare_events_.empty()) {
        event = spare_events_.back();
        spare_events_.pop_back();
    } else if (insist([&] { return driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING); }) != CUDA_SUCCESS) {
        event = nullptr;
    }
    return event;
}

bool DevicePager::record(Move& m, CUstream stream) {
    if (!m.event) m.event = take_event();
    if (!m.event) return false;
    m.recorded = insist([&] { return driver_.cuEventRecord(m.event, stream); }) == CUDA_SUCCESS;
    return m.recorded;
}

bool DevicePager::passed(Move& m) {
    if (!m.recorded) return true;
    const CUresult result = insist([&] { return driver_.cuEventQuery(m.event); });
    if (result == CUDA_ERROR_NOT_READY || (result != CUDA_SUCCESS && !udnnmem::pager::lost(driver_, context_))) return false;
    m.recorded = false;
    if (result != CUDA_SUCCESS)
        pager_.fail("a copy between device and host failed: the context is in an error state; no memory moves any more");
    return true;
}

void DevicePager::moved() { last_progress_ns_ = last_moved_ns_ = now_ns(); }

// Ends the move with the buffer where `residency` says; on the device without its contents it stays closed to others.
void DevicePager::finish(Move& m, Residency residency) {
    Buffer* b = m.buffer;
    if (m.ticket >= 0) hasher_.read(m.ticket, nullptr);
    if (m.search >= 0) {
        std::vector<Hasher::Found> unused;
        hasher_.read_search(m.search, unused);
    }
    for (CUevent event : {m.event, m.searched_event})
        if (event) spare_events_.push_back(event);
    b->moving = false;
    if (residency != Residency::device) b->unfilled = false;
    b->residency.store(b->unfilled ? Residency::fetching : residency, std::memory_order_seq_cst);
    last_progress_ns_ = now_ns();
    pager_.sink().move_ended(m.shown);
    m.buffer = nullptr;
}

bool DevicePager::hash(Move& m, const std::vector<Frame*>& frames, CUstream stream) {
    m.ticket = hasher_.queue(frames, stream);
    return m.ticket >= 0;
}

// What comes on `stream` from here on waits for what the move has queued on the searches' stream: its hash takes no time of
// the link's.
bool DevicePager::join_look(Move& m, CUstream stream) {
    if (!m.searched_event) m.searched_event = take_event();
    if (!m.searched_event || insist([&] { return driver_.cuEventRecord(m.searched_event, look_stream_); }) != CUDA_SUCCESS) return false;
    return insist([&] { return driver_.cuStreamWaitEvent(stream, m.searched_event, 0); }) == CUDA_SUCCESS;
}

// Whether what a move has queued on `stream` is known to have ended.
bool DevicePager::ended(CUstream stream) {
    const bool known = drain(driver_, stream);
    unended_ |= !known;
    return known;
}

// Whether frames that are in nobody's hands are in no queue either: searches outlive their moves, and so does what is not known to
// have ended.
bool DevicePager::nothing_looks() {
    if (!look_stream_) return true;
    return drain(driver_, look_stream_) && (!unended_ || (drain(driver_, in_stream_) && drain(driver_, out_stream_)));
}

// Of a copy that is not used. Where it may go on for ever its target is nobody's any more.
void DevicePager::end_copy_out(Buffer* b) {
    if (ended(out_stream_)) return;
    host_pool_->write_off(b->host_frames);
    b->host_valid = b->hash_known = false;
}

// A driver call of the move's own failed before anything was remapped: the buffer stays where it was.
void DevicePager::fail_move(Move& m, CUresult error) {
    Buffer* b = m.buffer;
    drain(driver_, look_stream_);
    if (m.kind == Move::Kind::fetch) {
        if (ended(in_stream_)) device_pool_->give_back(m.frames);
        else device_pool_->write_off(m.frames);
        if (b->holds || halted()) b->refused = error;  // a launch waits for it
        finish(m, Residency::host);
    } else {
        end_copy_out(b);
        b->pinned = true;
        finish(m, Residency::device);
    }
}

void DevicePager::tell(profiler::EventKind kind, const Buffer* b, std::size_t bytes, std::int64_t start_ns) {
    pager_.sink().event({kind, device_, told_id(b->id), Bytes(static_cast<std::int64_t>(bytes)),
                         Nanoseconds(start_ns), Nanoseconds(now_ns())});
}

void DevicePager::lost(const Buffer* b, const char* what) {
    pager_.fail("buffer " + std::to_string(b->id) + " (" + std::to_string(b->bytes) + " bytes) " + what +
                ": the program is stopped with a CUDA error rather than given wrong numbers");
}

}  // namespace udnnmem::pager
