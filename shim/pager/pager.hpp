// The pager of a process: every device's, the arena that they share, and the two calls of the launch path,
// enter() and leave(), which bracket each piece of GPU work.
//
// Thread-safe throughout. Nothing here throws; errors are CUresults. The launch path (enter, submit, leave with
// everything resident) takes no contended lock, makes no system call and allocates nothing, but for a mark every
// StreamTable::kMarkEvery ops of a stream.
#pragma once

#include <cuda.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "shim/pager/answer_memory.hpp"
#include "shim/pager/arena.hpp"
#include "shim/pager/buffer.hpp"
#include "shim/pager/device.hpp"
#include "shim/pager/driver.hpp"
#include "shim/pager/lease.hpp"
#include "shim/pager/settings.hpp"
#include "shim/pager/streams.hpp"

namespace udnnmem::pager {

// One op between enter() and leave(). On the stack of the launching thread.
struct Op {
    CUstream stream = CU_STREAM_LEGACY;
    bool everything = false;               // its access set is not known
    bool kernel = false;                   // a launch, not a copy or memset
    bool by_cpu = true;                    // or the driver may have the CPU do it, where the memory is the host's
    bool recomputes = false;               // the library's own work: dropped buffers that it names are not there yet
    bool looked_at = false;                // nothing runs: the driver looks at the addresses, no more
    std::uint32_t count = 0;               // buffers named, without repeats as far as that is cheap
    std::uint64_t marks = 0;               // of what name() has listed: a buffer without its mark is not
    Buffer* buffers[Lease::kMany];
    std::vector<Buffer*> more;             // those beyond kMany (graphs)
    std::vector<Buffer*> overwrites;       // wholly written, not read
    static constexpr std::uint32_t kFewLoose = 8;
    std::uint32_t loose_count = 0;
    Buffer* loose[kFewLoose];              // named by words that are addresses perhaps: reachable is enough, be it in host memory
    std::uint32_t stray_count = 0;         // such words; more than kFewLoose: not all are listed
    CUdeviceptr strays[kFewLoose];         // they, also where they lead to what is named firmly, or to a slab
    std::vector<StreamSlot*> also;         // streams beside `stream` that parts of it run on
    static constexpr std::uint32_t kFewSmall = 32;
    std::uint32_t small_count = 0;         // addresses named in slabs; more than kFewSmall: not all are listed
    CUdeviceptr small[kFewSmall];

    // By a plan: memory is taken for it once the op `paced_number` of this stream has completed (a wish). Null: at once.
    StreamSlot* paced_by = nullptr;
    std::uint64_t paced_number = 0;
    bool takes = false;                    // it waits for that also where its memory is there: what was freed is the plan's until then

    StreamSlot* slot = nullptr;            // of `stream`, where it is known; else enter's

    // enter's
    bool captured = false;
    bool slow = false;
    std::vector<std::pair<DevicePager*, Request>> requests;

    [[gnu::always_inline]] void name(Buffer* b) {
        const std::uint64_t mark = std::uint64_t{1} << (reinterpret_cast<std::uintptr_t>(b) * 0x9e3779b97f4a7c15u >> 58);
        if (marks & mark || count == Lease::kMany) [[unlikely]] return name_marked(b);
        marks |= mark;
        buffers[count++] = b;
    }
    void name_loosely(Buffer* b) {
        if (loose_count < kFewLoose) loose[loose_count++] = b;
        else name(b);
    }
    void note_stray(CUdeviceptr word) {
        if (stray_count < kFewLoose) strays[stray_count] = word;
        if (stray_count <= kFewLoose) ++stray_count;
    }
    bool is_stray(CUdeviceptr word) const {
        for (std::uint32_t i = 0; i < stray_count && i < kFewLoose; ++i)
            if (strays[i] == word) return true;
        return false;
    }
    void name_in_slab(CUdeviceptr at) {
        if (small_count < kFewSmall) small[small_count] = at;
        if (small_count <= kFewSmall) ++small_count;
    }

    // Of what is loose only what is not named firmly is, and from here on it is among the others.
    void join_loose();

  private:
    void name_marked(Buffer* b);           // listed already perhaps, or there are many
};

// What the pager tells the outside: one line for the user, an event for the trace. May be called by any thread.
struct Sink {
    enum class Level { error, warn, info };
    virtual ~Sink() = default;
    virtual void line(Level, const std::string&) = 0;
    virtual void event(const profiler::RunEvent&) = 0;
    // A move begins, of a buffer; what the answer names is handed to move_ended(). On the mover's thread, or one that replays.
    virtual std::uint64_t move_began(const char*, BufferId, Bytes) { return 0; }
    virtual void move_ended(std::uint64_t) {}
    // What an earlier run knows of the device's link, if any does, and what it is. By the thread that first uses the device.
    virtual LinkSpeeds link_before(CUdevice) { return {}; }
    virtual void link_measured(CUdevice, const LinkSpeeds&, std::int64_t) {}
    virtual void thread_started() = 0;   // first thing on each thread of the pager's own
    // What this process may take of a device that has `free` bytes free; less than that where others share it. Asked once for
    // each device, if no budget was set.
    virtual std::size_t share_of(CUdevice, std::size_t free) { return free; }
};

// Who can compute dropped buffers again.
struct Restorer {
    // Makes the contents of `b` what they were when it was dropped, by work submitted to `stream` (on another stream and waited
    // for if `waits`), and clears Buffer::dropped; also if another thread does so meanwhile. The caller holds no lease.
    virtual CUresult restore(Buffer* b, CUstream stream, bool waits) = 0;
    // Once the context was stopped because what was computed again is not what was dropped: what it was. Else empty.
    virtual std::string why_stopped() = 0;

