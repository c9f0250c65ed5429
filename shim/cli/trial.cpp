#include "shim/cli/trial.hpp"

#include <cuda.h>
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

#include <fmt/core.h>

#include "shim/cli/format.hpp"

namespace udnnmem::cli {
namespace {

constexpr int oldest_driver = 12040;
constexpr Bytes least_sensible_budget(std::int64_t{1} << 20);
constexpr double slow_link = 2e9;   // bytes per second: PCIe 3.0 x16 carries 12e9 and more

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// A trial's end: what was found is the exception's text.
struct Stop : std::runtime_error {
    using std::runtime_error::runtime_error;
};

void* library() {
    static void* const handle = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return handle;
}

template <class Function>
Function* symbol(const char* name) {
    void* const found = library() ? ::dlsym(library(), name) : nullptr;
    if (!found) throw Stop(fmt::format("the driver has no {}", name));
    return reinterpret_cast<Function*>(found);
}

// The header's name of a versioned entry point is a macro (cuMemAlloc is cuMemAlloc_v2): stringised after expansion.
#define TEXT_OF(name) #name
#define EXPANDED(name) TEXT_OF(name)
#define DRIVER(name) symbol<decltype(::name)>(EXPANDED(name))

// Makes a call, or ends the trial with its name and CUDA's error.
template <class Function, class... Args>
void call_named(const char* name, Function* function, Args... args) {
    const CUresult result = function(args...);
    if (result == CUDA_SUCCESS) return;
    const char* text = nullptr;
    if (DRIVER(cuGetErrorName)(result, &text) != CUDA_SUCCESS || !text) text = "an unknown error";
    throw Stop(fmt::format("{} answers {} ({})", name, text, static_cast<int>(result)));
}
#define CALL(name, ...) call_named(#name, DRIVER(name) __VA_OPT__(,) __VA_ARGS__)

Finding no_driver() {
    return {Verdict::fail, "libcuda.so.1 not found: needs NVIDIA's driver for CUDA 12.4 or later: install it, or name the folder of the software GPU in LD_LIBRARY_PATH"};
}

int attribute(CUdevice_attribute which, int ordinal) {
    int value = 0;
    CALL(cuDeviceGetAttribute, &value, which, ordinal);
    return value;
}

// A device with its primary context current.
class Device {
  public:
    explicit Device(int ordinal) {
        CALL(cuInit, 0u);
        CUdevice device = 0;
        CALL(cuDeviceGet, &device, ordinal);
        CUcontext context = nullptr;
        CALL(cuDevicePrimaryCtxRetain, &context, device);
        CALL(cuCtxSetCurrent, context);
    }
};

CUmemAllocationProp on_device(int ordinal) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {ordinal}};
    return prop;
}

void give_access(CUdeviceptr at, std::size_t bytes, CUmemLocationType type, int id) {
    CUmemAccessDesc access{};
    access.location.type = type;
    access.location.id = id;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CALL(cuMemSetAccess, at, bytes, &access, std::size_t{1});
}

void expect_word(std::uint32_t found, std::uint32_t wanted, const char* where) {
    if (found != wanted) throw Stop(fmt::format("{} holds {:#x} where {:#x} was written", where, found, wanted));
}

