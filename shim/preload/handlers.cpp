// The handlers behind the hooks: each turns a call into buffers and asks the pager. What the pager does not manage is the
// program's own call, untouched.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "interpose/driver.hpp"
#include "shim/log/log.hpp"
#include "shim/pager/rules.hpp"
#include "shim/preload/accesses.hpp"
#include "shim/preload/captured_calls.hpp"
#include "shim/preload/host_ranges.hpp"
#include "shim/preload/launch_source.hpp"
#include "shim/preload/session.hpp"

namespace udnnmem::preload {
namespace {

using namespace interpose;
using pager::DevicePager;
using pager::holds;
using pager::Op;
using pager::Pager;

// ---- memory ----------------------------------------------------------------------------------------------------------

// What the trace's events call the buffer at `address`; -1: nothing, it never moves.
std::int32_t run_id(Pager& p, CUdeviceptr address) {
    const pager::Buffer* b = p.find(address);
    return b && !b->slab ? static_cast<std::int32_t>(b->id) : -1;
}

CUresult allocate(const Allocation& a, Submit real) noexcept {
    Session* s = Session::get(true);
    if (!s || !s->accepts_new() || !a.address) return real();
    Pager& p = s->pager();
    const bool ordered = a.kind == AllocationKind::stream_ordered;
    if (ordered && p.streams().is_capturing(a.stream)) return real();  // becomes a node of the graph
    // A pool's memory is the pool's device's, by default the stream's.
    const pager::Within there(p.driver(), ordered ? p.streams().slot(a.stream).context : nullptr);
    DevicePager* d = there ? p.current_device() : nullptr;
    if (!d || (a.pool && a.pool_device != d->device())) return real();
    std::size_t bytes = a.bytes, pitch = 0;
    if (a.kind == AllocationKind::pitched) {
        if (!a.pitch || !a.width || !a.height || (a.element != 4 && a.element != 8 && a.element != 16)) return real();
        int align = 0;  // rows start where textures and 2D copies want them
        p.driver().cuDeviceGetAttribute(&align, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, d->device());
        const std::size_t unit = static_cast<std::size_t>(std::max(align, 512));
        pitch = (a.width + unit - 1) / unit * unit;
        if (pitch < a.width || pitch > SIZE_MAX / a.height) return CUDA_ERROR_OUT_OF_MEMORY;
        bytes = pitch * a.height;
    }
    if (!bytes) return real();
    CUmemoryPool pool = a.pool;
    if (ordered && !pool)
        if (static const auto ask = UDNNMEM_REAL(cuDeviceGetMemPool); ask) ask(&pool, d->device());
    CUdeviceptr address = 0;
    try {
        if (const CUresult result = d->start(); result != CUDA_SUCCESS) {
            static log::Once once;
            if (once.first()) log::warn("device {}: what paging needs cannot be had (CUDA error {}): memory is not managed until it can", static_cast<int>(d->device()), static_cast<int>(result));
            return real();
        }
        const CUresult result = d->allocate(bytes, a.stream, ordered, pool, address);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) s->refused(*d, a.entry_point, bytes, false);
        if (result != CUDA_SUCCESS) return result;
    } catch (...) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (Learner* learner = s->learning()) learner->recorder.allocated(address, bytes, run_id(s->pager(), address));
    *a.address = address;
    if (a.pitch) *a.pitch = pitch;
    s->allocated(*d);
    return CUDA_SUCCESS;
}

// cuMemFree waits for the device, and closed libraries rely on it; but not for memory of a pool.
CUresult free_now(CUdeviceptr at, const char*, Submit real) noexcept {
    Session* s = Session::get();
    if (!s || !s->pager().in_arena(at)) {
        host_ranges.remove(at);  // managed memory is freed like this
        return real();
    }
    Pager& p = s->pager();
    pager::Buffer* b = p.find(at);
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    CUmemoryPool pool = nullptr;
    if (!b || !b->device->range_of(at, base, bytes, &pool) || base != at) return CUDA_ERROR_INVALID_VALUE;
    CUresult waited = CUDA_SUCCESS;
    if (!pool && !s->options().lazy_free && holds("free-waits") && !p.streams().capturing()) {
        CUcontext context = nullptr;
        const std::uint64_t up_to = p.streams().now();
        pager::insist([&] { return p.driver().cuCtxGetCurrent(&context); });
        waited = pager::insist([&] { return p.driver().cuCtxSynchronize(); });
        if (waited == CUDA_ERROR_INVALID_CONTEXT) return waited;   // then nothing is freed
        if (waited == CUDA_SUCCESS) p.streams().synchronised_context(context, up_to);
    }
    if (Learner* learner = s->learning()) learner->recorder.released(at);
    s->sharing().freed(at);
    if (executor::Executor* plan = s->executor()) plan->releasing(at, CU_STREAM_LEGACY);
    const CUresult result = b->device->free(at, nullptr, false);
    return result != CUDA_SUCCESS ? result : waited;
}

CUresult free_async(CUdeviceptr at, CUstream stream, const char*, Submit real) noexcept {
    Session* s = Session::get();
    if (!s || !s->pager().in_arena(at)) return real();
    pager::Buffer* b = s->pager().find(at);
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    if (!b || !b->device->range_of(at, base, bytes) || base != at) return CUDA_ERROR_INVALID_VALUE;
    if (s->pager().streams().is_capturing(stream)) return CUDA_ERROR_INVALID_VALUE;   // a graph frees only what a graph allocates
    if (Learner* learner = s->learning()) learner->recorder.released(at);
    s->sharing().freed(at);
    if (executor::Executor* plan = s->executor()) plan->releasing(at, stream);
    return b->device->free(at, stream, true);
}

// ---- work ------------------------------------------------------------------------------------------------------------

// One op for the recorder: what it touches, how long it takes. `touches()` is null while nobody learns.
class Observation {
  public:
    Observation(Session& s, CUstream stream) : learner_(s.learning()), stream_(stream) {
        if (learner_ && !learner_->recorder.hears_ops()) learner_ = nullptr;
        if (learner_ && s.pager().streams().capturing()) learner_ = nullptr;  // recorded into a graph, perhaps: not run now
        if (learner_ && !(touches_ = of_thread())) learner_ = nullptr;
        if (learner_) touches_->clear();
    }
    ~Observation() {
        if (timer_ >= 0) learner_->timers.stop(timer_, stream_, false);  // something threw: nothing was submitted
    }
    Observation(const Observation&) = delete;
    Observation& operator=(const Observation&) = delete;
    Touches* touches() { return learner_ ? touches_ : nullptr; }
    void submitting(bool many = false) {
        if (learner_ && !touches_->empty() && learner_->recorder.timing()) timer_ = learner_->timers.start(stream_, many);
    }
    void submitted(const char* name, std::uint64_t shape, CUresult result) noexcept {
        if (!learner_ || touches_->empty()) return;
        const std::int32_t timer = std::exchange(timer_, -1);
        learner_->timers.stop(timer, stream_, result == CUDA_SUCCESS);
        if (result == CUDA_SUCCESS) learner_->tell(name, shape, stream_, *touches_, timer);
    }

