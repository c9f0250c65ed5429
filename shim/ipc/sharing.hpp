// What this process shares by IPC handles, and what it has opened of others'.
//
// Invariants
//   - A buffer is offered once, however often a handle is asked for, until it is freed.
//   - What is opened is mapped once for each context and counted, as the driver does; the last close waits for the context
//     and unmaps it. It is not the pager's: it counts for no budget and never moves.
//   - Every error is one that CUDA has for the call.
#pragma once

#include <cuda.h>

#include <atomic>
#include <map>
#include <mutex>

#include "shim/ipc/handover.hpp"
#include "shim/pager/pager.hpp"

namespace udnnmem::ipc {

// The bytes of a CUipcMemHandle that names memory of ours.
struct Handle {
    char magic[8];
    std::int32_t process;
    std::int32_t reserved;
    std::uint64_t key, number;
    std::uint64_t offset, bytes;  // of the allocation in the pieces
};
static_assert(sizeof(Handle) <= sizeof(CUipcMemHandle));

class Sharing {
  public:
    Sharing(pager::Pager& pager, std::function<void()> thread_started) : pager_(pager), handover_(std::move(thread_started)) {}

    // `at` is in the arena.
    CUresult get(CUipcMemHandle& out, CUdeviceptr at);
    static bool ours(const CUipcMemHandle&);
    CUresult open(CUdeviceptr& out, const CUipcMemHandle&);
    // False: nothing of ours was opened there.
    bool close(CUdeviceptr at, CUresult& result);
    // The allocation that was opened and holds `at`.
    bool range_of(CUdeviceptr at, CUdeviceptr& base, std::size_t& bytes);

    // After an allocation was freed, before a context goes, in a forked child.
    void freed(CUdeviceptr base);
    void context_destroying(CUcontext context);
    void forked() { handover_.forked(); }

  private:
    struct Offered {
        std::uint64_t number;
        CUcontext context;
    };
    struct Opened {
        Handle handle;
        CUcontext context;
        CUdeviceptr mapped;      // where the pieces begin
        std::size_t size;        // of them
        std::uint32_t count = 1;
    };
    CUresult map(std::vector<Piece>& pieces, CUdeviceptr& at, std::size_t& size);
    void unmap(const Opened&);

    pager::Pager& pager_;
    Handover handover_;
    std::mutex mutex_;
    std::map<CUdeviceptr, Offered> offered_;  // by the allocation's base
    std::map<CUdeviceptr, Opened> opened_;    // by the address that the program was given
    std::atomic<bool> any_{false};            // something was offered or opened once
};

}  // namespace udnnmem::ipc
