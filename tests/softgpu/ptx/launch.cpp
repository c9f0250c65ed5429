// See launch.hpp. Faults and traps leave translated code by siglongjmp to the thread's own guard: only
// translated C lies between, so nothing is left undone. What a thread needs over and over (shared
// memory windows, frames) is kept per thread and reused.
#include "tests/softgpu/ptx/launch.hpp"

#include <setjmp.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/softgpu/ptx/pool.hpp"
#include "tests/softgpu/ptx/print.hpp"
#include "tests/softgpu/ptx/schedule.hpp"

namespace softgpu::ptx {
namespace {

constexpr std::size_t window_bytes = std::size_t{1} << 32;  // all that a 32-bit shared address can reach
constexpr unsigned max_resident = 256;                      // blocks that wait for each other
constexpr unsigned patience = 16;                           // rounds before another block is admitted

// Shared memory of one block: a window of 4 GiB without access, readable as far as it is used.
class Window {
  public:
    ~Window() { if (base_) munmap(base_, window_bytes); }
    std::uint8_t* get(std::size_t bytes) {
        if (!base_) {
            void* p = mmap(nullptr, window_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (p == MAP_FAILED) return nullptr;
            base_ = static_cast<std::uint8_t*>(p);
        }
        bytes = (bytes + 4095) & ~std::size_t{4095};
        if (bytes > used_) {
            if (mprotect(base_, bytes, PROT_READ | PROT_WRITE) != 0) return nullptr;
            used_ = bytes;
        }
        return base_;
    }

  private:
    std::uint8_t* base_ = nullptr;
    std::size_t used_ = 0;
};

class Frames {
  public:
    ~Frames() { if (base_) munmap(base_, size_); }
    std::uint8_t* get(std::size_t bytes) {
        if (bytes > size_) {
            if (base_) munmap(base_, size_);
            size_ = (bytes + 65535) & ~std::size_t{65535};
            void* p = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            base_ = p == MAP_FAILED ? nullptr : static_cast<std::uint8_t*>(p);
            if (!base_) size_ = 0;
        }
        return base_;
    }

  private:
    std::uint8_t* base_ = nullptr;
    std::size_t size_ = 0;
};

struct Slot {
    Window window;
    Frames frames;
};

struct Guard {
    sigjmp_buf target;
    void* fault = nullptr;
    bool fault_write = false;
    unsigned trap_line = 0;
    std::string trap;
    std::vector<std::unique_ptr<Slot>> slots;
    Slot& slot(std::size_t i) {
        while (slots.size() <= i) slots.push_back(std::make_unique<Slot>());
        return *slots[i];
    }
};
thread_local Guard guard;
// Apart from the guard, so that the fault handler may read it in a thread that never ran a kernel.
constinit thread_local bool executing = false;

enum Way : int { normal, faulted, trapped };

void on_trap(abi::Block*, abi::u32 line, const char* why) {
    guard.trap_line = line;
    guard.trap.assign(why, strnlen(why, 200));
    executing = false;
    siglongjmp(guard.target, trapped);
}

struct Launched {
    const Code* code;
    abi::Launch launch;
    std::uint64_t blocks = 0;
    std::atomic<std::uint64_t> next{0};
    std::atomic<std::uint64_t> bytes_read{0}, bytes_written{0}, operations{0}, unwritten{0};
    std::atomic<bool> failed{false};
    // The first failure, written by the thread that set `failed`.
    Way way = normal;
    void* fault = nullptr;
    bool fault_write = false;
    std::string message;

