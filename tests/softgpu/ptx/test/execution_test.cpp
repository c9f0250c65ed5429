// How kernels execute: barriers, warps, atomics, memory spaces, calls, grids, faults, and the promise
// that results are the same bits whatever the number of workers.
#include <setjmp.h>
#include <signal.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <thread>

#include "tests/softgpu/ptx/abi.hpp"
#include "tests/catch.hpp"
#include "tests/softgpu/ptx/test/device.hpp"
#include "tests/softgpu/sanitised.hpp"

using namespace softgpu::ptx;
using namespace softgpu::ptx::test;

namespace {

std::vector<float> ramp(std::size_t n, float scale) {
    std::vector<float> v(n);
    for (std::size_t i = 0; i < n; ++i) v[i] = scale * static_cast<float>((i * 37) % 101) - 3;
    return v;
}

sigjmp_buf fault_target;
void* fault_address;
void on_fault(int, siginfo_t* info, void* context) {
    const bool write = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2;
    divert_fault(info->si_addr, write);
    fault_address = info->si_addr;
    siglongjmp(fault_target, 1);
}
struct FaultHandler {
    struct sigaction old {};
    FaultHandler() {
        struct sigaction a {};
        a.sa_sigaction = on_fault;
        a.sa_flags = SA_SIGINFO | SA_NODEFER;
        sigaction(SIGSEGV, &a, &old);
    }
    ~FaultHandler() { sigaction(SIGSEGV, &old, nullptr); }
};
}  // namespace

TEST_CASE("shared memory and barriers", "[ptx]") {
    Device device;
    Program program = load_kernels(device);
    const int n = 1000;
    const auto in = ramp(n, 0.5f);
    const auto out = device.upload(std::vector<float>(4));
    program.launch("block_sum", dims(4, 256), device.upload(in), out, n);
    const auto got = device.download<float>(out, 4);
    for (int b = 0; b < 4; ++b) {
        float s[256];
        for (int t = 0; t < 256; ++t) s[t] = b * 256 + t < n ? in[b * 256 + t] : 0;
        for (int o = 128; o; o /= 2)
            for (int t = 0; t < o; ++t) s[t] += s[t + o];
        CHECK(got[b] == s[0]);
    }
    std::vector<int> data(96);
    std::iota(data.begin(), data.end(), 0);
    const auto d = device.upload(data);
    program.launch("dynamic_reverse", dims(3, 32, 128), d);
    const auto reversed = device.download<int>(d, 96);
    for (int i = 0; i < 96; ++i) CHECK(reversed[i] == i / 32 * 32 + 31 - i % 32);

    const int m = 64;
    const auto a = ramp(m * m, 0.25f), b = ramp(m * m, 0.125f);
    const auto c = device.upload(std::vector<float>(m * m));
    LaunchDims dim;
    dim.grid = {4, 4, 1}, dim.block = {16, 16, 1};
    program.launch("matmul", dim, device.upload(a), device.upload(b), c, m);
    const auto product = device.download<float>(c, m * m);
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < m; ++j) {
            float sum = 0;
            for (int k = 0; k < m; ++k) sum = std::fma(a[i * m + k], b[k * m + j], sum);
            REQUIRE(product[i * m + j] == sum);
        }
}