  private:
    Learner* learner_;
    CUstream stream_;
    std::int32_t timer_ = -1;
    Touches* touches_ = nullptr;

    // One for all of a thread's ops. Null in the thread's last destructors, which may submit work when it is gone.
    static Touches* of_thread() noexcept {
        static thread_local bool gone __attribute__((tls_model("initial-exec"))) = false;
        struct Kept : Touches {
            ~Kept() { gone = true; }
        };
        if (gone) return nullptr;
        static thread_local Kept kept __attribute__((tls_model("initial-exec")));
        return &kept;
    }
};

// Each address of a graph once, where it comes first; what nodes are given before what tables lead them to. An earlier node may
// read what a later one overwrites.
void merge(Touches& touches) {
    std::unordered_set<std::uint64_t> seen;
    std::stable_partition(touches.begin(), touches.end(), [](const profiler::Touch& t) { return !t.led; });
    std::erase_if(touches, [&](const profiler::Touch& t) { return !seen.insert(t.address).second; });
    for (profiler::Touch& t : touches) t.mode = profiler::Mode::read_write;
}

// What makes two pieces of work the same, besides the memory that they name; the same in every run of a program.
std::uint64_t shape_of(const Work& w) {
    std::uint64_t h = static_cast<std::uint64_t>(w.kind);
    auto mix = [&](std::uint64_t v) { h = (h ^ v) * 0x9e3779b97f4a7c15u, h ^= h >> 29; };
    if (w.launch) {
        mix(w.launch->layout->fingerprint);
        for (int i = 0; i < 3; ++i) mix(w.launch->grid[i]), mix(w.launch->block[i]);
        mix(w.launch->shared_bytes);
    }
    for (std::uint32_t i = 0; i < w.span_count; ++i) mix(w.spans[i].bytes), mix(static_cast<std::uint64_t>(w.spans[i].access));
    return h;
}
const char* name_of(const Work& w) { return w.launch ? w.launch->layout->name : w.entry_point; }

// The plan that the program runs by; null: none, or this may be recorded into a graph and not run now. While any stream captures
// nothing is told, for the executor asks the driver what may invalidate a capture.
executor::Executor* plan_of(Session& s, CUstream stream) {
    executor::Executor* const plan = s.executing();
    const pager::StreamTable& streams = s.pager().streams();
    if (!plan || !streams.capturing()) return plan;
    if (!streams.is_capturing(stream)) plan->untold();
    return nullptr;
}

// An op that is refused: `result`, and where that is out of memory, why.
CUresult explained(Session& s, const Op& op, const char* name, CUresult result) {
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
    std::size_t bytes = 0;
    DevicePager* device = nullptr;
    const auto add = [&](const pager::Buffer* b) { bytes += b->bytes, device = b->device; };
    for (std::uint32_t i = 0; i < op.count && i < pager::Lease::kMany; ++i) add(op.buffers[i]);
    for (const pager::Buffer* b : op.more) add(b);
    if (device) s.refused(*device, name, bytes, true);
    return result;
}

// Leaves what was entered, also when something throws before the work is submitted.
class Entered {
  public:
    Entered(Pager& p, Op& op) : pager_(p), op_(op) {}
    ~Entered() {
        if (entered_) pager_.leave(op_, CUDA_ERROR_OUT_OF_MEMORY);
    }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;
    CUresult enter() {
        const CUresult result = pager_.enter(op_);
        entered_ = result == CUDA_SUCCESS;
        return result;
    }
    void leave(CUresult result) {
        entered_ = false;
        pager_.leave(op_, result);
    }

