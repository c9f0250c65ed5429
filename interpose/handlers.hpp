// What the hooks tell the layer above, and what it may answer. interpose/ knows CUDA's entry points and
// nothing of memory policy: each hook describes its call in the terms of this header and hands over the
// real call as `submit`; the handler decides when it is made. The preload fills the table in.
//
// Invariants
//   - A handler is called only while the table is installed (install()); without one every hook passes through.
//   - `submit` is called at most once (but see take_unmanaged), on the calling thread; its CUresult is what the program
//     gets unless the handler has a reason of its own.
//   - No handler throws. Handlers are called from any thread, with any context current, also with none.
//   - The real call is made with the recursion guard set, so that calls that the driver makes through its own
//     exported names pass straight through; the preload's own threads hold the guard for life.
//   - Streams are named so that the variant is gone: the legacy stream is CU_STREAM_LEGACY, the calling thread's
//     own is CU_STREAM_PER_THREAD (NULL in a `_ptsz`/`_ptds` entry point), all others are the program's handles.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "interpose/function_ref.hpp"

namespace udnnmem::interpose {

using Submit = FunctionRef<CUresult()>;

// What an op does to a span of addresses. `overwrite`: every byte is written and none is read.
enum class Access : std::uint8_t { read, write, overwrite, read_write };

// Of a box of more than one row: `depth` slices of `height` rows of `width` bytes; rows are `pitch` bytes apart, slices `slice`.
struct Rows {
    std::size_t width = 0, pitch = 0, height = 1, slice = 0, depth = 1;   // width 0: it is one row
};

// `address` may be any pointer (device, host, managed); whoever reads a span keeps those that are his. A box is told as the range that
// covers it, and by its rows.
struct Span {
    CUdeviceptr address = 0;
    std::size_t bytes = 0;
    Access access = Access::read_write;
    Rows rows = {};
    std::size_t content() const { return rows.width ? rows.width * rows.height * rows.depth : bytes; }   // bytes without the gaps
};

// Where the parameters of a kernel lie in its parameter buffer. Lives as long as the process.
struct KernelLayout {
    struct Param {
        std::uint32_t offset = 0;
        std::uint32_t size = 0;
    };
    const char* name = "";        // the kernel's
    bool known = false;           // false: nobody can say what it is given
    std::uint32_t bytes = 0;      // of the parameter buffer
    std::vector<Param> params;
    bool words = false;           // each of the parameters is 8 bytes at a multiple of 8
    bool follows_variables = false; // it uses memory by addresses that it finds in variables of its module
    std::uint64_t fingerprint = 0;  // of name and parameters: the same in every run of the program
};

// One kernel launch, by whatever entry point. Exactly one of params and buffer is set (neither: no parameters).
struct Launch {
    CUfunction function = nullptr;
    const KernelLayout* layout = nullptr;   // never null
    void* const* params = nullptr;          // kernelParams: one pointer a parameter
    const void* buffer = nullptr;           // `extra`: the parameter buffer ...
    std::size_t buffer_bytes = 0;           // ... and its size
    unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
    unsigned shared_bytes = 0;
    const CUlaunchAttribute* attributes = nullptr;
    unsigned attribute_count = 0;
    bool cooperative = false;
};

enum class WorkKind : std::uint8_t {
    kernel,    // `launch` is set
    copy,      // spans: sources read, destinations written
    fill,      // memset; one span
    memop,     // stream wait/write values, batches of them; spans of 4 or 8 bytes
    managed,   // prefetch, advise, attach, discard: spans of managed memory
    host,      // host function or callback on a stream
    other,     // anything else that may touch device memory; `proven` says whether the spans are all
};

// One piece of GPU work that a call asks for.
struct Work {
    WorkKind kind = WorkKind::other;
    const char* entry_point = "";
    CUstream stream = CU_STREAM_LEGACY;
    bool blocking = false;        // the call returns only once the work is done
    bool proven = true;           // false: it may touch memory that neither spans nor launch name
    const Launch* launch = nullptr;
    const CUDA_MEMSET_NODE_PARAMS_v1* fill = nullptr;   // a fill: what the call says
    const Span* spans = nullptr;
    std::uint32_t span_count = 0;
    const Work* parts = nullptr;  // multi-device cooperative launch: one for each device
    std::uint32_t part_count = 0;
};

// A graph as instantiated (or updated since): its nodes in a topological order, each with what is needed to
// issue it on a stream. Child graphs are flattened. Owned by interpose, valid during the call.
struct GraphNode {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    Work work;                              // kernel, copy, fill, memop and host nodes
    std::vector<std::uint32_t> depends_on;  // earlier positions in the list
    bool enabled = true;
    std::uint64_t tag = 0;                  // what node_tag answered when the graph was read
};
class GraphExec {
  public:
    virtual const std::vector<GraphNode>& nodes() const = 0;
    virtual bool issuable() const = 0;      // every node can be issued on its own (kernel, copy, fill, memop, host, empty)
    virtual bool launches_others() const = 0;   // its kernels may launch graphs, which do what nobody sees; it is not issuable then
    virtual CUcontext context() const = 0;  // of an issuable one's nodes, as far as they have one; null: none has
    virtual CUresult issue(std::size_t node, CUstream stream) const = 0;  // the real calls that do what the node does
    // What its allocation nodes make: the driver's own, there when it is uploaded or launched, and undefined at each launch.
    std::vector<Span> own_memory() const;
  protected:
    ~GraphExec() = default;
};

enum class AllocationKind : std::uint8_t { linear, pitched, stream_ordered };
struct Allocation {
    AllocationKind kind = AllocationKind::linear;
    const char* entry_point = "";
    std::size_t bytes = 0;            // linear, stream_ordered
    std::size_t width = 0, height = 0;  // pitched ...
    unsigned element = 0;             // ... ElementSizeBytes
    CUstream stream = nullptr;        // stream_ordered
    CUmemoryPool pool = nullptr;      // stream_ordered: the named pool, null: the current one of the stream's device
    CUdevice pool_device = -1;        // where a named pool has its memory; -1: not known
    CUdeviceptr* address = nullptr;   // out
    std::size_t* pitch = nullptr;     // out, pitched
};

// What the program has waited for.
enum class SyncScope : std::uint8_t { context, stream, event };

// Why a buffer may no longer move: its physical memory became known to somebody else.
enum class Escape : std::uint8_t { allocation_handle, shareable_handle, ipc, multicast, texture, external };

// Memory that the device reaches and that is not the handlers': the host's (pinned, registered), the device's (mapped by the program, of
// shared pools, managed), a graph's, which is there again whenever that is launched, and a variable of a module.
enum class Outside : std::uint8_t { host, device, graph, variable };

struct Handlers {
    // Memory. `real` is the program's own call, for what the handler does not want to manage.
    CUresult (*allocate)(const Allocation&, Submit real) noexcept;
    // So many bytes of a device (-1: the current one's) that stay the driver's own. `real` may be called again if it is told
    // that there are none.
    CUresult (*take_unmanaged)(CUdevice, std::size_t bytes, Submit real) noexcept;
    CUresult (*free)(CUdeviceptr, const char* entry_point, Submit real) noexcept;                  // cuMemFree
    CUresult (*free_async)(CUdeviceptr, CUstream, const char* entry_point, Submit real) noexcept;  // cuMemFreeAsync