Finding virtual_memory(int ordinal) {
    const Device device(ordinal);
    if (!attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, ordinal)) throw Stop("the device says that it has none");
    const CUmemAllocationProp prop = on_device(ordinal);
    std::size_t granule = 0;
    CALL(cuMemGetAllocationGranularity, &granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    CUdeviceptr range = 0;
    CALL(cuMemAddressReserve, &range, 2 * granule, std::size_t{0}, CUdeviceptr{0}, 0ull);
    CUmemGenericAllocationHandle frame = 0;
    CALL(cuMemCreate, &frame, granule, &prop, 0ull);
    CALL(cuMemMap, range, granule, std::size_t{0}, frame, 0ull);
    give_access(range, granule, CU_MEM_LOCATION_TYPE_DEVICE, ordinal);
    CALL(cuMemsetD32, range, 0x5eedu, granule / 4);
    CALL(cuCtxSynchronize);
    // The frame keeps its contents at another address: what paging rests on.
    CALL(cuMemUnmap, range, granule);
    CALL(cuMemMap, range + granule, granule, std::size_t{0}, frame, 0ull);
    give_access(range + granule, granule, CU_MEM_LOCATION_TYPE_DEVICE, ordinal);
    std::uint32_t word = 0;
    CALL(cuMemcpyDtoH, static_cast<void*>(&word), range + granule + granule - 4, sizeof word);
    expect_word(word, 0x5eed, "remapped device memory");
    CALL(cuMemUnmap, range + granule, granule);
    CALL(cuMemRelease, frame);
    CALL(cuMemAddressFree, range, 2 * granule);
    return {Verdict::ok, fmt::format("virtual memory: mapped, written, remapped, read back; granule {}", human(Bytes(static_cast<std::int64_t>(granule))))};
}

// Which NUMA nodes to try: the device's own, then the first.
Finding host_frames(int ordinal) {
    const Device device(ordinal);
    int node = attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, ordinal);
    if (node < 0) node = 0;
    CUmemAllocationProp prop = on_device(ordinal);
    prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    prop.location.id = node;
    std::size_t granule = 0;
    CALL(cuMemGetAllocationGranularity, &granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    CUmemGenericAllocationHandle frame = 0;
    CALL(cuMemCreate, &frame, granule, &prop, 0ull);
    CUdeviceptr range = 0;
    CALL(cuMemAddressReserve, &range, granule, std::size_t{0}, CUdeviceptr{0}, 0ull);
    CALL(cuMemMap, range, granule, std::size_t{0}, frame, 0ull);
    give_access(range, granule, CU_MEM_LOCATION_TYPE_DEVICE, ordinal);
    give_access(range, granule, CU_MEM_LOCATION_TYPE_HOST_NUMA, node);
    CALL(cuMemsetD32, range, 0xbeefu, granule / 4);
    CALL(cuCtxSynchronize);
    std::uint32_t word = 0;
    CALL(cuMemcpyDtoH, static_cast<void*>(&word), range, sizeof word);
    expect_word(word, 0xbeef, "a host frame");
    CALL(cuMemUnmap, range, granule);
    CALL(cuMemRelease, frame);
    CALL(cuMemAddressFree, range, granule);
    return {Verdict::ok, fmt::format("host frames: memory of NUMA node {} mapped into the device, written by it, read back", node)};
}

// What is left where host frames cannot be mapped: pinned memory to copy to.
Finding pinned_memory(int ordinal, const std::string& why) {
    const Device device(ordinal);
    void* memory = nullptr;
    CALL(cuMemHostAlloc, &memory, std::size_t{2} << 20, 0u);
    CALL(cuMemFreeHost, memory);
    return {Verdict::warn, "host frames: not mappable (" + why + "): evicted buffers go to pinned memory, unpredicted launches wait for their data; a newer driver may do better"};
}