  private:
    Pager& pager_;
    Op& op_;
    bool entered_ = false;
};

// Others may write to the allocation at `at` from now on, unseen: what is made of it is there before they can, and is not dropped.
void note_escaped(Session& s, CUdeviceptr at) {
    pager::Buffer* const b = s.pager().find(at);
    if (!b || !b->device->escape(b, at)) return;
    if (executor::Executor* const plan = s.executor()) plan->untold();
}

// Where accesses cannot be followed: the memory stays where it is for life. CUDA_ERROR_INVALID_VALUE: none is there. The caller
// holds no lease.
CUresult let_escape(Session& s, CUdeviceptr at) {
    pager::Buffer* const b = s.pager().find(at);
    if (!b) return CUDA_ERROR_INVALID_VALUE;
    if (!b->slab)
        if (const CUresult result = b->device->pin(b); result != CUDA_SUCCESS) return result;
    note_escaped(s, at);
    return CUDA_SUCCESS;
}

// Of what is copied there; the address of freed memory may be among it.
CUresult let_pointers_escape(Session& s, const Work& w) {
    return pointers_escaping(s.pager(), w, [&s](CUdeviceptr at) {
        const CUresult result = let_escape(s, at);
        return result == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : result;
    });
}

CUresult work(const Work& w, Submit submit) noexcept {
    Session* s = Session::get();
    if (!s) return submit();
    Pager& p = s->pager();
    Op op;
    Entered entered(p, op);
    Observation seen(*s, w.stream);
    op.stream = w.stream;
    op.kernel = w.kind == WorkKind::kernel;
    executor::Executor* const plan = plan_of(*s, w.stream);
    executor::Executor::Place place;
    try {
        if (w.kind == WorkKind::copy)
            if (const CUresult result = let_pointers_escape(*s, w); result != CUDA_SUCCESS) return result;
        name_accesses(p, w, op, seen.touches());
        if (Touches* all = seen.touches()) name_led(p, w, *all);
        if (!op.count && !op.everything) return submit();
        const WorkLaunch launch(w);
        CUresult ready = CUDA_SUCCESS;
        if (plan) place = plan->before(name_of(w), shape_of(w), op), ready = plan->compute_again(place, op, w.launch || w.fill || w.kind == WorkKind::copy ? &launch : nullptr);
        if (ready == CUDA_SUCCESS) ready = entered.enter();
        if (plan && ready == CUDA_SUCCESS) ready = plan->follow_replays(op);
        if (ready != CUDA_SUCCESS) return explained(*s, op, name_of(w), ready);
        seen.submitting();
        if (plan) plan->submitting(place, op);
        // Before the call: what the copy brings may be used by an op of another thread as soon as it is submitted.
        if (w.kind == WorkKind::copy && !op.captured) note_pointers_copied(p, w);
    } catch (...) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const CUresult result = submit();
    if (plan && result == CUDA_SUCCESS) plan->submitted(place, op);
    seen.submitted(name_of(w), shape_of(w), result);
    if (op.captured && s->learning()) captured::note(w.stream);
    entered.leave(result);
    if (plan && result == CUDA_SUCCESS) plan->after(place, op);
    if (w.launch) s->launched();
    return result;
}

// Nothing runs, but the driver looks at the addresses: they are mapped, wherever to.
CUresult graph_node(const Span* spans, std::size_t count, Submit submit) noexcept {
    Session* s = Session::get();
    if (!s) return submit();
    Pager& p = s->pager();
    Op op;
    op.looked_at = true;
    try {
        for (std::size_t i = 0; i < count; ++i)
            if (pager::Buffer* b = spans[i].bytes ? p.find(spans[i].address) : nullptr) op.name(b);
        if (!op.count || !holds("graph-node")) return submit();
        if (const CUresult result = p.enter(op); result != CUDA_SUCCESS) return result;
    } catch (...) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const CUresult result = submit();
    p.leave(op, result);
    return result;
}

// Launches of one graph are ordered, on whatever streams. The driver sees to it where they are whole, else an event.
struct GraphOrder {
    std::mutex mutex;                           // while one of them is issued
    CUevent event = nullptr;                    // behind the last one; null: there was none
    std::atomic<CUcontext> context{nullptr};    // the event's
    bool whole = true;                          // the last one was
};
std::mutex g_graphs_mutex;
std::unordered_map<CUgraphExec, std::shared_ptr<GraphOrder>> g_graphs;

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
    come_after(p, order, stream);
    const auto& nodes = graph.nodes();
    CUresult result = CUDA_SUCCESS;
    for (std::size_t i = 0; i < nodes.size() && result == CUDA_SUCCESS; ++i) {
        if (!nodes[i].enabled) continue;
        Work w = nodes[i].work;
        w.stream = stream;
        const profiler::math::As call(calls.at(nodes[i]));
        result = work(w, [&] { return graph.issue(i, stream); });
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

CUresult launch_graph(CUgraphExec exec, const GraphExec& graph, CUstream stream, Submit submit) noexcept {
    Session* s = Session::get();
    if (!s) return submit();
    Pager& p = s->pager();
    Op op;
    Entered entered(p, op);
    op.stream = stream;
    op.kernel = true;
    Observation seen(*s, stream);
    executor::Executor* const plan = plan_of(*s, stream);
    executor::Executor::Place place;
    std::uint64_t shape = 0;
    const bool capturing = p.streams().is_capturing(stream);
    std::shared_ptr<GraphOrder> order;   // null: never in pieces
    std::unique_lock<std::mutex> one_at_a_time;
    const auto submit_in_order = [&] {
        if (order && !order->whole) come_after(p, *order, stream);
        const CUresult result = submit();
        if (order && result == CUDA_SUCCESS) has_come(p, *order, stream, true);
        return result;
    };
    try {
        for (const GraphNode& node : graph.nodes()) {
            if (!node.enabled) continue;
            if (node.work.kind == WorkKind::copy && !capturing) {
                if (const CUresult result = let_pointers_escape(*s, node.work); result != CUDA_SUCCESS) return result;
                name_carried(p, node.work, op);
            }
            name_accesses(p, node.work, op, seen.touches());
            if (Touches* all = seen.touches()) name_led(p, node.work, *all);
            if (plan || seen.touches()) shape = shape * 0x9e3779b97f4a7c15u + shape_of(node.work);
        }
        if (Touches* all = seen.touches()) merge(*all);
        op.overwrites.clear();  // an earlier node may read what a later one overwrites
        const bool names_any = (op.count || op.everything) && holds("graph");
        if (!capturing) order = order_of(exec, names_any && graph.issuable());
        if (order) one_at_a_time = std::unique_lock(order->mutex);
        if (!names_any) return submit_in_order();
        if (order && graph.issuable() && is_of(p, op, graph, stream)) {
            if (!p.fits_together(op) || (plan && plan->wants_pieces())) return launch_in_pieces(p, *order, graph, stream);
        }
        CUresult ready = CUDA_SUCCESS;
        if (plan) place = plan->before(kGraphLaunch, shape, op), ready = plan->compute_again(place, op, nullptr);
        if (ready == CUDA_SUCCESS) ready = entered.enter();
        if (plan && ready == CUDA_SUCCESS) ready = plan->follow_replays(op);
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
        seen.submitted(kGraphLaunch, shape, result);
    }
    entered.leave(result);
    if (plan && result == CUDA_SUCCESS) plan->after(place, op);
    s->launched();
    return result;
}

// ---- ordering --------------------------------------------------------------------------------------------------------

void synchronised(SyncScope, CUstream, CUevent) noexcept {}
void event_recorded(CUevent, CUstream) noexcept {}
void event_waited(CUstream, CUevent) noexcept {}
void stream_created(CUstream) noexcept {}

void stream_destroying(CUstream stream) noexcept {
    if (Session* s = Session::get()) s->pager().streams().stream_destroying(stream);
}
void capture_beginning(CUstream stream) noexcept {
    if (Session* s = Session::get(true)) s->pager().streams().capture_beginning(stream);
}
void capture_ended(CUstream stream) noexcept {
    if (Session* s = Session::get()) s->pager().streams().capture_ended(stream);
}
void context_destroying(CUcontext context, bool green) noexcept {
    Session* s = Session::get();
    if (!s) return;
    if (executor::Executor* plan = s->executor()) plan->context_destroying(context);
    if (!green) s->sharing().context_destroying(context);
    s->pager().context_destroying(context, !green);
    if (Learner* learner = s->learner()) learner->timers.context_destroying(context);
    std::lock_guard lock(g_graphs_mutex);
    std::erase_if(g_graphs, [&](const auto& g) { return g.second->context == context; });  // their events go with it
}
void context_destroyed(CUcontext context) noexcept {
    if (Session* s = Session::get()) s->pager().streams().context_destroyed(context);
}

// ---- questions -------------------------------------------------------------------------------------------------------

CUresult memory_info(std::size_t* free, std::size_t* total, Submit real) noexcept {
    const CUresult result = real();
    Session* s = Session::get();
    if (result != CUDA_SUCCESS || !s) return result;
    DevicePager* d = s->pager().current_device();
    if (!d) return result;
    const auto m = d->memory();
    std::size_t real_free = 0, real_total = 0;
    s->pager().driver().cuMemGetInfo_v2(&real_free, &real_total);
    if (s->options().report_virtual) {
        const std::size_t whole = m.device_budget + m.host_budget;
        if (total) *total = whole;
        if (free) *free = whole > m.live ? whole - m.live : 0;
    } else if (free) {
        // As if the program's buffers, all of them and nothing else, were on the device.
        const std::size_t without_us = real_free + m.frames;
        *free = without_us > m.live ? without_us - m.live : 0;
    }
    return result;
}

CUresult total_memory(std::size_t* bytes, CUdevice device, Submit real) noexcept {
    const CUresult result = real();
    Session* s = Session::get();
    if (result != CUDA_SUCCESS || !s || !s->options().report_virtual || !bytes) return result;
    if (DevicePager* d = s->pager().device(device)) {
        const auto m = d->memory();
        *bytes = m.device_budget + m.host_budget;
    } else if (!s->pager().unmanaged(device)) {   // not in use yet
        const pager::Settings& settings = s->pager().settings();
        const std::size_t budget = std::min(settings.device_budget_of(*bytes), *bytes);
        *bytes = (budget ? budget : *bytes) + settings.host_budget;
    }
    return result;
}

CUresult address_range(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr at, Submit real) noexcept {
    Session* s = Session::get();
    CUdeviceptr found = 0;
    std::size_t size = 0;
    if (!s || !holds("questions")) return real();
    if (s->pager().in_arena(at)) {
        pager::Buffer* b = s->pager().find(at);
        if (!b || !b->device->range_of(at, found, size)) return CUDA_ERROR_NOT_FOUND;
    } else if (!s->sharing().range_of(at, found, size)) {
        return real();
    }
    if (base) *base = found;
    if (bytes) *bytes = size;
    return CUDA_SUCCESS;
}

// What the driver would say of the pointer if the buffer were an ordinary allocation. False: not for us to say.
bool answer(Session& s, void* data, CUpointer_attribute attribute, CUdeviceptr at, CUresult& result) {
    pager::Buffer* b = s.pager().find(at);
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    CUmemoryPool pool = nullptr;
    CUcontext context = nullptr;
    result = CUDA_SUCCESS;
    if (!b || !b->device->range_of(at, base, bytes, &pool, &context)) {
        result = CUDA_ERROR_INVALID_VALUE;
        return true;
    }
    auto put = [&](auto value) { std::memcpy(data, &value, sizeof value); };
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            put(context);
            if (!context) result = CUDA_ERROR_INVALID_VALUE;
            return true;
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: put(static_cast<unsigned>(CU_MEMORYTYPE_DEVICE)); return true;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: put(at); return true;
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            put(static_cast<void*>(nullptr));
            result = CUDA_ERROR_INVALID_VALUE;
            return true;
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: put(0u); return true;
        case CU_POINTER_ATTRIBUTE_BUFFER_ID: put(static_cast<unsigned long long>(b->id) + 1); return true;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED: put(0u); return true;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: put(static_cast<int>(b->device->device())); return true;
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: put(pool ? 0u : 1u); return true;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: put(base); return true;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE: put(bytes); return true;
        case CU_POINTER_ATTRIBUTE_MAPPED: put(1u); return true;
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: put(0ull); return true;
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            put(pool);
            return true;
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: put(bytes); return true;
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: put(base); return true;
        default: return false;
    }
}

CUresult pointer_attribute(void* data, CUpointer_attribute attribute, CUdeviceptr at, Submit real) noexcept {
    Session* s = Session::get();
    CUresult result;
    if (!s || !data || !s->pager().in_arena(at) || !answer(*s, data, attribute, at, result)) return real();
    return result;
}

CUresult pointer_attributes(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr at, Submit real) noexcept {
    Session* s = Session::get();
    if (!s || !attributes || !data || !s->pager().in_arena(at)) return real();
    // The plural form never fails for a pointer: what does not apply is zero.
    const CUresult result = real();
    for (unsigned i = 0; i < count; ++i) {
        CUresult ignored;
        if (data[i]) answer(*s, data[i], attributes[i], at, ignored);
    }
    return result == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : result;
}

CUresult pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value, bool set, Submit real) noexcept {
    const CUresult result = real();
    Session* s = Session::get();
    if (result != CUDA_SUCCESS || !s || !value || !holds("pools")) return result;
    const bool high = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH || attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    const bool current = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT || attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
    if (!high && !current) return result;
    std::size_t now = 0, most = 0;
    for (DevicePager* d : s->pager().devices()) {
        std::size_t current_of = 0, high_of = 0;
        d->pool_usage(pool, current_of, high_of, set && high);
        now += current_of, most += high_of;
    }
    if (!set) {
        cuuint64_t told = 0;
        std::memcpy(&told, value, sizeof told);
        told += high ? most : now;
        std::memcpy(value, &told, sizeof told);
    }
    return result;
}