    // Work.
    CUresult (*work)(const Work&, Submit submit) noexcept;
    CUresult (*launch_graph)(CUgraphExec, const GraphExec&, CUstream, Submit submit) noexcept;

    // Ordering: after the program's call has succeeded, unless said otherwise.
    CUresult (*wait_for_context)(CUcontext, Submit real) noexcept;  // cuCtxSynchronize; null: the current one
    void (*synchronised)(SyncScope, CUstream, CUevent) noexcept;   // waited for, or queried and found complete
    void (*event_recorded)(CUevent, CUstream) noexcept;            // stream null: by a whole context (cuCtxRecordEvent)
    void (*event_waited)(CUstream, CUevent) noexcept;              // cuStreamWaitEvent
    void (*stream_created)(CUstream, bool green) noexcept;         // in a green context, or in the current one; null: a green context's own
    void (*stream_destroying)(CUstream) noexcept;                  // before the real call
    void (*capture_beginning)(CUstream) noexcept;                  // before the real call
    void (*capture_ended)(CUstream) noexcept;                      // also when it was invalidated, or did not begin
    // Before the real call; primary contexts too. Memory ends with its context, but not with a green one.
    void (*context_destroying)(CUcontext, bool green) noexcept;
    void (*context_destroyed)(CUcontext) noexcept;

