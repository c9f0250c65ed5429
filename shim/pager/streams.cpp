#include "shim/pager/streams.hpp"

#include "shim/pager/rules.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace udnnmem::pager {
namespace {

// The last stream that this thread used, so that the launch path takes no lock.
struct Recent {
    CUstream stream = nullptr;
    CUcontext context = nullptr;
    std::uint64_t generation = 0;
    StreamSlot* slot = nullptr;
};
constexpr int kRecent = 4;
thread_local Recent t_recent[kRecent] __attribute__((tls_model("initial-exec")));
// Names the thread. Not an address: what a thread leaves behind is the next one's.
thread_local std::uint64_t t_thread __attribute__((tls_model("initial-exec")));
std::atomic<std::uint64_t> g_threads{2};   // CU_STREAM_LEGACY is 1, CU_STREAM_PER_THREAD 2: no thread is taken for one of them
std::atomic<std::uint64_t> g_tables{0};

// Gone with the thread; in its last destructors it is so already.
std::weak_ptr<const void> this_thread() {
    static thread_local bool ended __attribute__((tls_model("initial-exec"))) = false;
    struct Life {
        std::shared_ptr<const char> lives = std::make_shared<const char>();
        ~Life() { ended = true; }
    };
    if (ended) return {};
    static thread_local const Life life;
    return life.lives;
}

}  // namespace

StreamTable::StreamTable(const Driver& driver) : driver_(driver), generation_((g_tables.fetch_add(1) + 1) << 32) {}

[[gnu::hot]] StreamSlot& StreamTable::slot(CUstream stream) {
    CUcontext context = nullptr;
    if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) insist([&] { return driver_.cuCtxGetCurrent(&context); });
    const std::uint64_t generation = generation_.load(std::memory_order_acquire);
    for (const Recent& r : t_recent)
        if (r.stream == stream && r.context == context && r.generation == generation) return *r.slot;

    const bool per_thread = stream == CU_STREAM_PER_THREAD;
    if (per_thread && !t_thread) t_thread = g_threads.fetch_add(1) + 1;
    const CUstream key = per_thread ? reinterpret_cast<CUstream>(t_thread) : stream;
    StreamSlot* found = nullptr;
    const auto find = [&] {
        found = nullptr;
        for (auto& s : slots_)
            if (s->alive && s->stream == key && s->per_thread == per_thread && (!context || s->context == context)) found = s.get();
    };
    {
        std::unique_lock lock(mutex_);
        find();
        if (!found) {
            lock.unlock();
            poll_dead();
            lock.lock();
            find();
        }
        const bool handle = stream != CU_STREAM_LEGACY && !per_thread;
        // A stream may be used while another context than its own is current; of some (green contexts') the driver does not say which.
        if (!context && (!found || !found->context) && !(handle && driver_.cuStreamGetCtx(stream, &context) == CUDA_SUCCESS))
            insist([&] { return driver_.cuCtxGetCurrent(&context); });
        if (!found) found = make_slot(key, context, per_thread);
        if (!found->context) found->context = context;  // the driver would not say before
        if (found->device < 0 && found->context)
            if (const Within there(driver_, found->context); there) insist([&] { return driver_.cuCtxGetDevice(&found->device); });
        if (handle) context = nullptr;
    }
    static thread_local int turn = 0;
    if (found->context) t_recent[turn++ % kRecent] = {stream, context, generation, found};
    return *found;
}

bool StreamTable::is_blocking(CUstream stream, bool per_thread) const {
    unsigned flags = CU_STREAM_DEFAULT;
    if (stream == CU_STREAM_LEGACY || per_thread || !driver_.cuStreamGetFlags) return true;
    return insist([&] { return driver_.cuStreamGetFlags(stream, &flags); }) != CUDA_SUCCESS || !(flags & CU_STREAM_NON_BLOCKING);
}

