// A preload that is nothing but the doors and a table of handlers that count what they are told: what the tests of
// the doors run under. It changes no call but
// one: told to (PROBE=issue), it issues graphs node by node.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/interpose/probe.hpp"

using namespace udnnmem::interpose;

namespace {

constinit Probe probe;
bool issue_graphs = false;  // node by node, instead of the graph as one
unsigned graphs_issued = 0;

template <class... A>
void told(const char* handler) noexcept {
    ++probe.told;
    probe.handler = handler;
}

CUresult real_of(const char* handler, Submit real) noexcept {
    told(handler);
    return probe.swallow ? CUDA_ERROR_UNKNOWN : real();
}

const Handlers table = [] {
    Handlers h{};
    h.allocate = [](const Allocation& a, Submit real) noexcept {
        probe.allocation = a;
        return real_of(a.entry_point, real);
    };
    h.free = [](CUdeviceptr, const char* name, Submit real) noexcept { return real_of(name, real); };
    h.free_async = [](CUdeviceptr, CUstream s, const char* name, Submit real) noexcept {
        probe.stream = s;
        return real_of(name, real);
    };
    h.work = [](const Work& w, Submit real) noexcept {
        probe.kind = w.kind;
        probe.stream = w.stream;
        probe.blocking = w.blocking;
        probe.proven = w.proven;
        probe.span_count = w.span_count;
        probe.part_count = w.part_count;
        for (std::uint32_t i = 0; i < w.span_count && i < std::size(probe.spans); ++i) probe.spans[i] = w.spans[i];
        probe.layout = w.launch ? w.launch->layout : nullptr;
        if (w.launch) probe.launch = *w.launch;
        return real_of(w.entry_point, real);
    };
    h.launch_graph = [](CUgraphExec, const GraphExec& g, CUstream s, Submit real) noexcept {
        probe.stream = s;
        probe.graph_nodes = g.nodes().size();
        probe.graph_issuable = g.issuable();
        if (issue_graphs && g.issuable()) {
            told("launch_graph");
            ++graphs_issued;
            for (std::size_t i = 0; i < g.nodes().size(); ++i)
                if (const GraphNode& node = g.nodes()[i]; node.enabled)
                    if (const CUresult result = g.issue(i, s); result != CUDA_SUCCESS) return result;
            return CUDA_SUCCESS;
        }
        return real_of("launch_graph", real);
    };
    h.graph_node = [](const Span* spans, std::size_t count, Submit real) noexcept {
        probe.span_count = static_cast<std::uint32_t>(count);
        for (std::size_t i = 0; i < count && i < std::size(probe.spans); ++i) probe.spans[i] = spans[i];
        return real_of("graph_node", real);
    };
    h.unmanaged_memory = [](CUdeviceptr, std::size_t, Outside) noexcept { told("unmanaged_memory"); };
    h.peer_access = [](CUcontext, bool) noexcept { return told("peer_access"), CUDA_SUCCESS; };
    h.pool_access = [](CUdevice, const CUmemAccessDesc*, std::size_t) noexcept { return told("pool_access"), CUDA_SUCCESS; };
    h.wait_for_context = [](CUcontext, Submit real) noexcept { return real(); };
    h.synchronised = [](SyncScope, CUstream s, CUevent) noexcept { probe.stream = s, told("synchronised"); };
    h.event_recorded = [](CUevent, CUstream s) noexcept { probe.stream = s, told("event_recorded"); };
    h.event_waited = [](CUstream s, CUevent) noexcept { probe.stream = s, told("event_waited"); };
    h.stream_created = [](CUstream, bool) noexcept { told("stream_created"); };
    h.stream_destroying = [](CUstream) noexcept { told("stream_destroying"); };
    h.capture_beginning = [](CUstream s) noexcept { probe.stream = s, told("capture_beginning"); };
    h.capture_ended = [](CUstream s) noexcept { probe.stream = s, told("capture_ended"); };
    h.context_destroying = [](CUcontext, bool) noexcept { told("context_destroying"); };
    h.context_destroyed = [](CUcontext) noexcept { told("context_destroyed"); };
    h.memory_info = [](std::size_t*, std::size_t*, Submit real) noexcept { return real_of("memory_info", real); };
    h.total_memory = [](std::size_t*, CUdevice, Submit real) noexcept { return real_of("total_memory", real); };
    h.address_range = [](CUdeviceptr*, std::size_t*, CUdeviceptr, Submit real) noexcept { return real_of("address_range", real); };
    h.pointer_attribute = [](void*, CUpointer_attribute, CUdeviceptr, Submit real) noexcept {
        return real_of("pointer_attribute", real);
    };
    h.pointer_attributes = [](unsigned, CUpointer_attribute*, void**, CUdeviceptr, Submit real) noexcept {
        return real_of("pointer_attributes", real);
    };
    h.pool_attribute = [](CUmemoryPool, CUmemPool_attribute, void*, bool, Submit real) noexcept {
        return real_of("pool_attribute", real);
    };
    h.take_unmanaged = [](CUdevice, std::size_t, Submit real) noexcept { return real_of("take_unmanaged", real); };
    h.pool_trim = [](CUmemoryPool, std::size_t, Submit real) noexcept { return real_of("pool_trim", real); };
    h.escaping = [](CUdeviceptr, Escape, const char* name) noexcept {
        told(name);
        return probe.swallow ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
    };
    h.ipc_get = [](CUipcMemHandle*, CUdeviceptr, Submit real) noexcept { return real_of("ipc_get", real); };
    h.ipc_open = [](CUdeviceptr*, const CUipcMemHandle&, unsigned, Submit real) noexcept { return real_of("ipc_open", real); };
    h.ipc_close = [](CUdeviceptr, Submit real) noexcept { return real_of("ipc_close", real); };
    h.tensor_map = [](const void*, CUdeviceptr) noexcept { told("tensor_map"); };
    h.recorded_elsewhere = [](CUstream) noexcept { return probe.swallow ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS; };
    h.tensor_map_changed = [](const void*, const void*) noexcept { told("tensor_map_changed"); };
    h.unknown_version = [](const char*, int version) noexcept {
        probe.unknown_version = version;
        told("unknown_version");
    };
    h.event_destroying = [](CUevent) noexcept { told("event_destroying"); };
    return h;
}();

void print(const char* line) noexcept { std::fprintf(stderr, "%s\n", line); }

__attribute__((constructor)) void start() {
    if (const char* mode = std::getenv("PROBE")) {
        if (std::strstr(mode, "trace")) trace_lookups(print);
        if (std::strstr(mode, "closed")) close_doors();
        if (std::strstr(mode, "hidden")) hide_exports();
        issue_graphs = std::strstr(mode, "issue") != nullptr;
        if (std::strstr(mode, "off")) return;
    }
    install(&table);
}

__attribute__((destructor)) void finish() {
    if (issue_graphs) std::fprintf(stderr, "%u graphs issued\n", graphs_issued);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) Probe* probe_state() { return &probe; }
extern "C" __attribute__((visibility("default"))) void probe_install(int on) { install(on ? &table : nullptr); }
