// See README.md. Strict where the real one is silent: whoever calls after cuptiFinalize() is counted.
#include <cupti.h>
#include <dlfcn.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/softgpu/softgpu.h"

namespace {

struct Ended {
    std::uint64_t op;
    std::string kind;
    std::int64_t begin, end;
};

struct State {
    std::mutex mutex;
    bool subscribed = false, finalised = false, domain = false;
    CUpti_CallbackFunc callback = nullptr;
    void* user = nullptr;
    std::set<int> enabled;
    std::set<CUpti_CallbackId> apis, apis_ever;   // of which there are records
    CUpti_BuffersCallbackRequestFunc wanted = nullptr;
    CUpti_BuffersCallbackCompleteFunc full = nullptr;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> correlations;  // op, external id: not yet handed over
    std::vector<Ended> ended;                                           // likewise
    std::vector<std::pair<std::uint64_t, Ended>> all;                   // external id
    std::map<std::uint64_t, std::uint64_t> external;                    // by op
    long pushes = 0, pops = 0, flushes = 0, late = 0;
    long others = 0;   // records of work that nobody pushed
    std::int64_t since = 0, until = 0;   // subscribed, finalised
    bool gone = false;                   // the library's own end at exit has been
};
State& state() {
    static State* s = new State;
    return *s;
}
thread_local std::vector<std::uint64_t> stack;

// As many as a caller has to choose from.
constexpr const char* callbacks[] = {"", "cuLaunchKernel", "cuCtxGetCurrent", "cuMemcpyHtoDAsync_v2", "cuEventRecord", "cuMemsetD8Async", "cuMemAlloc_v2", "cuLaunchKernelEx"};

bool mode(const char* name) {
    const char* text = std::getenv("FAKE_CUPTI");
    return text && std::strcmp(text, name) == 0;
}

void submitted(std::uint64_t op) {
    State& s = state();
    std::lock_guard lock(s.mutex);
    if (stack.empty() || (s.apis.empty() && !s.enabled.count(CUPTI_ACTIVITY_KIND_DRIVER))) return void(++s.others);   // only calls that are recorded are correlated
    s.correlations.emplace_back(op, stack.back());
    s.external[op] = stack.back();
}
void ended(std::uint64_t op, const char* kind, std::int64_t begin, std::int64_t end) {
    State& s = state();
    std::lock_guard lock(s.mutex);
    s.ended.push_back({op, kind, begin, end});
    if (const auto found = s.external.find(op); found != s.external.end()) s.all.emplace_back(found->second, s.ended.back());
}
void called() {
    State& s = state();
    if (!s.domain || s.finalised) return;
    for (const auto site : {CUPTI_API_ENTER, CUPTI_API_EXIT}) {
        CUpti_CallbackData data{};
        data.callbackSite = site;
        s.callback(s.user, CUPTI_CB_DOMAIN_DRIVER_API, 0, &data);
    }
}
const softgpu_watcher watcher{submitted, ended, called};

void watch(const softgpu_watcher* who) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    auto set = driver ? reinterpret_cast<decltype(&softgpu_watch)>(dlsym(driver, "softgpu_watch")) : nullptr;
    if (set) set(who);
}

void write_log() {
    const char* path = std::getenv("FAKE_CUPTI_LOG");
    std::FILE* file = path ? std::fopen(path, "w") : nullptr;
    if (!file) return;
    State& s = state();
    std::lock_guard lock(s.mutex);
    std::fprintf(file, "{\"subscribed\":%d,\"finalised\":%d,\"enabled\":%zu,\"pushes\":%ld,\"pops\":%ld,\"flushes\":%ld,\"late\":%ld,\"others\":%ld,\"attached_ns\":%lld,\"apis\":[", s.subscribed, s.finalised, s.enabled.size() + s.apis.size(), s.pushes, s.pops, s.flushes, s.late, s.others,
                 static_cast<long long>(s.until - s.since));
    bool first = true;
    for (const CUpti_CallbackId id : s.apis_ever) std::fprintf(file, "%s\"%s\"", std::exchange(first, false) ? "" : ",", callbacks[id]);
    std::fprintf(file, "],\"ops\":[");
    first = true;
    for (const auto& [id, e] : s.all) std::fprintf(file, "%s[%llu,\"%s\",%lld,%lld]", std::exchange(first, false) ? "" : ",", (unsigned long long)id, e.kind.c_str(), (long long)e.begin, (long long)e.end);
    std::fprintf(file, "]}\n");
    std::fclose(file);
}

