#include "shim/host/quick_mutex.hpp"

#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/catch.hpp"

using udnnmem::host::QuickMutex;

TEST_CASE("one thread at a time holds a quick mutex, and all get it") {
    QuickMutex mutex;
    long count = 0;   // torn if two are there at once
    constexpr int kThreads = 4, kTimes = 20000;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < kTimes; ++i) {
                std::lock_guard lock(mutex);
                const long seen = count;
                if (i % 64 == 0) std::this_thread::yield();
                count = seen + 1;
            }
        });
    for (std::thread& t : threads) t.join();
    CHECK(count == long{kThreads} * kTimes);
}

TEST_CASE("who finds a quick mutex taken waits until it is given back") {
    QuickMutex mutex;
    mutex.lock();
    CHECK_FALSE(mutex.try_lock());
    std::atomic<int> in{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
        threads.emplace_back([&] {
            std::lock_guard lock(mutex);
            ++in;
        });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(in == 0);
    mutex.unlock();
    for (std::thread& t : threads) t.join();
    CHECK(in == 3);
    CHECK(mutex.try_lock());
    mutex.unlock();
}
