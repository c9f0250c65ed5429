// What the hooks say of launches and copies: layouts by handle, parameters in every form, and the spans of rectangles,
// boxes and lists.
#include "tests/interpose/scripted.hpp"

#include <atomic>
#include <cstring>
#include <random>
#include <set>
#include <thread>

#include "interpose/kernel_layouts.hpp"
#include "interpose/spans.hpp"
#include "tests/catch.hpp"

using namespace udnnmem::interpose;

namespace {

std::atomic<int> asked_function{0}, asked_kernel{0};
std::atomic<unsigned> param_count{2};
bool kernels_stay = false;

// Functions have parameters of 8 bytes; kernel handles are odd here, and a function query on one is what must not be.
void play_driver() {
    SCRIPT(cuFuncGetParamInfo, [](CUfunction f, std::size_t i, std::size_t* offset, std::size_t* size) {
        if (reinterpret_cast<std::uintptr_t>(f) & 1) return CUDA_ERROR_INVALID_HANDLE;
        ++asked_function;
        if (i >= param_count) return CUDA_ERROR_INVALID_VALUE;
        *offset = i * 8, *size = 8;
        return CUDA_SUCCESS;
    });
    SCRIPT(cuKernelGetParamInfo, [](CUkernel, std::size_t i, std::size_t* offset, std::size_t* size) {
        ++asked_kernel;
        if (i >= 3) return CUDA_ERROR_INVALID_VALUE;
        *offset = i * 4, *size = 4;
        return CUDA_SUCCESS;
    });
    SCRIPT(cuFuncGetName, [](const char** name, CUfunction) { return *name = "function", CUDA_SUCCESS; });
    SCRIPT(cuKernelGetName, [](const char** name, CUkernel) { return *name = "kernel", CUDA_SUCCESS; });
    asked_function = asked_kernel = 0;
    param_count = 2;
    forget_layouts();
}
CUfunction function(std::uintptr_t n) { return reinterpret_cast<CUfunction>(n); }

Work last;
Launch last_launch;
std::vector<Span> last_spans;
CUtensorMap map_before, map_after;
int unknown_version = 0;
std::vector<std::pair<CUcontext, bool>> ending;   // contexts, and whether they are green
const Handlers handlers = [] {
    Handlers h{};
    h.work = [](const Work& w, Submit) noexcept {
        last = w;
        if (w.launch) last_launch = *w.launch;
        last_spans.assign(w.spans, w.spans + w.span_count);
        return CUDA_SUCCESS;
    };
    h.context_destroying = [](CUcontext context, bool green) noexcept { ending.push_back({context, green}); };
    h.context_destroyed = [](CUcontext) noexcept {};
    h.graph_node = [](const Span* spans, std::size_t count, Submit) noexcept {
        last_spans.assign(spans, spans + count);
        return CUDA_SUCCESS;
    };
    h.tensor_map_changed = [](const void* before, const void* after) noexcept {
        std::memcpy(&map_before, before, sizeof map_before), std::memcpy(&map_after, after, sizeof map_after);
    };
    h.code_unloading = []() noexcept { return !kernels_stay; };
    h.unknown_version = [](const char*, int version) noexcept { unknown_version = version; };
    return h;
}();
struct Installed {
    Installed() { install(&handlers); }
    ~Installed() { install(nullptr); }
};

}  // namespace

TEST_CASE("base name, version and flavour say which symbol, also where several share a pointer", "[table]") {
    resolve_driver();
    static int shared;
    for (std::size_t i = 0; i < symbol_count; ++i) {
        const EntryPoint& e = entry_points[i];
        CAPTURE(e.symbol);
        CHECK(find_symbol(e.symbol) == static_cast<Symbol>(i));
        CHECK(find_version(e.base, e.version, e.flavour) == static_cast<Symbol>(i));
        CHECK(find_version(e.base, 1000, e.flavour) == Symbol::none);
        // A driver in which every form of a name is one stub.
        std::vector<void*> before;
        for (std::size_t k = 0; k < symbol_count; ++k)
            if (!std::strcmp(entry_points[k].base, e.base)) before.push_back(slots[k].exchange(&shared));
        CHECK(find_pointer(e.base, &shared, e.version, e.flavour) == static_cast<Symbol>(i));
        CHECK(find_pointer(e.base, &before, e.version, e.flavour) == Symbol::none);
        std::size_t n = 0;
        for (std::size_t k = 0; k < symbol_count; ++k)
            if (!std::strcmp(entry_points[k].base, e.base)) slots[k].store(before[n++]);
    }
    CHECK(find_symbol("cuNothing") == Symbol::none);
    CHECK(find_version("cuMem", 13000, Flavour::legacy) == Symbol::none);
}

