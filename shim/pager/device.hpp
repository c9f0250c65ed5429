// One device's share of the pager: its buffers, its frames, its requests, and the mover, the one thread that changes
// mappings. Launching threads come here only when something that they name is not where it has to be.
//
// Invariants (checked by is_valid())
//   - All state below is guarded by mutex_; driver calls of the mover's own streams may be made while it is held, calls
//     that can wait for the program's work may not. The mover lets go of it while it changes a mapping (remap()): what holds
//     of buffers, requests and lists has to be looked at anew after map(), unmap(), land() and whatever calls them.
//   - Requests are served first come, first served: frames go to one at a time, until it is granted (first_in_line()). Launches
//     that their plan holds back are passed over until they have begun.
//   - A buffer that a request holds does not move; holds are released when the op was submitted.
//   - device frames in use <= budget, unless it was exceeded on purpose (room.cpp: counted each time, one warning).
#pragma once

#include <cuda.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "profiler/trace/run.hpp"
#include "shim/pager/arena.hpp"
#include "shim/pager/buffer.hpp"
#include "shim/pager/checked.hpp"
#include "shim/pager/copy_queue.hpp"
#include "shim/pager/frames.hpp"
#include "shim/pager/hasher.hpp"
#include "shim/pager/link_meter.hpp"
#include "shim/pager/link_probe.hpp"
#include "shim/pager/move.hpp"
#include "shim/pager/order.hpp"
#include "shim/pager/settings.hpp"
#include "shim/pager/slab.hpp"
#include "shim/pager/stats.hpp"
#include "shim/pager/streams.hpp"

namespace udnnmem::pager {

class Pager;

// What a launching thread waits for.
struct Request {
    std::vector<Buffer*> need;        // without repeats
    std::vector<Buffer*> loose;       // subset of need that has to be reachable, no more
    std::vector<Buffer*> overwrites;  // subset of need whose contents are not wanted
    std::vector<Buffer*> uncopied;    // of those: brought in without their contents, which the host frames still have
    bool by_cpu = false;              // a copy or memset, which the driver may have the CPU do where the memory is the host's
    bool everything = false;          // an op whose access set is not known
    bool yields = false;              // no op: the driver is to have ...
    std::size_t bytes = 0;            // ... so many bytes free, ...
    std::size_t lowered = 0;          // ... for which the budget was lowered by so many
    bool recomputes = false;          // Op's
    Buffer* dropped = nullptr;        // refused: this one has to be computed again first
    StreamSlot* paced_by = nullptr;   // Op's
    std::uint64_t paced_number = 0;
    bool takes = false;
    bool host_allowed = false;        // granted from host frames where device frames cannot be had
    bool moved = false;               // had to wait for more than a first touch
    bool holding = false, done = false;
    bool in_hands = false;            // the mover is at it, perhaps without the mutex: it stays in the line
    CUresult result = CUDA_SUCCESS;
    std::int64_t since_ns = 0;
    bool is_loose(const Buffer* b) const { return std::find(loose.begin(), loose.end(), b) != loose.end(); }
};

class DevicePager {
  public:
    // `free_bytes`, `total`: of the device, now.
    DevicePager(Pager& pager, CUdevice device, std::unique_ptr<Backing> backing, std::size_t free_bytes, std::size_t total);
    ~DevicePager();

    CUdevice device() const { return device_; }
    std::size_t granule() const { return backing_->granule(); }
    std::size_t small_below() const;   // bytes; smaller allocations live in slabs

    // Called with the program's context current. Errors are CUDA's.
    // What the mover needs is there from now on. Else nothing can be managed, and what the program asks for is the driver's.
    CUresult start();
    // Whether the program has a buffer here that may be elsewhere than on the device.
    bool has_movable();
    // Every buffer is mapped, and nothing moves: since the last op that may touch anything nothing was made or set off. No lock.
    bool all_in_place() const { return all_in_place_.load(std::memory_order_seq_cst); }
    // Whether the mover may have given the device something to do.
    bool moves() {
        const BriefLock lock(*this);
        return !moves_.empty();
    }
    CUresult allocate(std::size_t bytes, CUstream stream, bool stream_ordered, CUmemoryPool pool, CUdeviceptr& out);
    static inline const CUmemoryPool own_pool = reinterpret_cast<CUmemoryPool>(1);   // of take_scratch()
    // `at` must be the base of a live allocation (else CUDA_ERROR_INVALID_VALUE). For a plain free the caller has
    // synchronised the device, or says that it has not (`waited_for`).
    CUresult free(CUdeviceptr at, CUstream stream, bool stream_ordered, bool waited_for = true);
    // The program's allocation that holds `at`, if it is live.
    std::optional<Allocated> allocation_at(CUdeviceptr at);

