// What all probes share: checked driver calls, JSON, timing, deadlines, virtual-memory helpers.
// One JSON object goes to stdout even when a call fails or hangs; the human table goes to stderr.
#pragma once
#include <cuda.h>
#include <signal.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

// CUDA 13 headers rename this to _v2, which older drivers lack; the first version does for timing.
#undef cuEventElapsedTime
extern "C" CUresult CUDAAPI cuEventElapsedTime(float* ms, CUevent begin, CUevent end);

typedef unsigned long long u64;
constexpr size_t KiB = 1ull << 10, MiB = 1ull << 20, GiB = 1ull << 30;
constexpr int kDevice = 1, kHost = 2, kHostNuma = 3;   // CU_MEM_LOCATION_TYPE_*: older headers lack the last two

// ---- JSON: just enough of a tree to write one report
class Json {
 public:
  Json() = default;
  Json(bool v) : leaf_(v ? "true" : "false") {}
  Json(const char* v) { quote(v); }
  Json(const std::string& v) { quote(v); }
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> Json(T v) {
    char buf[40];
    if (std::is_integral_v<T>) snprintf(buf, sizeof buf, "%lld", (long long)v);
    else if (std::isfinite((double)v)) snprintf(buf, sizeof buf, "%.6g", (double)v);
    else strcpy(buf, "null");
    leaf_ = buf;
  }
  Json& operator[](const std::string& key) {
    for (size_t i = 0; i < keys_.size(); i++) if (keys_[i] == key) return values_[i];
    keys_.push_back(key); values_.emplace_back();
    return values_.back();   // valid until the next new key: do not hold on to it across one
  }
  void push(Json v) { list_ = true; values_.push_back(std::move(v)); }
  std::string text(int depth = 0) const {
    if (!leaf_.empty()) return leaf_;
    if (values_.empty()) return list_ ? "[]" : "null";
    bool flat = !list_ && depth > 0;   // an object of plain values goes on one line
    for (auto& v : values_) flat = flat && !v.leaf_.empty();
    if (flat) {
      std::string out;
      for (size_t i = 0; i < values_.size(); i++) out += (i ? ", \"" : "{\"") + keys_[i] + "\": " + values_[i].leaf_;
      return out + "}";
    }
    std::string pad(2 * depth + 2, ' '), out = list_ ? "[" : "{";
    for (size_t i = 0; i < values_.size(); i++)
      out += (i ? ",\n" : "\n") + pad + (list_ ? "" : "\"" + keys_[i] + "\": ") + values_[i].text(depth + 1);
    return out + "\n" + std::string(2 * depth, ' ') + (list_ ? "]" : "}");
  }
 private:
  void quote(const std::string& v) {
    leaf_ = "\"";
    for (char c : v) { if (c == '"' || c == '\\') leaf_ += '\\'; leaf_ += (unsigned char)c < 32 ? ' ' : c; }
    leaf_ += '"';
  }
  std::string leaf_;
  bool list_ = false;
  std::vector<std::string> keys_;
  std::vector<Json> values_;
};

// The report is locked while it is written, since a deadline may print it at any time. The lock lasts for one statement, and in
// an assignment the right side comes first, so that no driver call is made under it (hence no calls in arguments of push).
inline std::recursive_timed_mutex& reportMutex() { static std::recursive_timed_mutex m; return m; }
struct Entry {
  std::unique_lock<std::recursive_timed_mutex> lock; Json& at;
  Entry operator[](const std::string& key) && { return {std::move(lock), at[key]}; }
  template <class T> void operator=(T&& v) && { at = Json(std::forward<T>(v)); }
  void push(Json v) && { at.push(std::move(v)); }
  std::string text(int depth = 0) const { return at.text(depth); }
};
inline Json& reportRoot() { static Json j; return j; }
inline Entry report() { return {std::unique_lock<std::recursive_timed_mutex>(reportMutex()), reportRoot()}; }
// A named part, written in place: what is known survives a failing call or a hang.
struct Part {
  std::vector<std::string> path;
  Entry here() const {
    Entry e = report(); Json* at = &e.at;
    for (auto& key : path) at = &(*at)[key];
    return {std::move(e.lock), *at};
  }
  Entry operator[](const std::string& key) const { return here()[key]; }
  Part sub(const std::string& key) const { Part p = *this; p.path.push_back(key); return p; }
  std::string text() const { return here().text(); }
};
inline std::atomic<const char*>& phase() { static std::atomic<const char*> p{"start"}; return p; }   // where a hang happened
inline void say(const char* format, ...) { va_list a; va_start(a, format); vfprintf(stderr, format, a); va_end(a); fputc('\n', stderr); }

