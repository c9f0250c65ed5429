// Device memory as the driver keeps it. One window of virtual addresses is what programs see: nothing in
// it can be read by the host unless a range is host memory (pinned, managed, HOST_NUMA with CPU access).
// Every device has a view: the same window `view(d)` bytes higher, where the memory that this device may
// reach is mapped; engines and translated kernels work there. So an address that is not mapped for a
// device faults for that device, and a host dereference of device memory faults too, as on a card.
//
// All physical memory is extents of one shared-memory file. Memory that nobody has written holds
// `poison` words, fresh and recycled alike. Every function here is thread-safe (one mutex), and none
// waits for a stream.
#pragma once

#include <map>
#include <optional>
#include <unordered_map>

#include "tests/softgpu/driver/core.hpp"
#include "tests/softgpu/ptx/abi.hpp"

namespace softgpu {

inline constexpr std::uint32_t poison = ptx::abi::unwritten_word;
inline constexpr std::uint64_t page = 4096;
constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t to) { return (n + to - 1) / to * to; }

struct Extent {
    int fd = -1;
    std::uint64_t offset = 0, bytes = 0;
};

// Physical memory: a VMM handle, or what lies behind one allocation. Freed with its last reference.
struct Frame {
    Extent extent;
    int device = 0;          // of the budget it counts against
    bool host = false;       // host memory (pinned, managed, HOST_NUMA)
    std::uint64_t counted = 0;  // bytes counted against the device, 0 for imported memory
    bool held = true;        // counted now; see hold()
    bool exported = false;   // another process may have it: its extent is never recycled
    bool exportable = false;
    bool is_handle = false;  // made by cuMemCreate or by an import
    CUmemAllocationProp properties{};
    int handle_references = 0;
    int node = -1;           // of the host, whose bytes it counts against; see take_node()
    ~Frame();
};

// Whether that node of the host has so much left, strictly: no other node helps out. Then it has less.
bool take_node(int node, std::uint64_t bytes);
bool is_node(int node);

enum class Kind { linear, pool, pinned, managed, registered, global, mapping, ipc };

// A backed stretch of the window.
struct Range {
    Address address = 0;
    std::uint64_t bytes = 0;   // what the program asked for
    std::uint64_t mapped = 0;  // whole pages
    Kind kind = Kind::linear;
    std::shared_ptr<Frame> frame;
    CUcontext context = nullptr;
    int device = 0;
    unsigned flags = 0;              // of cuMemHostAlloc, cuMemHostRegister, cuMemAllocManaged
    std::uint64_t id = 0;            // CU_POINTER_ATTRIBUTE_BUFFER_ID
    const void* host = nullptr;      // registered: the program's own address
    CUmemoryPool pool = nullptr;
    CUmemAccess_flags access[9] = {};  // mapping: of each device; [8]: of the CPU
    bool sync_memops = false;
};

bool memory_start();
bool in_window(Address a);
std::uint64_t view(int device);
inline void* at(Address a, int device) { return reinterpret_cast<void*>(a + view(device)); }

std::mutex& memory_mutex();

// Physical memory. `bytes` is rounded up to pages; `counted` is held against the device's SOFTGPU_MEMORY.
CUresult make_frame(std::uint64_t bytes, std::uint64_t counted, int device, bool host, std::shared_ptr<Frame>* out, bool held = true);
// Counts a frame that was made with held = false; again it does nothing. False: the device has less left.
bool hold(Frame& frame);
void fill_poison(const Extent& extent);

// Virtual addresses of the window. 0 if there is no such stretch. Freed stretches are not handed out
// again soon. `guard` keeps one page free behind.
Address take_addresses(std::uint64_t bytes, std::uint64_t align, Address hint, bool guard);
void give_addresses(Address a, std::uint64_t bytes);

// Maps pages of a frame for one device (or for the CPU, device = cpu_view), or takes them away.
inline constexpr int cpu_view = 8;
bool map_pages(Address a, std::uint64_t bytes, int device, const Extent& extent, CUmemAccess_flags access);
void unmap_pages(Address a, std::uint64_t bytes, int device);

// A new allocation of its own frame, mapped for its device (host kinds: for all and the CPU), peers included.
CUresult allocate(std::uint64_t bytes, Kind kind, CUcontext context, int device, unsigned flags, Address* out);
// Unmaps and forgets; the memory is gone with the frame's last reference.
CUresult release(Address a, bool (*allowed)(const Range&));
// Maps every allocation of `owner` for `device` too, now and from now on.
CUresult enable_peer(int device, int owner, bool on);
bool peer_enabled(int device, int owner);

// The range that `a` lies in. The copy may be stale as soon as it is returned.
std::optional<Range> find_range(Address a);
bool refuses_copies(const void* host);  // SOFTGPU_HOST_FRAMES=uncopied
std::optional<Range> find_registered(const void* host, std::uint64_t bytes);
CUresult register_host(void* host, std::uint64_t bytes, unsigned flags, CUcontext context);
CUresult unregister_host(void* host);
// Drops all that belongs to a context; a pool's memory does not.
void release_context(CUcontext context);

std::map<Address, Range>& ranges_locked();                     // with memory_mutex held
std::map<Address, std::uint64_t>& reservations_locked();       // VMM reservations: size by address
bool is_reserved_locked(Address a, std::uint64_t bytes);
std::uint64_t device_used(int device);

}  // namespace softgpu
