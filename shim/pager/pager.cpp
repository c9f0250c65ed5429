#include "shim/pager/pager.hpp"

#include "shim/pager/rules.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace udnnmem::pager {

std::int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Op::name_marked(Buffer* b) {
    if (std::find(buffers, buffers + count, b) != buffers + count) return;
    if (count < Lease::kMany) buffers[count++] = b;
    else more.push_back(b);
}

void Op::join_loose() {
    std::uint32_t kept = 0;
    for (std::uint32_t i = 0; i < loose_count; ++i) {
        Buffer* const b = loose[i];
        if (std::find(buffers, buffers + count, b) != buffers + count || std::find(more.begin(), more.end(), b) != more.end()) continue;
        name(b);
        loose[kept++] = b;
    }
    loose_count = kept;
}

Pager::Pager(const Driver& driver, const Settings& settings, Sink& sink)
    : driver_(driver), settings_(settings), sink_(sink), streams_(driver_), answer_memory_(driver_, streams_) {}

Pager::~Pager() { stop(); }

void Pager::stop() {
    for (DevicePager* d : devices()) d->stop();
}

void Pager::driver_ends() {
    for (DevicePager* d : devices()) d->driver_ends();
}

std::vector<DevicePager*> Pager::devices() {
    std::vector<DevicePager*> all;
    for (auto& d : devices_)
        if (DevicePager* p = d.load(std::memory_order_acquire)) all.push_back(p);
    return all;
}

DevicePager* Pager::current_device() {
    CUdevice device = 0;
    if (insist([&] { return driver_.cuCtxGetDevice(&device); }) != CUDA_SUCCESS) return nullptr;
    return this->device(device);
}

DevicePager* Pager::device(CUdevice device) {
    if (device < 0 || device >= kMostDevices) return nullptr;
    if (DevicePager* p = devices_[device].load(std::memory_order_acquire)) return p;
    std::lock_guard lock(mutex_);
    if (DevicePager* p = devices_[device].load(std::memory_order_acquire)) return p;
    if (unusable_[device] || arena_failed_) return nullptr;
    CUdevice current = -1;
    if (insist([&] { return driver_.cuCtxGetDevice(&current); }) != CUDA_SUCCESS || current != device) return nullptr;
    auto backing = make_vmm_backing(driver_, device, settings_.host_nodes);
    if (!backing) {
        unusable_[device] = true;
        sink_.line(Sink::Level::warn, "device " + std::to_string(device) +
                                          " cannot be paged (cuMemCreate, or waiting for a copy, fails): its memory is not managed");
        return nullptr;
    }
    if (!arena_.bytes()) {
        int count = 1;
        driver_.cuDeviceGetCount(&count);
        if (!arena_.start(driver_, backing->granule(), (std::size_t{1} << 40) * static_cast<std::size_t>(std::max(count, 1)))) {
            arena_failed_ = true;
            sink_.line(Sink::Level::warn, "no address range can be reserved (cuMemAddressReserve): memory is not managed");
            return nullptr;
        }
    }
    std::size_t free_bytes = 0, total = 0;
    if (insist([&] { return driver_.cuMemGetInfo_v2(&free_bytes, &total); }) != CUDA_SUCCESS) {
        unusable_[device] = true;
        sink_.line(Sink::Level::warn, "device " + std::to_string(device) + " does not say how much memory it has (cuMemGetInfo): it is not managed");
        return nullptr;
    }
    auto* made = new DevicePager(*this, device, std::move(backing), free_bytes, total);
    for (CUdevice reader = 0; reader < kMostDevices; ++reader)
        if (readers_[device] >> reader & 1) made->peer_access(reader, true);
    devices_[device].store(made, std::memory_order_release);
    return made;
}

CUresult Pager::peer_access(CUdevice owner, CUdevice reader, bool on) {
    if (owner < 0 || owner >= kMostDevices || reader < 0 || reader >= kMostDevices || reader == owner) return CUDA_SUCCESS;
    DevicePager* made;
    {
        std::lock_guard lock(mutex_);
        const std::uint64_t bit = std::uint64_t{1} << reader;
        readers_[owner] = on ? readers_[owner] | bit : readers_[owner] & ~bit;
        made = devices_[owner].load(std::memory_order_acquire);
    }
    return made ? made->peer_access(reader, on) : CUDA_SUCCESS;
}

