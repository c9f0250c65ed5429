#include "profiler/cupti/activity.hpp"

#include <cupti.h>
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <unordered_map>

namespace udnnmem::profiler {
namespace {

// Small, because a buffer with an op that still runs is not handed over: what shares it waits.
constexpr std::size_t kBuffer = 16 << 10;
constexpr std::int64_t kFlush = 5'000'000;       // ns between two questions
constexpr std::int64_t kPatience = 200'000'000;  // for the record of an op, once that of a later one on its stream has come ...
constexpr std::int64_t kQuiet = 20'000'000;      // ns
constexpr std::size_t kEarly = 1 << 14;          // records that wait for their correlation; most are not ours, and wait in vain
constexpr int kLosses = 16;                      // ... until so many came never
constexpr CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET,
                                        CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};
constexpr const char* apis[] = {"cuLaunch", "cuMemcpy", "cuMemset"};  // what begins so: only a call that is recorded is correlated
constexpr CUpti_CallbackId kMostApis = CUPTI_DRIVER_TRACE_CBID_SIZE + 512;  // a newer CUPTI has more
constexpr auto kOurs = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2;  // the others are frameworks' own profilers'

#define CALLS(CALL)                                                                                                                                     \
    CALL(cuptiGetVersion) CALL(cuptiSubscribe) CALL(cuptiUnsubscribe) CALL(cuptiEnableDomain) CALL(cuptiActivityEnable) CALL(cuptiActivityDisable)        \
    CALL(cuptiActivityRegisterCallbacks) CALL(cuptiActivityFlushAll) CALL(cuptiActivityGetNextRecord) CALL(cuptiActivityPushExternalCorrelationId)        \
    CALL(cuptiActivityPopExternalCorrelationId) CALL(cuptiActivityEnableDriverApi) CALL(cuptiGetCallbackName) CALL(cuptiGetTimestamp) CALL(cuptiFinalize)

struct Calls {
#define CALL(name) decltype(&::name) name = nullptr;
    CALLS(CALL)
#undef CALL
    const char* missing = nullptr;
    explicit Calls(void* library) {
#define CALL(symbol)                                                        \
    symbol = reinterpret_cast<decltype(symbol)>(dlsym(library, #symbol)); \
    if (!symbol && !missing) missing = #symbol;
        CALLS(CALL)
#undef CALL
    }
};

// The framework's own copy first, where it is loaded already.
void* load() {
    for (const char* name : {"libcupti.so.13", "libcupti.so"})
        if (void* library = dlopen(name, RTLD_NOW | RTLD_NOLOAD)) return library;
    return dlopen("libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
}

std::int64_t now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}

}  // namespace

struct Activity::State {
    explicit State(void* library) : calls(library) {}
    const Calls calls;
    CUpti_SubscriberHandle subscriber = nullptr;
    std::int64_t shift = 0;            // from CUPTI's clock to ours
    std::atomic<bool> closing{false}, finalised{false};

    struct Span {
        std::int64_t begin = INT64_MAX, end = 0;
        void add(const Span& more) {
            begin = std::min(begin, more.begin);
            end = std::max(end, more.end);
        }
    };
    // An op's own: ops of other streams may run much longer, or much earlier.
    struct Op {
        std::uint32_t correlation = 0;
        Span span;
        std::int64_t grown = 0;        // when its last record came; 0: none did
    };
    std::mutex mutex;                                       // all that follows
    bool over = false;                                      // nothing is taken in any more
    std::unordered_map<std::uint32_t, std::uint64_t> ops;   // by CUPTI's correlation
    std::unordered_map<std::uint32_t, Span> early, earlier; // records that came before their correlation; the older half is given up first
    std::unordered_map<std::uint64_t, Op> waiting;          // to be read
    std::unordered_map<std::uint64_t, std::uint64_t> latest;  // by stream: op of which there was a record
    std::int64_t flushed = 0, asked_at = 0;
    std::uint64_t asked = 0;
    int losses = 0;