    // Questions about memory. May change what the real call has answered.
    CUresult (*memory_info)(std::size_t* free, std::size_t* total, Submit real) noexcept;          // NULLs are legal
    CUresult (*total_memory)(std::size_t* bytes, CUdevice, Submit real) noexcept;
    CUresult (*address_range)(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr, Submit real) noexcept;
    CUresult (*pointer_attribute)(void* data, CUpointer_attribute, CUdeviceptr, Submit real) noexcept;
    CUresult (*pointer_attributes)(unsigned count, CUpointer_attribute*, void** data, CUdeviceptr, Submit real) noexcept;
    CUresult (*pool_attribute)(CUmemoryPool, CUmemPool_attribute, void* value, bool set, Submit real) noexcept;
    CUresult (*pool_trim)(CUmemoryPool, std::size_t keep, Submit real) noexcept;

    // Addresses that go where accesses cannot be followed. Called before the real call, which is made only if the
    // answer is CUDA_SUCCESS.
    CUresult (*escaping)(CUdeviceptr, Escape, const char* entry_point) noexcept;
    CUresult (*ipc_get)(CUipcMemHandle*, CUdeviceptr, Submit real) noexcept;
    CUresult (*ipc_open)(CUdeviceptr*, const CUipcMemHandle&, unsigned flags, Submit real) noexcept;
    CUresult (*ipc_close)(CUdeviceptr, Submit real) noexcept;
    void (*tensor_map)(const void* descriptor_128_bytes, CUdeviceptr) noexcept;  // after cuTensorMapEncode*/ReplaceAddress

    // The doors themselves.
    void (*unknown_version)(const char* name, int version) noexcept;  // a managed name answered with a pointer that we do not know

    // These may be null.
    // The driver has been initialised; perhaps it was before.
    void (*initialised)() noexcept = nullptr;
    // Before the real call; from then on the handle may name another event, which was never recorded.
    void (*event_destroying)(CUevent) noexcept = nullptr;
    // A node of a graph is made or changed: nothing runs, but the driver looks at the spans' addresses.
    CUresult (*graph_node)(const Span* spans, std::size_t count, Submit submit) noexcept = nullptr;
    // At its device address, known to the program from now on; or (bytes 0) there no more.
    void (*unmanaged_memory)(CUdeviceptr, std::size_t bytes, Outside) noexcept = nullptr;
    // A context that was said to be about to go has not gone.
    void (*context_kept)(CUcontext) noexcept = nullptr;
    // Before kernels cease to exist that may have been launched. False: they have to stay, whatever the program is told.
    bool (*code_unloading)() noexcept = nullptr;
    // An executable graph is about to be destroyed. True: the handler will do it, later.
    bool (*graph_destroying)(CUgraphExec) noexcept = nullptr;
    // A node of a graph is read: a number to be kept with it.
    std::uint64_t (*node_tag)(CUgraphNode) noexcept = nullptr;
    // The current context's device may reach the memory of `peer`'s from now on, or no more.
    CUresult (*peer_access)(CUcontext peer, bool on) noexcept = nullptr;
    // The driver has refused to make copies of the memory at `address` synchronous. The answer for the program.
    CUresult (*memops_refused)(CUdeviceptr address, bool on, CUresult refusal) noexcept = nullptr;
    // Whether a copy is one between memory of two devices that is to be made as between peers; in which contexts its ends lie then.
    bool (*between_devices)(CUdeviceptr to, CUdeviceptr from, CUcontext& there, CUcontext& here) noexcept = nullptr;
    // A descriptor that a program has encoded says something else of the same memory from now on. 128 bytes each.
    void (*tensor_map_changed)(const void* before, const void* after) noexcept = nullptr;
    // What is submitted to the stream from now on is recorded for another queue, which runs it when nobody tells us. Before the
    // real call, which is made only if the answer is CUDA_SUCCESS.
    CUresult (*recorded_elsewhere)(CUstream) noexcept = nullptr;
    // Devices may reach the memory of a pool from now on.
    CUresult (*pool_access)(CUdevice owner, const CUmemAccessDesc*, std::size_t count) noexcept = nullptr;
};

// Installs the table (null: everything passes through). Thread-safe; calls in flight end with the old one.
void install(const Handlers*) noexcept;

// For threads of the library's own: every hook passes through on this thread from now on.
void hold_guard_for_life() noexcept;

}  // namespace udnnmem::interpose