TEST_CASE("a layout is asked for once, by what the handle was born as", "[layouts]") {
    play_driver();
    const KernelLayout* l = layout_of(function(0x100));
    CHECK((l->known && l->params.size() == 2 && l->bytes == 16));
    CHECK(std::string(l->name) == "function");
    CHECK(asked_function == 3);
    CHECK(layout_of(function(0x100)) == l);
    CHECK(kernel_layout(function(0x100)) == l);
    CHECK(asked_function == 3);
    kernel_born(reinterpret_cast<CUkernel>(0x200), nullptr, "k");
    const KernelLayout* k = layout_of(function(0x200));
    CHECK((k->known && k->params.size() == 3 && k->bytes == 12 && std::string(k->name) == "kernel"));
    CHECK((asked_kernel == 4 && asked_function == 3));  // the function query was not tried on it
    CHECK(layout_of(function(0x201))->params.size() == 3);  // nobody saw its birth, and it is no function
    function_born(function(0x200), nullptr, "f");           // the handle came back
    forget_layouts();
    CHECK(layout_of(function(0x200))->params.size() == 2);
    CHECK_FALSE(layout_of(nullptr)->known);
}

TEST_CASE("kernels that have to stay are not unloaded, whatever the program is told", "[layouts]") {
    play_driver();
    static int unloaded;
    unloaded = 0;
    SCRIPT(cuModuleUnload, [](CUmodule) { return ++unloaded, CUDA_SUCCESS; });
    SCRIPT(cuLibraryUnload, [](CUlibrary) { return ++unloaded, CUDA_SUCCESS; });
    const Installed installed;
    const KernelLayout* const before = layout_of(function(0x300));
    param_count = 5;
    kernels_stay = true;
    CHECK(cuModuleUnload(reinterpret_cast<CUmodule>(0x77)) == CUDA_SUCCESS);
    CHECK(cuLibraryUnload(reinterpret_cast<CUlibrary>(0x77)) == CUDA_SUCCESS);
    CHECK(unloaded == 0);
    CHECK(layout_of(function(0x300)) == before);
    kernels_stay = false;
    CHECK(cuModuleUnload(reinterpret_cast<CUmodule>(0x77)) == CUDA_SUCCESS);
    CHECK(cuLibraryUnload(reinterpret_cast<CUlibrary>(0x77)) == CUDA_SUCCESS);
    CHECK(unloaded == 2);
    param_count = 2;
    forget_layouts();
    play_driver();
}

TEST_CASE("unloading forgets layouts, and equal ones are shared", "[layouts]") {
    play_driver();
    const KernelLayout* before = layout_of(function(0x300));
    param_count = 5;
    CHECK(layout_of(function(0x300)) == before);
    forget_layouts();
    const KernelLayout* after = layout_of(function(0x300));
    CHECK(after->params.size() == 5);
    CHECK(before->params.size() == 2);  // it lives as long as the process
    param_count = 2;
    forget_layouts();
    CHECK(layout_of(function(0x300)) == before);
}

// Any handle may be another kernel's from the end of a context on.
TEST_CASE("the end of a context forgets layouts", "[layouts]") {
    play_driver();
    Installed installed;
    const auto context = reinterpret_cast<CUcontext>(0x10);
    SCRIPT(cuCtxDestroy_v2, [](CUcontext) { return CUDA_SUCCESS; });
    SCRIPT(cuDevicePrimaryCtxRetain, [](CUcontext* c, CUdevice) { return *c = reinterpret_cast<CUcontext>(0x20), CUDA_SUCCESS; });
    SCRIPT(cuDevicePrimaryCtxReset_v2, [](CUdevice) { return CUDA_SUCCESS; });
    SCRIPT(cuDevicePrimaryCtxRelease_v2, [](CUdevice) { return CUDA_SUCCESS; });
    CUcontext primary;
    REQUIRE(cuDevicePrimaryCtxRetain(&primary, 0) == CUDA_SUCCESS);
    REQUIRE(cuDevicePrimaryCtxRetain(&primary, 0) == CUDA_SUCCESS);
    const auto params_after = [](unsigned params, CUresult ended) {
        param_count = params;
        return ended == CUDA_SUCCESS ? layout_of(function(0x400))->params.size() : 0;
    };
    CHECK(params_after(2, CUDA_SUCCESS) == 2);
    CHECK(params_after(3, cuCtxDestroy_v2(context)) == 3);
    CHECK(params_after(4, cuDevicePrimaryCtxReset_v2(0)) == 4);
    CHECK(params_after(5, cuDevicePrimaryCtxRelease_v2(0)) == 4);  // it is still held
    CHECK(params_after(6, cuDevicePrimaryCtxRelease_v2(0)) == 6);
}

