// Options from the environment, the figures and their report, the injected faults, and the start of the
// driver. Everything is leaked on purpose. A child of fork is not initialised and never will be if its
// parent was: engines are threads, and threads do not cross a fork.
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>

#include "tests/softgpu/driver/clock.hpp"
#include "tests/softgpu/driver/core.hpp"
#include "tests/softgpu/driver/engine.hpp"
#include "tests/softgpu/driver/memory.hpp"

namespace softgpu {

std::atomic<int> gate{1};

namespace {

std::atomic<bool> started{false}, forked{false}, ended{false};
std::atomic<std::uint64_t> calls{0};

[[noreturn]] void bad_option(const char* name, const char* text, const char* expected) {
    std::fprintf(stderr, "softgpu: %s=%s: expected %s\n", name, text, expected);
    std::_Exit(2);
}

double parse_bytes(const char* name, const char* text) {
    char* end = nullptr;
    double value = std::strtod(text, &end);
    std::string unit = end;
    if (unit.size() > 2 && unit.substr(unit.size() - 2) == "/s") unit.resize(unit.size() - 2);
    static const struct { const char* unit; double factor; } units[] = {
        {"", 1}, {"B", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"K", 1024.}, {"M", 1048576.}, {"G", 1073741824.},
        {"KiB", 1024.}, {"MiB", 1048576.}, {"GiB", 1073741824.}, {"TiB", 1099511627776.}};
    for (auto& u : units)
        if (unit == u.unit && end != text && value >= 0) return value * u.factor;
    bad_option(name, text, "bytes such as 1073741824, 800MiB or 1.5GiB");
}

std::uint64_t env_bytes(const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text && *text ? static_cast<std::uint64_t>(parse_bytes(name, text)) : otherwise;
}

double env_bandwidth(const char* name) {
    const char* text = std::getenv(name);
    if (!text || !*text || !std::strcmp(text, "off")) return 0;
    return parse_bytes(name, text);
}

long env_number(const char* name, long otherwise, long least, long most) {
    const char* text = std::getenv(name);
    if (!text || !*text) return otherwise;
    char* end = nullptr;
    long value = std::strtol(text, &end, 0);
    if (*end || value < least || value > most) bad_option(name, text, "a number in range");
    return value;
}

std::string default_cache() {
    if (const char* folder = std::getenv("SOFTGPU_CACHE")) return folder;
    if (const char* home = std::getenv("HOME"); home && *home) {
        std::string folder = std::string(home) + "/.cache";
        ::mkdir(folder.c_str(), 0755);
        return folder + "/softgpu";
    }
    return "";
}

// Modelled time by kernel: lines `KERNEL NS`, or `KERNEL @K` for one whose parameter K (64 bits) says how many ns; what is
// not there lasts by `roofline OPERATIONS BYTES`, per second.
void read_table(const char* file, Options& o) {
    std::ifstream in(file);
    std::string text, name;
    while (std::getline(in, text)) {
        std::istringstream line(text);
        Options::Lasts lasts;
        if (!(line >> name) || name[0] == '#') continue;
        char at = 0;
        const bool right = name == "roofline"                          ? line >> o.operations_per_second >> o.bytes_per_second && o.operations_per_second > 0 && o.bytes_per_second > 0
                           : (line >> std::ws, line.peek()) == '@' ? line >> at >> lasts.parameter && lasts.parameter >= 0
                                                                       : line >> lasts.ns && lasts.ns >= 0;
        if (!right) bad_option("SOFTGPU_TIME=table", text.c_str(), "KERNEL NS, KERNEL @PARAMETER, or roofline OPERATIONS BYTES");
        if (name != "roofline") o.table[name] = lasts;
    }
    if (!in.eof()) bad_option("SOFTGPU_TIME=table", file, "a file that can be read");
}

Options* read_options() {
    auto* o = new Options;
    o->memory = env_bytes("SOFTGPU_MEMORY", o->memory);
    o->granularity = env_bytes("SOFTGPU_GRANULARITY", o->granularity);
    if (o->granularity < 4096 || (o->granularity & (o->granularity - 1)))
        bad_option("SOFTGPU_GRANULARITY", std::getenv("SOFTGPU_GRANULARITY"), "a power of two of at least 4096");
    o->host_to_device = env_bandwidth("SOFTGPU_H2D");
    o->device_to_host = env_bandwidth("SOFTGPU_D2H");
    o->devices = static_cast<int>(env_number("SOFTGPU_DEVICES", 1, 0, 8));
    const char* const card = std::getenv("SOFTGPU_CARD");
    o->card = std::hash<std::string>{}(card ? card : std::to_string(::getpid()) + "/" + std::to_string(std::random_device{}()));
    o->sm = static_cast<int>(env_number("SOFTGPU_SM", 75, 50, 130));
    if (const char* text = std::getenv("SOFTGPU_SEED"); text && *text) {
        o->shuffle = true;
        o->seed = std::strtoull(text, nullptr, 0);
    }
    o->queue = static_cast<std::size_t>(env_number("SOFTGPU_QUEUE", 0, 0, 1 << 20));
    o->strict = env_number("SOFTGPU_STRICT", 1, 0, 1) != 0;
    o->count = env_number("SOFTGPU_COUNT", 0, 0, 1) != 0;
    o->assert_bytes = env_bytes("SOFTGPU_ASSERT_BYTES", 0);
    o->cache_folder = default_cache();
    if (const char* text = std::getenv("SOFTGPU_TIME"); text && !std::strncmp(text, "table:", 6)) {
        read_table(text + 6, *o);
        o->modelled = o->count = true;
    } else if (text && *text && std::strcmp(text, "wall")) {  // model[:OPERATIONS[:BYTES]], per second
        const int n = std::sscanf(text, "model:%lf:%lf", &o->operations_per_second, &o->bytes_per_second);
        if (std::strncmp(text, "model", 5) || (text[5] && (text[5] != ':' || n < 1)) || !(o->operations_per_second > 0) || !(o->bytes_per_second > 0))
            bad_option("SOFTGPU_TIME", text, "wall, model:OPERATIONS:BYTES, both per second, or table:FILE");
        o->modelled = o->count = true;  // the roofline is over what is counted
    }
    if (const char* text = std::getenv("SOFTGPU_MAPPING"); text && *text) {  // CREATE:ACCESS:UNMAP
        long long create = 0, access = 0, unmap = 0;
        char more = 0;
        if (std::sscanf(text, "%lld:%lld:%lld%c", &create, &access, &unmap, &more) != 3 || create < 0 || access < 0 || unmap < 0)
            bad_option("SOFTGPU_MAPPING", text, "CREATE:ACCESS:UNMAP, ns that cuMemCreate, cuMemSetAccess and cuMemUnmap take in modelled time");
        o->create_ns = create, o->access_ns = access, o->unmap_ns = unmap;
    }
    if (const char* text = std::getenv("SOFTGPU_REPORT")) o->report = text;
    if (const char* text = std::getenv("SOFTGPU_TIMELINE")) o->timeline = text;
    o->workers = static_cast<int>(env_number("SOFTGPU_WORKERS", 2, 1, 64));
    if (const char* text = std::getenv("SOFTGPU_NUMA"); text && *text) {  // BYTES,BYTES...
        char* end = const_cast<char*>(text) - 1;
        do o->numa.push_back(std::strtoull(end + 1, &end, 10));
        while (*end == ',');
        if (*end) bad_option("SOFTGPU_NUMA", text, "the bytes of each node, with commas between");
    }
    if (const char* text = std::getenv("SOFTGPU_FAIL"); text && *text) {  // NAME:N[:ERROR[:TIMES]]
        std::string all = text;
        auto first = all.find(':');
        char* end = nullptr;
        o->fail_name = all.substr(0, first);
        if (first != std::string::npos) o->fail_at = std::strtoull(text + first + 1, &end, 10);
        if (!o->fail_at) bad_option("SOFTGPU_FAIL", text, "NAME:N, NAME:N:ERROR or NAME:N:ERROR:TIMES, N counted from 1");
        if (*end == ':') o->fail_with = static_cast<CUresult>(std::strtol(end + 1, &end, 10));
        if (*end == ':') o->fail_times = std::strtoull(end + 1, nullptr, 10);
    }
    return o;
}

void write_report() {
    if (forked || !started) return;
    auto& f = figures();
    const auto& o = options();
    char line[1024];
    int n = std::snprintf(line, sizeof line,
                          "{\"pid\": %d, \"memory\": %llu, \"device_bytes\": %llu, \"device_bytes_peak\": %llu, \"host_bytes\": %llu, "
                          "\"host_bytes_peak\": %llu, \"frames\": %llu, \"mappings\": %llu, \"ops\": %llu, \"kernels\": %llu, \"faults\": %llu, "
                          "\"bytes_to_device\": %llu, \"bytes_to_host\": %llu, \"bytes_on_device\": %llu, "
                          "\"bytes_read\": %llu, \"bytes_written\": %llu, \"operations\": %llu, \"unwritten_reads\": %llu, \"virtual_ns\": %lld}\n",
                          ::getpid(), (unsigned long long)o.memory, (unsigned long long)f.device_bytes, (unsigned long long)f.device_peak,
                          (unsigned long long)f.host_bytes, (unsigned long long)f.host_peak, (unsigned long long)f.frames,
                          (unsigned long long)f.mappings, (unsigned long long)f.ops, (unsigned long long)f.kernels,
                          (unsigned long long)f.faults, (unsigned long long)f.to_device, (unsigned long long)f.to_host,
                          (unsigned long long)f.on_device, (unsigned long long)f.bytes_read, (unsigned long long)f.bytes_written,
                          (unsigned long long)f.operations, (unsigned long long)f.unwritten, (long long)(o.modelled ? virtual_now() : 0));
    if (FILE* file = std::fopen(o.report.c_str(), "ae")) {
        std::fwrite(line, 1, static_cast<std::size_t>(n), file);
        std::fclose(file);
    } else {
        say("SOFTGPU_REPORT=%s: %s", o.report.c_str(), std::strerror(errno));
    }
}

}  // namespace

const Options& options() {
    static const Options* const o = read_options();
    return *o;
}

Figures& figures() {
    static Figures* const f = new Figures;
    return *f;
}

void say(const char* format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int n = std::snprintf(line, sizeof line, "softgpu: ");
    n += std::vsnprintf(line + n, sizeof line - static_cast<std::size_t>(n) - 1, format, arguments);
    va_end(arguments);
    if (n > static_cast<int>(sizeof line) - 2) n = sizeof line - 2;
    line[n] = '\n';
    if (::write(2, line, static_cast<std::size_t>(n) + 1) < 0) return;
}

std::int64_t now_ns() {
    timespec t;
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = a * 0x9e3779b97f4a7c15ull + b;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

bool initialised() { return started; }

CUresult initialise() {
    static std::mutex* const once = new std::mutex;
    std::lock_guard lock(*once);
    if (forked) return CUDA_ERROR_NOT_INITIALIZED;
    if (started) return CUDA_SUCCESS;
    if (options().devices == 0) return CUDA_ERROR_NO_DEVICE;
    if (!memory_start()) return CUDA_ERROR_OUT_OF_MEMORY;
    engines_start();
    ::pthread_atfork(nullptr, nullptr, [] {
        forked = true;
        gate = 1;
    });
    started = true;
    if (!options().report.empty()) std::atexit(write_report);
    // As on a card: what exits after that (threads that run on, destructors of what was made before cuInit) is refused.
    std::atexit([] {
        ended = true;
        gate = 1;
    });
    gate = options().fail_name.empty() && !options().modelled ? 0 : 1;
    return CUDA_SUCCESS;
}

CUresult pass_gate(const char* name) {
    if (forked || !started) return CUDA_ERROR_NOT_INITIALIZED;
    if (ended) return CUDA_ERROR_DEINITIALIZED;
    const auto& o = options();
    if (o.modelled) clock_called(name);
    if (!o.fail_at || (o.fail_name != "*" && o.fail_name != name)) return CUDA_SUCCESS;
    if (const std::uint64_t n = ++calls; n >= o.fail_at && n - o.fail_at < o.fail_times) {
        say("SOFTGPU_FAIL: call %llu of %s fails with %d", (unsigned long long)n, name, o.fail_with);
        return o.fail_with;
    }
    return CUDA_SUCCESS;
}

}  // namespace softgpu

extern "C" __attribute__((visibility("default"))) void softgpu_stats(struct softgpu_stats* s) {
    auto& f = softgpu::figures();
    *s = {f.device_bytes, f.device_peak, f.host_bytes, f.host_peak, f.frames, f.mappings, f.ops, f.kernels, f.faults, f.to_device, f.to_host, f.on_device};
}

extern "C" __attribute__((visibility("default"))) void softgpu_reset_peaks(void) {
    auto& f = softgpu::figures();
    f.device_peak = f.device_bytes.load();
    f.host_peak = f.host_bytes.load();
}