StreamSlot* StreamTable::make_slot(CUstream stream, CUcontext context, bool per_thread) {
    retire_ended_threads();
    // The slot of a dead stream serves again once all that ever ran there has completed.
    for (auto& s : slots_) {
        if (s->alive || s->completed.load() < s->last_op.load()) continue;
        std::unique_lock inner(s->mutex, std::try_to_lock);  // whoever holds it may want mutex_
        if (!inner || !s->marks.empty()) continue;
        for (CUevent event : s->spare) spare_.push_back({s->context, event});
        s->spare.clear();
        s->life = ++lives_;
        s->stream = stream;
        s->context = context;
        s->device = -1;
        s->per_thread = per_thread;
        s->blocking = is_blocking(stream, per_thread);
        s->thread = per_thread ? this_thread() : std::weak_ptr<const void>();
        s->completed.store(s->last_op.load());
        s->marked.store(s->last_op.load());
        s->unmarked.store(0);
        s->alive = true;
        return s.get();
    }
    auto slot = std::make_unique<StreamSlot>();
    slot->stream = stream;
    slot->context = context;
    slot->per_thread = per_thread;
    slot->blocking = is_blocking(stream, per_thread);
    if (per_thread) slot->thread = this_thread();
    slot->index = static_cast<int>(slots_.size());
    slot->mask = std::uint64_t{1} << (slot->index % 63);
    slot->life = ++lives_;
    slots_.push_back(std::move(slot));
    slot_count_.store(static_cast<int>(slots_.size()), std::memory_order_release);
    return slots_.back().get();
}

// Caller holds mutex_.
void StreamTable::retire_ended_threads() {
    for (auto& s : slots_) {
        if (!s->alive || !s->per_thread || !s->thread.expired()) continue;
        std::unique_lock inner(s->mutex, std::try_to_lock);  // whoever holds it may want mutex_
        if (!inner) continue;
        capturing_.fetch_sub(std::exchange(s->captures, 0));  // nobody can end them any more
        s->alive = false;
        generation_.fetch_add(1);
    }
}