TEST_CASE("contexts end when nobody holds them, green ones apart from others", "[contexts]") {
    play_driver();
    Installed installed;
    static const auto a = reinterpret_cast<CUcontext>(0x10), b = reinterpret_cast<CUcontext>(0x20);
    SCRIPT(cuCtxAttach, [](CUcontext* c, unsigned) { return *c = a, CUDA_SUCCESS; });
    SCRIPT(cuCtxDetach, [](CUcontext) { return CUDA_SUCCESS; });
    SCRIPT(cuCtxDestroy_v2, [](CUcontext) { return CUDA_SUCCESS; });
    SCRIPT(cuCtxFromGreenCtx, [](CUcontext* c, CUgreenCtx) { return *c = b, CUDA_SUCCESS; });
    SCRIPT(cuGreenCtxDestroy, [](CUgreenCtx) { return CUDA_SUCCESS; });
    using Ends = std::vector<std::pair<CUcontext, bool>>;
    ending.clear();
    CUcontext c = nullptr;
    for (int i = 0; i < 2; ++i) REQUIRE(cuCtxAttach(&c, 0) == CUDA_SUCCESS);
    for (int i = 0; i < 2; ++i) REQUIRE(cuCtxDetach(c) == CUDA_SUCCESS);
    CHECK(ending.empty());
    REQUIRE(cuCtxDetach(c) == CUDA_SUCCESS);
    CHECK(ending == Ends{{a, false}});
    REQUIRE(cuCtxAttach(&c, 0) == CUDA_SUCCESS);
    REQUIRE(cuCtxDestroy_v2(c) == CUDA_SUCCESS);  // held or not
    REQUIRE(cuCtxDetach(c) == CUDA_SUCCESS);      // another context's handle by now
    REQUIRE(cuGreenCtxDestroy(nullptr) == CUDA_SUCCESS);
    CHECK(ending == Ends{{a, false}, {a, false}, {a, false}, {b, true}});
}

TEST_CASE("thousands of handles, from several threads, with modules unloaded under way", "[layouts]") {
    play_driver();
    std::atomic<bool> wrong{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            for (std::uintptr_t i = 1; i < 4000; ++i) {
                const KernelLayout* l = layout_of(function(i * 16 + static_cast<unsigned>(t) % 2 * 8));
                if (!l->known || l->params.size() != 2) wrong = true;
                if (t == 0 && i % 500 == 0) forget_layouts();
            }
        });
    for (auto& t : threads) t.join();
    CHECK_FALSE(wrong);
}

TEST_CASE("no parameters of a function is believed only if there are none of a kernel", "[layouts]") {
    play_driver();
    SCRIPT(cuFuncGetParamInfo, [](CUfunction, std::size_t, std::size_t*, std::size_t*) { return CUDA_ERROR_INVALID_VALUE; });
    const KernelLayout* l = layout_of(function(0x408));   // born where nobody looked
    CHECK((l->known && l->params.size() == 3));
    SCRIPT(cuKernelGetParamInfo, [](CUkernel, std::size_t, std::size_t*, std::size_t*) { return CUDA_ERROR_INVALID_VALUE; });
    l = layout_of(function(0x410));
    CHECK((l->known && l->params.empty()));
    play_driver();
}

