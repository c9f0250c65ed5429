// Leases: what is open is seen, and the handshake between a launcher and a mover never lets both through.
#include <thread>

#include "shim/pager/buffer.hpp"
#include "shim/pager/lease.hpp"
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
            if (buffer.residency.load(std::memory_order_seq_cst) == Residency::device) {
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
