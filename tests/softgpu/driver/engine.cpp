// Scheduler and engine threads; see engine.hpp.
#include "tests/softgpu/driver/engine.hpp"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <ucontext.h>

#include <condition_variable>
#include <unordered_map>

#include "tests/softgpu/driver/clock.hpp"
#include "tests/softgpu/driver/context.hpp"
#include "tests/softgpu/driver/memory.hpp"
#include "tests/softgpu/driver/work.hpp"
#include "tests/softgpu/ptx/module.hpp"
#include "tests/softgpu/softgpu.h"

namespace softgpu {

namespace {

struct Engine {
    EngineKind kind;
    int device;
    std::vector<OpRef> ready;
    std::condition_variable wake;
    bool asleep = false;
    bool started = false;
    std::int64_t link_free = 0;  // when the link has carried all that was given to it
};

struct Scheduler {
    Scheduler() {  // held for tens of nanoseconds by many: worth a short spin
        pthread_mutexattr_t attributes;
        ::pthread_mutexattr_init(&attributes);
        ::pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
        ::pthread_mutex_init(mutex.native_handle(), &attributes);
    }
    std::mutex mutex;
    std::uint64_t sequence = 0;
    Engine* engines[8][6] = {};
    std::mutex computing[8];                  // of modelled time: what a kernel did is counted alone
    std::mutex urgent_mutex;                  // the two below; virtual ns: end of the last urgent kernel, sum of all
    std::int64_t urgent_until[8] = {}, urgent_ns[8] = {};
    std::unordered_map<std::uint64_t, std::uint64_t> counts;  // ops seen of each identity, for the shuffle
};
Scheduler& scheduler() {
    static auto* const s = new Scheduler;
    return *s;
}

thread_local sigjmp_buf* fault_target = nullptr;
thread_local void* fault_address = nullptr;
struct sigaction previous_segv, previous_bus;

void on_fault(int signal, siginfo_t* info, void* context) {
    // Translated code first, on this thread or a helper of the translator's; does not return if it was.
    ptx::divert_fault(info->si_addr, static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2);
    if (fault_target) {
        fault_address = info->si_addr;
        siglongjmp(*fault_target, 1);
    }
    struct sigaction& old = signal == SIGBUS ? previous_bus : previous_segv;
    if (old.sa_flags & SA_SIGINFO) {
        old.sa_sigaction(signal, info, context);
    } else if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN) {
        old.sa_handler(signal);
    } else {  // the access happens again, and ends the process as it would have
        ::sigaction(signal, &old, nullptr);
    }
}

// Now and then: a program, a test framework or Python's faulthandler may have put its own handler over ours.
void keep_handler() {
    struct sigaction now;
    for (int signal : {SIGSEGV, SIGBUS}) {
        ::sigaction(signal, nullptr, &now);
        if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault) continue;
        (signal == SIGBUS ? previous_bus : previous_segv) = now;
        struct sigaction action {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
        ::sigemptyset(&action.sa_mask);
        ::sigaction(signal, &action, nullptr);
    }
}

void complete_locked(OpRef first);

// A host function may wait for what the clock has to bring, and a waiting stream for the program.
bool on_the_clock(EngineKind kind) { return modelled() && kind != EngineKind::host && kind != EngineKind::poll; }

void run_engine(Engine& e);

void make_ready_locked(const OpRef& op) {
    EngineKind kind = op->work->engine();
    if (kind == EngineKind::compute && modelled() && op->priority < 0) kind = EngineKind::urgent;
    Engine*& e = scheduler().engines[op->work->device][static_cast<int>(kind) - 1];
    if (!e) e = new Engine{kind, op->work->device, {}, {}};
    if (!e->started) {
        e->started = true;
        pthread_attr_t attributes;
        ::pthread_attr_init(&attributes);
        ::pthread_attr_setstacksize(&attributes, 64 << 20);
        ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        sigset_t all, old;
        ::sigfillset(&all);
        ::sigdelset(&all, SIGSEGV), ::sigdelset(&all, SIGBUS), ::sigdelset(&all, SIGFPE), ::sigdelset(&all, SIGILL);
        ::pthread_sigmask(SIG_SETMASK, &all, &old);  // signals to the process are the program's business
        pthread_t thread;
        if (::pthread_create(&thread, &attributes, [](void* p) -> void* { run_engine(*static_cast<Engine*>(p)); return nullptr; }, e) != 0) {
            say("an engine's thread could not be started");
            std::abort();
        }
        ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
        ::pthread_attr_destroy(&attributes);
        if (on_the_clock(kind)) engine_runs();
    }
    e->ready.push_back(op);
    if (e->asleep || kind == EngineKind::poll) {  // the poller naps even with ops at hand
        if (e->asleep && on_the_clock(kind)) engine_runs();
        e->asleep = false;
        e->wake.notify_one();
    }
}

void complete_locked(OpRef first) {
    std::vector<OpRef> todo;
    for (OpRef op = std::move(first);;) {
        op->finished_ns = modelled() ? virtual_now() : now_ns();
        op->done.store(1, std::memory_order_release);
        op->done.notify_all();
        for (auto& next : op->dependents)
            if (--next->pending == 0) {
                if (next->work) make_ready_locked(next);
                else todo.push_back(std::move(next));
            }
        op->dependents.clear();
        if (todo.empty()) return;
        op = std::move(todo.back());
        todo.pop_back();
    }
}

// The next op: the shuffled or the submitted order, of kernels after their priority. Copies have none, as on a card.
OpRef take_locked(Engine& e) {
    const bool by_priority = e.kind == EngineKind::compute || e.kind == EngineKind::urgent;
    std::size_t best = 0;
    for (std::size_t i = 1; i < e.ready.size(); ++i) {
        auto &a = *e.ready[i], &b = *e.ready[best];
        if (by_priority && a.priority != b.priority ? a.priority < b.priority : a.order != b.order ? a.order < b.order : a.sequence < b.sequence) best = i;
    }
    OpRef op = std::move(e.ready[best]);
    e.ready.erase(e.ready.begin() + static_cast<std::ptrdiff_t>(best));
    return op;
}

void sleep_until(std::int64_t ns) {
    timespec t{ns / 1000000000, ns % 1000000000};
    while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) == EINTR) {}
}

