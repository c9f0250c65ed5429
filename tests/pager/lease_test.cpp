// Leases, and what an op lists in one: what is open is seen, and the handshake between a launcher and a mover never lets both through.
#include <rapidcheck.h>

#include <algorithm>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "shim/pager/buffer.hpp"
#include "shim/pager/lease.hpp"
#include "shim/pager/pager.hpp"
#include "tests/catch.hpp"

using namespace udnnmem::pager;

TEST_CASE("an open lease names its buffers, all of them where it says everything") {
    static Buffer a, b;
    Lease& lease = my_lease();
    lease.buffers[0].store(&a);
    lease.count.store(1);
    CHECK_FALSE(leased(&a));
    lease.open(Lease::listed);
    CHECK(leased(&a));
    CHECK_FALSE(leased(&b));
    lease.close();
    CHECK_FALSE(leased(&a));
    lease.open(Lease::everything);
    CHECK(leased(&b));
    lease.close();
    CHECK_FALSE(any_lease_open());
}

TEST_CASE("one look at a buffer tells all that a launch has to know of it") {
    static Buffer b;
    const auto set = [](bool live, Residency at, bool table, bool dropped) { b.live = live, b.residency = at, b.table = table, b.dropped = dropped; };
    b.id = 0xfedcba98u;
    const std::uint32_t id = b.id;
    set(true, Residency::device, false, false);
    CHECK((!BufferState(&b).lacks() && BufferState(&b).ready_as(id)));
    b.slab = b.opaque = b.touched = b.escaped = b.host_changed = true;   // is not among it
    CHECK((!BufferState(&b).lacks() && BufferState(&b).ready_as(id)));
    for (const std::uint32_t other : {id + 1, id ^ 0x80000000u, 0u}) CHECK_FALSE(BufferState(&b).ready_as(other));
    for (const Residency at : {Residency::unbacked, Residency::host, Residency::evicting, Residency::fetching}) {
        set(true, at, false, false);
        CHECK((BufferState(&b).lacks() && !BufferState(&b).ready_as(id)));
    }
    set(true, Residency::device, true, false);
    CHECK((BufferState(&b).lacks() && !BufferState(&b).ready_as(id)));
    set(true, Residency::device, false, true);
    CHECK((BufferState(&b).lacks() && !BufferState(&b).ready_as(id)));
    set(false, Residency::device, false, false);   // freed, and still mapped
    CHECK((!BufferState(&b).lacks() && !BufferState(&b).ready_as(id)));
}

TEST_CASE("a launcher and a mover never both go ahead") {
    static Buffer buffer;
    static std::atomic<bool> submitting{false}, stop{false};
    std::atomic<long> overlaps{0}, launches{0}, moves{0};
    buffer.residency = Residency::device;
    std::thread launcher([&] {
        Lease& lease = my_lease();
        while (!stop) {
            lease.buffers[0].store(&buffer, std::memory_order_relaxed);
            lease.count.store(1, std::memory_order_release);
            lease.open(Lease::listed);
            if (!BufferState(&buffer).lacks()) {
                submitting.store(true);
                for (int i = 0; i < 20; ++i) {
                    std::atomic_signal_fence(std::memory_order_seq_cst);
                }
                if (buffer.residency.load() == Residency::unbacked) ++overlaps;  // remapped under us
                submitting.store(false);
                ++launches;
            }
            lease.close();
        }
    });
    for (int i = 0; i < 20000; ++i) {
        buffer.residency.store(Residency::evicting, std::memory_order_seq_cst);
        while (leased(&buffer)) std::this_thread::yield();
        buffer.residency.store(Residency::unbacked);  // the hole
        if (submitting.load()) ++overlaps;
        buffer.residency.store(Residency::device, std::memory_order_seq_cst);
        ++moves;
        if (i % 16 == 0) std::this_thread::yield();
    }
    while (launches == 0) std::this_thread::yield();
    stop = true;
    launcher.join();
    CHECK(overlaps == 0);
    CHECK(moves == 20000);
}

TEST_CASE("an op lists each buffer once, up to as many as a lease holds, and keeps the rest") {
    std::vector<std::unique_ptr<Buffer>> all;
    for (int i = 0; i < 300; ++i) all.push_back(std::make_unique<Buffer>());
    CHECK(rc::check("named once", [&] {
        Op op;
        std::set<Buffer*> named;
        for (const int i : *rc::gen::container<std::vector<int>>(*rc::gen::inRange(0, 600), rc::gen::inRange(0, *rc::gen::element(3, 40, 300)))) {
            Buffer* const b = all[static_cast<std::size_t>(i)].get();
            op.name(b);
            named.insert(b);
        }
        const std::set<Buffer*> listed(op.buffers, op.buffers + op.count), more(op.more.begin(), op.more.end());
        RC_ASSERT(listed.size() == op.count);
        RC_ASSERT(op.count == std::min<std::size_t>(named.size(), Lease::kMany));
        std::set<Buffer*> both = listed;
        both.insert(more.begin(), more.end());
        RC_ASSERT(both == named);
        RC_ASSERT(both.size() == listed.size() + more.size());
    }));
}