TEST_CASE("a driver that cannot be asked leaves it to the image, and else it is unknown", "[layouts]") {
    play_driver();
    UNSCRIPT(cuFuncGetParamInfo);
    UNSCRIPT(cuKernelGetParamInfo);
    const char* ptx = ".version 7.5 .entry k(.param .u64 a, .param .u32 n) { ret; }";
    SCRIPT(cuModuleLoadData, [](CUmodule* m, const void*) { return *m = reinterpret_cast<CUmodule>(0x77), CUDA_SUCCESS; });
    SCRIPT(cuModuleGetFunction, [](CUfunction* f, CUmodule, const char*) { return *f = function(0x500), CUDA_SUCCESS; });
    SCRIPT(cuModuleUnload, [](CUmodule) { return CUDA_SUCCESS; });
    CUmodule module;
    CUfunction f;
    REQUIRE(cuModuleLoadData(&module, ptx) == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&f, module, "k") == CUDA_SUCCESS);
    const KernelLayout* l = layout_of(f);
    CHECK((l->known && l->params.size() == 2 && l->bytes == 12 && std::string(l->name) == "k"));
    CHECK_FALSE(layout_of(function(0x600))->known);
    REQUIRE(cuModuleUnload(module) == CUDA_SUCCESS);
    CHECK_FALSE(layout_of(f)->known);
    play_driver();
}

TEST_CASE("launches are described in every form", "[launches]") {
    play_driver();
    Installed installed;
    int a = 1;
    void* params[] = {&a, &a};
    const auto stream = reinterpret_cast<CUstream>(0x99);
    cuLaunchKernel(function(0x100), 2, 3, 4, 5, 6, 7, 8, stream, params, nullptr);
    CHECK((last.kind == WorkKind::kernel && last.stream == stream && last.proven && !last.blocking));
    CHECK((last_launch.params == params && last_launch.buffer == nullptr && last_launch.layout->params.size() == 2));
    CHECK((last_launch.grid[0] == 2 && last_launch.grid[1] == 3 && last_launch.grid[2] == 4));
    CHECK((last_launch.block[0] == 5 && last_launch.block[1] == 6 && last_launch.block[2] == 7 && last_launch.shared_bytes == 8));
    char buffer[24];
    std::size_t bytes = sizeof buffer;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_END};
    cuLaunchKernel(function(0x100), 1, 1, 1, 1, 1, 1, 0, stream, nullptr, extra);
    CHECK((last_launch.params == nullptr && last_launch.buffer == buffer && last_launch.buffer_bytes == 24 && last.proven));
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
    CUlaunchConfig config{9, 1, 1, 1, 1, 1, 0, stream, &attribute, 1};
    cuLaunchKernelEx(&config, function(0x100), params, nullptr);
    CHECK((last_launch.grid[0] == 9 && last_launch.cooperative && last_launch.attribute_count == 1 && last.stream == stream));
    cuLaunchCooperativeKernel(function(0x100), 1, 1, 1, 1, 1, 1, 0, stream, params);
    CHECK(last_launch.cooperative);
    CUDA_LAUNCH_PARAMS list[2] = {};
    list[0].function = list[1].function = function(0x100);
    list[0].kernelParams = list[1].kernelParams = params;
    list[1].gridDimX = 4;
    cuLaunchCooperativeKernelMultiDevice(list, 2, 0);
    CHECK((last.part_count == 2 && last.launch != nullptr));
    cuLaunchGridAsync(function(0x100), 1, 1, stream);
    CHECK((!last.proven && last.launch == nullptr));
}

TEST_CASE("a kernel that nobody knows is not proven", "[launches]") {
    play_driver();
    Installed installed;
    SCRIPT(cuFuncGetParamInfo, [](CUfunction, std::size_t, std::size_t*, std::size_t*) { return CUDA_ERROR_NOT_SUPPORTED; });
    SCRIPT(cuKernelGetParamInfo, [](CUkernel, std::size_t, std::size_t*, std::size_t*) { return CUDA_ERROR_NOT_SUPPORTED; });
    int a = 1;
    void* params[] = {&a};
    cuLaunchKernel(function(0x700), 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr);
    CHECK((!last.proven && !last_launch.layout->known));
    play_driver();
}

