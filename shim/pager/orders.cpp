// DevicePager: orders, what a plan wants moved ahead of need (order.hpp).
#include <algorithm>

#include "shim/pager/pager.hpp"

namespace udnnmem::pager {
namespace {
constexpr std::size_t kLookedAt = 16;  // orders out that are waited for at a time, so that one slow stream holds up no other
constexpr int kMostAtOnce = 4;         // moves of one direction: one copies, the next ones get ready
}  // namespace

void DevicePager::order(const Order* orders, std::size_t count) {
    {
        std::lock_guard lock(orders_mutex_);
        ordered_.insert(ordered_.end(), orders, orders + count);
    }
    any_ordered_.store(true, std::memory_order_seq_cst);
    if (!mover_asleep_.load(std::memory_order_seq_cst)) return;
    Lock lock(mutex_);  // it waits, or is about to look once more
    mover_wake_.notify_one();
}

void DevicePager::forget_orders() {
    cancel_drops();
    Lock lock(mutex_);
    {
        std::lock_guard inner(orders_mutex_);
        ordered_.clear();
    }
    orders_out_.clear();
    orders_in_.clear();
    plan_clock_.store(0);
    if (unlanded_) mover_wake_.notify_one();
}

void DevicePager::cancel_drops(const Buffer* of) {
    const auto meant = [of](const Order& o) { return o.kind == Order::Kind::drop && (!of || o.buffer == of); };
    Lock lock(mutex_);
    {
        std::lock_guard inner(orders_mutex_);
        std::erase_if(ordered_, meant);
    }
    std::erase_if(orders_out_, meant);
    for (Move& m : moves_)
        if (m.drop && m.cancellable() && (!of || m.buffer == of)) m.cancelled = true;
}

bool DevicePager::take_orders() {
    if (!any_ordered_.load(std::memory_order_relaxed)) return false;
    std::lock_guard lock(orders_mutex_);
    any_ordered_.store(false, std::memory_order_relaxed);
    for (const Order& o : ordered_) (o.kind == Order::Kind::fetch ? orders_in_ : orders_out_).push_back(o);
    ordered_.clear();
    return true;
}

bool DevicePager::meant(const Order& o) const { return o.buffer->live && o.buffer->id == o.id; }

// Whether carrying it out is still to be expected: no op came after it that uses the buffer, or is about to. A buffer may be read
// while it is copied: the hash says of what moment the copy is.
bool DevicePager::will_go_out(const Order& o) const {
    const Buffer* b = o.buffer;
    const bool last = (b->last_use.load() <= o.after && !b->holds) || (o.kind == Order::Kind::clean && backing_->host_frames_can_be_mapped());
    return meant(o) && !b->pinned && !b->slab && last &&
           (b->residency == Residency::device || b->residency == Residency::fetching);
}

std::size_t DevicePager::bytes_ordered_out() const {
    std::size_t bytes = 0;
    for (const Order& o : orders_out_)
        if (o.kind != Order::Kind::clean && will_go_out(o)) bytes += o.buffer->capacity;
    return bytes;
}

int DevicePager::moves_of(Move::Kind first, Move::Kind second) const {
    return static_cast<int>(std::count_if(moves_.begin(), moves_.end(), [&](const Move& m) { return m.kind == first || m.kind == second; }));
}

bool DevicePager::serve_orders() {
    if (halted()) return false;
    bool progress = false;
    if (!orders_out_.empty()) progress |= serve_orders_out();
    if (!orders_in_.empty()) progress |= serve_orders_in();
    return progress;
}

bool DevicePager::serve_orders_out() {
    bool progress = false;
    int under_way = moves_of(Move::Kind::evict, Move::Kind::clean);
    std::size_t looked = 0;
    for (auto it = orders_out_.begin(); it != orders_out_.end() && looked < kLookedAt && under_way < kMostAtOnce;) {
        Buffer* b = it->buffer;
        const bool keeps = it->kind == Order::Kind::clean && b->host_valid && b->hash_known && it->after <= b->host_as_of;
        if (!will_go_out(*it) || keeps) {
            it = orders_out_.erase(it);
            progress = true;
            continue;
        }
        const std::uint64_t used = b->last_use.load();   // before it is asked whether all has completed: an op in between is seen by it
        const bool still = !b->moving && !b->holds && quiet(b);
        const bool copies = it->kind == Order::Kind::clean && !b->moving && !b->holds && (still || pager_.streams().complete(b->streams.load(), it->after));
        if (!still && !copies) {
            ++it, ++looked;
            continue;
        }
        if (copies) start_clean(b, used, still);
        else start_evict(b, &*it);
        it = orders_out_.erase(it);
        ++under_way;
        progress = true;
    }
    return progress;
}

// Device frames that waiting launches are still going to take, beside those of `of`. One that is held back takes none so far.
std::size_t DevicePager::bytes_requested_beside(const Buffer* of) const {
    std::size_t bytes = 0;
    for (const Request* r : requests_)
        if (!r->done && !r->host_allowed && !paced(*r))
            for (const Buffer* b : r->need)
                if (b != of && !b->moving && b->residency != Residency::device && !r->is_loose(b)) bytes += b->capacity;
    return bytes;
}

bool DevicePager::serve_orders_in() {
    bool progress = false;
    int under_way = moves_of(Move::Kind::fetch, Move::Kind::fetch);
    while (!orders_in_.empty() && under_way < kMostAtOnce) {
        const Order o = orders_in_.front();
        Buffer* b = o.buffer;
        // What is pinned stays where it is, though that be host frames: who knows what writes it.
        const bool here = b->pinned || (b->residency != Residency::host && b->residency != Residency::evicting);
        if (!meant(o) || here) {
            const bool goes_first = meant(o) && std::any_of(orders_out_.begin(), orders_out_.end(), [&](const Order& out) {
                return out.buffer == b && out.kind != Order::Kind::clean && will_go_out(out);
            });
            if (goes_first) return progress;
            orders_in_.pop_front();
            progress = true;
            continue;
        }
        if (b->moving || b->granted) return progress;
        if (o.stream && !pager_.streams().complete(o.stream->bit(), o.after)) return progress;
        if (under_way && !link_wants(true)) return progress;   // frames are taken shortly before they are filled
        const std::size_t wanted = b->capacity + bytes_requested_beside(b);
        if (device_pool_->available() < wanted) {
            if (release_parked(wanted - device_pool_->available())) return true;   // an op that may touch anything may be next by now
            // The plan's own evictions make room, and what the program frees; where there are none (it has just begun), what is
            // needed later does.
            const bool coming = bytes_ordered_out() || moves_of(Move::Kind::evict, Move::Kind::evict) || freed_in_use();
            Buffer* victim = coming ? nullptr : choose_victim(true);
            if (!victim || is_requested(victim) || !needed_later(victim, b)) return progress;
            start_evict(victim);
            return true;
        }
        if (release_for_frames(b->capacity)) return true;
        std::vector<Frame*> frames;
        if (!device_pool_->take(b->capacity, frames)) return progress;
        start_fetch(b, std::move(frames), b->touched);
        orders_in_.pop_front();
        ++under_way;
        progress = true;
    }
    return progress;
}

bool DevicePager::is_requested(const Buffer* b) const {
    return std::any_of(requests_.begin(), requests_.end(), [b](const Request* r) { return !r->done && std::find(r->need.begin(), r->need.end(), b) != r->need.end(); });
}

// When the plan expects `b` to be used next, in steps since it began; UINT64_MAX: it does not.
std::uint64_t DevicePager::expected_use(const Buffer* b) const {
    const std::uint64_t next = b->next_use.load(std::memory_order_relaxed);
    return next > plan_clock_.load(std::memory_order_relaxed) ? next : UINT64_MAX;
}

bool DevicePager::needed_later(const Buffer* a, const Buffer* b) const { return expected_use(a) > expected_use(b); }

}  // namespace udnnmem::pager