  protected:
    ~Restorer() = default;
};

class Pager {
  public:
    Pager(const Driver& driver, const Settings& settings, Sink& sink);
    ~Pager();

    // The pager of the current context's device, made at its first use. Null: that device cannot be managed.
    DevicePager* current_device();
    // Likewise; null also where it was not made yet and the device is not the current one, which alone says what memory it has.
    DevicePager* device(CUdevice);
    // `reader` may reach `owner`'s memory from now on, what is there and what comes, or no more; also before either was used.
    CUresult peer_access(CUdevice owner, CUdevice reader, bool on);
    // It was tried: that device cannot be managed.
    bool unmanaged(CUdevice device) {
        std::lock_guard lock(mutex_);
        return device < 0 || device >= kMostDevices || unusable_[device] || arena_failed_;
    }

    // The buffer that `address` lies in, null if none of ours.
    Buffer* find(CUdeviceptr address) const { return arena_.contains(address) ? arena_.find(address) : nullptr; }
    bool in_arena(CUdeviceptr address) const { return arena_.contains(address); }
    const Arena& arena() const { return arena_; }

    // Adds the addresses that tables among what `op` names lead to.
    void led_to(Op& op, std::vector<CUdeviceptr>& addresses);

    // Whether what `op` names can be on each device all at once.
    bool fits_together(const Op& op);

    // Before the real call: CUDA_SUCCESS, or the error that the program gets instead of it.
    CUresult enter(Op&);
    // After it, whatever it answered.
    void leave(Op&, CUresult);

    // For DevicePager: ranges of the arena. 0: none left.
    CUdeviceptr arena_range(std::size_t bytes, Buffer* owner) { return arena_.take_range(bytes, owner); }
    void arena_return(CUdeviceptr at, std::size_t bytes) { arena_.free_range(at, bytes); }
    // Of an allocation, whichever device it is on: what a run's records call it.
    std::uint32_t next_id() { return next_id_.fetch_add(1, std::memory_order_relaxed); }

    StreamTable& streams() { return streams_; }
    AnswerMemory& answer_memory() { return answer_memory_; }
    // Ops so far.
    std::uint64_t ops() const { return streams_.now(); }
    const Driver& driver() const { return driver_; }
    const Settings& settings() const { return settings_; }
    Sink& sink() { return sink_; }

    // A state that nobody can repair: every later op is refused with CUDA_ERROR_UNKNOWN. One line.
    void fail(const std::string& line);
    // More is known of what memory leads to: who has not published its op yet looks again.
    void learned() { learned_.fetch_add(1, std::memory_order_seq_cst); }
    bool failed() const { return failed_.load(std::memory_order_relaxed); }

    // So many bytes of buffers may be alive on a device at a time, wherever there is room for them: some will be dropped.
    void expect_live(std::size_t bytes) { expected_live_.store(bytes, std::memory_order_relaxed); }
    std::size_t expected_live() const { return expected_live_.load(std::memory_order_relaxed); }

    // Set before the first order to drop, for as long as anything may be dropped.
    void set_restorer(Restorer* restorer) { restorer_.store(restorer); }
    CUresult restore(Buffer* b, CUstream stream, bool waits) {
        Restorer* const restorer = restorer_.load();
        return restorer ? restorer->restore(b, stream, waits) : CUDA_ERROR_UNKNOWN;
    }

    // `memory_too`: the program's memory ends with it, save what is a pool's.
    void context_destroying(CUcontext, bool memory_too);
    void stop();
    void driver_ends();   // DevicePager's
    std::vector<DevicePager*> devices();

  private:
    CUresult enter_slow(Op&);
    CUresult try_enter(Op&, Buffer*& dropped);
    void publish(const Op&, Lease&);
    bool all_in_place();
    bool ahead_of_plan(const Op& op) { return op.takes && op.paced_by && !streams_.complete(op.paced_by->bit(), op.paced_number); }
    void follow(Op&, const std::vector<Buffer*>& named, std::vector<Buffer*>& all, std::vector<CUdeviceptr>* led = nullptr);

    const Driver driver_;
    const Settings settings_;
    Sink& sink_;
    Arena arena_;
    StreamTable streams_;
    AnswerMemory answer_memory_;
    std::mutex mutex_;
    static constexpr int kMostDevices = 64;
    std::atomic<DevicePager*> devices_[kMostDevices] = {};
    bool unusable_[kMostDevices] = {};
    std::uint64_t readers_[kMostDevices] = {};  // by owner: a bit for each device that may reach its memory
    bool arena_failed_ = false;
    std::atomic<bool> failed_{false};
    std::atomic<std::uint64_t> learned_{0};
    std::atomic<std::size_t> expected_live_{0};
    std::atomic<std::uint32_t> next_id_{0};
    std::atomic<Restorer*> restorer_{nullptr};
};

std::int64_t now_ns();

}  // namespace udnnmem::pager