TEST_CASE("warp operations", "[ptx]") {
    Device device;
    Program program = load_kernels(device);
    std::vector<int> in(64);
    for (int i = 0; i < 64; ++i) in[i] = (i * 29 + 11) % 97;
    const auto out = device.upload(std::vector<int>(64 * 20));
    program.launch("warps", dims(1, 64), device.upload(in), out);
    const auto got = device.download<int>(out, 64 * 20);
    for (int t = 0; t < 64; ++t) {
        INFO("thread " << t);
        const int w = t / 32 * 32, l = t % 32, v = in[t];
        auto ballot = [&](auto f) { unsigned r = 0; for (int k = 0; k < 32; ++k) r |= static_cast<unsigned>(f(in[w + k], k)) << k; return r; };
        auto at = [&](int lane) { return in[w + lane]; };
        const int* g = &got[t * 20];
        CHECK(g[0] == at(5));
        CHECK(g[1] == (l >= 3 ? at(l - 3) : v));
        CHECK(g[2] == (l % 16 + 7 < 16 ? at(l + 7) : v));
        CHECK(g[3] == at(l ^ 9));
        CHECK(g[4] == at(l / 8 * 8 + (t + 1) % 8));
        CHECK(static_cast<unsigned>(g[5]) == ballot([](int x, int) { return x & 1; }));
        CHECK(g[6] == (ballot([](int x, int) { return x > 90; }) != 0));
        CHECK(g[7] == 1);
        CHECK(static_cast<unsigned>(g[8]) == ballot([&](int x, int) { return x % 5 == v % 5; }));
        CHECK(g[9] == (w ? 0 : -1));
        CHECK(g[10] == (w ? 0 : 1));
        int sum = 0;
        for (int k = 0; k < 32; ++k) sum += at(k);
        CHECK(g[11] == sum);
        const unsigned thirds = ballot([&](int, int k) { return (w + k) % 3 == 0; });
        CHECK(g[12] == (t % 3 == 0 ? static_cast<int>(thirds) : -(32 - __builtin_popcount(thirds))));
        CHECK(static_cast<unsigned>(g[13]) == ballot([&](int x, int k) { return (k & 1) == (t & 1) && (x & (t & 1 ? 2 : 4)); }));
        int odd = 0, any50 = 0, all99 = 1;
        for (int x : in) odd += x & 1, any50 |= x == 50, all99 &= x < 99;
        CHECK(g[14] == odd);
        CHECK((g[15] != 0) == all99);
        CHECK((g[16] != 0) == any50);
        CHECK(g[17] == (l < 31 ? at(l + 1) : v));
        CHECK(g[18] == (l < 2 ? at(l + 30) : v));
        CHECK(g[19] == (l == 0));
    }
}

TEST_CASE("atomics", "[ptx]") {
    Device device;
    Program program = load_kernels(device);
    CHECK(program.kernel("atomics").has_atomics);
    CHECK(program.kernel("atomics").may_race);
    CHECK_FALSE(program.kernel("matmul").may_race);
    const unsigned n = 256;
    const auto i = device.upload(std::vector<int>{0, 0, 0, 0, -1, 0, 0, 0, 0});
    const auto u = device.upload(std::vector<unsigned>{0, 0, 1000, 0, 0, 0, 0});
    const auto l = device.upload(std::vector<std::uint64_t>(4));
    const auto f = device.upload(std::vector<float>(2));
    const auto d = device.upload(std::vector<double>(1));
    const auto order = device.upload(std::vector<int>(n));
    program.launch("atomics", dims(4, 64), i, u, l, f, d, order);
    const auto gi = device.download<int>(i, 9);
    const auto gu = device.download<unsigned>(u, 7);
    const auto gl = device.download<std::uint64_t>(l, 4);
    CHECK(gi == std::vector<int>{static_cast<int>(n * (n - 1) / 2), -3 * 256, -255, 255, 0x70000000, -1, 0, 256, 64 * (63 + 127 + 191 + 255)});
    unsigned inc = 0, dec = 0;
    for (unsigned t = 0; t < n; ++t) inc = inc >= 9 ? 0 : inc + 1, dec = dec == 0 || dec > 6 ? 6 : dec - 1;
    CHECK(gu[0] == inc);
    CHECK(gu[1] == dec);
    CHECK(gu[2] == 7);
    CHECK(gu[3] == 255);
    CHECK(gu[4] == 255);
    CHECK(gu[5] == 256);
    CHECK(gl == std::vector<std::uint64_t>{static_cast<std::uint64_t>(n * (n - 1) / 2) << 20, 765, 256, 255});
    float sum = 0;
    double total = 0;
    for (unsigned t = 0; t < n; ++t) sum += 0.1f * static_cast<float>(t), total += 0.1 * t;
    CHECK(device.download<float>(f, 2) == std::vector<float>{sum, 255});
    CHECK(device.download<double>(d, 1)[0] == total);
    auto seen = device.download<int>(order, n);
    std::sort(seen.begin(), seen.end());
    for (unsigned t = 0; t < n; ++t) CHECK(seen[t] == static_cast<int>(t));
    CHECK((gu[6] & 0xffff) == 0x5c00);   // 256
    CHECK((gu[6] >> 16) == 0x6000);      // 512
}

