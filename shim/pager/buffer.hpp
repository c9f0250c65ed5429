// A buffer: one device allocation of the program, at one granule-aligned range of the arena for life. What
// changes is the memory behind the range, and only the mover changes it.
//
// Invariants
//   - Buffer objects are never deleted, only recycled: a launching thread may read one without a lock.
//   - `residency`, `last_use`, `streams` may be read by anybody at any time; all other mutable fields belong to the
//     holder of the device's mutex. `last_use` may say less than it has said while a lease is open that names the buffer: what must not
//     be missed is read after leased() has said no.
//   - residency == device: the whole range is mapped to device frames. host: mapped to host frames if it has `landed`,
//     else to nothing; the mover lands it before it grants it to an op. evicting, fetching: launches that name it wait.
//   - unfilled: on device frames, yet `fetching`, for what counts is in the host frames until an op that overwrites all of it
//     was submitted. Only the request of that op may use it.
#pragma once

#include <cuda.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shim/pager/backing.hpp"

namespace udnnmem::pager {

enum class Residency : std::uint8_t { unbacked, device, host, evicting, fetching };

struct Hash {
    std::uint64_t words[2] = {0, 0};
    bool operator==(const Hash&) const = default;
};

class DevicePager;

// What is fixed between an allocation and its free. Who still looks at it then, without the device's mutex (a plan or a passage of
// which the buffer was part), sees what it was or what it is next, and tells by `id` that it is another's. It converts both
// ways, so that `b ? b->bytes : 0`, which would be an int, does not compile.
template <class T>
class Fixed {
  public:
    Fixed(T value = {}) : value_(value) {}
    operator T() const { return value_.load(std::memory_order_relaxed); }
    T operator=(T value) { return value_.store(value, std::memory_order_relaxed), value; }

  private:
    std::atomic<T> value_;
};

struct alignas(64) Buffer {
    // What every launch that names it looks at: one cache line.
    Fixed<CUdeviceptr> base;
    Fixed<std::size_t> capacity;     // whole granules
    DevicePager* device = nullptr;
    std::atomic<std::uint64_t> last_use{0};      // sequence number of the last op that named it
    std::atomic<std::uint64_t> streams{0};       // streams of those ops, a bit each (StreamTable)
    static constexpr std::uint64_t never_again = UINT64_MAX - 1;
    std::atomic<std::uint64_t> next_use{0};      // step of the plan that uses it next (DevicePager::plan_step), or never_again; 0: none known
    // What these five say can be read at once (BufferState).
    alignas(8) Fixed<std::uint32_t> id;          // the n-th allocation, of all devices
    Fixed<bool> live;
    std::atomic<Residency> residency{Residency::unbacked};
    std::atomic<bool> table{false};              // holds addresses of other buffers (`drags`)
    std::atomic<bool> dropped{false};            // given up: to be computed again (Restorer) before an op may use it
    Fixed<bool> slab;            // carved into small allocations; never moves
    std::atomic<bool> opaque{false};             // holds more addresses than can be listed: ops that name it may touch anything
    std::atomic<bool> escaped{false};            // others may write to it unseen (DevicePager::escape()); of a slab, to some of it
    std::atomic<bool> touched{false};            // some op has named it since it was allocated
    std::atomic<bool> host_changed{false};       // an op ran on its host frames since their hash was taken

    Fixed<std::size_t> bytes;        // as the program asked
    CUcontext context = nullptr; // that it ends with; null: a pool's
    CUmemoryPool pool = nullptr;

    // The mover's, under the device's mutex.
    std::vector<Frame*> device_frames, host_frames;  // in address order; empty: none
    bool host_valid = false;     // host frames hold what the device frames held when `host_hash` was taken
    bool hash_known = false;
    std::uint64_t host_as_of = 0;   // and had been used up to this op when they were seen to be equal
    Hash host_hash;
    Hash dropped_hash;           // of its `bytes` bytes when it was dropped
    std::uint32_t holds = 0;     // requests that count on it staying where it is ...
    std::uint32_t granted = 0;   // ... and of those, granted ones whose op may be on its way to the driver
    bool pinned = false;         // never moves again: escaped, or found written during a move
    bool moving = false;         // a Move names it
    bool unfilled = false;       // it comes, or came, without its contents
    bool landed = false;         // its address is mapped to its host frames ...
    bool cpu_reaches = false;    // ... which are the CPU's there as well
    CUresult refused = CUDA_SUCCESS;  // why it could not be fetched when that was last tried, until a launch has been told
    std::uint64_t looked_through = 0;  // what ops up to this number wrote has been searched for addresses
    struct Drag {
        CUdeviceptr at;       // the word in this buffer ...
        CUdeviceptr address;  // ... that holds this address ...
        Buffer* target;       // ... in this buffer
        bool operator==(const Drag&) const = default;
    };
    std::vector<Drag> drags;     // what its contents point to
    std::vector<Buffer*> through;  // tables that were found to lead here: ops that named them before that may be using it
    std::uint64_t parked_by = 0; // freed and kept mapped: the life of the slot of the stream that may have it at once, 0 for none

    // The Restorer's: lanes of replays, unknown to the program's events, that may still read or write it.
    std::atomic<std::uint32_t> replay_reads{0}, replay_writes{0};
};
static_assert(offsetof(Buffer, host_changed) < 64 && sizeof(Buffer) % 64 == 0);
static_assert(offsetof(Buffer, dropped) == offsetof(Buffer, id) + 7 && std::endian::native == std::endian::little);

// A buffer's id, whether it lives, where it is, whether it leads elsewhere and whether it is dropped, in one sequentially consistent load.
class BufferState {
  public:
    explicit BufferState(const Buffer* b) : word_(__atomic_load_n(reinterpret_cast<const Word*>(&b->id), __ATOMIC_SEQ_CST)) {}
    // 0: it is on the device with what counts, and leads nowhere; an op with a lease on it needs nothing more.
    std::uint64_t lacks() const { return word_ >> 40 ^ kReady; }
    // ... and it is the buffer that once had that id, not freed since.
    bool ready_as(std::uint32_t id) const { return (word_ ^ id) == (kReady << 40 | std::uint64_t{1} << 32); }

  private:
    using Word [[gnu::may_alias]] = std::uint64_t;
    static constexpr std::uint64_t kReady = static_cast<std::uint64_t>(Residency::device);
    std::uint64_t word_;
};

}  // namespace udnnmem::pager