    // Makes what the request needs resident (or reachable from host frames); waits. The caller holds no lease.
    CUresult acquire(Request&);
    void release(Request&, bool submitted_ok);
    // Waits as a launch does that a plan holds back (Op::paced_by): for what takes memory ahead of one. The caller holds no lease.
    void wait_for_pace(StreamSlot* by, std::uint64_t number);

    // Brought to the device, or where that cannot be, to host frames, and never moved again; CUDA's error if neither can be.
    CUresult pin(Buffer*);
    // The address of the allocation at `at` in it is known where nobody can follow what is done with it: to another process, a
    // library, a kernel's variables. The caller has pinned it. False: that was known.
    bool escape(Buffer*, CUdeviceptr at);
    // Whether it was said so of the buffer, or of a slab of the small allocation at `at`.
    bool escaped(Buffer*, CUdeviceptr at);
    // Pinned, with descriptors of its frames, the caller's to close, in address order. CUDA_ERROR_NOT_SUPPORTED: there are none,
    // or host frames were all that could be had.
    struct Shared {
        int descriptor;
        std::size_t bytes;
    };
    CUresult share(Buffer*, std::vector<Shared>& out);
    // Kernels of `reader` may reach this device's memory from now on, or no more.
    CUresult peer_access(CUdevice reader, bool on);
    // Whether an op can use a buffer that is in host memory.
    bool reaches_host() const { return backing_->host_frames_can_be_mapped(); }
    bool network_can_reach() const { return backing_->network_can_reach(); }
    // An address of the device's that is mapped now and in nobody's use; 0: none. What the driver says of it goes for all of ours.
    CUdeviceptr always_mapped() {
        Lock lock(mutex_);
        return scratch_ ? CUdeviceptr{scratch_->base} : 0;
    }
    struct Stretch {
        CUdeviceptr at;
        std::size_t bytes;
    };
    // The program copied to these stretches of `table`, apart from each other: `targets` are what the addresses among it point to
    // (by position), and what was there before is forgotten.
    void wrote_pointers(Buffer* table, std::vector<Stretch> written, const std::vector<Buffer::Drag>& targets);
    // The addresses that [at, at + bytes) of a table is known to hold.
    std::vector<Buffer::Drag> pointers_of(Buffer* table, CUdeviceptr at, std::size_t bytes);
    // What the small allocation at `address` (of a slab; 0: all of it) or the buffer `table` is known to hold. False:
    // no allocation is there.
    bool leads_to(Buffer* table, CUdeviceptr address, CUdeviceptr& base, std::vector<Buffer::Drag>& out);
    // Whether the buffer, or of a slab the small allocation at `at`, is known to hold addresses, or may.
    bool holds_addresses(Buffer* b, CUdeviceptr at);
    void note_everything(std::uint64_t number, std::uint64_t stream_bit);

    // What no buffer needs goes back to the driver, and so much of what buffers have that it has `bytes` free, for memory that is
    // not managed. The budget is `lowered` to what is left then. CUDA_ERROR_OUT_OF_MEMORY: so many cannot be had. Waits.
    CUresult yield(std::size_t bytes, std::size_t& lowered);
    CUresult yield_some(std::size_t& lowered);   // as much as is left to others at first, where it is not known how much it takes
    // They were not taken: the budget is what it was.
    void reclaim(std::size_t lowered);

    // What a plan wants moved, in this order; never waits for a move. Any thread, after the ops named were submitted.
    void order(const Order* orders, std::size_t count);
    // The program follows a plan and is at `step` of it (from 1, rising): victims are chosen by Buffer::next_use. Its ops take so
    // long at most: what waits for some of them is not late.
    void plan_step(std::uint64_t step, std::int64_t longest_op_ns) {
        longest_op_ns_.store(longest_op_ns, std::memory_order_relaxed);
        plan_clock_.store(step, std::memory_order_relaxed);
    }
    // It does so no longer: victims are chosen by their last use.
    void forget_orders();
    // Once this returns, no order to drop (that buffer; null: any) given before it will be carried out.
    void cancel_drops(const Buffer* of = nullptr);

    // One of the device that is there; null: none any more.
    CUcontext context();
    void context_destroying(CUcontext context, bool memory_too);
    void stop();
    // At exit, the last moment at which the driver may be called: the mover does so no more (waits for it, but not for ever).
    void driver_ends();