TEST_CASE("module globals, constants and addresses in initial values", "[ptx]") {
    Device device;
    Program program = load_kernels(device);
    const auto out = device.upload(std::vector<float>(64));
    program.launch("globals", dims(1, 63), out);
    const auto got = device.download<float>(out, 64);
    for (int t = 0; t < 63; ++t) CHECK(got[t] == static_cast<float>((t & 7) + 1) * static_cast<float>(t));
    CHECK(got[63] == 5);
    CHECK(device.download<int>(program.global("counter"), 1)[0] == 6);
    CHECK(device.download<float>(program.global("field"), 3)[2] == 6);
}

TEST_CASE("structs, local arrays, calls, recursion, function pointers", "[ptx]") {
    Device device;
    Program program = load_kernels(device);
    struct Nested { char tag; short pair[3]; double value; float tail[5]; } n{7, {10, 20, 30}, 0.5, {1, 2, 3, 4, 5}};
    const auto out = device.upload(std::vector<float>(32));
    program.launch("structs", dims(1, 32), n, out, 9);
    const auto got = device.download<float>(out, 32);
    for (int t = 0; t < 32; ++t) {
        const float two[2] = {static_cast<float>(t), 1};
        const int j = t * 7 % 16;
        CHECK(got[t] == 7 + n.pair[t % 3] + 0.5f + n.tail[t % 5] + two[t & 1] + static_cast<float>(j * t + 9) + (t == 3 ? 120 : 0));
    }
    program.launch("pointers", dims(1, 8), out, 1);
    const auto shapes = device.download<float>(out, 8);
    for (int t = 0; t < 8; ++t) {
        const float x = static_cast<float>(t);
        CHECK(shapes[t] == ((t + 1) % 2 ? x * x : 2 * x) + ((t + 1) & 1 ? 14.0f : 2.0f));
    }
    const auto sums = device.upload(std::vector<float>(128));
    program.launch("called_barrier", dims(2, 64), sums);
    const auto total = device.download<float>(sums, 128);
    for (int i = 0; i < 128; ++i) CHECK(total[i] == 2016000.0f + (i < 64 ? 0.0f : 64 * 2016.0f + 2016.0f));
}

TEST_CASE("grids of three dimensions, early exits, switches, vectors", "[ptx]") {
    Device device;
    Program program = load_kernels(device);
    LaunchDims d;
    d.grid = {2, 3, 4}, d.block = {4, 2, 3};
    const int w = 8, h = 6, depth = 11;
    const auto out = device.upload(std::vector<int>(w * h * 12, -1));
    program.launch("grid3", d, out, depth);
    const auto got = device.download<int>(out, w * h * 12);
    for (int z = 0; z < 12; ++z)
        for (int y = 0; y < h; ++y)
            for (int x = 0; x < w; ++x) CHECK(got[(z * h + y) * w + x] == (z < depth ? x + 100 * y + 10000 * z : -1));
    program.launch("early_exit", dims(1, 64), out);
    const auto early = device.download<int>(out, 20);
    for (int t = 0; t < 20; ++t) CHECK(early[t] == 20 + t);

    std::vector<int> in(100);
    for (int i = 0; i < 100; ++i) in[i] = (i * 31) % 57;
    const auto o = device.upload(std::vector<int>(100));
    program.launch("switches", dims(2, 64), device.upload(in), o, 100);
    const auto switched = device.download<int>(o, 100);
    for (int i = 0; i < 100; ++i) {
        int r = 0;
        for (int k = 0; k < in[i]; ++k) {
            const int c = (in[i] + k) % 9;
            if (c == 0) r += 3;
            else if (c == 1) r ^= k;
            else if (c == 2) r = r * 5 + 1;
            else if (c == 3) r -= k;
            else if (c == 4) { if (r > 100) break; r += 50; }
            else if (c == 5) continue;
            else if (c == 7) r |= 1;
            else r += in[(i + k) % 100];
        }
        CHECK(switched[i] == r);
    }

    const auto f = ramp(40, 1), back = ramp(20, 2);
    std::vector<double> doubles(back.begin(), back.end());
    std::vector<std::uint8_t> bytes(40);
    std::iota(bytes.begin(), bytes.end(), 100);
    const auto vo = device.upload(std::vector<float>(40)), eo = device.upload(std::vector<double>(20)), uo = device.upload(std::vector<std::uint8_t>(40));
    program.launch("vectors", dims(1, 32), device.upload(f), vo, device.upload(doubles), eo, device.upload(bytes), uo, 10);
    for (int i = 0; i < 40; ++i) {
        CHECK(device.download<float>(vo, 40)[i] == f[i / 4 * 4 + 3 - i % 4]);
        CHECK(device.download<std::uint8_t>(uo, 40)[i] == bytes[i / 4 * 4 + 3 - i % 4]);
        if (i < 20) CHECK(device.download<double>(eo, 20)[i] == doubles[i ^ 1]);
    }
}

