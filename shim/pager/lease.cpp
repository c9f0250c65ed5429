#include "shim/pager/lease.hpp"

#include <utility>

namespace udnnmem::pager {
namespace {

std::atomic<Lease*> g_all{nullptr};

Lease* adopt() {
    for (Lease* l = g_all.load(std::memory_order_acquire); l; l = l->next) {
        bool free = false;
        if (!l->in_use.load(std::memory_order_relaxed) && l->in_use.compare_exchange_strong(free, true)) return l;
    }
    auto* lease = new Lease;
    lease->in_use.store(true, std::memory_order_relaxed);
    lease->next = g_all.load(std::memory_order_relaxed);
    while (!g_all.compare_exchange_weak(lease->next, lease, std::memory_order_release)) {
    }
    return lease;
}

thread_local Lease* t_lease __attribute__((tls_model("initial-exec"))) = nullptr;
thread_local bool t_ended __attribute__((tls_model("initial-exec"))) = false;

// Gives the lease back when the thread ends. Driver calls from later destructors of the same thread adopt another, for good.
struct Owner {
    ~Owner() {
        t_ended = true;
        if (Lease* const lease = std::exchange(t_lease, nullptr)) lease->in_use.store(false, std::memory_order_release);
    }
};

}  // namespace

[[gnu::hot]] Lease& my_lease() {
    if (!t_lease) [[unlikely]] {
        if (!t_ended) static thread_local Owner owner;
        t_lease = adopt();
    }
    return *t_lease;
}

bool leased(const Buffer* buffer) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (Lease* l = g_all.load(std::memory_order_acquire); l; l = l->next)
        if (l->names(buffer)) return true;
    return false;
}

bool any_lease_open() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (Lease* l = g_all.load(std::memory_order_acquire); l; l = l->next)
        if (l->state.load(std::memory_order_seq_cst) != Lease::closed) return true;
    return false;
}

}  // namespace udnnmem::pager
