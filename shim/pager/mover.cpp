// DevicePager: the mover, the one thread that changes mappings. An event loop: every move is a state machine that is
// stepped until nothing advances, then the thread waits for a request or for its own streams.
#include <algorithm>

#include "shim/pager/pager.hpp"
#include "shim/pager/rules.hpp"

namespace udnnmem::pager {

void DevicePager::run() {
    pager_.sink().thread_started();
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;  // a program's capture must not refuse our calls
    insist([&] { return driver_.cuThreadExchangeStreamCaptureMode(&mode); });
    CUcontext current = nullptr;
    Lock lock(mutex_);
    auto backoff = std::chrono::microseconds(10);
    while (!stopping_) {
        if (context_ && context_ != current && insist([&] { return driver_.cuCtxSetCurrent(context_); }) == CUDA_SUCCESS) current = context_;
        if (!context_) {  // it was destroyed; whoever needs something moved brings another
            current = nullptr;
            granted_.notify_all();
            mover_wake_.wait(lock);
            continue;
        }
        bool progress = step_moves();
        progress |= serve_requests();
        progress |= serve_orders();
        if (!pager_.settings().budgets.empty()) [[unlikely]] progress |= turn_budget();
        if (progress) {
            check();
            backoff = std::chrono::microseconds(10);
            // Whoever waits for the mutex (a launch, an allocation) gets it between two steps.
            lock.unlock();
            lock.lock();
            continue;
        }
        if (moves_.empty()) granted_.notify_all();  // context_destroying() waits for this
        if (moves_.empty() && requests_.empty() && orders_out_.empty() && orders_in_.empty()) {
            mover_asleep_.store(true, std::memory_order_seq_cst);
            if (!any_ordered_.load(std::memory_order_seq_cst)) mover_wake_.wait(lock);
            mover_asleep_.store(false, std::memory_order_relaxed);
        } else {
            mover_wake_.wait_for(lock, backoff);
            backoff = std::min(backoff * 2, std::chrono::microseconds(200));
        }
    }
    // Moves in flight are left as they are: the process is ending.
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
    StreamTable& streams = pager_.streams();
    return !holds("completion") || (streams.complete(b->streams.load(), b->last_use.load()) && streams.complete(everything_streams_, everything_use_));
}

void DevicePager::show(Move& m, const char* what) {
    m.shown = pager_.sink().move_began(what, BufferId(static_cast<std::int32_t>(m.buffer->id)), Bytes(static_cast<std::int64_t>(m.buffer->capacity)));
}

void DevicePager::start_evict(Buffer* b, bool drop) {
    Move m;
    m.kind = Move::Kind::evict;
    m.drop = drop;
    m.buffer = b;
    m.start_ns = now_ns();
    show(m, drop ? "drop" : "evict");
    b->moving = true;
    b->residency.store(Residency::evicting, std::memory_order_seq_cst);
    moves_.push_back(std::move(m));
    last_progress_ns_ = m.start_ns;
}

// The buffer stays where it is and open to launches. `still`: no op is at work on it now.
void DevicePager::start_clean(Buffer* b, bool still) {
    Move m;
    m.kind = Move::Kind::clean;
    m.buffer = b;
    m.used = b->last_use.load();
    m.still = still;
    m.start_ns = now_ns();
    show(m, "clean");
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

// Waits for what was queued on one of the mover's own streams, which wait for nobody else.
void DevicePager::drain(CUstream stream) {
    insist([&] { return driver_.cuStreamSynchronize(stream); });
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

// A driver call of the move's own failed before anything was remapped: the buffer stays where it was.
void DevicePager::fail_move(Move& m, CUresult error) {
    Buffer* b = m.buffer;
    drain(look_stream_);
    drain(m.kind == Move::Kind::fetch ? in_stream_ : out_stream_);  // frames change hands next
    if (m.kind == Move::Kind::fetch) {
        device_pool_->give_back(m.frames);
        if (b->holds || halted()) b->refused = error;  // a launch waits for it
        finish(m, Residency::host);
    } else {
        b->pinned = true;
        finish(m, Residency::device);
    }
}

void DevicePager::tell(profiler::EventKind kind, const Buffer* b, std::size_t bytes, std::int64_t start_ns) {
    pager_.sink().event({kind, device_, BufferId(static_cast<std::int32_t>(b->id)), Bytes(static_cast<std::int64_t>(bytes)),
                         Nanoseconds(start_ns), Nanoseconds(now_ns())});
}

void DevicePager::lost(const Buffer* b, const char* what) {
    pager_.fail("buffer " + std::to_string(b->id) + " (" + std::to_string(b->bytes) + " bytes) " + what +
                ": the program is stopped with a CUDA error rather than given wrong numbers");
}

// The bytes that go out hold words that look like addresses: what they point to comes along with this buffer from now on.
void DevicePager::learn_table(Buffer* b, std::uint64_t addresses) {
    b->table = b->opaque = false;
    b->drags.clear();
    b->looked_through = b->last_use;
    if (!addresses || !holds("learn")) return;
    std::vector<Hasher::Found> found;
    b->opaque = hasher_.find_addresses({b}, out_stream_, found) != CUDA_SUCCESS;
    for (auto [at, address] : found)
        if (Buffer* target = pager_.find(address); target && target != b) b->drags.push_back({at, address, target});
    b->table = b->opaque || !b->drags.empty();
    if (b->table) pager_.learned();
}

// Kernels may have written the address of a buffer to memory from where ops that we let pass can reach it: slabs and
// buffers of one granule are searched, as far as they were used since (what larger tables hold is learned when they move
// themselves), also those that the program has freed behind ops that are still to come. Whatever wrote it was given it, so it
// named the buffer and has completed (quiet()), or carried it from another table.
std::vector<Buffer*> DevicePager::to_search(const Buffer* b) {
    const std::uint64_t used = std::max(b->last_use.load(), everything_use_);
    std::vector<Buffer*> dirty;
    for (Buffer* s : buffers_)
        if (s != b && (s->slab || s->capacity == granule()) && (!s->device_frames.empty() || (!s->host_frames.empty() && backing_->host_frames_can_be_mapped())) &&
            std::max(s->last_use.load(), everything_use_) > s->looked_through && used > s->looked_through && (s->live || !quiet(s))) dirty.push_back(s);
    return dirty;
}

// `table` was found to hold `address`: ops that named it before anybody knew may be using what is there, and what that leads to.
void DevicePager::found_way(Buffer* table, CUdeviceptr address) {
    std::vector<CUdeviceptr> ways{address};
    std::vector<Buffer*> reached;
    for (std::size_t i = 0; i < ways.size(); ++i) {
        Buffer* const b = pager_.find(ways[i]);
        if (!b || b->device != this || (!b->slab && std::ranges::find(reached, b) != reached.end())) continue;
        reached.push_back(b);
        if (b->opaque) {
            everything_use_ = std::max(everything_use_, table->last_use.load());
            everything_streams_ |= table->streams.load();
        }
        if (!b->slab && std::ranges::find(b->through, table) == b->through.end()) b->through.push_back(table);
        CUdeviceptr base = b->base;
        std::size_t bytes = b->capacity;
        if (b->slab && !slabs_.find(ways[i], base, bytes)) continue;
        for (const Buffer::Drag& d : b->drags)
            if (d.at >= base && d.at < base + bytes && std::ranges::find(ways, d.address) == ways.end()) ways.push_back(d.address);
    }
}

// Remembers what was found. False: some of it leads to the move's buffer; ops that name those are to be waited out too.
bool DevicePager::note_addresses(Move& m, const std::vector<Hasher::Found>& found, const std::vector<Buffer*>& looked_at, std::uint64_t seen) {
    std::vector<std::pair<Buffer*, CUdeviceptr>> ways;
    for (auto [at, address] : found) {
        Buffer* target = pager_.find(address);
        Buffer* table = pager_.find(at);
        const Buffer::Drag drag{at, address, target};
        CUdeviceptr base;
        std::size_t bytes;
        if (!target || !table || (target == table && !table->slab)) continue;
        if (table->slab && !slabs_.find(at, base, bytes)) {
            if (slabs_.used_until_freed(at)) ways.emplace_back(table, address);
            continue;
        }
        if (std::find(table->drags.begin(), table->drags.end(), drag) != table->drags.end()) continue;
        table->drags.push_back(drag);
        table->table.store(true, std::memory_order_seq_cst);
        pager_.learned();
        ways.emplace_back(table, address);
    }
    for (auto [table, address] : ways) found_way(table, address);
    for (Buffer* s : looked_at) s->looked_through = std::max(s->looked_through, seen);
    return m.buffer->through.empty();
}

// Too much for one search: all at once, or buffer by buffer, and waited for.
void DevicePager::search_thoroughly(Move& m, const std::vector<Buffer*>& dirty, std::uint64_t seen) {
    std::vector<Hasher::Found> found;
    if (hasher_.find_addresses(dirty, look_stream_, found) == CUDA_SUCCESS) {
        note_addresses(m, found, dirty, seen);
        return;
    }
    for (Buffer* s : dirty) {
        if (s->opaque) continue;
        if (hasher_.find_addresses({s}, look_stream_, found) == CUDA_SUCCESS) {
            note_addresses(m, found, {s}, seen);
            continue;
        }
        s->opaque = true;
        s->table.store(true, std::memory_order_seq_cst);
        pager_.learned();
        s->looked_through = UINT64_MAX;
        m.buffer->through.push_back(s);
    }
}

// Looks for addresses of the move's buffer before anything that is queued on `stream` from here on. False: not now.
bool DevicePager::begin_search(Move& m, CUstream stream) {
    const std::uint64_t now = pager_.streams().now();
    m.searched = to_search(m.buffer);
    if (m.searched.empty() || !holds("search")) return true;
    m.seen = any_lease_open() ? 0 : pager_.streams().completed_everywhere(now);
    m.search = hasher_.queue_search(m.searched, look_stream_);
    if (m.search == Hasher::kBusy) return false;
    if (m.search >= 0) {
        if (!m.searched_event) m.searched_event = take_event();
        if (m.searched_event && insist([&] { return driver_.cuEventRecord(m.searched_event, look_stream_); }) == CUDA_SUCCESS &&
            insist([&] { return driver_.cuStreamWaitEvent(stream, m.searched_event, 0); }) == CUDA_SUCCESS)
            return true;
        drain(look_stream_);
        return true;
    }
    m.search = -1;
    search_thoroughly(m, m.searched, m.seen);
    return m.buffer->through.empty();
}

// After the move's stream has passed. False: the search found a way to the buffer, the move starts over.
bool DevicePager::settled(Move& m) {
    if (m.search < 0) return true;
    std::vector<Hasher::Found> found;
    const bool all = hasher_.read_search(m.search, found);
    m.search = -1;
    if (all) note_addresses(m, found, m.searched, m.seen);
    else search_thoroughly(m, m.searched, m.seen);
    if (m.buffer->through.empty()) return true;
    if (m.ticket >= 0) hasher_.read(m.ticket, nullptr);
    m.ticket = -1;
    m.stage = Move::Stage::quiesce;
    return false;
}

// No launch can be handing an op that names `m`'s buffer, or what was found to lead there, to the driver, and all such
// ops have completed.
bool DevicePager::unreachable(Move& m) {
    Buffer* b = m.buffer;
    for (Buffer* s : b->through) {
        if (leased(s)) return false;
        b->streams.fetch_or(s->streams.load());
        const std::uint64_t used = s->last_use.load();
        std::uint64_t seen = b->last_use.load();
        while (seen < used && !b->last_use.compare_exchange_weak(seen, used)) {
        }
    }
    b->through.clear();
    return quiet(b);
}

bool DevicePager::step(Move& m) {
    if (m.cancelled && m.cancellable()) {
        if (!passed(m)) return false;  // a copy in flight ends first; its result is not used
        if (m.kind == Move::Kind::fetch) {
            device_pool_->give_back(m.frames);
            finish(m, Residency::host);
        } else {
            finish(m, Residency::device);
        }
        return true;
    }
    meter_in_.poll();
    meter_out_.poll();
    switch (m.kind) {
        case Move::Kind::evict: return m.drop && m.buffer->touched ? step_drop(m) : step_evict(m);
        case Move::Kind::clean: return step_clean(m);
        default: return step_fetch(m);
    }
}

bool DevicePager::copy_out(Buffer* b) {
    meter_out_.begin(out_stream_, b->capacity);
    for (std::size_t i = 0; i < b->device_frames.size(); ++i)
        if (backing_->copy_out(*b->host_frames[i], *b->device_frames[i], out_stream_) != CUDA_SUCCESS) return false;
    meter_out_.end(out_stream_);
    stats_.bytes_out += b->capacity;
    return true;
}

// What is written from here on, by whoever is not known of, changes the hash: it is of before the copy begins.
bool DevicePager::hash_and_copy_out(Move& m) {
    return hash(m, m.buffer->device_frames, look_stream_) && join_look(m, out_stream_) && copy_out(m.buffer) && record(m, out_stream_);
}

bool DevicePager::step_evict(Move& m) {
    Buffer* b = m.buffer;
    const bool landing = backing_->host_frames_can_be_mapped();
    switch (m.stage) {
        case Move::Stage::quiesce: {
            if (!unreachable(m)) return false;
            if (!b->touched) {  // no op was ever given its address, and there is nothing to keep
                if (backing_->unmap(b->base, b->capacity) != CUDA_SUCCESS) return fail_move(m, CUDA_ERROR_UNKNOWN), true;
                device_pool_->give_back(b->device_frames);
                host_pool_->give_back(b->host_frames);
                b->host_valid = false;
                finish(m, Residency::unbacked);
                return true;
            }
            if (b->host_frames.empty() && !host_frames_for(b, b->host_frames)) {
                finish(m, Residency::device);
                b->pinned = host_room() >= b->capacity;  // the driver refuses, and will again; what others took comes back
                return true;
            }
            if (!hasher_.has_ticket() || !begin_search(m, out_stream_)) return false;
            if (b->host_valid && b->hash_known) {
                if (!hash(m, b->device_frames, look_stream_) || !record(m, look_stream_)) return fail_move(m, CUDA_ERROR_UNKNOWN), true;
                m.stage = Move::Stage::compare;
                return true;
            }
            b->host_valid = b->hash_known = false;
            if (!hash_and_copy_out(m)) return fail_move(m, CUDA_ERROR_UNKNOWN), true;
            m.stage = Move::Stage::copy;
            return true;
        }
        case Move::Stage::compare: {
            if (!passed(m)) return false;
            if (!settled(m)) return true;
            b->streams.store(0);  // from here on only streams that use it where it is now count
            const Hash now = hasher_.read(m.ticket, nullptr);
            m.ticket = -1;
            if (now == b->host_hash) {
                m.clean = true;
                break;
            }
            b->host_valid = b->hash_known = false;
            if (!hash_and_copy_out(m)) return fail_move(m, CUDA_ERROR_UNKNOWN), true;
            m.stage = Move::Stage::copy;
            return true;
        }
        case Move::Stage::copy: {
            if (!passed(m)) return false;
            if (!settled(m)) return true;
            b->streams.store(0);  // from here on only streams that use it where it is now count
            std::uint64_t addresses = 0;
            b->host_hash = hasher_.read(m.ticket, &addresses);
            m.ticket = -1;
            b->host_valid = b->hash_known = true;
            b->host_changed = false;
            learn_table(b, addresses);
            break;
        }
        case Move::Stage::check: {
            if (!passed(m)) return false;
            const Hash after = hasher_.read(m.ticket, nullptr);
            m.ticket = -1;
            if (after == b->host_hash) {
                device_pool_->give_back(b->device_frames);
                finish(m, Residency::host);
                return true;
            }
            // Somebody wrote to the frames after they were copied, past everything that we know of.
            ++stats_.repaired_moves;
            b->pinned = true;
            if (!landing || !hash(m, b->host_frames, out_stream_) || !record(m, out_stream_)) {
                lost(b, "was written while it was moved");
                finish(m, Residency::host);
                return true;
            }
            m.stage = Move::Stage::recheck;
            return true;
        }
        case Move::Stage::recheck: {
            if (!passed(m)) return false;
            const Hash host = hasher_.read(m.ticket, nullptr);
            m.ticket = -1;
            if (!(host == b->host_hash)) {
                lost(b, "was written on the device and on the host while it was moved");
                finish(m, Residency::host);
                return true;
            }
            if (!hash(m, b->device_frames, out_stream_) || !copy_out(b) || !record(m, out_stream_)) {
                lost(b, "could not be copied again after it was written during a move");
                finish(m, Residency::host);
                return true;
            }
            m.stage = Move::Stage::recopy;
            return true;
        }
        case Move::Stage::recopy: {
            if (!passed(m)) return false;
            b->host_hash = hasher_.read(m.ticket, nullptr);
            m.ticket = -1;
            device_pool_->give_back(b->device_frames);
            finish(m, Residency::host);
            return true;
        }
    }
    // Copied (or clean): the memory behind the address changes now. Launches that name it wait.
    if (backing_->unmap(b->base, b->capacity) != CUDA_SUCCESS) return fail_move(m, CUDA_ERROR_UNKNOWN), true;
    if (landing && backing_->map(b->base, b->host_frames) != CUDA_SUCCESS) {
        if (backing_->map(b->base, b->device_frames) != CUDA_SUCCESS) lost(b, "could not be mapped again");
        return fail_move(m, CUDA_ERROR_UNKNOWN), true;
    }
    ++stats_.evictions;
    if (m.clean) ++stats_.clean_evictions;
    tell(m.clean ? profiler::EventKind::evict_clean : profiler::EventKind::evict, b, b->capacity, m.start_ns);
    last_progress_ns_ = now_ns();
    if (m.clean || verify_now()) {
        ++stats_.verified_moves;
        if (hash(m, b->device_frames, look_stream_) && record(m, look_stream_)) {
            m.stage = Move::Stage::check;
            return true;
        }
        drain(look_stream_);
    }
    device_pool_->give_back(b->device_frames);
    finish(m, Residency::host);
    return true;
}

// Given up: whoever ordered it can compute it again, and shows by the hash that it did.
bool DevicePager::step_drop(Move& m) {
    Buffer* b = m.buffer;
    if (m.stage == Move::Stage::quiesce) {
        if (!unreachable(m) || !hasher_.has_ticket() || !begin_search(m, look_stream_)) return false;
        m.ticket = hasher_.queue(b->base, b->bytes, look_stream_);
        if (m.ticket < 0 || !record(m, look_stream_)) return fail_move(m, CUDA_ERROR_UNKNOWN), true;
        m.stage = Move::Stage::copy;
        return true;
    }
    if (!passed(m)) return false;
    if (!settled(m)) return true;
    b->streams.store(0);  // from here on only streams that use it where it is then count
    std::uint64_t addresses = 0;
    b->dropped_hash = hasher_.read(m.ticket, &addresses);
    m.ticket = -1;
    if (addresses) return finish(m, Residency::device), true;  // a pointer table
    if (backing_->unmap(b->base, b->capacity) != CUDA_SUCCESS) return fail_move(m, CUDA_ERROR_UNKNOWN), true;
    device_pool_->give_back(b->device_frames);
    host_pool_->give_back(b->host_frames);
    b->host_valid = b->hash_known = false;
    b->dropped.store(true, std::memory_order_seq_cst);
    ++stats_.drops;
    stats_.bytes_dropped += b->capacity;
    tell(profiler::EventKind::drop, b, b->capacity, m.start_ns);
    finish(m, Residency::unbacked);
    return true;
}

// Copied out ahead of an eviction, which then finds by its hash that there is nothing to copy. Launches may use the buffer
// meanwhile; then only a hash can say that the copy is of one moment.
bool DevicePager::step_clean(Move& m) {
    Buffer* b = m.buffer;
    auto give_up = [&] {
        drain(look_stream_);
        drain(out_stream_);
        finish(m, Residency::device);
        return true;
    };
    switch (m.stage) {
        case Move::Stage::quiesce: {
            if (!hasher_.has_ticket()) return false;
            if (b->host_valid && b->hash_known) {
                if (!hash(m, b->device_frames, look_stream_) || !record(m, look_stream_)) return give_up();
                m.stage = Move::Stage::compare;
                return true;
            }
            if (b->host_frames.empty() && !host_frames_for(b, b->host_frames)) return give_up();
            b->host_valid = b->hash_known = false;
            if (!hash_and_copy_out(m)) return give_up();
            m.stage = Move::Stage::copy;
            return true;
        }
        case Move::Stage::compare: {
            if (!passed(m)) return false;
            const bool kept = hasher_.read(m.ticket, nullptr) == b->host_hash;
            m.ticket = -1;
            if (kept) {
                b->host_as_of = m.used;
                return finish(m, Residency::device), true;
            }
            b->hash_known = false;
            m.stage = Move::Stage::quiesce;
            return true;
        }
        case Move::Stage::copy: {
            if (!passed(m)) return false;
            std::uint64_t addresses = 0;
            b->host_hash = hasher_.read(m.ticket, &addresses);
            m.ticket = -1;
            tell(profiler::EventKind::clean, b, b->capacity, m.start_ns);
            if (addresses) return finish(m, Residency::device), true;  // tables are learned when they go
            if (m.still && !leased(b) && b->last_use.load() == m.used) {
                b->host_valid = b->hash_known = true;
                b->host_as_of = m.used;
                return finish(m, Residency::device), true;
            }
            if (!backing_->host_frames_can_be_mapped()) return finish(m, Residency::device), true;
            if (!hash(m, b->host_frames, out_stream_) || !record(m, out_stream_)) return give_up();
            m.stage = Move::Stage::check;
            return true;
        }
        default: {
            if (!passed(m)) return false;
            b->host_valid = b->hash_known = hasher_.read(m.ticket, nullptr) == b->host_hash;
            b->host_as_of = m.used;
            m.ticket = -1;
            finish(m, Residency::device);
            return true;
        }
    }
}

// Whether this move's bytes are hashed once more: always at first, then the share that the user set.
bool DevicePager::verify_now() {
    const std::uint64_t n = moves_begun_++;
    if (n < pager_.settings().always_verify) return true;
    const double share = pager_.settings().verify;
    return static_cast<std::uint64_t>(static_cast<double>(n + 1) * share) != static_cast<std::uint64_t>(static_cast<double>(n) * share);
}

bool DevicePager::step_fetch(Move& m) {
    Buffer* b = m.buffer;
    const bool landing = backing_->host_frames_can_be_mapped();
    switch (m.stage) {
        case Move::Stage::quiesce: {
            if (!unreachable(m) || (b->touched && !begin_search(m, in_stream_))) return false;
            if (b->host_changed.exchange(false)) b->hash_known = false;
            if (m.copy) {
                meter_in_.begin(in_stream_, b->capacity);
                for (std::size_t i = 0; i < m.frames.size(); ++i)
                    if (backing_->copy_in(*m.frames[i], *b->host_frames[i], in_stream_) != CUDA_SUCCESS)
                        return fail_move(m, CUDA_ERROR_UNKNOWN), true;
                meter_in_.end(in_stream_);
                stats_.bytes_in += b->capacity;
            }
            if ((m.copy || m.search >= 0) && !record(m, in_stream_)) return fail_move(m, CUDA_ERROR_UNKNOWN), true;
            m.stage = Move::Stage::copy;
            return true;
        }
        case Move::Stage::copy: {
            if (!passed(m)) return false;
            if (!settled(m)) return true;
            if (b->hash_known && !hasher_.has_ticket()) return false;  // for the frames left behind
            b->streams.store(0);  // from here on only streams that use it where it is now count
            if (landing && backing_->unmap(b->base, b->capacity) != CUDA_SUCCESS) return fail_move(m, CUDA_ERROR_UNKNOWN), true;
            if (backing_->map(b->base, m.frames) != CUDA_SUCCESS) {
                if (landing && backing_->map(b->base, b->host_frames) != CUDA_SUCCESS) lost(b, "could not be mapped again");
                return fail_move(m, CUDA_ERROR_UNKNOWN), true;
            }
            b->device_frames = std::move(m.frames);
            m.frames.clear();
            b->host_as_of = b->last_use.load();
            ++stats_.fetches;
            tell(profiler::EventKind::fetch, b, m.copy ? b->capacity : 0, m.start_ns);
            last_progress_ns_ = now_ns();
            // A launch that reached the host frames in between would have changed them.
            if (m.copy && landing && b->hash_known && verify_now()) {
                if (hash(m, b->host_frames, in_stream_) && record(m, in_stream_)) {
                    ++stats_.verified_moves;
                    m.stage = Move::Stage::check;
                    return true;
                }
                drain(in_stream_);
            }
            finish(m, Residency::device);
            return true;
        }
        case Move::Stage::check: {
            if (!passed(m)) return false;
            const Hash after = hasher_.read(m.ticket, nullptr);
            m.ticket = -1;
            if (after == b->host_hash) return finish(m, Residency::device), true;
            // An op that found its way there through memory wrote to the host frames, before they were copied or after.
            b->host_hash = after;
            if (!hash(m, b->device_frames, in_stream_) || !record(m, in_stream_)) {
                lost(b, "was written in host memory while it was out");
                return finish(m, Residency::device), true;
            }
            m.stage = Move::Stage::recheck;
            return true;
        }
        case Move::Stage::recheck: {
            if (!passed(m)) return false;
            const Hash copied = hasher_.read(m.ticket, nullptr);
            m.ticket = -1;
            if (!(copied == b->host_hash)) lost(b, "was written in host memory while it was fetched");
            finish(m, Residency::device);
            return true;
        }
        default: finish(m, Residency::device); return true;
    }
}

}  // namespace udnnmem::pager