// What the op lasts in modelled time, from what it did: the figures before and after.
struct Done {
    std::uint64_t bytes, operations;
    static Done so_far() { return {figures().bytes_read + figures().bytes_written, figures().operations}; }
};
std::int64_t modelled_ns(const Work& work, EngineKind kind, const Done& before) {
    constexpr double kOp = 2e-6, kTransfer = 10e-6;  // seconds that any op, any transfer takes
    const Options& o = options();
    const double link = kind == EngineKind::to_device ? o.host_to_device : o.device_to_host;
    if (const std::int64_t ns = work.table_ns(); ns >= 0) return ns;
    if (const std::uint64_t bytes = work.link_bytes()) return static_cast<std::int64_t>((kTransfer + (link > 0 ? static_cast<double>(bytes) / link : 0)) * 1e9);
    const Done now = Done::so_far();
    const double bytes = static_cast<double>(now.bytes - before.bytes + work.memory_bytes()), operations = static_cast<double>(now.operations - before.operations);
    return static_cast<std::int64_t>((kOp + std::max(bytes / o.bytes_per_second, operations / o.operations_per_second)) * 1e9);
}

// One line: begin and end in virtual ns, engine, stream, what.
void note_time(std::int64_t begin, std::int64_t end, EngineKind kind, const Op& op) {
    static FILE* const file = std::fopen(options().timeline.c_str(), "we");
    static const char* const names[] = {"compute", "h2d", "d2h", "host", "poll", "urgent"};
    if (file) std::fprintf(file, "%lld\t%lld\t%s\t%p\t%s\n", static_cast<long long>(begin), static_cast<long long>(end), names[static_cast<int>(kind) - 1],
                           static_cast<void*>(op.stream), op.work->describe().c_str());
}

// Holds an op of `ns` that began at `begin`, and returns when it ended: what computes gives way to urgent kernels.
std::int64_t hold(const Engine& e, std::int64_t begin, std::int64_t ns) {
    Scheduler& s = scheduler();
    std::int64_t &until = s.urgent_until[e.device], &sum = s.urgent_ns[e.device];
    std::int64_t end = begin + ns, seen = 0;
    {
        std::lock_guard lock(s.urgent_mutex);
        if (e.kind == EngineKind::urgent) {
            until = end;
            sum += ns;
        } else if (e.kind == EngineKind::compute) {
            end += std::max<std::int64_t>(0, until - begin);
        }
        seen = sum;
    }
    for (;;) {
        hold_until(end);
        if (e.kind != EngineKind::compute) return end;
        std::lock_guard lock(s.urgent_mutex);
        if (sum == seen) return end;
        end += sum - std::exchange(seen, sum);
    }
}