TEST_CASE("grids that wait for each other, locks, the last block", "[ptx]") {
    Device device;
    Program program = load_kernels(device);
    const int n = 8 * 32;
    const auto data = device.upload(std::vector<int>(n)), out = device.upload(std::vector<int>(n));
    LaunchDims d = dims(8, 32);
    d.cooperative = true;
    program.launch("grid_sync", d, data, out);
    const auto o = device.download<int>(out, n), v = device.download<int>(data, n);
    for (int t = 0; t < n; ++t) {
        CHECK(o[t] == (n - 1 - t) * 3);
        CHECK(v[t] == (n - 1 - (t + 1) % n) * 3);
    }
    const auto lock = device.upload(std::vector<int>(2));
    program.launch("spin_lock", dims(5, 32), lock, lock + 4);
    CHECK(device.download<int>(lock, 2) == std::vector<int>{0, 31});
    const auto in = ramp(20, 1);
    const auto partial = device.upload(std::vector<float>(20)), total = device.upload(std::vector<float>(1));
    program.launch("last_block", dims(20, 32), device.upload(in), partial, device.upload(std::vector<unsigned>(1)), total);
    CHECK(device.download<float>(total, 1)[0] == 2 * std::accumulate(in.begin(), in.end(), 0.0f));
}

TEST_CASE("the same bits with one worker and with four", "[ptx]") {
    Device device;
    const int m = 256;
    const auto a = ramp(m * m, 0.1f), b = ramp(m * m, 0.3f);
    std::vector<float> results[2];
    std::vector<float> atomic[2];
    int k = 0;
    for (int workers : {1, 4}) {
        Options o;
        o.workers = workers;
        Program program = load_kernels(device, o);
        const auto c = device.upload(std::vector<float>(m * m));
        LaunchDims dim;
        dim.grid = {16, 16, 1}, dim.block = {16, 16, 1};
        program.launch("matmul", dim, device.upload(a), device.upload(b), c, m);
        results[k] = device.download<float>(c, m * m);
        const auto f = device.upload(std::vector<float>(2));
        program.launch("atomics", dims(200, 64), device.upload(std::vector<int>(9)), device.upload(std::vector<unsigned>(8)), device.upload(std::vector<std::uint64_t>(4)), f,
                       device.upload(std::vector<double>(1)), device.upload(std::vector<int>(200 * 64)));
        atomic[k++] = device.download<float>(f, 1);
    }
    CHECK(results[0] == results[1]);
    CHECK(atomic[0] == atomic[1]);
    float sum = 0;
    for (int j = 0; j < m; ++j) sum = std::fma(a[(m - 1) * m + j], b[j * m + m - 1], sum);
    CHECK(results[0].back() == sum);
}