// What the real one's statics are: made when the library is loaded, gone before those of who was there before it.
struct Statics {
    ~Statics() {
        {
            std::lock_guard lock(state().mutex);
            state().gone = true;
        }
        write_log();
    }
} statics;

// Counts calls that come after the end; every function begins with it.
bool over() {
    State& s = state();
    bool gone;
    {
        std::lock_guard lock(s.mutex);
        s.late += s.finalised || s.gone;
        gone = s.gone;
        if (!gone) return s.finalised;
    }
    write_log();
    return gone;
}

std::int64_t monotonic() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}
#define ENTER                                             \
    if (over()) return CUPTI_ERROR_NOT_INITIALIZED

// Hands over records: kernels before their correlations now and then, as the real one does.
template <class Record>
std::uint8_t* put(std::uint8_t* at, const Record& record) {
    std::memcpy(at, &record, sizeof record);
    return at + sizeof record;
}

}  // namespace

extern "C" {
#define EXPORT __attribute__((visibility("default"))) CUptiResult CUPTIAPI

EXPORT cuptiGetVersion(std::uint32_t* version) {
    *version = mode("old") ? 24 : CUPTI_API_VERSION;
    return CUPTI_SUCCESS;
}
EXPORT cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback, void* user) {
    ENTER;
    if (mode("busy")) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    State& s = state();
    s.subscribed = true, s.callback = callback, s.user = user, s.since = monotonic();
    *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(&s);
    return CUPTI_SUCCESS;
}
EXPORT cuptiUnsubscribe(CUpti_SubscriberHandle) {
    ENTER;
    state().subscribed = false;
    return CUPTI_SUCCESS;
}
EXPORT cuptiFinalize(void) {
    ENTER;
    watch(nullptr);
    State& s = state();
    std::lock_guard lock(s.mutex);
    s.finalised = true, s.subscribed = false, s.until = monotonic();
    return CUPTI_SUCCESS;
}
// Another thread is in the driver meanwhile: whoever ends CUPTI then does so under the feet of this one.
EXPORT cuptiEnableDomain(std::uint32_t on, CUpti_SubscriberHandle, CUpti_CallbackDomain) {
    ENTER;
    State& s = state();
    s.domain = on;
    called();
    std::lock_guard lock(s.mutex);
    s.late += s.finalised;
    return CUPTI_SUCCESS;
}
EXPORT cuptiActivityEnable(CUpti_ActivityKind kind) {
    ENTER;
    state().enabled.insert(kind);
    watch(&watcher);
    return CUPTI_SUCCESS;
}
EXPORT cuptiActivityDisable(CUpti_ActivityKind kind) {
    ENTER;
    state().enabled.erase(kind);
    return CUPTI_SUCCESS;
}
EXPORT cuptiGetCallbackName(CUpti_CallbackDomain domain, std::uint32_t id, const char** name) {
    ENTER;
    if (domain != CUPTI_CB_DOMAIN_DRIVER_API || id == 0 || id >= std::size(callbacks)) return CUPTI_ERROR_INVALID_PARAMETER;
    *name = callbacks[id];
    return CUPTI_SUCCESS;
}
EXPORT cuptiActivityEnableDriverApi(CUpti_CallbackId id, std::uint8_t on) {
    ENTER;
    State& s = state();
    std::lock_guard lock(s.mutex);
    if (on) s.apis.insert(id), s.apis_ever.insert(id);
    else s.apis.erase(id);
    return CUPTI_SUCCESS;
}
EXPORT cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc wanted, CUpti_BuffersCallbackCompleteFunc full) {
    ENTER;
    state().wanted = wanted, state().full = full;
    return CUPTI_SUCCESS;
}
EXPORT cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind, std::uint64_t id) {
    ENTER;
    stack.push_back(id);
    std::lock_guard lock(state().mutex);
    ++state().pushes;
    return CUPTI_SUCCESS;
}
EXPORT cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind, std::uint64_t* last) {
    ENTER;
    if (stack.empty()) return CUPTI_ERROR_QUEUE_EMPTY;
    if (last) *last = stack.back();
    stack.pop_back();
    std::lock_guard lock(state().mutex);
    ++state().pops;
    return CUPTI_SUCCESS;
}
EXPORT cuptiGetTimestamp(std::uint64_t* now) {
    ENTER;
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    auto ask = driver ? reinterpret_cast<decltype(&softgpu_now)>(dlsym(driver, "softgpu_now")) : nullptr;
    if (!ask) return CUPTI_ERROR_NOT_INITIALIZED;
    *now = static_cast<std::uint64_t>(ask()) + 1000;
    return CUPTI_SUCCESS;
}
EXPORT cuptiActivityFlushAll(std::uint32_t) {
    ENTER;
    State& s = state();
    std::vector<std::pair<std::uint64_t, std::uint64_t>> correlations;
    std::vector<Ended> ended;
    {
        std::lock_guard lock(s.mutex);
        ++s.flushes;
        correlations.swap(s.correlations);
        ended.swap(s.ended);
    }
    // Records of ops before their correlations: the order of records is nobody's promise.
    for (std::size_t i = 0, j = 0; i < ended.size() || j < correlations.size();) {
        std::uint8_t* buffer = nullptr;
        std::size_t size = 0, most = 0;
        s.wanted(&buffer, &size, &most);
        std::uint8_t* at = buffer;
        for (; i < ended.size() && at + sizeof(CUpti_ActivityKernel10) <= buffer + size; ++i) {
            const auto begin = static_cast<std::uint64_t>(ended[i].begin) + 1000, end = static_cast<std::uint64_t>(ended[i].end) + 1000;
            const auto fill = [&](auto record, CUpti_ActivityKind kind) {
                record.kind = kind, record.start = begin, record.end = end, record.correlationId = static_cast<std::uint32_t>(ended[i].op);
                if (s.enabled.count(kind)) at = put(at, record);
            };
            if (ended[i].kind == "kernel") fill(CUpti_ActivityKernel10{}, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
            else if (ended[i].kind == "copy") fill(CUpti_ActivityMemcpy6{}, CUPTI_ACTIVITY_KIND_MEMCPY);
            else fill(CUpti_ActivityMemset4{}, CUPTI_ACTIVITY_KIND_MEMSET);
        }
        for (; i == ended.size() && j < correlations.size() && at + sizeof(CUpti_ActivityExternalCorrelation) <= buffer + size; ++j) {
            CUpti_ActivityExternalCorrelation record{};
            record.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, record.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2;
            record.externalId = correlations[j].second, record.correlationId = static_cast<std::uint32_t>(correlations[j].first);
            at = put(at, record);
        }
        s.full(nullptr, 0, buffer, size, static_cast<std::size_t>(at - buffer));
    }
    return CUPTI_SUCCESS;
}
EXPORT cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid, CUpti_Activity** record) {
    std::uint8_t* at = buffer;
    if (*record) {
        at = reinterpret_cast<std::uint8_t*>(*record);
        switch ((*record)->kind) {
            case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: at += sizeof(CUpti_ActivityKernel10); break;
            case CUPTI_ACTIVITY_KIND_MEMCPY: at += sizeof(CUpti_ActivityMemcpy6); break;
            case CUPTI_ACTIVITY_KIND_MEMSET: at += sizeof(CUpti_ActivityMemset4); break;
            default: at += sizeof(CUpti_ActivityExternalCorrelation); break;
        }
    }
    if (at >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = reinterpret_cast<CUpti_Activity*>(at);
    return CUPTI_SUCCESS;
}
}
