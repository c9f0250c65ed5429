// Contexts, streams and events. Handles are pointers to these objects; the shells of contexts and
// streams are never freed, so that a stale handle is an error and not a crash.
#pragma once

#include <deque>
#include <unordered_map>

#include "tests/softgpu/driver/engine.hpp"

struct CUgraph_st;
struct CUgraphNode_st;

namespace softgpu {
inline constexpr std::uint32_t context_magic = 0x43545831, stream_magic = 0x53545231, event_magic = 0x45565431;

// A capture in progress, shared by the streams that joined it.
struct Capture {
    CUgraph_st* graph = nullptr;
    bool owns_graph = true;  // false: BeginCaptureToGraph
    unsigned long long id = 0;
    CUstream origin = nullptr;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::uint64_t thread = 0;
    bool invalid = false;
    std::vector<CUstream> streams;
};
}  // namespace softgpu

struct CUctx_st {
    std::uint32_t magic = softgpu::context_magic;
    int device = 0;
    unsigned flags = 0;
    unsigned version = 3020;
    bool primary = false;
    std::uint64_t id = 0;
    std::atomic<int> sticky{0};
    std::atomic<bool> alive{true};  // other threads may ask while one destroys it
    unsigned attached = 0;  // how often it is held beyond its creation
    CUstream legacy = nullptr;
    std::vector<CUstream> streams;  // all but the legacy one; under schedule_mutex
    std::vector<CUmodule> modules;
    std::unordered_map<int, size_t> limits;
    CUfunc_cache cache = CU_FUNC_CACHE_PREFER_NONE;
    std::size_t cache_index = 0;
};

struct CUstream_st {
    std::uint32_t magic = softgpu::stream_magic;
    CUcontext context = nullptr;
    unsigned flags = 0;
    int priority = 0;
    std::uint64_t id = 0;
    bool is_legacy = false, blocking = true, per_thread = false;
    softgpu::OpRef tail;                           // under schedule_mutex
    std::deque<softgpu::OpRef> queued;             // with SOFTGPU_QUEUE: what has not ended of it; under schedule_mutex
    std::shared_ptr<softgpu::Capture> capture;     // under schedule_mutex
    std::vector<CUgraphNode_st*> capture_tail;     // what the next captured node depends on
    std::unordered_map<int, CUstreamAttrValue> attributes;
};

struct CUevent_st {
    std::uint32_t magic = softgpu::event_magic;
    unsigned flags = 0;
    CUcontext context = nullptr;
    bool recorded = false;
    softgpu::OpRef op;                         // under schedule_mutex
    std::shared_ptr<softgpu::Capture> capture;  // recorded in a capturing stream
    std::vector<CUgraphNode_st*> capture_nodes;
};

namespace softgpu {

CUcontext current_context();
void set_current(CUcontext context);
bool valid(CUcontext context);
bool valid(CUstream stream);
void names_what_is_gone(const char* call, const char* what);  // by a handle: a card's driver does not look
bool valid(CUevent event);
// The current context, usable: not destroyed, no sticky error.
CUresult usable_context(CUcontext* out);

// Resolves the special handles; the per-thread stream is made on first use.
CUresult find_stream(Default d, CUstream handle, CUstream* out);

// Enqueues work in stream order (or adds it to the graph under capture). `op` may be null.
CUresult submit(CUstream stream, std::shared_ptr<Work> work, OpRef* op = nullptr, std::span<const OpRef> more = {});
// As submit, with schedule_mutex held and no capture: what the op would have to wait for, and the new tail.
void stream_dependencies_locked(CUstream stream, std::vector<OpRef>& after);
OpRef submit_in_order_locked(CUstream stream, std::shared_ptr<Work> work, std::span<const OpRef> more = {});
bool is_capturing(CUstream stream);

// True while a call that could synchronise is not allowed in this thread: some GLOBAL capture, or one of this thread.
CUresult refuse_under_capture(CUstream synchronises = nullptr);

CUresult synchronise(CUstream stream);
CUresult synchronise(CUcontext context);
CUresult synchronise_device(int device);
inline CUresult sticky(CUcontext context) { return static_cast<CUresult>(context->sticky.load(std::memory_order_relaxed)); }

Address unview(void* address, int device);
CUresult destroy_context(CUcontext context);
CUcontext primary_of(int device);

}  // namespace softgpu