CUevent StreamTable::take_event(CUcontext context) {
    {
        std::lock_guard lock(mutex_);
        for (std::size_t i = spare_.size(); i-- > 0;) {
            if (spare_[i].context != context) continue;
            CUevent event = spare_[i].event;
            spare_.erase(spare_.begin() + static_cast<std::ptrdiff_t>(i));
            return event;
        }
    }
    CUevent event = nullptr;
    if (driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return nullptr;
    return event;
}

// The event of the oldest mark, if that has told what it can; null else. Caller holds the slot's mutex.
CUevent StreamTable::take_told(StreamSlot& s) {
    if (s.marks.empty()) return nullptr;
    const StreamSlot::Mark oldest = s.marks.front();
    const CUresult result = insist([&] { return driver_.cuEventQuery(oldest.event); });
    const bool captured = result == CUDA_ERROR_CAPTURED_EVENT;
    if (!captured && (result == CUDA_ERROR_NOT_READY || (result != CUDA_SUCCESS && !lost(driver_, s.context)))) return nullptr;
    s.marks.pop_front();
    // Success, or a context in error: nothing that runs there will ever run again.
    if (!captured) raise(s.completed, oldest.value);
    // The stream was joining a capture as the mark was made, and it tells nothing: what it covered is marked anew.
    else if (s.marks.empty()) s.marked.store(s.completed.load());
    return oldest.event;
}

// By a thread that may record on the stream (any thread for a stream handle or the legacy stream, only its own thread for
// a per-thread stream). `of`: the slot's stream; meanwhile it may have been given to another, which gets no mark. Caller holds no slot mutex. Not with more marks pending than `most`, if they are fewer than kMostMarks.
void StreamTable::record_mark(StreamSlot& s, CUstream of, std::size_t most) {
    std::unique_lock lock(s.mutex, std::defer_lock);
    // Whoever holds it may be recording on a stream that is full, until somebody else launches what makes room there.
    for (int tries = 0; most < kMostMarks && tries < kTries && !lock.try_lock(); ++tries) std::this_thread::yield();
    if (most >= kMostMarks) lock.lock();
    if (!lock || s.stream != of || !s.alive || s.ending || s.captures || (most < kMostMarks && s.marks.size() > most)) return;
    const Within context(driver_, s.context);
    if (!context) return;
    if (s.marks.size() > kRoomForMarks) poll_locked(s);   // so that no more are pending than have to be
    CUevent event = nullptr;
    if (!s.spare.empty()) event = s.spare.back(), s.spare.pop_back();
    else event = take_told(s);
    // With many marks pending the newest is moved on: it then covers more, later.
    const bool reuse = !event && s.marks.size() >= kMostMarks;
    if (!event) event = reuse ? s.marks.back().event : take_event(s.context);
    if (!event) return;
    const std::uint64_t value = now();
    const CUresult result = driver_.cuEventRecord(event, s.per_thread ? CU_STREAM_PER_THREAD : s.stream);
    if (result != CUDA_SUCCESS) {
        if (!reuse) driver_.cuEventDestroy_v2(event);
        return;
    }
    if (reuse) s.marks.back().value = value;
    else s.marks.push_back({event, value});
    s.marked.store(value, std::memory_order_release);
    s.unmarked.store(0, std::memory_order_relaxed);
}

void StreamTable::submitted(StreamSlot& s) {
    const std::uint32_t n = s.unmarked.load(std::memory_order_relaxed) + 1;
    s.unmarked.store(n, std::memory_order_relaxed);
    if (n >= kMarkEvery || s.per_thread) mark(s);
}

// Where nothing was submitted or waited for since the stream's last op, a free has come with it. Else it is one itself: the stream
// may have been made to wait for work that uses the memory by whatever way.
std::uint64_t StreamTable::freed(StreamSlot& s) {
    const std::uint64_t last = s.last_op.load();
    if (last == now() && event_waited_.load() < last) return last;
    const std::uint64_t number = next();
    raise(s.last_op, number);
    if (s.stream != CU_STREAM_LEGACY) submitted(s);
    return number;
}

void StreamTable::event_waited() { raise(event_waited_, now()); }

void StreamTable::mark(StreamSlot& s) {
    if (s.last_op.load() <= s.marked.load()) return;
    if (capturing() && (s.stream == CU_STREAM_LEGACY || is_capturing(s.per_thread ? CU_STREAM_PER_THREAD : s.stream))) return;
    record_mark(s, s.stream);
}

void StreamTable::mark_tails(const StreamSlot* next) {
    const int n = slot_count_.load(std::memory_order_acquire);
    for (int i = 0; i < n; ++i) {
        StreamSlot* s;
        CUstream stream;
        {
            std::lock_guard lock(mutex_);   // a slot may be given to another stream
            s = slots_[static_cast<std::size_t>(i)].get();
            if (!s->alive || s->per_thread) continue;
            stream = s->stream;
        }
        if (s->last_op.load() <= s->marked.load()) continue;
        if (capturing()) {
            const std::unique_lock stays(s->mutex, std::try_to_lock);   // the stream must be there to be asked
            if (stream == CU_STREAM_LEGACY || !stays || !s->alive || s->ending || is_capturing(stream)) continue;
        }
        if (stream == CU_STREAM_LEGACY && s != next && holds("legacy-mark")) {
            ask(*s);
            continue;
        }
        poll(*s);
        record_mark(*s, stream, s == next ? kMostMarks : kRoomForMarks);
    }
}

// A legacy stream's ops that no mark covers. Says nothing where it may not ask now.
void StreamTable::ask(StreamSlot& s) {
    if (s.stream != CU_STREAM_LEGACY || s.last_op.load() <= s.marked.load()) return;
    const std::unique_lock none_begins(asking_, std::try_to_lock);
    const std::unique_lock lock(s.mutex, std::try_to_lock);
    if (!none_begins || !lock || capturing() || !s.alive || s.ending) return;
    const Within context(driver_, s.context);
    if (!context) return;
    const std::uint64_t value = now();   // every op with a number up to this one was submitted
    const CUresult result = insist([&] { return driver_.cuStreamQuery(CU_STREAM_LEGACY); });
    if (result == CUDA_SUCCESS || (result != CUDA_ERROR_NOT_READY && lost(driver_, s.context))) raise(s.completed, value);
}

// Whoever holds the slot's mutex polls too, or records, which may take as long as the device does.
void StreamTable::poll(StreamSlot& s) {
    const std::unique_lock lock(s.mutex, std::try_to_lock);
    if (lock && !s.ending) poll_locked(s);
}

// Caller holds the slot's mutex.
void StreamTable::poll_locked(StreamSlot& s) {
    while (const CUevent event = take_told(s)) s.spare.push_back(event);
}

// Nobody else asks of streams that are gone, as long as no memory moves; their slots serve again.
void StreamTable::poll_dead() {
    const int n = slot_count_.load(std::memory_order_acquire);
    for (int i = 0; i < n; ++i) {
        StreamSlot* s;
        {
            std::lock_guard lock(mutex_);
            s = slots_[static_cast<std::size_t>(i)].get();
        }
        if (!s->alive) poll(*s);   // also where its ops are known to have ended otherwise: its marks have, too
    }
}

// Of those slots that are `asked`.
template <class Asked>
bool StreamTable::complete_of(std::uint64_t number, Asked asked) {
    const int n = slot_count_.load(std::memory_order_acquire);
    for (int i = 0; i < n; ++i) {
        StreamSlot* s;
        {
            std::lock_guard lock(mutex_);
            s = slots_[static_cast<std::size_t>(i)].get();
            if (!asked(*s)) continue;   // a slot may be given to another stream
        }
        // Nothing of this stream is open if all that it ever ran is known complete.
        auto idle = [&] { return s->completed.load() >= number || s->completed.load() >= s->last_op.load(); };
        if (idle()) continue;
        poll(*s);
        if (!idle()) ask(*s);
        if (!idle()) return false;
    }
    return true;
}

bool StreamTable::complete(std::uint64_t mask, std::uint64_t number) {
    return complete_of(number, [mask](const StreamSlot& s) { return (mask & s.bit()) != 0; });
}

bool StreamTable::goes_on(const StreamSlot& s, std::uint64_t mask, std::uint64_t number) {
    if (s.stream != CU_STREAM_LEGACY || !holds("legacy-free")) return true;
    return complete_of(number, [&](const StreamSlot& other) { return &other != &s && other.blocking && other.context == s.context && (mask & other.bit()); });
}

std::uint64_t StreamTable::completed_everywhere(std::uint64_t up_to) {
    const int n = slot_count_.load(std::memory_order_acquire);
    for (int i = 0; i < n; ++i) {
        StreamSlot* s;
        {
            std::lock_guard lock(mutex_);
            s = slots_[static_cast<std::size_t>(i)].get();
        }
        if (s->completed.load() >= s->last_op.load()) continue;
        poll(*s);
        ask(*s);
        if (s->completed.load() < s->last_op.load()) up_to = std::min(up_to, s->completed.load());
    }
    return up_to;
}

std::uint64_t StreamTable::all_streams() const {
    const int n = slot_count_.load(std::memory_order_acquire);
    return n >= 63 ? (std::uint64_t{1} << 63) - 1 : (std::uint64_t{1} << n) - 1;
}

void StreamTable::synchronised_context(CUcontext context, std::uint64_t up_to) {
    std::lock_guard lock(mutex_);
    for (auto& s : slots_)
        if (s->context == context) raise(s->completed, up_to);
}

void StreamTable::stream_destroying(CUstream stream) {
    StreamSlot* found = nullptr;
    {
        std::lock_guard lock(mutex_);
        for (auto& s : slots_)
            if (s->alive && s->stream == stream) found = s.get();
    }
    if (!found) return;
    if (!holds("last-mark")) raise(found->completed, found->last_op.load());
    else if (!(capturing() && is_capturing(stream))) {
        poll(*found);
        record_mark(*found, found->stream);
        // Without a last mark nobody could tell when its work has ended.
        if (found->marked.load() < found->last_op.load() && insist([&] { return driver_.cuStreamSynchronize(stream); }) == CUDA_SUCCESS)
            raise(found->completed, found->last_op.load());
    }
    end_captures(*found);
    {
        std::lock_guard none_records(found->mutex);
        found->alive = false;
    }
    generation_.fetch_add(1);
}

std::vector<StreamSlot*> StreamTable::slots_of(CUcontext context) {
    std::lock_guard lock(mutex_);
    std::vector<StreamSlot*> all;
    for (auto& s : slots_)
        if (s->context == context) all.push_back(s.get());
    return all;
}

void StreamTable::context_destroying(CUcontext context) {
    for (StreamSlot* s : slots_of(context)) {
        std::lock_guard lock(s->mutex);
        s->ending = holds("context-end");
    }
}

void StreamTable::context_destroyed(CUcontext context, bool gone) {
    for (StreamSlot* s : slots_of(context)) {
        if (gone) end_captures(*s);
        std::lock_guard inner(s->mutex);
        s->ending = false;
        if (!gone) continue;
        s->alive = false;
        s->marks.clear();  // the events went with the context
        s->spare.clear();
        s->completed.store(UINT64_MAX);
    }
    if (!gone) return;
    std::lock_guard lock(mutex_);
    std::erase_if(spare_, [&](const Spare& e) { return e.context == context; });
    generation_.fetch_add(1);
}

void StreamTable::capture_beginning(CUstream stream) {
    StreamSlot& s = slot(stream);
    if (!capturing()) {   // what was submitted before, everywhere: a legacy stream is not asked again until it ends
        mark(s);
        mark_tails();
    }
    {
        const std::lock_guard none_asks(asking_);
        capturing_.fetch_add(1);
        has_captured_.store(true, std::memory_order_release);
    }
    std::lock_guard lock(s.mutex);
    ++s.captures;
}

void StreamTable::capture_ended(CUstream stream) {
    StreamSlot& s = slot(stream);
    std::lock_guard lock(s.mutex);
    if (!s.captures) return;
    --s.captures;
    capturing_.fetch_sub(1);
}

// Those of a stream that goes: nobody will be told that they end.
void StreamTable::end_captures(StreamSlot& s) {
    std::lock_guard lock(s.mutex);
    capturing_.fetch_sub(std::exchange(s.captures, 0));
}

std::vector<StreamTable::Seen> StreamTable::seen() {
    std::vector<Seen> all;
    const int n = slot_count_.load(std::memory_order_acquire);
    for (int i = 0; i < n; ++i) {
        StreamSlot* s;
        {
            std::lock_guard lock(mutex_);
            s = slots_[static_cast<std::size_t>(i)].get();
        }
        poll(*s);
        std::lock_guard lock(mutex_);
        if (!i) retire_ended_threads();
        const bool own = s->alive && s->per_thread && s->stream == reinterpret_cast<CUstream>(t_thread);
        all.push_back({s->stream, s->context, s->device, s->per_thread, own, !s->alive, s->completed.load() >= s->last_op.load()});
    }
    return all;
}

bool StreamTable::has_room(CUstream stream) {
    StreamSlot* found = nullptr;
    {
        const std::lock_guard lock(mutex_);
        for (const auto& s : slots_)
            if (s->alive && !s->per_thread && s->stream == stream) found = s.get();
    }
    if (!found) return false;
    const std::unique_lock lock(found->mutex, std::try_to_lock);   // whoever holds it may be recording where there is none
    if (!lock || !found->alive || found->stream != stream || found->ending || found->captures) return false;
    if (found->marks.size() > kRoomForMarks) poll_locked(*found);
    return found->marks.size() <= kRoomForMarks;
}

bool StreamTable::is_capturing(CUstream stream) const {
    if (!capturing() || stream == CU_STREAM_LEGACY || !holds("capture")) return false;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (insist([&] { return driver_.cuStreamIsCapturing(stream, &status); }) != CUDA_SUCCESS) return true;
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace udnnmem::pager