// The memory of all pools is one; none is kept for a single one of them.
CUresult pool_trim(CUmemoryPool, std::size_t keep, Submit real) noexcept {
    const CUresult result = real();
    Session* s = Session::get();
    DevicePager* d = result == CUDA_SUCCESS && s ? s->pager().current_device() : nullptr;
    std::size_t lowered = 0;
    try {
        if (d && d->memory().frames > keep) d->yield(0, lowered);
    } catch (...) {   // it stays
    }
    return result;
}

CUresult take_unmanaged(CUdevice device, std::size_t bytes, Submit real) noexcept {
    const CUresult refused = real();
    Session* s = refused == CUDA_ERROR_OUT_OF_MEMORY ? Session::get() : nullptr;
    if (!s) return refused;
    try {
        DevicePager* d = device < 0 ? s->pager().current_device() : s->pager().device(device);
        std::size_t lowered = 0;
        if (!d || !d->memory().frames || d->yield(bytes, lowered) != CUDA_SUCCESS) return refused;
        const CUresult result = real();
        if (result != CUDA_SUCCESS) d->reclaim(lowered);
        return result;
    } catch (...) {
        return refused;
    }
}

// ---- what cannot be followed -----------------------------------------------------------------------------------------

CUresult escaping(CUdeviceptr at, Escape kind, const char*) noexcept {
    Session* s = Session::get();
    if (!s || !s->pager().in_arena(at)) return CUDA_SUCCESS;
    // To the program this is memory of cuMemAlloc, which has no handle; libraries (NCCL) tell by that how to share it.
    if (kind == Escape::allocation_handle) return CUDA_ERROR_INVALID_VALUE;
    return let_escape(*s, at);
}

