// DevicePager: memory that holds addresses: told by the host, or found where the program has written.
#include <algorithm>

#include "shim/pager/pager.hpp"
#include "shim/pager/rules.hpp"

namespace udnnmem::pager {
namespace {
constexpr std::size_t kLargeSearches = 16;   // budgets' worth of bytes of large buffers, searched in vain, after which none is searched any more
}

void DevicePager::wrote_pointers(Buffer* table, std::vector<Stretch> written, const std::vector<Buffer::Drag>& targets) {
    std::ranges::sort(written, {}, &Stretch::at);
    Lock lock(mutex_);
    std::erase_if(table->drags, [&](const Buffer::Drag& d) {
        const auto behind = std::ranges::upper_bound(written, d.at, {}, &Stretch::at);
        return behind != written.begin() && d.at - std::prev(behind)->at < std::prev(behind)->bytes;
    });
    table->drags.insert(table->drags.end(), targets.begin(), targets.end());
    table->table.store(table->opaque || !table->drags.empty(), std::memory_order_release);
    pager_.learned();
}

std::vector<Buffer::Drag> DevicePager::pointers_of(Buffer* table, CUdeviceptr at, std::size_t bytes) {
    Lock lock(mutex_);
    std::vector<Buffer::Drag> all;
    std::copy_if(table->drags.begin(), table->drags.end(), std::back_inserter(all),
                 [&](const Buffer::Drag& d) { return d.at >= at && d.at < at + bytes; });
    return all;
}

bool DevicePager::leads_to(Buffer* table, CUdeviceptr address, CUdeviceptr& base, std::vector<Buffer::Drag>& out) {
    Lock lock(mutex_);
    std::size_t bytes = table->capacity;
    base = table->base;
    if (table->slab && address) {
        const auto small = slabs_.find(address);
        if (!small) return false;
        base = small->base, bytes = small->bytes;
    }
    std::erase_if(table->drags, [](const Buffer::Drag& d) { return !d.target->live && !d.target->slab; });
    for (const Buffer::Drag& d : table->drags)
        if (d.at >= base && d.at < base + bytes) out.push_back(d);
    return true;
}

bool DevicePager::holds_addresses(Buffer* b, CUdeviceptr at) {
    if (!b->table.load(std::memory_order_acquire) || !b->slab || b->opaque.load()) return b->table.load() || b->opaque.load();
    CUdeviceptr base;
    std::vector<Buffer::Drag> found;
    return leads_to(b, at, base, found) && !found.empty();
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

// Large ones may be tables too, workspaces above all; but few are, and what all of them hold is the device's memory over and over.
// What leads anywhere is no question any more.
bool DevicePager::may_be_table(const Buffer* b) const {
    if (b->opaque.load()) return false;
    return b->slab || b->capacity == granule() || b->table.load() || (holds("search-large") && searched_in_vain_ / kLargeSearches < device_pool_->promised());
}

// Kernels may have written the address of a buffer to memory from where ops that we let pass can reach it: what may be a table is
// searched, as far as it was used since (what others hold is learned when they move themselves), also what the program has freed
// behind ops that are still to come. Whatever wrote it was given it, so it named the buffer and has completed (quiet()), or
// carried it from another table.
std::vector<Buffer*> DevicePager::to_search(const Buffer* b) {
    const std::uint64_t used = std::max(b->last_use.load(), everything_use_);
    std::vector<Buffer*> dirty;
    for (Buffer* s : buffers_)
        if (s != b && may_be_table(s) && (!s->device_frames.empty() || (!s->host_frames.empty() && backing_->host_frames_can_be_mapped())) &&
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
        if (b->opaque) leads_anywhere(table);
        if (!b->slab && std::ranges::find(b->through, table) == b->through.end()) b->through.push_back(table);
        CUdeviceptr base = b->base;
        std::size_t bytes = b->capacity;
        if (b->slab) {
            const auto small = slabs_.find(ways[i]);
            if (!small) continue;
            base = small->base, bytes = small->bytes;
        }
        for (const Buffer::Drag& d : b->drags)
            if (d.at >= base && d.at < base + bytes && std::ranges::find(ways, d.address) == ways.end()) ways.push_back(d.address);
    }
}

// Ops that named `table` so far may have used anything.
void DevicePager::leads_anywhere(const Buffer* table) {
    ways_anywhere_.push_back(table);
    ++found_anywhere_;
}

// Remembers what was found.
void DevicePager::note_addresses(const std::vector<Hasher::Found>& found, const std::vector<Buffer*>& looked_at, std::uint64_t seen) {
    std::vector<std::pair<Buffer*, CUdeviceptr>> ways;
    const auto large = [this](const Buffer* b) { return !b->slab && b->capacity > granule(); };
    for (auto [at, address] : found) {
        Buffer* target = pager_.find(address);
        Buffer* table = pager_.find(at);
        const Buffer::Drag drag{at, address, target};
        if (!target || !table || (target == table && !table->slab)) continue;
        if (table->slab && !slabs_.find(at)) {
            if (slabs_.used_until_freed(at)) ways.emplace_back(table, address);
            continue;
        }
        if (std::find(table->drags.begin(), table->drags.end(), drag) != table->drags.end()) continue;
        table->drags.push_back(drag);
        table->table.store(true, std::memory_order_seq_cst);
        if (large(table)) searched_in_vain_ = 0;
        pager_.learned();
        ways.emplace_back(table, address);
    }
    for (auto [table, address] : ways) found_way(table, address);
    for (Buffer* s : looked_at) {
        s->looked_through = std::max(s->looked_through, seen);
        if (large(s) && !s->table.load()) searched_in_vain_ += s->capacity;
    }
}

// Too much for one search: all at once, or buffer by buffer, and waited for.
void DevicePager::search_thoroughly(const std::vector<Buffer*>& dirty, std::uint64_t seen) {
    std::vector<Hasher::Found> found;
    if (hasher_.find_addresses(dirty, look_stream_, found) == CUDA_SUCCESS) {
        note_addresses(found, dirty, seen);
        return;
    }
    for (Buffer* s : dirty) {
        if (s->opaque) continue;
        if (hasher_.find_addresses({s}, look_stream_, found) == CUDA_SUCCESS) {
            note_addresses(found, {s}, seen);
            continue;
        }
        s->opaque = true;
        s->table.store(true, std::memory_order_seq_cst);
        pager_.learned();
        s->looked_through = UINT64_MAX;
        leads_anywhere(s);
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
        drain(driver_, look_stream_);
        return true;
    }
    m.search = -1;
    search_thoroughly(m.searched, m.seen);
    return still_unreachable(m);
}

}  // namespace udnnmem::pager