// Runs the work with the net under it. Trap: a fault jumps over the frames of run(), which must hold no lock then.
CUresult run_guarded(Op& op, bool (*body)(Work&, CUresult&), bool& finished) {
    sigjmp_buf target;
    volatile CUresult result = CUDA_SUCCESS;
    if (sigsetjmp(target, 0) == 0) {
        fault_target = &target;
        CUresult r = CUDA_SUCCESS;
        finished = body(*op.work, r);
        result = r;
        fault_target = nullptr;
    } else {
        fault_target = nullptr;
        finished = true;
        ++figures().faults;
        Address touched = unview(fault_address, op.work->device);
        // Wild addresses of kernels and memsets went through the view too.
        if (op.work->engine() == EngineKind::compute && touched == reinterpret_cast<Address>(fault_address) && touched >= view(op.work->device)) touched -= view(op.work->device);
        say("fault: %s on stream %llu touched %p, which is not mapped for device %d (CUDA_ERROR_ILLEGAL_ADDRESS)", op.work->describe().c_str(),
            (unsigned long long)(op.stream ? op.stream->id : 0), reinterpret_cast<void*>(touched), op.work->device);
        result = CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    return result;
}

void set_sticky(Op& op, CUresult result) {
    int none = 0;
    if (op.context && result != CUDA_SUCCESS) op.context->sticky.compare_exchange_strong(none, result);
}

void run_poller(Engine& e) {
    auto& s = scheduler();
    std::unique_lock lock(s.mutex);
    int idle = 0;
    for (;;) {
        if (e.ready.empty()) {
            e.asleep = true;
            e.wake.wait(lock, [&] { return !e.asleep; });
            idle = 0;
        }
        std::vector<OpRef> all = e.ready;
        lock.unlock();
        keep_handler();
        std::vector<OpRef> ended;
        for (auto& op : all) {
            bool finished = true;
            if (!op->context->sticky) {
                CUresult r = run_guarded(*op, [](Work& w, CUresult&) { return w.step(); }, finished);
                set_sticky(*op, r);
            }
            if (finished) ended.push_back(op);
        }
        lock.lock();
        for (auto& op : ended) {
            std::erase(e.ready, op);
            complete_locked(op);
        }
        idle = ended.empty() ? std::min(idle + 1, 20) : 0;
        if (!e.ready.empty()) e.wake.wait_for(lock, std::chrono::microseconds(10 + 5 * idle));
    }
}

std::atomic<const softgpu_watcher*> watcher{nullptr};

const char* watched(const Work& work) {
    if (dynamic_cast<const CopyWork*>(&work)) return "copy";
    if (dynamic_cast<const MemsetWork*>(&work)) return "memset";
    return work.engine() == EngineKind::compute ? "kernel" : nullptr;
}

void tell_end(const Op& op, std::int64_t begin) {
    const softgpu_watcher* w = watcher.load();
    if (const char* kind = w ? watched(*op.work) : nullptr) w->ended(op.sequence, kind, begin, softgpu_now());
}

void run_engine(Engine& e) {
    ::prctl(PR_SET_TIMERSLACK, 1);
    static const char* const names[] = {"gpu-compute", "gpu-h2d", "gpu-d2h", "gpu-hostfn", "gpu-poll", "gpu-urgent"};
    ::pthread_setname_np(::pthread_self(), names[static_cast<int>(e.kind) - 1]);
    if (e.kind == EngineKind::poll) {
        if (modelled()) engine_thread();  // it naps, and wakes for what the program writes
        return run_poller(e);
    }
    auto& s = scheduler();
    const bool timed = on_the_clock(e.kind);
    if (timed) engine_thread();
    const double bandwidth = e.kind == EngineKind::to_device ? options().host_to_device : e.kind == EngineKind::to_host ? options().device_to_host : 0;
    OpRef last;                         // what ended before; it and its work die outside the lock
    std::shared_ptr<Work> last_work;
    int until_check = 0;
    std::unique_lock lock(s.mutex);
    for (;;) {
        if (e.ready.empty()) {
            if (last) {
                lock.unlock();
                last_work.reset();
                last.reset();
                lock.lock();
                continue;
            }
            e.asleep = true;
            if (timed) engine_rests();
            e.wake.wait(lock, [&] { return !e.asleep; });
            until_check = 0;
            continue;
        }
        OpRef op = take_locked(e);
        lock.unlock();
        last_work.reset();
        last.reset();
        if (--until_check < 0) {
            keep_handler();
            until_check = 64;
        }
        const std::int64_t begin = timed ? virtual_now() : now_ns();
        const bool computes = e.kind == EngineKind::compute || e.kind == EngineKind::urgent;
        std::unique_lock alone(s.computing[e.device], std::defer_lock);
        if (timed && computes) alone.lock();
        const Done before = timed ? Done::so_far() : Done{};
        if (options().shuffle && !timed && (op->order & 7) == 7) sleep_until(begin + static_cast<std::int64_t>(op->order >> 8 & 0x1ffff));  // up to 131 us
        const std::int64_t started = timed ? begin : now_ns();
        if (!op->context->sticky || op->work->always()) {
            bool finished;
            set_sticky(*op, run_guarded(*op, [](Work& w, CUresult& r) { r = w.run(); return true; }, finished));
            ++figures().ops;
            if (std::uint64_t bytes = op->work->link_bytes(); bytes && bandwidth > 0 && !timed) {
                // The link's own clock, so that late wake-ups do not add up. An idle link starts at once.
                e.link_free = std::max(e.link_free, begin) + static_cast<std::int64_t>(static_cast<double>(bytes) / bandwidth * 1e9);
                if (e.link_free > now_ns() + 20000) sleep_until(e.link_free);
            }
            if (timed) {
                const std::int64_t ns = modelled_ns(*op->work, e.kind, before);
                if (alone.owns_lock()) alone.unlock();
                const std::int64_t end = hold(e, begin, ns);
                if (!options().timeline.empty()) note_time(begin, end, e.kind, *op);
            }
        }
        tell_end(*op, started);
        lock.lock();
        complete_locked(op);
        last_work = std::move(op->work);
        last = std::move(op);
    }
}

}  // namespace