CUresult ipc_get(CUipcMemHandle* handle, CUdeviceptr at, Submit real) noexcept {
    Session* s = Session::get();
    if (!s || !s->pager().in_arena(at)) return real();
    if (!handle) return CUDA_ERROR_INVALID_VALUE;
    try {
        const CUresult result = s->sharing().get(*handle, at);
        if (result == CUDA_SUCCESS) note_escaped(*s, at);
        if (result == CUDA_SUCCESS) UDNNMEM_LOG_ONCE(info, "memory shared by IPC handles stays on the device; processes without this library cannot open them");
        if (result == CUDA_ERROR_NOT_SUPPORTED)
            UDNNMEM_LOG_ONCE(warn, "cuIpcGetMemHandle: managed memory cannot be shared by IPC handles here (its frames cannot be exported, or are the host's); use UDNNMEM_ONLY or UDNNMEM_DISABLE for this program");
        return result;
    } catch (...) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
}

CUresult ipc_open(CUdeviceptr* address, const CUipcMemHandle& handle, unsigned flags, Submit real) noexcept {
    if (!ipc::Sharing::ours(handle)) return real();
    Session* s = Session::get(true);
    if (!s) return real();
    if (!address || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
    try {
        const CUresult result = s->sharing().open(*address, handle);
        if (result == CUDA_ERROR_MAP_FAILED) UDNNMEM_LOG_ONCE(warn, "cuIpcOpenMemHandle: the process that shared the memory has ended, freed it, or is another user's");
        return result;
    } catch (...) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
}

CUresult ipc_close(CUdeviceptr at, Submit real) noexcept {
    Session* s = Session::get();
    CUresult result;
    return s && s->sharing().close(at, result) ? result : real();
}

void host_memory(CUdeviceptr at, std::size_t bytes) noexcept {
    if (bytes) host_ranges.add(at, bytes);
    else host_ranges.remove(at);
}

void graph_destroying(CUgraphExec exec) noexcept {
    std::shared_ptr<GraphOrder> order;
    {
        std::lock_guard lock(g_graphs_mutex);
        const auto it = g_graphs.find(exec);
        if (it == g_graphs.end()) return;
        order = std::move(it->second);
        g_graphs.erase(it);
    }
    std::lock_guard lock(order->mutex);
    if (Session* s = Session::get(); s && order->event) {
        const pager::Driver& d = s->pager().driver();
        // For the driver nothing of it is in flight after a launch in pieces: it would let go of what its nodes use.
        const pager::Relaxed relaxed(d);
        if (!order->whole) d.cuEventSynchronize(order->event);
        d.cuEventDestroy_v2(order->event);
    }
    order->event = nullptr;
}

void code_unloading() noexcept {
    Session* s = Session::get();
    if (executor::Executor* plan = s ? s->executor() : nullptr) plan->code_unloading();
}

CUresult peer_access(CUcontext peer, bool on) noexcept {
    Session* s = Session::get(true);
    if (!s) return CUDA_SUCCESS;
    const pager::Driver& d = s->pager().driver();
    CUdevice reader, owner;
    CUcontext popped;
    if (d.cuCtxGetDevice(&reader) != CUDA_SUCCESS || d.cuCtxPushCurrent_v2(peer) != CUDA_SUCCESS) return CUDA_SUCCESS;
    const CUresult known = d.cuCtxGetDevice(&owner);
    d.cuCtxPopCurrent_v2(&popped);
    return known == CUDA_SUCCESS ? s->pager().peer_access(owner, reader, on) : CUDA_SUCCESS;
}

// Buffers are not mapped by pool: whoever may reach a pool of a device may reach all of ours there. Access that is taken away
// stays (a program that relies on the fault has none without us either way).
CUresult pool_access(CUdevice owner, const CUmemAccessDesc* access, std::size_t count) noexcept {
    Session* s = Session::get(true);
    CUresult result = CUDA_SUCCESS;
    for (std::size_t i = 0; s && i < count && result == CUDA_SUCCESS; ++i)
        if (access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
            result = s->pager().peer_access(owner, access[i].location.id, true);
    return result;
}

void tensor_map(const void* descriptor, CUdeviceptr at) noexcept {
    if (Session* s = Session::get()) remember_tensor_map(s->pager(), descriptor, at);
}

void unknown_version(const char* name, int version) noexcept {
    static log::Once once;
    if (once.first())
        Session::end_paging(std::string(name) + " of CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10) +
                            " is not known to this version of udnnmem");
}

}  // namespace

const Handlers handlers = {
    .allocate = allocate,
    .take_unmanaged = take_unmanaged,
    .free = free_now,
    .free_async = free_async,
    .work = work,
    .launch_graph = launch_graph,
    .synchronised = synchronised,
    .event_recorded = event_recorded,
    .event_waited = event_waited,
    .stream_created = stream_created,
    .stream_destroying = stream_destroying,
    .capture_beginning = capture_beginning,
    .capture_ended = capture_ended,
    .context_destroying = context_destroying,
    .context_destroyed = context_destroyed,
    .memory_info = memory_info,
    .total_memory = total_memory,
    .address_range = address_range,
    .pointer_attribute = pointer_attribute,
    .pointer_attributes = pointer_attributes,
    .pool_attribute = pool_attribute,
    .pool_trim = pool_trim,
    .escaping = escaping,
    .ipc_get = ipc_get,
    .ipc_open = ipc_open,
    .ipc_close = ipc_close,
    .tensor_map = tensor_map,
    .unknown_version = unknown_version,
    .graph_node = graph_node,
    .host_memory = host_memory,
    .code_unloading = code_unloading,
    .graph_destroying = graph_destroying,
    .node_tag = captured::tag_of,
    .peer_access = peer_access,
    .pool_access = pool_access,
};

}  // namespace udnnmem::preload