    void ran(std::uint64_t op, const Span& span) {
        Op& seen = waiting[op];
        seen.span.add(span);
        seen.grown = now();
        std::uint64_t& last = latest[op >> number_bits];
        last = std::max(last, op);
    }
    void ran(std::uint32_t correlation, std::uint64_t begin, std::uint64_t end) {
        if (end == 0) return;  // not known
        const Span span{static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)};
        if (const auto found = ops.find(correlation); found != ops.end()) return ran(found->second, span);
        if (early.size() >= kEarly) earlier.swap(early), early.clear();
        early[correlation].add(span);
    }
    void correlated(std::uint32_t correlation, std::uint64_t op) {
        ops[correlation] = op;
        waiting[op].correlation = correlation;
        for (auto* some : {&earlier, &early})
            if (const auto found = some->find(correlation); found != some->end()) {
                ran(op, found->second);
                some->erase(found);
            }
    }
    void forget(std::uint64_t op) {
        const auto found = waiting.find(op);
        if (found == waiting.end()) return;
        ops.erase(found->second.correlation);
        waiting.erase(found);
    }
    bool passed(std::uint64_t op) const {
        const auto last = latest.find(op >> number_bits);
        return last != latest.end() && last->second > op;
    }
    void take(const CUpti_Activity* record) {
        switch (record->kind) {
            case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
                const auto* r = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
                return ran(r->correlationId, r->start, r->end);
            }
            case CUPTI_ACTIVITY_KIND_MEMCPY: {
                const auto* r = reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
                return ran(r->correlationId, r->start, r->end);
            }
            case CUPTI_ACTIVITY_KIND_MEMCPY2: {
                const auto* r = reinterpret_cast<const CUpti_ActivityMemcpyPtoP4*>(record);
                return ran(r->correlationId, r->start, r->end);
            }
            case CUPTI_ACTIVITY_KIND_MEMSET: {
                const auto* r = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
                return ran(r->correlationId, r->start, r->end);
            }
            case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
                const auto* r = reinterpret_cast<const CUpti_ActivityExternalCorrelation*>(record);
                if (r->externalKind == kOurs) correlated(r->correlationId, r->externalId);
                return;
            }
            default: return;
        }
    }
};

namespace {

Activity::State* g_state = nullptr;  // CUPTI's callbacks carry nothing of ours

void CUPTIAPI buffer_wanted(std::uint8_t** buffer, std::size_t* size, std::size_t* most) {
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBuffer));
    *size = *buffer ? kBuffer : 0;
    *most = 0;
}

void CUPTIAPI buffer_full(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) try {
    Activity::State& s = *g_state;
    {
        std::lock_guard lock(s.mutex);
        CUpti_Activity* record = nullptr;
        while (!s.over && valid && s.calls.cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) s.take(record);
    }
    std::free(buffer);
} catch (const std::bad_alloc&) {  // these ops are not timed
    std::free(buffer);
}

void CUPTIAPI at_call(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void* data) {
    Activity::State& s = *g_state;
    if (!s.closing || static_cast<const CUpti_CallbackData*>(data)->callbackSite != CUPTI_API_EXIT || s.finalised.exchange(true)) return;
    s.calls.cuptiFinalize();
}

template <class Map>
void clear(Map& map) {  // clear() keeps the table
    Map().swap(map);
}

// Whether there is any to be had.
bool record_apis(const Calls& calls, bool on) {
    bool any = false;
    for (CUpti_CallbackId id = 1; id < kMostApis; ++id) {
        const char* name = nullptr;
        if (calls.cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, id, &name) != CUPTI_SUCCESS || !name) continue;
        if (std::any_of(std::begin(apis), std::end(apis), [&](const char* begin) { return std::strncmp(name, begin, std::strlen(begin)) == 0; }))
            any |= calls.cuptiActivityEnableDriverApi(id, on) == CUPTI_SUCCESS;
    }
    return any;
}

}  // namespace