[[gnu::hot]] void Pager::publish(const Op& op, Lease& lease) {
    const std::uint32_t count = op.count;
#pragma GCC unroll 4
    for (std::uint32_t i = 0; i < count; ++i) lease.buffers[i].store(op.buffers[i], std::memory_order_relaxed);
    lease.count.store(count, std::memory_order_release);
    lease.open(op.everything || !op.more.empty() ? Lease::everything : Lease::listed);
}

[[gnu::hot]] CUresult Pager::enter(Op& op) {
    if (!op.slot) op.slot = &streams_.slot(op.stream);
    if (op.looked_at || (streams_.capturing() && streams_.is_capturing(op.stream))) [[unlikely]] {
        // Recorded, not run: it touches nothing now. But the driver looks at the addresses of copies and memsets, so
        // they must be mapped, wherever to.
        op.captured = true;
        if (op.kernel) return CUDA_SUCCESS;
    }
    if (op.loose_count) [[unlikely]] op.join_loose();
    Lease& lease = my_lease();
    publish(op, lease);
    bool resident = !op.captured && op.more.empty() && op.overwrites.empty() && !failed() && !ahead_of_plan(op) && (!op.everything || (!op.by_cpu && all_in_place()));
    if (resident && !op.everything) [[likely]] {
        std::uint64_t lacks = 0;
#pragma GCC unroll 4
        for (std::uint32_t i = 0, count = op.count; i < count; ++i) lacks |= BufferState(op.buffers[i]).lacks();
        resident = !lacks;
    }
    if (resident) [[likely]] {
        dawdle("lease");
        return CUDA_SUCCESS;
    }
    lease.close();
    if (op.captured) op.everything = false, op.overwrites.clear();
    if (!streams_.capturing()) return enter_slow(op);
    Relaxed relaxed(driver_);
    return enter_slow(op);
}

// With a lease on everything open: nothing leaves its place from here on.
bool Pager::all_in_place() {
    for (auto& device : devices_)
        if (DevicePager* d = device.load(std::memory_order_acquire); d && !d->all_in_place()) return false;
    return true;
}

// Every buffer that `named` leads to through memory, themselves included. In a slab only what the op was given counts.
void Pager::follow(Op& op, const std::vector<Buffer*>& named, std::vector<Buffer*>& all, std::vector<CUdeviceptr>* led) {
    struct Step {
        Buffer* buffer;
        CUdeviceptr address;   // in a slab; 0: all of it
    };
    std::vector<Step> open;
    const bool listed = op.small_count <= Op::kFewSmall;
    for (Buffer* b : named)
        if (!b->slab || !listed) open.push_back({b, 0});
        else all.push_back(b);
    for (std::uint32_t i = 0; listed && i < op.small_count; ++i)
        if (Buffer* b = find(op.small[i])) open.push_back({b, op.small[i]});
    std::vector<std::pair<CUdeviceptr, bool>> done;   // an allocation, or all of a slab, which begins where its first one does
    std::vector<Buffer::Drag> leads;
    while (!open.empty()) {
        const auto [b, address] = open.back();
        open.pop_back();
        if (std::find(all.begin(), all.end(), b) == all.end()) all.push_back(b);
        if (!b->table.load(std::memory_order_acquire)) continue;
        if (b->opaque && !op.captured) op.everything = true;
        CUdeviceptr base = 0;
        leads.clear();
        if (!b->device->leads_to(b, address, base, leads)) continue;
        const std::pair looked_at(base, b->slab && !address);
        if (std::find(done.begin(), done.end(), looked_at) != done.end()) continue;
        done.push_back(looked_at);
        for (const Buffer::Drag& d : leads) {
            open.push_back({d.target, d.address});
            if (led) led->push_back(d.address);
        }
    }
}

