// The pager's own sources, all of them, in one piece.
#include "tests/model/pager_under_model.hpp"

#include "tests/model/image.hpp"

#include <sys/mman.h>

#include "shim/pager/allocation.cpp"
#include "shim/pager/answer_memory.cpp"
#define mmap(at, bytes, ...) model::large_memory(bytes, true)
#include "shim/pager/arena.cpp"
#undef mmap
#include "shim/pager/backing_vmm.cpp"
#include "shim/pager/contexts.cpp"
#include "shim/pager/figures.cpp"
#include "shim/pager/frames.cpp"
#include "shim/pager/hasher.cpp"
#include "shim/pager/lease.cpp"
#include "shim/pager/link_meter.cpp"
#include "shim/pager/link_probe.cpp"
#include "shim/pager/mover.cpp"
#include "shim/pager/copies.cpp"
#include "shim/pager/copy_queue.cpp"
#include "shim/pager/moves.cpp"
#include "shim/pager/orders.cpp"
#include "shim/pager/pager.cpp"
#include "shim/pager/pinned.cpp"
#include "shim/pager/requests.cpp"
#include "shim/pager/room.cpp"
#include "shim/pager/yield.cpp"
#include "shim/pager/slab.cpp"
#include "shim/pager/streams.cpp"
#include "shim/pager/tables.cpp"
#include "shim/pager/validity.cpp"

namespace udnnmem::pager {
const std::atomic<Lease*>& first_lease() { return g_all; }
void fresh_leases(int n) {
    static std::vector<Lease*> all;
    while (static_cast<int>(all.size()) < n) all.push_back(adopt());
    for (Lease* l : all) l->in_use.store(false), l->state.store(Lease::closed), l->count.store(0);
}
}  // namespace udnnmem::pager