    DeviceStats stats();
    // For memory questions.
    struct Memory {
        std::size_t live, frames, device_budget, host_budget;  // bytes: the program's; of device frames made ...
        std::size_t host_frames;                               // ... and of host frames
    };
    Memory memory();
    // What the program holds here; small allocations by the slabs that they are in.
    struct Held {
        std::uint32_t id;
        std::size_t bytes, capacity;
        bool on_host, slab;
    };
    std::vector<Held> held_buffers();
    // Of what lives, that which can move, in whole granules.
    std::size_t movable_bytes();
    // What a plan has to know: bytes that buffers may share now, of so many in all, and the link's rates (bytes per second; 0: not
    // measured yet).
    struct Room {
        std::size_t movable, budget, host;
        double in, out;
        std::int64_t first_map_ns;   // what giving a buffer its first memory takes, as a rule; 0: not known
    };
    Room room();
    LinkSpeeds link();
    // The most bytes of device memory in buffers that move since this was asked last.
    std::size_t take_peak();
    // Kernels of hash.cu in that context; null: it is not the pager's, or no more.
    struct Kernels {
        CUfunction hash = nullptr, hash_bytes = nullptr, expect = nullptr;
    };
    Kernels kernels(CUcontext context);
    // Memory for the library's own work, beside what the program has: stream-ordered, paged like the program's.
    CUresult take_scratch(std::size_t bytes, CUstream stream, CUdeviceptr& out);
    // ... that whatever stream may use at once.
    CUresult take_scratch(std::size_t bytes, CUdeviceptr& out);
    // Once what was submitted has completed; on `stream`, the only one that used it, at once.
    void give_scratch(CUdeviceptr at) { free(at, CU_STREAM_LEGACY, false); }
    void give_scratch(CUdeviceptr at, CUstream stream) { free(at, stream, true); }
    // The contents of `b` are there again.
    void restored(Buffer* b);
    // Whether those of the buffers that are this device's can be on it at once, beside what never leaves it.
    bool fits_on_device(const std::vector<Buffer*>& named);
    void pool_usage(CUmemoryPool pool, std::size_t& current, std::size_t& high, bool reset_high);
    // Empty if every invariant holds, else the first that does not.
    std::string is_valid();
    // Frames and mappings that the driver must know of now. For tests.
    void held(std::size_t& frames, std::size_t& mappings);

  private:
    friend class SlabAllocator;
    using Lock = std::unique_lock<std::mutex>;
    // A launching thread's, for a moment: the mover, which is seldom without work, lets it pass.
    struct BriefLock : Lock {
        explicit BriefLock(DevicePager& of) : Lock(of.mutex_, std::defer_lock) {
            of.coming_in_.fetch_add(1, std::memory_order_relaxed);
            lock();
            of.coming_in_.fetch_sub(1, std::memory_order_relaxed);
        }
    };

    std::string invariants() const;   // is_valid() with the mutex held
    void check() const {
        if constexpr (checked) must_be_valid(invariants());
    }

    // contexts.cpp
    void end_memory_of(CUcontext context);
    CUresult start_context(Lock&);
    CUresult start_in(CUcontext);
    void leave_context();
    void halt(Lock&);
    void measure_link();

    // allocation.cpp
    Buffer* new_buffer(std::size_t bytes, std::size_t capacity);
    Buffer* take_parked(std::size_t capacity, StreamSlot* slot);
    void out_of_place() { all_in_place_.store(false, std::memory_order_seq_cst), all_noted_ = false; }
    void retire(Buffer*);
    void small_freed(CUdeviceptr at, std::size_t bytes, CUmemoryPool pool);
    bool will_fit(std::size_t capacity);
    bool fits(std::size_t capacity) const;
    bool park_slabs(std::size_t bytes);
    // `enough`, if need be without slabs in which nothing lives any more.
    template <class Enough>
    bool or_without_slabs(Enough enough) {
        return enough() || (park_slabs(SIZE_MAX) && enough());
    }
    std::size_t whole_granules(std::size_t bytes) const { return (bytes + granule() - 1) / granule() * granule(); }

    // figures.cpp
    std::size_t live_bytes() const;
    std::size_t fixed_bytes() const;

