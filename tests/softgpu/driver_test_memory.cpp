// Memory: virtual memory management with real faults, limits, poison, what addresses answer.
#include <sys/wait.h>
#include <unistd.h>

#include <csetjmp>
#include <csignal>

#include "tests/softgpu/driver_test.hpp"
#include "tests/softgpu/sanitised.hpp"

using namespace softgpu_test;

namespace {
#ifdef __SANITIZE_THREAD__
constexpr std::size_t reserved = 1ull << 32;   // of the addresses that TSan leaves free
#else
constexpr std::size_t reserved = 1ull << 40;
#endif

// True if reading the byte at `a` on the host is a SIGSEGV.
bool host_read_faults(CUdeviceptr a) {
    pid_t child = ::fork();
    if (child == 0) {
        ::signal(SIGSEGV, SIG_DFL);
        volatile char c = *reinterpret_cast<volatile char*>(a);
        (void)c;
        ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}
}  // namespace

TEST_CASE("the host cannot read device memory; a copy can") {
    Context c;
    CUdeviceptr a;
    OK(cuMemAlloc_v2(&a, 1000));
    CHECK(host_read_faults(a));
    OK(cuMemsetD8_v2(a, 7, 1000));
    unsigned char b[1000];
    OK(cuMemcpyDtoH_v2(b, a, 1000));
    CHECK(b[0] == 7);
    CHECK(b[999] == 7);
    OK(cuMemFree_v2(a));
}

TEST_CASE("memory that nobody wrote holds the poison word, fresh and recycled") {
    Context c;
    for (int round = 0; round < 2; ++round) {
        CUdeviceptr a;
        OK(cuMemAlloc_v2(&a, 1 << 20));
        for (std::uint32_t w : words(a, 1000)) REQUIRE(w == 0x7fffffffu);
        OK(cuMemsetD32_v2(a, 1, (1 << 20) / 4));
        OK(cuMemFree_v2(a));
    }
}

TEST_CASE("memory beyond SOFTGPU_MEMORY is out of memory, and comes back when freed") {
    Context c;
    size_t free_before, total, free_now;
    OK(cuMemGetInfo_v2(&free_before, &total));
    CHECK(total == 64u << 20);
    CUdeviceptr a, b;
    OK(cuMemAlloc_v2(&a, 40 << 20));
    CHECK(cuMemAlloc_v2(&b, 30 << 20) == CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemGetInfo_v2(&free_now, nullptr));
    CHECK(free_before - free_now == 40u << 20);
    softgpu_reset_peaks();
    OK(cuMemFree_v2(a));
    CHECK(stats().device_bytes_peak >= 40u << 20);
    OK(cuMemAlloc_v2(&b, 30 << 20));
    OK(cuMemFree_v2(b));
    CHECK(cuMemFree_v2(b) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("virtual memory: strict mapping rules") {
    Context c;
    auto device = on_device();
    size_t g;
    OK(cuMemGetAllocationGranularity(&g, &device, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    REQUIRE(g == granule);
    CUdeviceptr va;
    OK(cuMemAddressReserve(&va, reserved, 0, 0, 0));
    CUmemGenericAllocationHandle h, h2;
    CHECK(cuMemCreate(&h, granule + 1, &device, 0) == CUDA_ERROR_INVALID_VALUE);
    OK(cuMemCreate(&h, 2 * granule, &device, 0));
    OK(cuMemCreate(&h2, granule, &device, 0));
    CHECK(cuMemMap(va, granule, 0, h, 0) == CUDA_ERROR_INVALID_VALUE);             // not the whole handle
    CHECK(cuMemMap(va, granule, granule, h, 0) == CUDA_ERROR_INVALID_VALUE);       // an offset
    CHECK(cuMemMap(va + reserved, granule, 0, h2, 0) == CUDA_ERROR_INVALID_VALUE);  // not reserved
    OK(cuMemMap(va, 2 * granule, 0, h, 0));
    CHECK(cuMemMap(va + granule, granule, 0, h2, 0) == CUDA_ERROR_INVALID_VALUE);  // overlaps
    OK(cuMemMap(va + 2 * granule, granule, 0, h2, 0));
    auto access = read_write();
    CHECK(cuMemSetAccess(va, 4 * granule, &access, 1) == CUDA_ERROR_INVALID_VALUE);  // a hole at the end
    OK(cuMemSetAccess(va, 3 * granule, &access, 1));
    OK(cuMemsetD32_v2(va, 5, 3 * granule / 4));
    CHECK(words(va + 2 * granule, 1)[0] == 5);
    CHECK(cuMemUnmap(va, granule) == CUDA_ERROR_INVALID_VALUE);  // part of a mapping
    CHECK(cuMemAddressFree(va, reserved) == CUDA_ERROR_INVALID_VALUE);  // still mapped
    const auto before = stats().device_bytes;
    OK(cuMemRelease(h));
    CHECK(stats().device_bytes == before);  // mapped: not yet
    CHECK(words(va, 1)[0] == 5);
    CUmemGenericAllocationHandle again;
    OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(va + granule + 4)));
    OK(cuMemUnmap(va, 3 * granule));  // two mappings at once
    CHECK(stats().device_bytes == before);
    OK(cuMemRelease(again));
    CHECK(stats().device_bytes == before - 2 * granule);
    OK(cuMemRelease(h2));
    CHECK(cuMemRelease(h2) == CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressFree(va, reserved));
}

TEST_CASE("one handle at two addresses is the same memory; access is of each mapping") {
    Context c;
    auto device = on_device();
    CUdeviceptr va;
    OK(cuMemAddressReserve(&va, 4 * granule, 0, 0, 0));
    CUmemGenericAllocationHandle h;
    OK(cuMemCreate(&h, granule, &device, 0));
    OK(cuMemMap(va, granule, 0, h, 0));
    OK(cuMemMap(va + 2 * granule, granule, 0, h, 0));
    auto access = read_write();
    OK(cuMemSetAccess(va, granule, &access, 1));
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    OK(cuMemSetAccess(va + 2 * granule, granule, &access, 1));
    OK(cuMemsetD32_v2(va, 77, 4));
    CHECK(words(va + 2 * granule, 4)[3] == 77);
    OK(cuMemsetD32_v2(va + 2 * granule, 78, 4));  // read-only: the op faults
    CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuMemUnmap(va, granule));
    OK(cuMemUnmap(va + 2 * granule, granule));
    OK(cuMemRelease(h));
    OK(cuMemAddressFree(va, 4 * granule));
}

TEST_CASE("an op on what is unmapped under it faults, and the error sticks to the context", NOT_UNDER_TSAN) {
    CUdeviceptr va;
    CUmemGenericAllocationHandle h;
    const auto faults = stats().faults;
    {
        Context c;
        auto device = on_device();
        OK(cuMemAddressReserve(&va, granule, 0, 0, 0));
        OK(cuMemCreate(&h, granule, &device, 0));
        OK(cuMemMap(va, granule, 0, h, 0));
        CUstream s;
        OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        OK(cuMemsetD8Async(va, 1, granule, s));  // mapped, but nobody was given access
        CHECK(cuStreamSynchronize(s) == CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
        CUdeviceptr a;
        CHECK(cuMemAlloc_v2(&a, 1) == CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    CHECK(stats().faults == faults + 1);
    Context fresh;
    auto access = read_write();
    OK(cuMemSetAccess(va, granule, &access, 1));
    OK(cuMemsetD8_v2(va, 1, granule));
    OK(cuCtxSynchronize());
    OK(cuMemUnmap(va, granule));
    CHECK(cuMemsetD8_v2(va, 1, granule) == CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRelease(h));
    OK(cuMemAddressFree(va, granule));
}

TEST_CASE("unmapping does not wait for streams: the op that comes later faults", NOT_UNDER_TSAN) {
    Context c;
    auto device = on_device();
    CUdeviceptr va;
    CUmemGenericAllocationHandle h;
    OK(cuMemAddressReserve(&va, granule, 0, 0, 0));
    OK(cuMemCreate(&h, granule, &device, 0));
    OK(cuMemMap(va, granule, 0, h, 0));
    auto access = read_write();
    OK(cuMemSetAccess(va, granule, &access, 1));
    CUdeviceptr gate;
    OK(cuMemAlloc_v2(&gate, 4));
    OK(cuMemsetD32_v2(gate, 0, 1));
    OK(cuCtxSynchronize());
    CUstream s;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitValue32_v2(s, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemsetD8Async(va, 1, granule, s));
    CHECK(cuStreamQuery(s) == CUDA_ERROR_NOT_READY);
    OK(cuMemUnmap(va, granule));
    CUstream opener;
    OK(cuStreamCreate(&opener, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWriteValue32_v2(opener, gate, 1, 0));
    CHECK(cuStreamSynchronize(s) == CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuMemRelease(h));
    OK(cuMemAddressFree(va, granule));
}

TEST_CASE("host-NUMA memory is read by the CPU at the address itself, and by copies") {
    Context c;
    auto host = on_host();
    CUdeviceptr va;
    CUmemGenericAllocationHandle h;
    OK(cuMemAddressReserve(&va, granule, 0, 0, 0));
    const auto device_before = stats().device_bytes;
    OK(cuMemCreate(&h, granule, &host, 0));
    CHECK(stats().device_bytes == device_before);
    OK(cuMemMap(va, granule, 0, h, 0));
    CUmemAccessDesc access[2] = {read_write(), read_write()};
    access[1].location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    access[1].location.id = 0;
    OK(cuMemSetAccess(va, granule, &access[0], 1));
    CHECK(host_read_faults(va));
    OK(cuMemSetAccess(va, granule, &access[1], 1));
    OK(cuMemsetD32_v2(va, 9, granule / 4));
    OK(cuCtxSynchronize());
    CHECK(*reinterpret_cast<volatile std::uint32_t*>(va) == 9);
    *reinterpret_cast<volatile std::uint32_t*>(va) = 10;
    CHECK(words(va, 2)[0] == 10);
    OK(cuMemUnmap(va, granule));
    CHECK(host_read_faults(va));
    OK(cuMemRelease(h));
    OK(cuMemAddressFree(va, granule));
    auto wrong = on_host();
    wrong.location.id = 1;
    CHECK(cuMemCreate(&h, granule, &wrong, 0) == CUDA_ERROR_INVALID_VALUE);
    wrong.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    CHECK(cuMemCreate(&h, granule, &wrong, 0) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a handle goes to another process as a file descriptor") {
    Context c;
    auto device = on_device();
    device.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle h, imported;
    OK(cuMemCreate(&h, granule, &device, 0));
    int fd = -1;
    OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CUdeviceptr va;
    OK(cuMemAddressReserve(&va, 2 * granule, 0, 0, 0));
    OK(cuMemMap(va, granule, 0, h, 0));
    OK(cuMemMap(va + granule, granule, 0, imported, 0));
    auto access = read_write();
    OK(cuMemSetAccess(va, 2 * granule, &access, 1));
    OK(cuMemsetD32_v2(va, 123, 8));
    CHECK(words(va + granule, 8)[7] == 123);
    OK(cuMemUnmap(va, 2 * granule));
    OK(cuMemRelease(h));
    OK(cuMemRelease(imported));
    OK(cuMemAddressFree(va, 2 * granule));
    ::close(fd);
}

TEST_CASE("pinned, managed and registered memory: host and device see one memory") {
    Context c;
    void* pinned;
    OK(cuMemHostAlloc(&pinned, 5000, 0));
    std::memset(pinned, 3, 5000);
    CUdeviceptr d;
    OK(cuMemHostGetDevicePointer_v2(&d, pinned, 0));
    OK(cuMemsetD8_v2(d + 10, 4, 10));
    OK(cuCtxSynchronize());
    CHECK(static_cast<char*>(pinned)[9] == 3);
    CHECK(static_cast<char*>(pinned)[10] == 4);
    unsigned flags;
    OK(cuMemHostGetFlags(&flags, pinned));
    OK(cuMemFreeHost(pinned));

    CUdeviceptr managed;
    OK(cuMemAllocManaged(&managed, 5000, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemsetD8_v2(managed, 6, 5000));
    OK(cuCtxSynchronize());
    CHECK(reinterpret_cast<char*>(managed)[4999] == 6);
    OK(cuMemFree_v2(managed));

    std::vector<char> own(100000, 1);
    OK(cuMemHostRegister_v2(own.data(), own.size(), CU_MEMHOSTREGISTER_DEVICEMAP));
    CHECK(cuMemHostRegister_v2(own.data() + 8192, 100, 0) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CHECK(own[50000] == 1);
    OK(cuMemHostGetDevicePointer_v2(&d, own.data() + 50000, 0));
    OK(cuMemsetD8_v2(d, 2, 10));
    OK(cuCtxSynchronize());
    CHECK(own[49999] == 1);
    CHECK(own[50009] == 2);
    OK(cuMemHostUnregister(own.data()));
    CHECK(cuMemHostUnregister(own.data()) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    own[50001] = 5;
    CHECK(own[50001] == 5);
}

TEST_CASE("addresses answer what they are") {
    Context c;
    CUdeviceptr a, base;
    size_t size;
    OK(cuMemAlloc_v2(&a, 3000));
    OK(cuMemGetAddressRange_v2(&base, &size, a + 2999));
    CHECK(base == a);
    CHECK(size == 3000);
    CHECK(cuMemGetAddressRange_v2(&base, &size, a + 3000) == CUDA_ERROR_NOT_FOUND);
    unsigned type = 0;
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a + 1));
    CHECK(type == CU_MEMORYTYPE_DEVICE);
    int dummy;
    CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&dummy)) == CUDA_ERROR_INVALID_VALUE);
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT};
    int ordinal = 5;
    CUcontext owner = nullptr;
    void* into[] = {&type, &ordinal, &owner};
    OK(cuPointerGetAttributes(3, which, into, a));
    CHECK(ordinal == 0);
    CHECK(owner == c.context);
    OK(cuPointerGetAttributes(3, which, into, reinterpret_cast<CUdeviceptr>(&dummy)));
    CHECK(type == 0);
    CHECK(ordinal == -2);
    OK(cuMemFree_v2(a));
}

TEST_CASE("a device reaches another's memory only with peer access; copies always do", NOT_UNDER_TSAN) {
    CUdeviceptr a;
    Context other(1);
    OK(cuMemAlloc_v2(&a, 4096));
    OK(cuMemsetD32_v2(a, 4, 1024));
    OK(cuCtxSynchronize());
    {
        Context c(0);
        CUdeviceptr b;
        OK(cuMemAlloc_v2(&b, 4096));
        OK(cuMemcpyPeer(b, c.context, a, other.context, 4096));
        CHECK(words(b, 1)[0] == 4);
        OK(cuCtxEnablePeerAccess(other.context, 0));
        CHECK(cuCtxEnablePeerAccess(other.context, 0) == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        OK(cuMemsetD32_v2(a, 8, 1));
        OK(cuCtxSynchronize());
        OK(cuCtxDisablePeerAccess(other.context));
        OK(cuMemsetD32_v2(a, 9, 1));
        CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    OK(cuCtxSetCurrent(other.context));
    CHECK(words(a, 1)[0] == 8);
}