TEST_CASE("launches of several threads at once", "[ptx]") {
    Device device;
    Program program = load_kernels(device);
    const int n = 1024;
    const auto in = device.upload(ramp(n, 0.5f));
    std::vector<std::uint64_t> outs;
    for (int i = 0; i < 4; ++i) outs.push_back(device.upload(std::vector<float>(4)));
    std::vector<std::thread> threads;
    std::atomic<int> failures{0};
    for (int i = 0; i < 4; ++i)
        threads.emplace_back([&, i] {
            for (int k = 0; k < 50; ++k)
                if (!program.try_launch("block_sum", dims(4, 256), in, outs[i], n)) ++failures;
        });
    for (auto& t : threads) t.join();
    CHECK(failures == 0);
    for (int i = 1; i < 4; ++i) CHECK(device.download<float>(outs[i], 4) == device.download<float>(outs[0], 4));
}

TEST_CASE("a wrong access faults on the calling thread, from a helper too", "[ptx]" NOT_SANITISED) {   // what a jump out of a kernel leaves behind ASan calls a leak
    Device device;
    Options o;
    o.workers = 4;
    Program program = load_kernels(device, o);
    FaultHandler handler;
    const std::uint64_t wild = 0x10000;
    fault_address = nullptr;
    volatile bool faulted = false;
    if (sigsetjmp(fault_target, 1) == 0) (void)program.try_launch("block_sum", dims(4, 256), wild, wild, 1000);
    else faulted = true;
    CHECK(faulted);
    CHECK(fault_address == reinterpret_cast<void*>(wild + device.view_offset()));
    // Past the end of the device's memory, late in a launch that is shared.
    faulted = false;
    const auto in = device.allocate(16 << 20);
    const std::uint64_t end = in - in % 4096 + Device::bytes;
    if (sigsetjmp(fault_target, 1) == 0) (void)program.try_launch("vectors", dims(200000, 128), in, end - (1 << 20), in, in, in, in, 200000 * 128);
    else faulted = true;
    CHECK(faulted);
    const auto in2 = device.upload(ramp(256, 1));
    const auto out = device.upload(std::vector<float>(1));
    program.launch("block_sum", dims(1, 256), in2, out, 256);  // and the module still works
    CHECK(device.download<float>(out, 1)[0] != 0);
}

TEST_CASE("traps, printing, refused launches", "[ptx]") {
    Device device;
    Program program = load_kernels(device);
    const auto out = device.upload(std::vector<int>(64));
    const auto trapped = program.try_launch("traps", dims(1, 64), out, 40);
    REQUIRE_FALSE(trapped);
    CHECK(trapped.error().message.find("traps") != std::string::npos);
    CHECK(trapped.error().message.find("trap") != std::string::npos);
    CHECK(program.try_launch("traps", dims(1, 64), out, 400));
    CHECK_FALSE(program.try_launch("traps", dims(1, 2000), out, 0));
    CHECK_FALSE(program.try_launch("traps", dims(0, 32), out, 0));
    std::fflush(stdout);
    FILE* file = std::tmpfile();
    const int kept = dup(1);
    dup2(fileno(file), 1);
    program.launch("prints", dims(2, 32), 42);
    std::fflush(stdout);
    dup2(kept, 1);
    close(kept);
    std::rewind(file);
    char text[256] = {};
    REQUIRE(std::fread(text, 1, sizeof text - 1, file) > 0);
    std::fclose(file);
    CHECK(std::string(text) == "n 42, text, 1.500     7|-5000000000\nn 42, text, 1.500     7|-5000000000\n");
}

TEST_CASE("work is counted when asked for", "[ptx]") {
    Device device;
    Options o;
    o.count_work = true;
    Program program = load_kernels(device, o);
    const int n = 1000;
    const auto out = device.upload(std::vector<float>(4));
    const Work w = program.launch("block_sum", dims(4, 256), device.upload(ramp(n, 1)), out, n);
    CHECK(w.bytes_read == 4 * n);
    CHECK(w.bytes_written == 16);
    CHECK(w.operations > 4 * 255);
    CHECK(w.unwritten == 0);
    const auto fresh = device.upload(std::vector<std::uint32_t>(n, softgpu::ptx::abi::unwritten_word));
    CHECK(program.launch("block_sum", dims(4, 256), fresh, out, n).unwritten == n);
    Options plain;
    Program uncounted = load_kernels(device, plain);
    CHECK(uncounted.launch("block_sum", dims(4, 256), device.upload(ramp(n, 1)), out, n).operations == 0);
}