    // mover.cpp
    void run();
    bool step_moves();
    void finish(Move&, Residency);
    bool cancel(Buffer*);
    bool quiet(Buffer*);       // no lease names it, every op that does has completed
    bool passed(Move&);        // the move's event
    bool record(Move&, CUstream);
    bool hash(Move&, const std::vector<Frame*>&, CUstream);
    bool join_look(Move&, CUstream);
    void show(Move& m, const char* what);
    void tell(profiler::EventKind, const Buffer*, std::size_t bytes, std::int64_t start_ns);
    void lost(const Buffer*, const char* what);
    CUevent take_event();
    void fail_move(Move&, CUresult);
    bool ended(CUstream);
    bool nothing_looks();
    void end_copy_out(Buffer*);
    bool land_next();
    void start_evict(Buffer*, const Order* ordered = nullptr);
    void start_clean(Buffer*, std::uint64_t used, bool still);
    void start_fetch(Buffer*, std::vector<Frame*> frames, bool copy);

    // moves.cpp
    CUresult map(Buffer*, const std::vector<Frame*>&);
    CUresult unmap(Buffer*);
    CUresult land(Buffer*);
    CUresult unmap_at_once(Buffer*);
    template <class Call>
    CUresult remap(Buffer*, Call);
    bool step(Move&);
    bool step_evict(Move&);
    bool step_drop(Move&);
    bool step_fetch(Move&);
    bool unreachable(Move&);
    bool still_unreachable(const Move&) const;
    bool settled(Move&);
    bool verify_now();
    bool step_clean(Move&);

    // copies.cpp
    bool hash_and_copy_out(Move&);
    bool begin_copy(Move&);
    bool copy_on(Move&);
    bool copy_piece(Move&);
    bool copy_out_again(Buffer*);
    bool link_wants(bool in);
    void expect_copy(Move&);
    bool copies_go_on() const;
    // Of the link, bytes per second as far as they are known, 0 else.
    double rate_in() const { return meter_in_.rate() > 0 ? meter_in_.rate() : link_.in; }
    double rate_out() const { return meter_out_.rate() > 0 ? meter_out_.rate() : link_.out; }

    // tables.cpp
    void learn_table(Buffer*, std::uint64_t addresses);
    bool may_be_table(const Buffer*) const;
    std::vector<Buffer*> to_search(const Buffer*);
    void found_way(Buffer* table, CUdeviceptr address);
    void leads_anywhere(const Buffer* table);
    void note_addresses(const std::vector<Hasher::Found>&, const std::vector<Buffer*>& looked_at, std::uint64_t seen);
    void search_thoroughly(const std::vector<Buffer*>&, std::uint64_t seen);
    bool begin_search(Move&, CUstream);

    // orders.cpp
    bool take_orders();
    bool serve_orders();
    bool serve_orders_out();
    bool serve_orders_in();
    bool meant(const Order&) const;
    bool will_go_out(const Order&) const;
    std::size_t bytes_ordered_out() const;
    std::size_t bytes_requested_beside(const Buffer* of) const;
    int moves_of(Move::Kind, Move::Kind) const;
    bool is_requested(const Buffer*) const;
    std::uint64_t expected_use(const Buffer*) const;
    bool needed_later(const Buffer*, const Buffer*) const;
    bool follows_plan() const { return plan_clock_.load(std::memory_order_relaxed) != 0; }

    // requests.cpp
    bool serve_requests();
    const Request* first_in_line() const;
    bool serve(Request&, bool first);
    bool is_still_there(const Buffer*) const;
    bool serve_everything(Request&);
    bool halted() const;
    bool refuses_dropped(Request&, const std::vector<Buffer*>& among);
    bool bring(Request&, Buffer*, bool late);
    void grant(Request&, CUresult);
    void forget_gone(Request&);
    void hold(Request&);
    std::int64_t deadline_ns() const;
    bool past_deadline(const Request&, int halvings = 0) const;
    bool overdue(const Request&) const;
    int fired_in_vain() const { return last_moved_ns_ > fired_ns_ ? 0 : fired_in_a_row_; }
    void moved();
    bool hopeless(const Request&) const;
    bool paced(const Request&) const;
    CUresult map_now(Buffer*, std::vector<Frame*> frames);
    CUresult let_in(Buffer*, bool by_cpu);
    void revert_to_host(Buffer*);

    // room.cpp
    bool exceed_budget(const Request&, const Buffer*, std::vector<Frame*>& frames);
    bool freed_in_use();
    bool moves_that_end() const;
    std::size_t bytes_granted() const;
    std::size_t bytes_freed_in_use(std::size_t most);
    // `for_all`: that and what the same op needs beside it.
    bool lacks_first_memory_alone(const Request&) const;
    bool make_room(std::size_t bytes, std::size_t for_all, std::size_t freed = 0);
    bool turn_budget();
    bool release_parked(std::size_t bytes);
    bool release_for_frames(std::size_t capacity);
    bool host_frames_for(Buffer*, std::vector<Frame*>& out);
    bool gives_way(const Buffer*) const;
    std::size_t host_room() const;
    bool land_on_host(Buffer*);
    Buffer* choose_victim(bool idle_only);