// Bytes per second of one copy each way, the better of several; pinned memory, timed by events.
Finding link(int ordinal) {
    const Device device(ordinal);
    constexpr std::size_t bytes = std::size_t{16} << 20;
    constexpr int times = 3;
    void* host = nullptr;
    CUdeviceptr there = 0;
    CUevent begin = nullptr, end = nullptr;
    CUstream stream = nullptr;
    CALL(cuMemHostAlloc, &host, bytes, 0u);
    CALL(cuMemAlloc, &there, bytes);
    CALL(cuStreamCreate, &stream, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
    CALL(cuEventCreate, &begin, 0u);
    CALL(cuEventCreate, &end, 0u);
    double rate[2] = {0, 0};
    for (int i = 0; i < 2 * times; ++i) {
        const bool in = i % 2 == 0;
        CALL(cuEventRecord, begin, stream);
        if (in) CALL(cuMemcpyHtoDAsync, there, static_cast<const void*>(host), bytes, stream);
        else CALL(cuMemcpyDtoHAsync, host, there, bytes, stream);
        CALL(cuEventRecord, end, stream);
        CALL(cuEventSynchronize, end);
        float ms = 0;
        call_named("cuEventElapsedTime", symbol<CUresult(float*, CUevent, CUevent)>("cuEventElapsedTime"), &ms, begin, end);   // by its first name: drivers before 12.8 have no other
        if (ms > 0) rate[!in] = std::max(rate[!in], static_cast<double>(bytes) / ms * 1e3);
    }
    const auto text = [](double r) { return r > 0 ? fmt::format("{:.1f} GB/s", r / 1e9) : std::string("too fast to tell"); };
    const bool slow = rate[0] > 0 && rate[0] < slow_link;
    return {slow ? Verdict::warn : Verdict::ok,
            fmt::format("link: {} to the device, {} back{}", text(rate[0]), text(rate[1]), slow ? ": an eighth of a card's slot or less: look at `nvidia-smi -q` (PCIe generation and width), and at what else uses it" : "")};
}

std::string name_and_memory(int ordinal) {
    char name[256] = "";
    CALL(cuDeviceGetName, name, static_cast<int>(sizeof name), ordinal);
    std::size_t bytes = 0;
    CALL(cuDeviceTotalMem, &bytes, ordinal);
    return fmt::format("{} with {}", name, human(Bytes(static_cast<std::int64_t>(bytes))));
}

// What the library does not take as it is given: it takes all of the device, or one granule, and warns.
Finding budget(int ordinal, const Size& wanted) {
    CALL(cuInit, 0u);
    std::size_t bytes = 0, granule = 0;
    CALL(cuDeviceTotalMem, &bytes, ordinal);
    const CUmemAllocationProp prop = on_device(ordinal);
    CALL(cuMemGetAllocationGranularity, &granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    const Bytes all(static_cast<std::int64_t>(bytes)), least(static_cast<std::int64_t>(granule)), taken = wanted.resolve(all, all);
    if (taken > all) return {Verdict::warn, fmt::format("budget: {} is more than the device has, {}, which is taken instead: lower UDNNMEM_BUDGET", human(taken), human(all))};
    if (taken < least) return {Verdict::warn, fmt::format("budget: {} is less than one granule, {}, which is taken instead: raise UDNNMEM_BUDGET (12GiB, 60%)", human(taken), human(least))};
    if (taken < least_sensible_budget) return {Verdict::warn, fmt::format("budget: {} holds hardly any buffer: raise UDNNMEM_BUDGET (12GiB, 60%)", human(taken))};
    return {Verdict::ok, fmt::format("budget: {} of {}", human(taken), human(all))};
}

Finding guarded(const char* what, const std::function<Finding()>& body, const char* fix) {
    if (!library()) return no_driver();
    try {
        return body();
    } catch (const Stop& stop) {
        return {Verdict::fail, fmt::format("{}: {}: {}", what, stop.what(), fix)};
    }
}

}  // namespace

Finding try_driver() {
    if (!library()) {
        const char* const reason = ::dlerror();
        // "cannot open shared object file: No such file" is the usual one; anything else is worth its words.
        if (reason && !std::strstr(reason, "No such file")) return {Verdict::fail, fmt::format("libcuda.so.1 does not load: {}", reason)};
        return no_driver();
    }
    return guarded("driver", [] {
        int version = 0;
        CALL(cuDriverGetVersion, &version);
        Dl_info where{};
        ::dladdr(::dlsym(library(), "cuDriverGetVersion"), &where);
        const std::string at = where.dli_fname ? where.dli_fname : "libcuda.so.1";
        if (version < oldest_driver)
            return Finding{Verdict::fail, fmt::format("driver: needs CUDA 12.4 or later, {} is {}: update the driver", at, version_text(version))};
        return Finding{Verdict::ok, fmt::format("driver: CUDA {} (needs 12.4) at {}", version_text(version), at)};
    }, "is this NVIDIA's driver, or the software GPU?");
}

int count_devices() {
    const Finding found = in_child([] {
        return guarded("", [] {
            int count = 0;
            CALL(cuInit, 0u);
            CALL(cuDeviceGetCount, &count);
            return Finding{Verdict::ok, std::to_string(count)};
        }, "");
    });
    return found.verdict == Verdict::ok ? std::atoi(found.text.c_str()) : 0;
}

Finding try_device() {
    return guarded("device", [] {
        CALL(cuInit, 0u);
        int count = 0;
        CALL(cuDeviceGetCount, &count);
        if (count < 1) throw Stop("none is visible");
        std::string list;
        for (int i = 0; i < count; ++i) list += fmt::format("{}{}{}", i ? ", " : "", count > 1 ? fmt::format("{} is ", i) : "", name_and_memory(i));
        return Finding{Verdict::ok, fmt::format("device: {} visible: {}", count, list)};
    }, "look at nvidia-smi, CUDA_VISIBLE_DEVICES and, in a container, whether it was started with GPUs");
}

Finding try_virtual_memory(int ordinal) {
    return guarded("virtual memory", [&] { return virtual_memory(ordinal); }, "paging needs it, so programs would run untouched: update the driver; under WSL or MIG see the README's limits");
}

Finding try_host_frames(int ordinal) {
    if (!library()) return no_driver();
    try {
        return host_frames(ordinal);
    } catch (const Stop& stop) {
        return guarded("host frames", [&] { return pinned_memory(ordinal, stop.what()); }, "buffers cannot be evicted without pinned memory: raise the limit on locked memory (ulimit -l)");
    }
}

Finding try_link(int ordinal) {
    return guarded("link", [&] { return link(ordinal); }, "buffers move by such copies: look at what nvidia-smi says of the device");
}

Finding try_budget(int ordinal, const Size& wanted) {
    return guarded("budget", [&] { return budget(ordinal, wanted); }, "look at what nvidia-smi says of the device");
}

Finding in_child(const std::function<Finding()>& body, int seconds) {
    int ends[2];
    if (::pipe(ends) != 0) return {Verdict::fail, fmt::format("no pipe: {}", std::strerror(errno))};
    const pid_t child = ::fork();
    if (child < 0) return {Verdict::fail, fmt::format("no child process: {}", std::strerror(errno))};
    if (child == 0) {
        ::close(ends[0]);
        const Finding found = body();
        std::string message(1, static_cast<char>('0' + static_cast<int>(found.verdict)));
        message += found.text;
        for (std::size_t done = 0; done < message.size();) {
            const ssize_t n = ::write(ends[1], message.data() + done, message.size() - done);
            if (n <= 0) ::_exit(1);
            done += static_cast<std::size_t>(n);
        }
        ::_exit(0);  // no destructors of a driver that may be in a bad way
    }
    ::close(ends[1]);
    std::string message;
    bool late = false;
    for (pollfd waiting{ends[0], POLLIN, 0};;) {
        const int ready = ::poll(&waiting, 1, seconds * 1000);
        if (ready < 0 && errno == EINTR) continue;
        late = ready <= 0;
        char piece[1024];
        const ssize_t n = late ? 0 : ::read(ends[0], piece, sizeof piece);
        if (n <= 0) break;
        message.append(piece, static_cast<std::size_t>(n));
    }
    ::close(ends[0]);
    if (late) ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (late) return {Verdict::fail, fmt::format("the driver did not answer within {} s: look at dmesg, restart the driver or the machine", seconds)};
    if (WIFSIGNALED(status)) return {Verdict::fail, fmt::format("the driver crashed ({}): update it", ::strsignal(WTERMSIG(status)))};
    if (message.empty()) return {Verdict::fail, "the trial ended without an answer"};
    return {static_cast<Verdict>(message[0] - '0'), message.substr(1)};
}

}  // namespace udnnmem::cli