[[noreturn]] inline void finish(int status) {   // _exit: after an error or a hang no destructor can be trusted
  static std::once_flag once;
  std::call_once(once, [] {
    bool locked = reportMutex().try_lock_for(std::chrono::milliseconds(500)); (void)locked;   // its holder may be what hangs
    printf("%s\n", reportRoot().text().c_str()); fflush(stdout); fflush(stderr);
  });
  _exit(status);
}

inline std::string errorName(CUresult r) {
  const char* s = nullptr;
  return cuGetErrorName(r, &s) == CUDA_SUCCESS && s ? s : "error " + std::to_string((int)r);
}
inline void checkAt(CUresult r, const char* call, const char* file, int line) {
  if (r == CUDA_SUCCESS) return;
  std::string message = std::string(call) + " -> " + errorName(r) + " (" + std::to_string((int)r) + ") at " + file + ":" + std::to_string(line);
  say("FAILED %s", message.c_str());
  report()["error"] = message; report()["error_phase"] = phase().load();
  finish(1);
}
#define CHECK(call) checkAt((call), #call, __FILE__, __LINE__)

// ---- Time
inline double nowUs() { return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
template <class F> double timeUs(F&& f) { double t = nowUs(); f(); return nowUs() - t; }

struct Samples {
  std::vector<double> us;
  void add(double v) { us.push_back(v); }
  double at(double q) const {
    if (us.empty()) return NAN;
    std::vector<double> s = us; std::sort(s.begin(), s.end());
    return s[std::min(s.size() - 1, (size_t)(q * s.size()))];
  }
  Json json() const { Json j; j["n"] = us.size(); j["median_us"] = at(.5); j["p99_us"] = at(.99); j["max_us"] = at(1); return j; }
};

// Runs `action` in its own thread unless destroyed before `seconds` are over: nothing here may hang for ever.
class Deadline {
 public:
  Deadline(double seconds, std::function<void()> action) : thread_([this, seconds, action] {
    std::unique_lock<std::mutex> lock(mutex_);
    if (wake_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return cancelled_; })) return;
    fired_ = true; lock.unlock(); action();
  }) {}
  ~Deadline() { { std::lock_guard<std::mutex> lock(mutex_); cancelled_ = true; } wake_.notify_all(); thread_.join(); }
  bool fired() const { return fired_; }
 private:
  std::mutex mutex_; std::condition_variable wake_; bool cancelled_ = false; std::atomic<bool> fired_{false};
  std::thread thread_;   // last: it starts when all the others exist
};
inline std::function<void()> giveUp(const char* probe) {
  return [=] {
    say("%s: out of time in: %s", probe, phase().load());
    bool locked = reportMutex().try_lock_for(std::chrono::milliseconds(500)); (void)locked;
    reportRoot()["timed_out_in"] = phase().load();
    finish(3);
  };
}

// A crash inside the driver must not cost what is known. Nothing here is safe in a handler: the alarm ends it if it hangs.
inline void reportCrashes() {
  for (int s : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGTERM}) signal(s, [](int number) {
    for (int t : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGTERM, SIGALRM}) signal(t, SIG_DFL);
    alarm(2);
    report()["error"] = "signal " + std::to_string(number); report()["error_phase"] = phase().load();
    finish(4);
  });
}

inline double option(int argc, char** argv, const char* name, double fallback) {
  for (int i = 1; i + 1 < argc; i++) if (!strcmp(argv[i], name)) return atof(argv[i + 1]);
  return fallback;
}