    // yield.cpp
    bool serve_yield(Request&);
    bool regain_budget();
    bool regain_host();
    // Of the device's memory or of a share of it: for contexts, libraries and other processes.
    std::size_t left_to_others(std::size_t of) const { return std::max(of / 20, granule() * 4); }

    Pager& pager_;
    const Driver& driver_;
    CUdevice device_;
    std::unique_ptr<Backing> backing_;
    std::unique_ptr<FramePool> device_pool_, host_pool_;
    Hasher hasher_;
    SlabAllocator slabs_;

    std::mutex mutex_;
    std::condition_variable mover_wake_, granted_;
    std::thread mover_;
    Lock* movers_lock_ = nullptr;          // of mutex_, while it is the mover who holds that
    bool away_ = false;                    // it has let go of it for a call that changes a mapping
    std::atomic<int> coming_in_{0};        // threads of the program that want the mutex for a moment
    bool started_ = false, stopping_ = false, mover_left_ = false;

    CUcontext context_ = nullptr;          // the mover's: the program's first; null after it was destroyed
    CUstream in_stream_ = nullptr, out_stream_ = nullptr;
    CUstream look_stream_ = nullptr;       // searches, which wait for no copy
    bool unended_ = false;                 // something on the other two may go on for good
    Buffer* scratch_ = nullptr;            // the hasher's memory
    std::vector<CUevent> spare_events_;

    std::vector<Buffer*> buffers_;         // every live or parked one
    std::vector<Buffer*> recycled_;
    std::multimap<std::size_t, Buffer*> parked_;  // by capacity
    std::list<Request*> requests_;
    std::list<Move> moves_;
    std::deque<Order> orders_out_, orders_in_;
    LinkMeter meter_in_, meter_out_;
    CopyQueue copies_in_, copies_out_;
    LinkSpeeds link_;                      // as it was before anything had moved
    std::size_t live_capacity_ = 0, largest_ever_ = 0, unmovable_ = 0;
    std::uint64_t everything_use_ = 0, everything_streams_ = 0;
    // Tables that were found to hold, or lead to, more addresses than can be listed, until their ops so far count as such that may touch
    // anything (quiet()). And how many were ever found: a move that began before the last one was has not waited for its ops.
    std::vector<const Buffer*> ways_anywhere_;
    std::uint64_t found_anywhere_ = 0;
    std::size_t searched_in_vain_ = 0;     // bytes of large buffers, since an address was found in one
    std::atomic<bool> all_in_place_{false};
    bool all_noted_ = false;               // while they are: as used by an op that may touch anything
    bool unlanded_ = false;                // an eviction has left a range unmapped since land_next() found none
    int frozen_ = 0;                       // granted ops that may touch anything and are not submitted yet
    bool over_budget_warned_ = false, long_wait_warned_ = false;
    std::array<std::int64_t, 32> first_maps_ns_{};   // what giving buffers their first memory took, of the last
    std::size_t first_maps_ = 0;
    std::int64_t slow_remap_ns_ = 0;   // what the slower of the mover's last calls that change mappings took
    std::int64_t last_progress_ns_ = 0;
    std::int64_t last_moved_ns_ = 0;       // when memory last changed its place; moves that only begin, or are called off, do not count
    std::int64_t fired_ns_ = 0;            // when a deadline fired last
    int fired_in_a_row_ = 0;               // ... and how many did with nothing moved in between
    std::int64_t regain_from_ns_ = 0;      // when the driver may be asked again whether others have given memory back
    std::int64_t regain_host_from_ns_ = 0, regain_host_each_ns_ = 0;   // the same of host memory, and how long after the last time
    std::uint64_t moves_begun_ = 0;
    struct PoolUse {
        std::size_t current = 0, high = 0;
    };
    std::unordered_map<CUmemoryPool, PoolUse> pools_;
    DeviceStats stats_;

    // Orders on their way to the mover; not under mutex_, which the mover holds while it works.
    std::mutex orders_mutex_;
    std::vector<Order> ordered_;
    std::atomic<bool> any_ordered_{false}, mover_asleep_{false};
    std::atomic<std::uint64_t> plan_clock_{0};   // 0: no plan is followed
    std::atomic<std::int64_t> longest_op_ns_{0}; // of that plan
};

}  // namespace udnnmem::pager