TEST_CASE("copies: every byte of the covering range, and no claim to overwrite what has holes", "[spans]") {
    Installed installed;
    // Every combination of small boxes against a walk over their bytes.
    std::mt19937 random(3);
    for (int round = 0; round < 3000; ++round) {
        CUDA_MEMCPY3D c{};
        c.srcMemoryType = CU_MEMORYTYPE_HOST, c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        c.srcHost = reinterpret_cast<const void*>(0x100000), c.dstDevice = 0x200000;
        c.WidthInBytes = 1 + random() % 5, c.Height = 1 + random() % 4, c.Depth = 1 + random() % 3;
        c.dstXInBytes = random() % 3, c.dstY = random() % 3, c.dstZ = random() % 3;
        c.dstPitch = c.WidthInBytes + c.dstXInBytes + random() % 2, c.dstHeight = c.Height + c.dstY + random() % 2;
        c.srcPitch = c.WidthInBytes + random() % 2, c.srcHeight = c.Height + random() % 2;
        std::set<CUdeviceptr> bytes;
        for (std::size_t z = 0; z < c.Depth; ++z)
            for (std::size_t y = 0; y < c.Height; ++y)
                for (std::size_t x = 0; x < c.WidthInBytes; ++x)
                    bytes.insert(c.dstDevice + ((c.dstZ + z) * c.dstHeight + c.dstY + y) * c.dstPitch + c.dstXInBytes + x);
        cuMemcpy3DAsync_v2(&c, nullptr);
        REQUIRE(last_spans.size() == 2);
        const Span to = last_spans[1];
        REQUIRE(to.address == *bytes.begin());
        REQUIRE(to.address + to.bytes == *bytes.rbegin() + 1);
        REQUIRE((to.access == Access::overwrite) == (bytes.size() == to.bytes));
        REQUIRE((last_spans[0].address == 0x100000 && last_spans[0].access == Access::read));
        if (c.Depth == 1 && c.dstZ == 0) {
            CUDA_MEMCPY2D d{};
            d.srcMemoryType = CU_MEMORYTYPE_ARRAY, d.dstMemoryType = CU_MEMORYTYPE_DEVICE, d.dstDevice = c.dstDevice;
            d.dstXInBytes = c.dstXInBytes, d.dstY = c.dstY, d.dstPitch = c.dstPitch, d.WidthInBytes = c.WidthInBytes, d.Height = c.Height;
            cuMemcpy2D_v2(&d);
            REQUIRE((last_spans[1].address == to.address && last_spans[1].bytes == to.bytes && last_spans[1].access == to.access));
            REQUIRE((last_spans[0].bytes == 0 && last.blocking));
        }
    }
}

TEST_CASE("memsets, lists and stream memory operations", "[spans]") {
    Installed installed;
    cuMemsetD32_v2(0x1000, 1, 10);
    CHECK((last.kind == WorkKind::fill && last_spans[0].bytes == 40 && last_spans[0].access == Access::overwrite && last.blocking));
    cuMemsetD2D16Async(0x1000, 100, 1, 10, 3, nullptr);
    CHECK((last_spans[0].bytes == 220 && last_spans[0].access == Access::write && !last.blocking));
    cuMemsetD2D8_v2(0x1000, 10, 1, 10, 3);
    CHECK((last_spans[0].bytes == 30 && last_spans[0].access == Access::overwrite));
    std::vector<CUdeviceptr> to(100, 0x10), from(100, 0x20);
    std::vector<std::size_t> n(100, 5);
    to[99] = 0x77;
    cuMemcpyBatchAsync_v2(to.data(), from.data(), n.data(), 100, nullptr, nullptr, 0, nullptr);
    REQUIRE(last_spans.size() == 200);
    CHECK((last_spans[199].address == 0x77 && last_spans[198].address == 0x20 && last.proven));
    CUstreamBatchMemOpParams ops[3] = {};
    ops[0].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32, ops[0].waitValue.address = 0x40;
    ops[1].operation = CU_STREAM_MEM_OP_WRITE_VALUE_64, ops[1].writeValue.address = 0x48;
    ops[2].operation = CU_STREAM_MEM_OP_BARRIER;
    cuStreamBatchMemOp_v2(nullptr, 3, ops, 0);
    REQUIRE(last_spans.size() == 2);
    CHECK((last_spans[0].bytes == 4 && last_spans[0].access == Access::read && last_spans[1].bytes == 8 && last.proven));
    ops[2].operation = static_cast<CUstreamBatchMemOpType>(99);
    cuStreamBatchMemOp_v2(nullptr, 3, ops, 0);
    CHECK_FALSE(last.proven);
    CUDA_MEMCPY3D_BATCH_OP box{};
    box.src.type = box.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    box.src.op.ptr.ptr = 0x1000, box.dst.op.ptr.ptr = 0x2000, box.dst.op.ptr.rowLength = 16;
    box.extent = {8, 4, 1};
    cuMemcpy3DBatchAsync_v2(1, &box, 0, nullptr);
    REQUIRE(last_spans.size() == 2);
    CHECK((last_spans[0].bytes == 32 && last_spans[1].bytes == 56 && last_spans[1].access == Access::write));
    box.src.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    cuMemcpy3DBatchAsync_v2(1, &box, 0, nullptr);
    CHECK_FALSE(last.proven);
    CUmemDecompressParams d{};
    d.src = reinterpret_cast<void*>(0x10), d.srcNumBytes = 3, d.dst = reinterpret_cast<void*>(0x20), d.dstNumBytes = 9;
    cuMemBatchDecompressAsync(&d, 1, 0, nullptr, nullptr);
    REQUIRE(last_spans.size() == 2);
    CHECK((last_spans[1].bytes == 9 && last_spans[1].access == Access::write));
}