// ---- The device
struct Gpu {
  CUdevice device = 0; CUcontext context = nullptr; int sm = 0, processors = 0; size_t freeBytes = 0, totalBytes = 0, granularity = 0;
  int attribute(int which) const { int v = -1; return cuDeviceGetAttribute(&v, (CUdevice_attribute)which, device) ? -1 : v; }
  Gpu(const char* probe, int argc, char** argv) {
    reportCrashes(); phase() = "initialise";
    report()["probe"] = probe;
    std::string command = probe; for (int i = 1; i < argc; i++) command += std::string(" ") + argv[i];
    report()["command"] = command;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, (int)option(argc, argv, "--device", 0)));
    char name[128] = ""; int driver = 0; CHECK(cuDeviceGetName(name, sizeof name, device)); CHECK(cuDriverGetVersion(&driver));
    CHECK(cuDevicePrimaryCtxRetain(&context, device)); CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemGetInfo(&freeBytes, &totalBytes));
    sm = attribute(75) * 10 + attribute(76); processors = attribute(16);
    CUmemAllocationProp p = properties(kDevice, device);
    CHECK(cuMemGetAllocationGranularity(&granularity, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    report()["device"] = name; report()["sm"] = sm; report()["driver"] = driver; report()["cuda_header"] = CUDA_VERSION;
    unsigned cpu = 0, node = 0; syscall(SYS_getcpu, &cpu, &node, nullptr);   // plain pinned memory comes from the caller's node
    report()["cpu_node"] = node; report()["gpu_node"] = attribute(134);
    report()["total_mib"] = totalBytes / MiB; report()["free_mib"] = freeBytes / MiB;
    phase() = "set up";
    say("%s on %s (sm_%d), driver %d, %zu of %zu MiB free", probe, name, sm, driver, freeBytes / MiB, totalBytes / MiB);
  }
  ~Gpu() { cuDevicePrimaryCtxRelease(device); }
  // At most 8 GiB and 40 % of what is free; whole multiples of `unit`.
  size_t room(double wantedGiB, size_t unit) const {
    return std::min({(size_t)(wantedGiB * GiB), 8 * GiB, freeBytes / 10 * 4}) / unit * unit;
  }
  static CUmemAllocationProp properties(int locationType, int id) {
    CUmemAllocationProp p{};
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED; p.location.type = (CUmemLocationType)locationType; p.location.id = id;
    return p;
  }
  CUresult tryCreate(CUmemGenericAllocationHandle* h, size_t bytes, int locationType = kDevice, int id = 0) const {
    CUmemAllocationProp p = properties(locationType, locationType == kDevice ? device : id);
    return cuMemCreate(h, bytes, &p, 0);
  }
  CUmemGenericAllocationHandle create(size_t bytes) const { CUmemGenericAllocationHandle h; CHECK(tryCreate(&h, bytes)); return h; }
  CUdeviceptr reserve(size_t bytes, size_t align = 0) const { CUdeviceptr va; CHECK(cuMemAddressReserve(&va, bytes, align, 0, 0)); return va; }
  CUresult allow(CUdeviceptr va, size_t bytes) const { return allow(va, bytes, kDevice, device); }
  CUresult allow(CUdeviceptr va, size_t bytes, int locationType, int id) const {
    CUmemAccessDesc d{}; d.location.type = (CUmemLocationType)locationType; d.location.id = id; d.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return cuMemSetAccess(va, bytes, &d, 1);
  }
  void map(CUdeviceptr va, size_t bytes, CUmemGenericAllocationHandle h) const { CHECK(cuMemMap(va, bytes, 0, h, 0)); CHECK(allow(va, bytes)); }
};

// A frame with an address of its own.
struct Frame {
  CUdeviceptr va = 0; CUmemGenericAllocationHandle handle = 0; size_t bytes = 0;
  static Frame make(const Gpu& gpu, size_t bytes) { Frame f; f.bytes = bytes; f.handle = gpu.create(bytes); f.va = gpu.reserve(bytes); gpu.map(f.va, bytes, f.handle); return f; }
  void drop() { CHECK(cuMemUnmap(va, bytes)); CHECK(cuMemRelease(handle)); CHECK(cuMemAddressFree(va, bytes)); }
};