std::unique_ptr<Activity> Activity::open(std::string& why) {
    void* library = load();
    if (!library) return why = "libcupti.so.13 is not found", nullptr;
    auto state = std::make_unique<State>(library);
    const Calls& c = state->calls;
    std::uint32_t version = 0;
    if (c.missing) return why = std::string("CUPTI lacks ") + c.missing, nullptr;
    if (c.cuptiGetVersion(&version) != CUPTI_SUCCESS || version / 1000 != CUPTI_API_VERSION / 1000)
        return why = "CUPTI's version is " + std::to_string(version) + ", needs " + std::to_string(CUPTI_API_VERSION / 1000) + "xxx", nullptr;
    g_state = state.get();
    if (const auto refused = c.cuptiSubscribe(&state->subscriber, at_call, nullptr); refused != CUPTI_SUCCESS)
        return why = refused == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ? "another profiler has CUPTI" : "CUPTI refuses (error " + std::to_string(refused) + ")", nullptr;
    bool good = c.cuptiActivityRegisterCallbacks(buffer_wanted, buffer_full) == CUPTI_SUCCESS;
    std::size_t on = 0;
    for (; good && on < std::size(kinds); ++on) good = c.cuptiActivityEnable(kinds[on]) == CUPTI_SUCCESS;
    good = good && record_apis(c, true);
    std::uint64_t stamp = 0;
    const std::int64_t before = now();
    if (!good || c.cuptiGetTimestamp(&stamp) != CUPTI_SUCCESS) {
        record_apis(c, false);
        while (on > 0) c.cuptiActivityDisable(kinds[--on]);
        c.cuptiUnsubscribe(state->subscriber);
        state.release();  // a buffer may still be out
        return why = "CUPTI gives no activity records", nullptr;
    }
    state->shift = before + (now() - before) / 2 - static_cast<std::int64_t>(stamp);
    return std::unique_ptr<Activity>(new Activity(state.release()));
}

void Activity::push(std::uint64_t op) noexcept { state_->calls.cuptiActivityPushExternalCorrelationId(kOurs, op); }

void Activity::pop() noexcept {
    std::uint64_t last = 0;
    state_->calls.cuptiActivityPopExternalCorrelationId(kOurs, &last);
}

Activity::Found Activity::read(std::uint64_t op, Nanoseconds& begin, Nanoseconds& duration) noexcept {
    State& s = *state_;
    std::unique_lock lock(s.mutex);
    if (const std::int64_t at = now(); !s.over && at - s.flushed > kFlush) {
        lock.unlock();
        s.calls.cuptiActivityFlushAll(0);
        lock.lock();
        s.flushed = now();
    }
    // An op may have many records: all are there when a later op's of its stream are, or when no more have come for a while.
    const auto found = s.waiting.find(op);
    const bool ran = found != s.waiting.end() && found->second.grown, passed = s.passed(op);
    if (ran && (s.over || passed || now() - found->second.grown > kQuiet)) {
        begin = Nanoseconds(found->second.span.begin + s.shift);
        duration = Nanoseconds(found->second.span.end - found->second.span.begin);
        s.forget(op);
        return Found::done;
    }
    if (s.asked != op) s.asked = op, s.asked_at = now();
    if (!s.over && (!passed || (s.losses < kLosses && now() - s.asked_at < kPatience))) return Found::pending;
    ++s.losses;
    s.forget(op);
    return Found::lost;
}

void Activity::close(void (*call)()) noexcept {
    State& s = *state_;
    record_apis(s.calls, false);
    for (const CUpti_ActivityKind kind : kinds) s.calls.cuptiActivityDisable(kind);
    s.calls.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    {
        std::lock_guard lock(s.mutex);
        s.over = true;
        clear(s.ops), clear(s.early), clear(s.earlier), clear(s.latest);
    }
    if (!call) {
        s.calls.cuptiUnsubscribe(s.subscriber);
        return;
    }
    // Whatever thread leaves the driver next ends CUPTI: when this one is in none of its calls any more.
    const bool enabled = s.calls.cuptiEnableDomain(1, s.subscriber, CUPTI_CB_DOMAIN_DRIVER_API) == CUPTI_SUCCESS;
    s.closing = true;
    if (enabled) call();
    if (!s.finalised.exchange(true)) s.calls.cuptiUnsubscribe(s.subscriber);
}

void Activity::forget() noexcept {
    std::lock_guard lock(state_->mutex);
    clear(state_->waiting);
}

}  // namespace udnnmem::profiler