TEST_CASE("copies with attributes, and over a fabric", "[spans]") {
    Installed installed;
    cuMemcpyWithAttributesAsync_ptsz(0x2000, 0x1000, 40, nullptr, nullptr);
    REQUIRE(last_spans.size() == 2);
    CHECK((last.kind == WorkKind::copy && last.stream == CU_STREAM_PER_THREAD && last.proven && !last.blocking));
    CHECK((last_spans[0].address == 0x1000 && last_spans[0].bytes == 40 && last_spans[0].access == Access::read));
    CHECK((last_spans[1].address == 0x2000 && last_spans[1].bytes == 40 && last_spans[1].access == Access::overwrite));
    CUDA_MEMCPY3D_BATCH_OP box{};
    box.src.type = box.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    box.src.op.ptr.ptr = 0x1000, box.dst.op.ptr.ptr = 0x2000, box.dst.op.ptr.rowLength = 16;
    box.extent = {8, 4, 1};
    cuMemcpy3DWithAttributesAsync(&box, 0, nullptr);
    REQUIRE(last_spans.size() == 2);
    CHECK((last_spans[0].bytes == 32 && last_spans[1].bytes == 56 && last_spans[1].access == Access::write && last.proven));
    box.src.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    cuMemcpy3DWithAttributesAsync(&box, 0, nullptr);
    CHECK_FALSE(last.proven);
    CUDA_FABRIC_COPY_BATCH_OP ops[2] = {};
    ops[0].src.type = ops[0].dst.type = ops[1].dst.type = CU_FABRIC_COPY_OPERAND_TYPE_POINTER;
    ops[0].src.op.ptr.ptr = 0x1000, ops[0].dst.op.ptr.ptr = 0x2000, ops[0].size = 8;
    ops[1].dst.op.ptr.ptr = 0x3000, ops[1].size = 16;
    ops[1].src.type = CU_FABRIC_COPY_OPERAND_TYPE_LOGICAL_ENDPOINT, ops[1].src.op.le.id = 0x4000;
    cuFabricCpyBatchAsync(1, ops, 0, nullptr);
    CHECK((last_spans.size() == 2 && last_spans[0].address == 0x1000 && last_spans[1].address == 0x2000 && last.proven));
    cuFabricCpyBatchAsync(2, ops, 0, nullptr);
    REQUIRE(last_spans.size() == 4);
    CHECK((last_spans[2].address == 0 && last_spans[3].address == 0x3000 && last_spans[3].bytes == 16));
    CHECK_FALSE(last.proven);  // what is behind the endpoint?
}

