// Handlers of graphs: launched whole where their memory fits together, else in pieces.
#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "interpose/driver.hpp"
#include "shim/pager/rules.hpp"
#include "shim/preload/captured_calls.hpp"
#include "shim/preload/context_wait.hpp"
#include "shim/preload/handlers.hpp"
#include "shim/preload/work.hpp"

namespace udnnmem::preload {
namespace {

using namespace interpose;
using pager::DevicePager;
using pager::holds;
using pager::Op;
using pager::Pager;

// Launches of one graph are ordered, on whatever streams. The driver sees to it where they are whole, else an event.
struct GraphOrder {
    std::mutex mutex;                           // while one of them is issued
    CUevent event = nullptr;                    // behind the last one; null: there was none
    std::atomic<CUcontext> context{nullptr};    // the event's
    bool whole = true;                          // the last one was
};
std::mutex g_graphs_mutex;
auto& g_graphs = *new std::unordered_map<CUgraphExec, std::shared_ptr<GraphOrder>>;   // never destroyed: programs launch as they end

// The program has destroyed it while its pieces run, or wait for what this very thread does next. The driver does not know that
// they are its own, and would let go of what its nodes use.
struct Ending {
    CUgraphExec exec;
    CUevent event;       // behind its last launch
    CUcontext context;   // the event's
};
auto& g_ending = *new std::vector<Ending>;   // under g_graphs_mutex
std::atomic<bool> g_any_ending{false};

// Takes one of them out. It is ended without the lock: that may call destructors of the program's.
template <class Wanted>
bool take_ending(const Wanted& wanted, Ending& out) {
    std::lock_guard lock(g_graphs_mutex);
    const auto it = std::find_if(g_ending.begin(), g_ending.end(), wanted);
    if (it == g_ending.end()) return false;
    out = *it;
    g_ending.erase(it);
    g_any_ending.store(!g_ending.empty(), std::memory_order_relaxed);
    return true;
}
void end(const Ending& e) {
    static const auto destroy = UDNNMEM_REAL(cuGraphExecDestroy);
    if (destroy) destroy(e.exec);
}

// Each address of a graph once, where it comes first; what nodes are given before what tables lead them to. An earlier node may
// read what a later one overwrites.
void merge(Touches& touches) {
    std::unordered_set<std::uint64_t> seen;
    std::stable_partition(touches.begin(), touches.end(), [](const profiler::Touch& t) { return !t.led; });
    std::erase_if(touches, [&](const profiler::Touch& t) { return !seen.insert(t.address).second; });
    for (profiler::Touch& t : touches) t.mode = profiler::Mode::read_write, t.word = 0;
}

// Another thread that a host function wakes may wait for the stream, and would not wait for nodes that are still to be issued.
bool wakes_others(const GraphExec& graph) {
    const auto& nodes = graph.nodes();
    return std::any_of(nodes.begin(), nodes.empty() ? nodes.end() : std::prev(nodes.end()), [](const GraphNode& n) { return n.enabled && n.work.kind == WorkKind::host; });
}

// Null where there is none and `make` does not say that there has to be.
std::shared_ptr<GraphOrder> order_of(CUgraphExec exec, bool make) {
    std::lock_guard lock(g_graphs_mutex);
    if (const auto known = g_graphs.find(exec); known != g_graphs.end() || !make) return known == g_graphs.end() ? nullptr : known->second;
    return g_graphs[exec] = std::make_shared<GraphOrder>();
}

void come_after(Pager& p, GraphOrder& order, CUstream stream) {
    if (order.event && holds("graph-order")) p.driver().cuStreamWaitEvent(stream, order.event, 0);
}

CUresult has_come(Pager& p, GraphOrder& order, CUstream stream, bool whole) {
    const pager::Driver& d = p.driver();
    const CUcontext context = p.streams().slot(stream).context;
    const pager::Within there(d, context);
    if (order.event && order.context != context) d.cuEventDestroy_v2(std::exchange(order.event, nullptr));
    if (!order.event) d.cuEventCreate(&order.event, CU_EVENT_DISABLE_TIMING);
    order.context = context;
    order.whole = whole;
    return order.event ? d.cuEventRecord(order.event, stream) : CUDA_SUCCESS;
}

CUresult launch_in_pieces(Pager& p, GraphOrder& order, const GraphExec& graph, CUstream stream) {
    const captured::Run calls(graph);
    const pager::Within there(p.driver(), p.streams().slot(stream).context);   // a launch needs no current context, what its nodes do does
    come_after(p, order, stream);
    const auto& nodes = graph.nodes();
    CUresult result = CUDA_SUCCESS;
    for (std::size_t i = 0; i < nodes.size() && result == CUDA_SUCCESS; ++i) {
        if (!nodes[i].enabled) continue;
        Work w = nodes[i].work;
        w.stream = stream;
        const profiler::math::As call(calls.at(nodes[i]));
        result = handle::work(w, [&] { return graph.issue(i, stream); });
    }
    const CUresult ordered = has_come(p, order, stream, false);
    return result != CUDA_SUCCESS ? result : ordered;
}

// Whether all that the graph does can be done on `stream`: its memory is that device's, its kernels that context's.
bool is_of(Pager& p, const Op& op, const GraphExec& graph, CUstream stream) {
    const CUcontext context = p.streams().slot(stream).context;
    if (graph.context() && graph.context() != context) return false;
    const pager::Within there(p.driver(), context);
    const DevicePager* const device = p.current_device();
    const auto other = [device](const pager::Buffer* b) { return b->device != device; };
    return std::none_of(op.buffers, op.buffers + op.count, other) && std::none_of(op.more.begin(), op.more.end(), other);
}

constexpr const char* kGraphLaunch = executor::Executor::graph_launch;

}  // namespace

namespace handle {

CUresult launch_graph(CUgraphExec exec, const GraphExec& graph, CUstream stream, Submit submit) noexcept {
    if (stream == CU_STREAM_PER_THREAD) [[unlikely]] name_own_stream();
    Session* s = Session::get();
    if (!s) return submit();
    end_graphs();
    Pager& p = s->pager();
    Op op;
    Entered entered(p, op);
    op.stream = stream;
    op.kernel = true;
    op.by_cpu = graph.launches_others();
    Observation seen(*s, stream);
    executor::Executor* plan = nullptr;
    if (const CUresult result = plan_of(*s, stream, plan); result != CUDA_SUCCESS) return result;
    executor::Executor::Place place;
    std::uint64_t shape = 0;
    const bool capturing = p.streams().is_capturing(stream);
    std::shared_ptr<GraphOrder> order;   // null: it is captured
    std::unique_lock<std::mutex> one_at_a_time;
    const auto submit_in_order = [&] {
        if (order && !order->whole) come_after(p, *order, stream);
        const CUresult result = submit();
        if (order && result == CUDA_SUCCESS) has_come(p, *order, stream, true);
        return result;
    };
    try {
        const std::vector<interpose::Span> own = graph.own_memory();
        if (plan && !graph.issuable()) plan->gating();   // there are nodes in it of which nobody knows what they do
        for (const GraphNode& node : graph.nodes()) {
            if (!node.enabled) continue;
            if (plan && gates(node.work)) plan->gating();
            op.by_cpu = op.by_cpu || node.work.kind != WorkKind::kernel;
            if (node.work.kind == WorkKind::copy && !capturing) {
                if (const CUresult result = let_pointers_escape(*s, node.work); result != CUDA_SUCCESS) return result;
                name_carried(p, node.work, op);
            }
            name_accesses(p, node.work, op, seen.touches(), own);
            if (Touches* all = seen.touches()) name_led(p, node.work, *all);
            if (plan || seen.touches()) shape = shape * 0x9e3779b97f4a7c15u + shape_of(node.work);
        }
        op.everything = op.everything || graph.launches_others();
        drop_repeats(op);
        if (Touches* all = seen.touches()) merge(*all);
        op.overwrites.clear();  // an earlier node may read what a later one overwrites
        const bool names_any = (op.count || op.loose_count || op.everything) && holds("graph");
        if (!capturing) order = order_of(exec, true);   // an update can make it one that is launched in pieces
        if (order) one_at_a_time = std::unique_lock(order->mutex);
        if (!names_any) return submit_in_order();
        if (order && graph.issuable() && is_of(p, op, graph, stream)) {
            if (!p.fits_together(op) || (plan && plan->wants_pieces() && !wakes_others(graph))) return launch_in_pieces(p, *order, graph, stream);
        }
        CUresult ready = CUDA_SUCCESS;
        if (plan) place = plan->before(kGraphLaunch, shape, op), ready = plan->compute_again(place, op, nullptr);
        if (ready == CUDA_SUCCESS) ready = entered.enter();
        if (ready == CUDA_SUCCESS) ready = follow_replays(*s, op);
        if (ready != CUDA_SUCCESS) return explained(*s, op, kGraphLaunch, ready);
        seen.submitting(true);
        if (plan) plan->submitting(place, op);
        if (!op.captured)
            for (const GraphNode& node : graph.nodes())
                if (node.enabled && node.work.kind == WorkKind::copy) note_pointers_copied(p, node.work);
    } catch (...) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const CUresult result = submit_in_order();
    if (plan && result == CUDA_SUCCESS) plan->submitted(place, op);
    if (seen.touches()) {
        const profiler::math::As calls(captured::Run(graph).as_one());
        seen.submitted(kGraphLaunch, shape, false, result);
    }
    entered.leave(result);
    if (plan && result == CUDA_SUCCESS) plan->after(place, op);
    s->launched();
    return result;
}

void end_graphs() noexcept {
    if (!g_any_ending.load(std::memory_order_relaxed)) return;
    Session* s = Session::get();
    if (!s) return;
    const pager::Driver& d = s->pager().driver();
    const pager::Relaxed relaxed(d);
    const auto ended = [&](const Ending& e) { return d.cuEventQuery(e.event) != CUDA_ERROR_NOT_READY; };
    for (Ending e; take_ending(ended, e);) {
        d.cuEventDestroy_v2(e.event);
        end(e);
    }
}

bool graph_destroying(CUgraphExec exec) noexcept {
    end_graphs();
    std::shared_ptr<GraphOrder> order;
    {
        std::lock_guard lock(g_graphs_mutex);
        const auto it = g_graphs.find(exec);
        if (it == g_graphs.end()) return false;
        order = std::move(it->second);
        g_graphs.erase(it);
    }
    std::lock_guard lock(order->mutex);
    if (Session* s = Session::get(); s && order->event) {
        const pager::Driver& d = s->pager().driver();
        const pager::Relaxed relaxed(d);
        const CUevent event = std::exchange(order->event, nullptr);
        if (!order->whole && d.cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
            std::lock_guard both(g_graphs_mutex);
            try {
                g_ending.push_back({exec, event, order->context});
                g_any_ending.store(true, std::memory_order_relaxed);
                return true;
            } catch (...) {
                d.cuEventSynchronize(event);
            }
        }
        d.cuEventDestroy_v2(event);
    }
    return false;
}

void graphs_end_with(CUcontext context) noexcept {
    {
        std::lock_guard lock(g_graphs_mutex);
        std::erase_if(g_graphs, [&](const auto& g) { return g.second->context == context; });  // their events go with it
    }
    Session* s = Session::get();
    const auto of_it = [&](const Ending& e) { return s && e.context == context; };
    for (Ending e; take_ending(of_it, e);) {
        s->pager().driver().cuEventSynchronize(e.event);
        end(e);
    }
}

}  // namespace handle
}  // namespace udnnmem::preload
