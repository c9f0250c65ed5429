#include "shim/preload/captured_calls.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#include "interpose/driver.hpp"

namespace udnnmem::preload::captured {
namespace {

using profiler::math::Call;

struct Notes {
    std::mutex mutex;
    std::unordered_map<CUgraphNode, std::uint64_t> by_node;   // tags
    std::vector<Call> calls;                                  // by tag - 1
    std::unordered_map<std::uint64_t, std::uint64_t> tags;    // by number: threads that capture at once take turns
};
Notes& notes() {
    static Notes& n = *new Notes;
    return n;
}
std::atomic<bool> g_any{false};

// The node that was captured last on the stream; null: there is no single one.
CUgraphNode newest(CUstream stream) {
    static const auto ask = UDNNMEM_REAL(cuStreamGetCaptureInfo);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    CUgraph graph = nullptr;
    const CUgraphNode* nodes = nullptr;
    const CUgraphEdgeData* edges = nullptr;
    std::size_t count = 0;
    if (!ask || ask(stream, &status, &id, &graph, &nodes, &edges, &count) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return nullptr;
    return count == 1 ? nodes[0] : nullptr;
}

}  // namespace

void note(CUstream stream) noexcept try {
    const Call call = profiler::math::current();
    if (!call.number && !g_any.load(std::memory_order_relaxed)) return;
    const CUgraphNode node = newest(stream);
    if (!node) return;
    Notes& n = notes();
    std::lock_guard lock(n.mutex);
    if (!call.number) {
        n.by_node.erase(node);
        return;
    }
    std::uint64_t& tag = n.tags[call.number];
    if (!tag) n.calls.push_back(call), tag = n.calls.size();
    n.by_node[node] = tag;
    g_any.store(true);
} catch (const std::bad_alloc&) {  // it is not counted
}

std::uint64_t tag_of(CUgraphNode node) noexcept {
    if (!g_any.load()) return 0;
    Notes& n = notes();
    std::lock_guard lock(n.mutex);
    const auto found = n.by_node.find(node);
    return found == n.by_node.end() ? 0 : found->second;
}

Run::Run(const interpose::GraphExec& graph) noexcept try {
    if (!g_any.load(std::memory_order_relaxed)) return;
    std::vector<std::uint64_t> tags;
    for (const interpose::GraphNode& node : graph.nodes())
        if (node.enabled && node.tag) tags.push_back(node.tag);
    if (tags.empty()) return;
    std::sort(tags.begin(), tags.end());
    tags.erase(std::unique(tags.begin(), tags.end()), tags.end());
    first_ = profiler::math::take_numbers(tags.back());
    Notes& n = notes();
    std::lock_guard lock(n.mutex);
    whole_ = n.calls[tags.front() - 1];
    whole_.number = first_;
    whole_.flops = 0;
    for (const std::uint64_t tag : tags) {
        whole_.flops += n.calls[tag - 1].flops;
        if (std::strcmp(n.calls[tag - 1].name, whole_.name) != 0) whole_.name = "calls in a graph";
    }
} catch (const std::bad_alloc&) {
    first_ = 0;
    whole_ = {};
}

Call Run::as_one() const noexcept { return whole_; }

Call Run::at(const interpose::GraphNode& node) const noexcept {
    if (!first_ || !node.tag) return {};
    Notes& n = notes();
    std::lock_guard lock(n.mutex);
    Call call = n.calls[node.tag - 1];
    call.number = first_ + node.tag - 1;
    return call;
}

}  // namespace udnnmem::preload::captured