TEST_CASE("nodes of the generic kind are looked at by their type", "[spans]") {
    Installed installed;
    CUdeviceptr to[] = {0x1000, 0x3000}, from[] = {0x2000, 0x4000};
    std::size_t bytes[] = {8, 16};
    const auto batch = [&](auto&& add) {
        CUgraphNodeParams p{};
        p.type = static_cast<CUgraphNodeType>(kMemcpyBatchNode);
        const MemcpyBatchNodeParams copies{2, to, from, bytes, nullptr, nullptr, 0, nullptr};
        std::memcpy(&p.reserved1, &copies, sizeof copies);
        last_spans.clear();
        add(&p);
        return last_spans.size() == 4 && last_spans[2].address == 0x4000 && last_spans[3].address == 0x3000 && last_spans[3].bytes == 16;
    };
    CHECK(batch([](CUgraphNodeParams* p) { cuGraphAddNode_v2(nullptr, nullptr, nullptr, nullptr, 0, p); }));
    CHECK(batch([](CUgraphNodeParams* p) { cuGraphAddNode_v3(nullptr, nullptr, nullptr, nullptr, 0, p); }));
    CHECK(batch([](CUgraphNodeParams* p) { cuGraphNodeSetParams_v2(nullptr, p); }));
    CUDA_FABRIC_COPY_BATCH_OP op{};
    op.src.type = op.dst.type = CU_FABRIC_COPY_OPERAND_TYPE_POINTER;
    op.src.op.ptr.ptr = 0x1000, op.dst.op.ptr.ptr = 0x2000, op.size = 8;
    CUgraphNodeParams p{};
    p.type = static_cast<CUgraphNodeType>(kFabricBatchNode);
    const FabricBatchNodeParams copies{1, &op, 0, nullptr};
    std::memcpy(&p.reserved1, &copies, sizeof copies);
    cuGraphAddNode_v3(nullptr, nullptr, nullptr, nullptr, 0, &p);
    CHECK((last_spans.size() == 2 && last_spans[1].address == 0x2000));
    p.type = CU_GRAPH_NODE_TYPE_MEMSET;
    p.memset = {};
    p.memset.dst = 0x5000, p.memset.elementSize = 4, p.memset.width = 10, p.memset.height = 1;
    cuGraphNodeSetParams_v2(nullptr, &p);
    CHECK((last_spans.size() == 1 && last_spans[0].address == 0x5000 && last_spans[0].bytes == 40));
}

TEST_CASE("a descriptor that is changed is told as it was and as it is", "[spans]") {
    Installed installed;
    SCRIPT(cuTensorMapSetAllocationClass, [](CUtensorMap* map, CUtensorMapAllocClass, CUtensorMapAllocClass*) { return map->opaque[1] = 5, CUDA_SUCCESS; });
    CUtensorMap map{};
    map.opaque[0] = 7;
    REQUIRE(cuTensorMapSetAllocationClass(&map, {}, nullptr) == CUDA_SUCCESS);
    CHECK((map_before.opaque[0] == 7 && map_before.opaque[1] == 0 && map_after.opaque[0] == 7 && map_after.opaque[1] == 5));
}

// The version asked for may be later than the driver's, which answers with what it has.
TEST_CASE("an answer that is no export is what the driver's version and the question's say", "[doors]") {
    Installed installed;
    static int elsewhere, version;
    SCRIPT(cuGetProcAddress_v2, [](const char*, void** p, int, cuuint64_t, CUdriverProcAddressQueryResult*) { return *p = &elsewhere, CUDA_SUCCESS; });
    SCRIPT(cuDriverGetVersion, [](int* v) { return *v = version, CUDA_SUCCESS; });
    const auto answer = [](int driver, int asked) {
        version = driver;
        unknown_version = 0;
        void* p = nullptr;
        CHECK(cuGetProcAddress_v2("cuMulticastBindAddr", &p, asked, 0, nullptr) == CUDA_SUCCESS);
        return p;
    };
    const auto v1 = reinterpret_cast<void*>(&cuMulticastBindAddr), v2 = reinterpret_cast<void*>(&cuMulticastBindAddr_v2);
    CHECK((answer(13000, 13000) == v1 && answer(13000, newest_version) == v1 && answer(13000, 19990) == v1));
    CHECK((answer(newest_version, 13000) == v1 && answer(newest_version, newest_version) == v2 && answer(newest_version, 19990) == v2));
    CHECK((answer(19990, 13000) == v1 && answer(19990, newest_version) == v2 && unknown_version == 0));
    CHECK((answer(19990, 19990) == &elsewhere && unknown_version == 19990));
    CHECK((answer(0, 19990) == &elsewhere && unknown_version == 19990));  // it does not say
    UNSCRIPT(cuGetProcAddress_v2);
    UNSCRIPT(cuDriverGetVersion);
}