    void fail(Way w, const std::string& text) {
        if (failed.exchange(true)) return;
        way = w;
        fault = guard.fault, fault_write = guard.fault_write;
        message = text;
    }
};

// nanosleep may take any time up to twice what it is told. A short one, as between two looks at a flag, is over at once:
// here nobody sets the flag meanwhile.
void sleep_ns(abi::Block* b, abi::u32 ns) {
    constexpr abi::u32 kLongest = 1'000'000, kShort = 1000;
    ns = std::min(ns, kLongest);
    b->clock += ns;
    if (ns < kShort) return;
    const timespec t{0, static_cast<long>(ns)};
    nanosleep(&t, nullptr);
}

void prepare(abi::Block& b, const abi::Launch& l, std::uint64_t index, std::uint8_t* shared) {
    std::memset(&b, 0, sizeof b);
    b.id[0] = static_cast<abi::u32>(index % l.grid[0]);
    b.id[1] = static_cast<abi::u32>(index / l.grid[0] % l.grid[1]);
    b.id[2] = static_cast<abi::u32>(index / l.grid[0] / l.grid[1]);
    b.shared = shared;
    b.trap = on_trap;
    b.print = print_formatted;
    b.sleep = sleep_ns;
}

void add_work(Launched& run, const abi::Block& b) {
    if (!(b.bytes_read | b.bytes_written | b.operations)) return;
    run.bytes_read += b.bytes_read;
    run.bytes_written += b.bytes_written;
    run.operations += b.operations;
    run.unwritten += b.unwritten;
}

void run_plain(Launched& run, std::uint64_t first, std::uint64_t last) {
    std::uint8_t* shared = guard.slot(0).window.get(run.launch.total_shared);
    if (!shared) return run.fail(trapped, "no address space for shared memory");
    abi::Block block;
    for (std::uint64_t b = first; b < last; ++b) {
        prepare(block, run.launch, b, shared);
        run.code->block(&run.launch, &block);
        add_work(run, block);
    }
}

// Blocks whose threads stop. One block at a time; where a block only waits for something outside
// itself (a grid barrier, a flag), further blocks become resident, as on a card.
void run_stopping(Launched& run, std::uint64_t first, std::uint64_t last) {
    struct Resident {
        std::unique_ptr<BlockRun> block;
        std::unique_ptr<abi::Block> state;
        std::size_t slot;
    };
    const std::size_t threads = std::size_t{run.launch.block[0]} * run.launch.block[1] * run.launch.block[2];
    // Kept beyond this call: a jump out of translated code skips destructors.
    static thread_local std::vector<Resident> resident;
    static thread_local std::vector<std::size_t> free_slots;
    resident.clear();
    free_slots.clear();
    std::uint64_t next = first;
    unsigned idle = 0;
    std::size_t slots = 0;
    while (next < last || !resident.empty()) {
        if (next < last && (resident.empty() || (idle >= patience && resident.size() < max_resident))) {
            std::size_t slot = slots;
            if (free_slots.empty()) ++slots;
            else slot = free_slots.back(), free_slots.pop_back();
            std::uint8_t* shared = guard.slot(slot).window.get(run.launch.total_shared);
            std::uint8_t* frames = guard.slot(slot).frames.get(threads * run.code->frame_bytes);
            if (!shared || !frames) return run.fail(trapped, "no memory for the threads of a block");
            Resident r;
            r.state = std::make_unique<abi::Block>();
            prepare(*r.state, run.launch, next++, shared);
            r.block = std::make_unique<BlockRun>(run.code->step, run.code->frame_bytes, frames, run.launch, *r.state);
            r.slot = slot;
            resident.push_back(std::move(r));
            idle = 0;
        }
        ++idle;
        for (std::size_t i = 0; i < resident.size();) {
            const BlockRun::Outcome outcome = resident[i].block->advance();
            if (outcome == BlockRun::Outcome::deadlock) return run.fail(trapped, resident[i].block->describe());
            if (outcome == BlockRun::Outcome::waiting) { ++i; continue; }
            idle = 0;
            add_work(run, *resident[i].state);
            free_slots.push_back(resident[i].slot);
            resident.erase(resident.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }
}

void run_guarded(Launched& run, std::uint64_t first, std::uint64_t last) {
    const int way = sigsetjmp(guard.target, 0);
    if (way == normal) {
        executing = true;
        if (run.code->block) run_plain(run, first, last);
        else run_stopping(run, first, last);
    } else if (way == trapped) {
        run.fail(trapped, "PTX line " + std::to_string(guard.trap_line) + ": " + guard.trap);
    } else {
        run.fail(faulted, "");
    }
    executing = false;
}

std::uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1000000000u + static_cast<std::uint64_t>(t.tv_nsec);
}

// Blocks in chunks, taken by whoever is free.
void run_shared(Launched& run, std::uint64_t chunk) {
    while (!run.failed) {
        const std::uint64_t first = run.next.fetch_add(chunk);
        if (first >= run.blocks) return;
        run_guarded(run, first, std::min(first + chunk, run.blocks));
    }
}

void run_all(Launched& run, int workers) {
    constexpr std::uint64_t worth_ns = 60000;  // what is left must outweigh waking a helper
    const bool share = run.code->parallel && workers > 1 && run.blocks > 1;
    if (!share) return run_guarded(run, 0, run.blocks);
    const std::uint64_t start = now_ns();
    std::uint64_t done = 0;
    for (std::uint64_t step = 1; done < run.blocks && !run.failed; step *= 2) {
        const std::uint64_t last = std::min(done + step, run.blocks);
        run_guarded(run, done, last);
        done = last;
        const std::uint64_t left = run.blocks - done, spent = now_ns() - start;
        if (left && spent / done * left + 1 > worth_ns && spent > worth_ns / 8) {
            run.next = done;
            const std::uint64_t per_block = std::max<std::uint64_t>(1, spent / done);
            const std::uint64_t chunk = std::clamp<std::uint64_t>(20000 / per_block, 1, std::max<std::uint64_t>(1, left / (4 * static_cast<std::uint64_t>(workers))));
            with_helpers(workers - 1, [&run, chunk] { run_shared(run, chunk); });
            return;
        }
    }
}

// The wrong access again, now where the driver's handler keeps it.
__attribute__((no_sanitize("undefined", "address"))) void repeat_fault(void* address, bool write) {
    auto* p = static_cast<volatile std::uint8_t*>(address);
    if (write) __atomic_fetch_or(const_cast<std::uint8_t*>(p), 0, __ATOMIC_RELAXED);
    else (void)*p;
}

}  // namespace

void divert_fault(void* address, bool write) {
    if (!executing) return;
    executing = false;
    guard.fault = address;
    guard.fault_write = write;
    siglongjmp(guard.target, faulted);
}

tl::expected<Work, Error> execute(const Code& code, const abi::Launch& launch, const std::string& name, int workers) {
    Work work;
    std::string failure;
    void* fault = nullptr;
    bool fault_write = false, has_fault = false;
    {
        Launched run;
        run.code = &code;
        run.launch = launch;
        run.blocks = std::uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
        alignas(64) std::uint8_t workspace[256] = {};
        run.launch.grid_workspace = reinterpret_cast<std::uint64_t>(workspace) - launch.view_offset;
        run_all(run, workers);
        work = {run.bytes_read, run.bytes_written, run.operations, run.unwritten};
        if (run.failed) {
            has_fault = run.way == faulted;
            fault = run.fault, fault_write = run.fault_write;
            failure = run.message;
        }
    }
    if (has_fault) {
        failure.clear();
        failure.shrink_to_fit();  // the next line may not return
        repeat_fault(fault, fault_write);
        failure = "wrong memory access";
    }
    if (!failure.empty()) return tl::make_unexpected(Error{"kernel " + name + ": " + failure});
    return work;
}

}  // namespace softgpu::ptx