std::mutex& schedule_mutex() { return scheduler().mutex; }

void engines_start() {
    keep_handler();
}

OpRef submit_locked(CUcontext context, CUstream stream, std::shared_ptr<Work> work, std::span<const OpRef> after) {
    auto& s = scheduler();
    auto op = std::make_shared<Op>();
    op->context = context;
    op->stream = stream;
    op->sequence = ++s.sequence;
    op->priority = stream ? stream->priority : 0;
    if (work && work->engine() != EngineKind::none) {
        if (options().shuffle) {
            std::uint64_t id = work->identity();
            op->order = mix(mix(options().seed, id), s.counts[id]++);
        }
        op->work = std::move(work);
    }
    for (auto& dependency : after)
        if (!is_done(dependency)) {
            dependency->dependents.push_back(op);
            ++op->pending;
        }
    if (const softgpu_watcher* w = watcher.load(); w && op->work && watched(*op->work)) w->submitted(op->sequence);
    if (op->pending == 0) {
        if (op->work) make_ready_locked(op);
        else complete_locked(op);
    }
    return op;
}

void wait(const OpRef& op) {
    if (!op) return;
    for (int i = 0; i < 200 && !op->done.load(std::memory_order_acquire); ++i) __builtin_ia32_pause();
    while (!op->done.load(std::memory_order_acquire)) op->done.wait(0, std::memory_order_acquire);
}

void tell_leaving() {
    if (const softgpu_watcher* w = watcher.load(); w && w->called) w->called();
}

}  // namespace softgpu

extern "C" __attribute__((visibility("default"))) void softgpu_watch(const struct softgpu_watcher* watcher) { softgpu::watcher = watcher; }
extern "C" __attribute__((visibility("default"))) void softgpu_spend(std::int64_t ns) { softgpu::spend(ns); }
extern "C" __attribute__((visibility("default"))) std::int64_t softgpu_now(void) { return softgpu::modelled() ? softgpu::virtual_now() : softgpu::now_ns(); }