void Pager::led_to(Op& op, std::vector<CUdeviceptr>& addresses) {
    std::vector<Buffer*> named(op.buffers, op.buffers + op.count), all;
    named.insert(named.end(), op.more.begin(), op.more.end());
    if (std::none_of(named.begin(), named.end(), [](Buffer* b) { return b->table.load(std::memory_order_acquire); })) return;
    const bool everything = op.everything;
    follow(op, named, all, &addresses);
    op.everything = everything;   // enter() will say
}

CUresult Pager::enter_slow(Op& op) {
    while (true) {
        Buffer* dropped = nullptr;
        CUresult result = try_enter(op, dropped);
        if (!dropped) return result;
        my_lease().close();
        result = restore(dropped, op.stream, op.captured);
        if (result != CUDA_SUCCESS) return result;
    }
}

// `dropped`: what has to be computed again first; then nothing is held.
CUresult Pager::try_enter(Op& op, Buffer*& dropped) {
    if (failed()) return CUDA_ERROR_UNKNOWN;
    // What a pointer table leads to belongs to the op.
    std::vector<Buffer*> named(op.buffers, op.buffers + op.count);
    named.insert(named.end(), op.more.begin(), op.more.end());
    std::vector<Buffer*> all;
    std::uint64_t learned = 0;
    auto resolve = [&] {
        learned = learned_.load(std::memory_order_seq_cst);
        all.clear();
        follow(op, named, all);
    };
    // Whether more may lead somewhere than was known when `all` was made. With the lease open: what is learned from then on
    // waits for it.
    auto out_of_date = [&] { return learned_.load(std::memory_order_seq_cst) != learned; };
    auto name_all = [&] {
        op.count = 0;
        op.more.clear();
        for (Buffer* b : all) {
            if (op.count < Lease::kMany) op.buffers[op.count++] = b;
            else op.more.push_back(b);
        }
        publish(op, my_lease());
    };
    auto let_go = [&](std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) op.requests[i].first->release(op.requests[i].second, false);
        op.requests.clear();
    };
    for (resolve();;) {
        if (!op.everything) {
            name_all();
            if (out_of_date() && holds("learned")) {
                my_lease().close();
                resolve();
                continue;
            }
            if (!ahead_of_plan(op) && std::all_of(all.begin(), all.end(), [&](Buffer* b) {
                    return b->residency.load(std::memory_order_seq_cst) == Residency::device && (op.recomputes || !b->dropped.load(std::memory_order_seq_cst));
                }))
                return CUDA_SUCCESS;
            my_lease().close();
        }
        const bool first = !std::exchange(op.slow, true);
        std::vector<DevicePager*> order = op.everything ? devices() : std::vector<DevicePager*>{};
        std::erase_if(order, [](DevicePager* d) { return !d->has_movable(); });
        for (Buffer* b : all)
            if (std::find(order.begin(), order.end(), b->device) == order.end()) order.push_back(b->device);
        std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->device() < b->device(); });
        streams_.mark_tails(first && !op.captured ? op.slot : nullptr);   // nothing comes behind the mark then
        for (DevicePager* d : order) {
            Request request;
            request.everything = op.everything;
            request.recomputes = op.recomputes;
            request.host_allowed = op.captured && !op.looked_at;   // what a node may copy depends on where its memory is: as a rule on the device
            request.by_cpu = op.by_cpu;
            request.paced_by = op.paced_by;
            request.paced_number = op.paced_number;
            request.takes = op.takes;
            for (Buffer* b : all)
                if (b->device == d) request.need.push_back(b);
            for (std::uint32_t i = 0; i < op.loose_count; ++i)
                if (op.loose[i]->device == d) request.loose.push_back(op.loose[i]);
            for (Buffer* b : op.overwrites)
                if (b->device == d) request.overwrites.push_back(b);
            op.requests.emplace_back(d, std::move(request));
        }
        for (std::size_t i = 0; i < op.requests.size(); ++i) {
            const CUresult result = op.requests[i].first->acquire(op.requests[i].second);
            if (result == CUDA_SUCCESS) continue;
            dropped = op.requests[i].second.dropped;
            let_go(i);
            return result;
        }
        name_all();  // held buffers do not move, so what was granted is still so
        if (op.everything || !out_of_date() || !holds("learned")) return CUDA_SUCCESS;
        const std::vector<Buffer*> granted = all;
        resolve();
        auto was_granted = [&](Buffer* b) { return std::find(granted.begin(), granted.end(), b) != granted.end(); };
        if (!op.everything && std::all_of(all.begin(), all.end(), was_granted)) return CUDA_SUCCESS;
        my_lease().close();
        let_go(op.requests.size());
    }
}