// Pinned host memory that the device sees too; `at` is the device's address for it.
struct Pinned {
  void* host = nullptr; CUdeviceptr at = 0;
  explicit Pinned(size_t bytes) { CHECK(cuMemHostAlloc(&host, bytes, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE)); CHECK(cuMemHostGetDevicePointer(&at, host, 0)); memset(host, 0, bytes); }
  ~Pinned() { cuMemFreeHost(host); }
  volatile unsigned& word(int i = 0) { return ((volatile unsigned*)host)[i]; }
};
inline CUstream newStream() { CUstream s; CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING)); return s; }

// Device time of the median of a few runs of what `once` puts into the stream, within `limitUs` of wall time.
struct Stopwatch {
  CUstream stream; CUevent begin, end;
  explicit Stopwatch(CUstream s) : stream(s) { CHECK(cuEventCreate(&begin, 0)); CHECK(cuEventCreate(&end, 0)); }
  ~Stopwatch() { cuEventDestroy(begin); cuEventDestroy(end); }
  void start() { CHECK(cuEventRecord(begin, stream)); }
  void stop() { CHECK(cuEventRecord(end, stream)); }
  double us() { float ms = 0; CHECK(cuEventSynchronize(end)); CHECK(cuEventElapsedTime(&ms, begin, end)); return ms * 1000.0; }
  double medianUs(const std::function<void()>& once, double limitUs = 1e6) {
    once(); CHECK(cuStreamSynchronize(stream));
    Samples runs;
    for (double until = nowUs() + limitUs; runs.us.size() < 2 || (runs.us.size() < 10 && nowUs() < until);) { start(); once(); stop(); runs.add(us()); }
    return runs.at(.5);
  }
};

// "works" when memory of this kind can really be made and mapped. Asked in a child: some drivers crash on it, whatever the
// attributes say. Call before Gpu: a process that has initialised CUDA cannot fork.
inline std::string trialInChild(int locationType, int node, int ordinal) {
  struct Shared { char step[64], result[64]; };
  Shared* shared = (Shared*)mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return "mmap failed";
  fflush(stdout); fflush(stderr);
  pid_t child = fork();
  if (child < 0) return "fork failed";
  if (child == 0) {
    alarm(12);
    CUdevice d; CUcontext c; CUmemGenericAllocationHandle h; CUdeviceptr va; size_t g = 0;
    auto stop = [&](CUresult r) { snprintf(shared->result, sizeof shared->result, "%s", errorName(r).c_str()); _exit(1); };
#define STEP(call) snprintf(shared->step, sizeof shared->step, "%.*s", (int)strcspn(#call, "("), #call); if (CUresult r = (call)) stop(r)
    STEP(cuInit(0)); STEP(cuDeviceGet(&d, ordinal)); STEP(cuDevicePrimaryCtxRetain(&c, d)); STEP(cuCtxSetCurrent(c));
    if (node < 0 && (cuDeviceGetAttribute(&node, (CUdevice_attribute)134, d) || node < 0)) node = 0;
    CUmemAllocationProp p = Gpu::properties(locationType, locationType == kHostNuma ? node : 0);
    CUmemAccessDesc a{}; a.location.type = CU_MEM_LOCATION_TYPE_DEVICE; a.location.id = d; a.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    STEP(cuMemGetAllocationGranularity(&g, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    g = (2 * MiB + g - 1) / g * g;
    STEP(cuMemCreate(&h, g, &p, 0));
    STEP(cuMemAddressReserve(&va, g, 0, 0, 0)); STEP(cuMemMap(va, g, 0, h, 0)); STEP(cuMemSetAccess(va, g, &a, 1));
#undef STEP
    _exit(0);
  }
  int status = 0; waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "works";
  return std::string(shared->step) + ": " + (WIFSIGNALED(status) ? WTERMSIG(status) == SIGALRM ? "hangs" : "killed by signal " + std::to_string(WTERMSIG(status)) : shared->result);
}
