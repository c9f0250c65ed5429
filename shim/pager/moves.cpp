// DevicePager: each move step by step, as a state machine that never waits.
#include <algorithm>

#include "shim/pager/pager.hpp"
#include "shim/pager/rules.hpp"

namespace udnnmem::pager {
namespace {
constexpr std::int64_t kRemembered = 64;   // calls that change mappings, after which a slow one counts for little
}

// After the move's stream has passed. False: the search found a way to the buffer, the move starts over.
bool DevicePager::settled(Move& m) {
    if (m.search < 0) return true;
    std::vector<Hasher::Found> found;
    const bool all = hasher_.read_search(m.search, found);
    m.search = -1;
    if (all) note_addresses(found, m.searched, m.seen);
    else search_thoroughly(m.searched, m.seen);
    if (still_unreachable(m)) return true;
    if (m.ticket >= 0) hasher_.read(m.ticket, nullptr);
    m.ticket = -1;
    m.stage = Move::Stage::quiesce;
    return false;
}

// No launch can be handing an op that names `m`'s buffer, or what was found to lead there, to the driver, and all such
// ops have completed.
bool DevicePager::unreachable(Move& m) {
    Buffer* b = m.buffer;
    if (b->granted) return false;   // to an op that may be using it
    for (Buffer* s : b->through) {
        if (leased(s)) return false;
        b->streams.fetch_or(s->streams.load());
        raise(b->last_use, s->last_use.load());
    }
    b->through.clear();
    if (!quiet(b)) return false;
    m.anywhere = found_anywhere_;
    return true;
}

// And no way to it was found since, by which ops that were not waited for may be there.
bool DevicePager::still_unreachable(const Move& m) const { return m.buffer->through.empty() && m.anywhere == found_anywhere_; }

// A call that changes what is mapped at the buffer's address, which takes the driver 50 to 200 us beside work on the device. The mover
// makes it without the mutex: allocations and frees go on meanwhile. What it is at nobody else takes up: the buffer counts as moving, a
// move can no longer be called off (Move::remaps), a request stays in the line (in_hands).
template <class Call>
CUresult DevicePager::remap(Buffer* b, Call call) {
    Lock* const lock = std::exchange(movers_lock_, nullptr);
    if (!lock) return call();
    const bool moving = std::exchange(b->moving, true);
    away_ = true;
    lock->unlock();
    const std::int64_t begin = now_ns();
    const CUresult result = call();
    const std::int64_t took = now_ns() - begin;
    lock->lock();
    slow_remap_ns_ = std::max(took, slow_remap_ns_ - slow_remap_ns_ / kRemembered);
    away_ = false;
    movers_lock_ = lock;
    b->moving = moving;
    return result;
}

CUresult DevicePager::map(Buffer* b, const std::vector<Frame*>& frames) {
    return remap(b, [&] { return backing_->map(b->base, frames); });
}

CUresult DevicePager::unmap(Buffer* b) {
    b->cpu_reaches = false;
    const CUresult result = remap(b, [&] { return backing_->unmap(b->base, b->capacity); });
    if (result == CUDA_SUCCESS) b->landed = false;
    return result;
}

// With the mutex held throughout: nobody sees it half done.
CUresult DevicePager::unmap_at_once(Buffer* b) {
    Lock* const lock = std::exchange(movers_lock_, nullptr);
    const CUresult result = unmap(b);
    movers_lock_ = lock;
    return result;
}

// Its address, where nothing is mapped, is that of its host frames from now on.
CUresult DevicePager::land(Buffer* b) {
    const CUresult result = map(b, b->host_frames);
    b->landed = result == CUDA_SUCCESS;
    if (b->landed && pager_.settings().always_land) b->cpu_reaches = backing_->allow_cpu(b->base, b->host_frames) == CUDA_SUCCESS;
    return result;
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

bool DevicePager::step_evict(Move& m) {
    Buffer* b = m.buffer;
    const bool reaches = reaches_host();
    switch (m.stage) {
        case Move::Stage::quiesce: {
            if (!unreachable(m)) return false;
            if (!b->touched) {  // no op was ever given its address, and there is nothing to keep
                m.remaps = true;
                if (unmap(b) != CUDA_SUCCESS) return fail_move(m, CUDA_ERROR_UNKNOWN), true;
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
            const bool unchanged = b->host_valid && b->hash_known;   // probably
            if (!hasher_.has_ticket() || (!unchanged && !link_wants(false)) || !begin_search(m, out_stream_)) return false;
            if (unchanged) {
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
            if (!copy_on(m)) return fail_move(m, CUDA_ERROR_UNKNOWN), true;
            if (m.left || !passed(m)) return false;
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
            if (!reaches || !hash(m, b->host_frames, out_stream_) || !record(m, out_stream_)) {
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
            if (!hash(m, b->device_frames, out_stream_) || !copy_out_again(b) || !record(m, out_stream_)) {
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
            if (!b->landed) land(b);   // whoever wrote it may come again; what fails is tried again for the next launch
            device_pool_->give_back(b->device_frames);
            finish(m, Residency::host);
            return true;
        }
    }
    // Copied (or clean): the memory behind the address changes now. Launches that name it wait.
    m.remaps = true;
    if (unmap(b) != CUDA_SUCCESS) return fail_move(m, CUDA_ERROR_UNKNOWN), true;
    // Mapping host pages, and unmapping them again, takes about as long as copying them: not for what a plan fetches before it is used.
    const bool lands = reaches && (!m.ordered || !follows_plan() || pager_.settings().always_land);
    unlanded_ |= reaches && !lands;
    if (lands && land(b) != CUDA_SUCCESS) {
        if (map(b, b->device_frames) != CUDA_SUCCESS) lost(b, "could not be mapped again");
        return fail_move(m, CUDA_ERROR_UNKNOWN), true;
    }
    ++stats_.evictions;
    if (m.clean) ++stats_.clean_evictions;
    tell(m.clean ? profiler::EventKind::evict_clean : profiler::EventKind::evict, b, b->capacity, m.start_ns);
    moved();
    if (m.clean || verify_now()) {
        ++stats_.verified_moves;
        if (hash(m, b->device_frames, look_stream_) && record(m, look_stream_)) {
            m.stage = Move::Stage::check;
            return true;
        }
        drain(driver_, look_stream_);
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
    // A pointer table; or one was found that leads here, and an op that names it came after the one that the order was given for.
    if (addresses || b->last_use.load() > m.used) return finish(m, Residency::device), true;
    if (unmap_at_once(b) != CUDA_SUCCESS) return fail_move(m, CUDA_ERROR_UNKNOWN), true;   // cancel_drops()
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
        drain(driver_, look_stream_);
        end_copy_out(b);
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
            if (!link_wants(false)) return false;
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
            if (!copy_on(m)) return give_up();
            if (m.left || !passed(m)) return false;
            std::uint64_t addresses = 0;
            b->host_hash = hasher_.read(m.ticket, &addresses);
            m.ticket = -1;
            tell(profiler::EventKind::clean, b, b->capacity, m.start_ns);
            if (addresses) return finish(m, Residency::device), true;  // tables are learned when they go
            if (m.still && !leased(b) && b->last_use.load() == m.used && everything_use_ == m.everything_used) {
                b->host_valid = b->hash_known = true;
                b->host_as_of = m.used;
                return finish(m, Residency::device), true;
            }
            if (!backing_->host_frames_can_be_mapped()) return finish(m, Residency::device), true;
            if (!hash(m, b->host_frames, look_stream_) || !record(m, look_stream_)) return give_up();
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
    const bool landed = b->landed;
    switch (m.stage) {
        case Move::Stage::quiesce: {
            if (m.copy && !link_wants(true)) return false;
            // No op can be where nothing is mapped, whatever was said of ops that the driver then refused.
            if (landed && (!unreachable(m) || (b->touched && !begin_search(m, in_stream_)))) return false;
            if (b->host_changed.exchange(false)) b->hash_known = false;
            if (m.copy ? !begin_copy(m) : m.search >= 0 && !record(m, in_stream_)) return fail_move(m, CUDA_ERROR_UNKNOWN), true;
            m.stage = Move::Stage::copy;
            return true;
        }
        case Move::Stage::copy: {
            if (!copy_on(m)) return fail_move(m, CUDA_ERROR_UNKNOWN), true;
            if (m.left || !passed(m)) return false;
            if (!settled(m)) return true;
            if (b->hash_known && !hasher_.has_ticket()) return false;  // for the frames left behind
            b->streams.store(0);  // from here on only streams that use it where it is now count
            m.remaps = true;
            if (landed && unmap(b) != CUDA_SUCCESS) return fail_move(m, CUDA_ERROR_UNKNOWN), true;
            if (map(b, m.frames) != CUDA_SUCCESS) {
                if (landed && land(b) != CUDA_SUCCESS) lost(b, "could not be mapped again");
                return fail_move(m, CUDA_ERROR_UNKNOWN), true;
            }
            b->device_frames = std::move(m.frames);
            m.frames.clear();
            b->host_as_of = b->last_use.load();
            ++stats_.fetches;
            tell(profiler::EventKind::fetch, b, m.copy ? std::size_t{b->capacity} : 0, m.start_ns);
            moved();
            // A launch that reached the host frames in between would have changed them.
            if (m.copy && landed && b->hash_known && verify_now()) {
                if (hash(m, b->host_frames, look_stream_) && record(m, look_stream_)) {
                    ++stats_.verified_moves;
                    m.stage = Move::Stage::check;
                    return true;
                }
                drain(driver_, look_stream_);
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
            if (!hash(m, b->device_frames, look_stream_) || !record(m, look_stream_)) {
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
