// A stream that holds so much and no more (SOFTGPU_QUEUE, read once a process).
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "tests/softgpu/driver_test.hpp"

using namespace softgpu_test;

static const int limited = setenv("SOFTGPU_QUEUE", "3", 1);

TEST_CASE("who makes more calls than a stream holds waits for the first of them") {
    REQUIRE(limited == 0);
    Context context;
    CUstream s, other;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CUdeviceptr a, word;
    OK(cuMemAlloc_v2(&a, 4096));
    void* host;
    OK(cuMemHostAlloc(&host, 64, 0));
    *static_cast<volatile std::uint32_t*>(host) = 0;
    OK(cuMemHostGetDevicePointer_v2(&word, host, 0));
    OK(cuStreamWaitValue32_v2(s, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
    std::atomic<bool> opened{false};
    std::thread opens([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        opened = true;
        *static_cast<volatile std::uint32_t*>(host) = 1;
    });
    for (int i = 0; i < 2; ++i) OK(cuMemsetD8Async(a, 1, 4096, s));
    for (int i = 0; i < 10; ++i) OK(cuMemsetD8Async(a + 64, 2, 64, other));   // another stream's place is its own
    CHECK(!opened);
    OK(cuMemsetD8Async(a, 3, 4096, s));
    CHECK(opened);
    opens.join();
    OK(cuCtxSynchronize());
    unsigned char found = 0;
    OK(cuMemcpyDtoH_v2(&found, a, 1));
    CHECK(found == 3);
}
