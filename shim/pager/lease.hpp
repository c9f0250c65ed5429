// Leases: what a launching thread publishes while it may be handing an op to the driver. The mover may not change the
// mapping of a buffer that an open lease names.
//
// Protocol (Dekker's, sequentially consistent on both sides): the launcher writes its list, opens the lease (seq_cst),
// then reads residencies; the mover writes a residency (seq_cst), then reads leases. One of them sees the other.
// A lease is closed only after the op was submitted and its uses were noted in the buffers.
#pragma once

#include <atomic>
#include <cstdint>

namespace udnnmem::pager {

struct Buffer;

struct alignas(128) Lease {
    static constexpr std::uint32_t kMany = 128;  // buffers listed; an op that names more names every buffer
    enum State : std::uint32_t { closed = 0, listed = 1, everything = 2 };
    std::atomic<std::uint32_t> state{closed};
    std::atomic<std::uint32_t> count{0};
    std::atomic<Buffer*> buffers[kMany];
    std::atomic<bool> in_use{false};  // owned by a living thread
    Lease* next = nullptr;            // all leases ever made, newest first

    void open(State s) { state.exchange(s, std::memory_order_seq_cst); }
    void close() { state.store(closed, std::memory_order_release); }

    bool names(const Buffer* buffer) const {
        const auto s = state.load(std::memory_order_seq_cst);
        if (s == closed) return false;
        if (s == everything) return true;
        const auto n = count.load(std::memory_order_acquire);
        for (std::uint32_t i = 0; i < n && i < kMany; ++i)
            if (buffers[i].load(std::memory_order_relaxed) == buffer) return true;
        return false;
    }
};

// This thread's lease; made at its first op, handed to another thread when it ends. Never freed.
Lease& my_lease();
// Whether an open lease of any thread names `buffer`.
bool leased(const Buffer* buffer);
// Whether any lease at all is open.
bool any_lease_open();

}  // namespace udnnmem::pager