[[gnu::hot]] void Pager::leave(Op& op, CUresult result) {
    if (op.captured) {
        if (!op.kernel) {
            my_lease().close();
            for (auto& [d, r] : op.requests) d->release(r, true);
        }
        return;
    }
    std::uint64_t number = streams_.next();
    std::uint64_t bits = op.slot->bit();
    for (const StreamSlot* s : op.also) bits |= s->bit();
    // Where the driver knows no context it has refused the op, and nothing could ever tell that it has completed.
    const auto counts = [&](const StreamSlot& s) { return result == CUDA_SUCCESS || s.context; };
    const auto note = [number, bits](Buffer* b) {
        if (bits & ~b->streams.load(std::memory_order_relaxed)) [[unlikely]] b->streams.fetch_or(bits, std::memory_order_relaxed);
        if (b->last_use.load(std::memory_order_relaxed) < number) b->last_use.store(number, std::memory_order_release);
        b->touched.store(true, std::memory_order_relaxed);
    };
#pragma GCC unroll 2
    for (std::uint32_t i = 0, count = op.count; i < count; ++i) note(op.buffers[i]);
    for (Buffer* b : op.more) note(b);
    if (op.slow || op.everything) [[unlikely]] {
        const auto changed = [](Buffer* b) {
            if (b->residency.load(std::memory_order_relaxed) == Residency::host) b->host_changed.store(true, std::memory_order_relaxed);
        };
        std::for_each(op.buffers, op.buffers + op.count, changed);
        std::ranges::for_each(op.more, changed);
    }
    const auto raise_streams = [&] {
        if (counts(*op.slot)) raise(op.slot->last_op, number);
        for (StreamSlot* s : op.also)
            if (counts(*s)) raise(s->last_op, number);
    };
    raise_streams();
    // The plain stores may have overwritten a later op's number. Whoever stored that had drawn it by then: the op takes a number after it.
    if ((!counts(*op.slot) || !streams_.is_newest(number)) && holds("number")) [[unlikely]] {
        number = streams_.next();
        for (std::uint32_t i = 0; i < op.count; ++i) raise(op.buffers[i]->last_use, number);
        for (Buffer* b : op.more) raise(b->last_use, number);
        raise_streams();
    }
    if (op.everything) [[unlikely]]
        for (DevicePager* d : devices()) d->note_everything(number, bits);
    if (counts(*op.slot)) streams_.submitted(*op.slot);
    for (StreamSlot* s : op.also)
        if (counts(*s)) streams_.submitted(*s);
    my_lease().close();
    if (op.slow) [[unlikely]]
        for (auto& [d, r] : op.requests) d->release(r, result == CUDA_SUCCESS);
}

bool Pager::fits_together(const Op& op) {
    if (op.everything) return true;
    std::vector<Buffer*> all(op.buffers, op.buffers + op.count);
    all.insert(all.end(), op.more.begin(), op.more.end());
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return std::ranges::all_of(devices(), [&](DevicePager* d) { return d->fits_on_device(all); });
}

void Pager::fail(const std::string& line) {
    if (failed_.exchange(true)) return;
    Restorer* const restorer = restorer_.load();
    const std::string stopped = restorer ? restorer->why_stopped() : std::string();
    sink_.line(Sink::Level::error, stopped.empty() ? line : stopped);
}

void Pager::context_destroying(CUcontext context, bool memory_too) {
    if (!holds("context")) return;
    for (DevicePager* d : devices()) d->context_destroying(context, memory_too);
    answer_memory_.context_destroying(context);
}

}  // namespace udnnmem::pager
