// Kernels through the driver: PTX text, parameters in every form, what functions answer, wrong accesses.
#include <fstream>
#include <string>

#include "tests/softgpu/driver_test.hpp"
#include "tests/softgpu/sanitised.hpp"

using namespace softgpu_test;

namespace {
const char* const module_text = R"(
.version 7.5
.target sm_75
.address_size 64
.global .align 4 .u32 counter = 41;
.const .align 4 .b8 table[20] = {1, 2, 3};
.visible .entry add(.param .u64 p, .param .u32 n, .param .u32 value)
{
    .reg .pred %q; .reg .b32 %r<8>; .reg .b64 %a<4>;
    ld.param.u64 %a0, [p]; ld.param.u32 %r0, [n]; ld.param.u32 %r1, [value];
    cvta.to.global.u64 %a1, %a0;
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %q, %r5, %r0;
    @%q ret;
    mul.wide.u32 %a2, %r5, 4; add.u64 %a3, %a1, %a2;
    ld.global.u32 %r6, [%a3]; add.u32 %r7, %r6, %r1; st.global.u32 [%a3], %r7;
    ret;
}
.visible .entry count() .maxntid 128, 1, 1
{
    .reg .b32 %r<2>;
    ld.global.u32 %r0, [counter]; add.u32 %r1, %r0, 1; st.global.u32 [counter], %r1;
    ret;
}
)";

struct Loaded {
    CUmodule module;
    CUfunction add, count;
    Loaded() {
        OK(cuModuleLoadData(&module, module_text));
        OK(cuModuleGetFunction(&add, module, "add"));
        OK(cuModuleGetFunction(&count, module, "count"));
    }
};

CUresult launch_add(CUfunction f, CUdeviceptr p, unsigned n, unsigned value, CUstream s = nullptr) {
    void* params[] = {&p, &n, &value};
    return cuLaunchKernel(f, (n + 255) / 256, 1, 1, 256, 1, 1, 0, s, params, nullptr);
}
}  // namespace

TEST_CASE("a kernel runs with parameters by pointer and by buffer; they are copied at the call") {
    Context c;
    Loaded m;
    CUdeviceptr a;
    OK(cuMemAlloc_v2(&a, 4000));
    OK(cuMemsetD32_v2(a, 5, 1000));
    unsigned n = 1000, value = 2;
    void* params[] = {&a, &n, &value};
    OK(cuLaunchKernel(m.add, 4, 1, 1, 256, 1, 1, 0, nullptr, params, nullptr));
    value = 100;
    struct { CUdeviceptr p; unsigned n, value; } buffer{a, 500, 10};
    size_t bytes = sizeof buffer;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    OK(cuLaunchKernel(m.add, 4, 1, 1, 256, 1, 1, 0, nullptr, nullptr, extra));
    buffer.value = 1000;
    auto w = words(a, 1000);
    CHECK(w[0] == 17);
    CHECK(w[499] == 17);
    CHECK(w[500] == 7);
    CHECK(w[999] == 7);
    CHECK(cuLaunchKernel(m.add, 4, 1, 1, 2048, 1, 1, 0, nullptr, params, nullptr) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuLaunchKernel(m.add, 0, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuLaunchKernel(m.count, 1, 1, 1, 256, 1, 1, 0, nullptr, nullptr, nullptr) == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}

TEST_CASE("functions and globals answer for themselves") {
    Context c;
    Loaded m;
    size_t offset, size;
    OK(cuFuncGetParamInfo(m.add, 0, &offset, &size));
    CHECK(offset == 0);
    CHECK(size == 8);
    OK(cuFuncGetParamInfo(m.add, 2, &offset, &size));
    CHECK(offset == 12);
    CHECK(size == 4);
    CHECK(cuFuncGetParamInfo(m.add, 3, &offset, &size) == CUDA_ERROR_INVALID_VALUE);
    int most;
    OK(cuFuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, m.count));
    CHECK(most == 128);
    const char* name;
    OK(cuFuncGetName(&name, m.count));
    CHECK(std::string(name) == "count");
    CUfunction none;
    CHECK(cuModuleGetFunction(&none, m.module, "absent") == CUDA_ERROR_NOT_FOUND);
    CUdeviceptr global;
    OK(cuModuleGetGlobal_v2(&global, &size, m.module, "counter"));
    CHECK(size == 4);
    OK(cuLaunchKernel(m.count, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    CHECK(words(global, 1)[0] == 42);
    CUmodule second;  // a module's data is its own
    OK(cuModuleLoadData(&second, module_text));
    OK(cuModuleGetGlobal_v2(&global, &size, second, "counter"));
    CHECK(words(global, 1)[0] == 41);
    OK(cuModuleUnload(second));
    CHECK(cuModuleGetFunction(&none, second, "add") == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("a kernel answers how much constant memory its module has") {
    Context c;
    Loaded m;
    int bytes = 0;
    OK(cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, m.add));
    CHECK(bytes == 20);
}

TEST_CASE("a library's kernel is launched as a function") {
    Context c;
    CUlibrary library;
    CUkernel kernel;
    OK(cuLibraryLoadData(&library, module_text, nullptr, nullptr, 0, nullptr, nullptr, 0));
    OK(cuLibraryGetKernel(&kernel, library, "add"));
    CUdeviceptr a;
    OK(cuMemAlloc_v2(&a, 400));
    OK(cuMemsetD32_v2(a, 1, 100));
    OK(launch_add(reinterpret_cast<CUfunction>(kernel), a, 100, 3));
    CHECK(words(a, 100)[99] == 4);
    {
        Context other(1);  // the same kernel, in another context
        CUdeviceptr b;
        OK(cuMemAlloc_v2(&b, 400));
        OK(cuMemsetD32_v2(b, 1, 100));
        OK(launch_add(reinterpret_cast<CUfunction>(kernel), b, 100, 4));
        CHECK(words(b, 100)[0] == 5);
    }
    unsigned n;
    OK(cuLibraryGetKernelCount(&n, library));
    CHECK(n == 2);
    OK(cuLibraryUnload(library));
    CHECK(launch_add(reinterpret_cast<CUfunction>(kernel), a, 100, 3) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("a kernel on freed, foreign or pageable memory faults; the context is lost, the process is not", NOT_SANITISED) {   // ASan's allocator lies where no kernel is refused
    int pageable = 0;
    for (int way = 0; way < 3; ++way) {
        Context c;
        Loaded m;
        CUdeviceptr a;
        OK(cuMemAlloc_v2(&a, 4 << 20));
        if (way == 0) OK(cuMemFree_v2(a));
        if (way == 1) a = 0;
        if (way == 2) a = reinterpret_cast<CUdeviceptr>(&pageable);
        OK(launch_add(m.add, a, 1 << 20, 1));
        CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK(launch_add(m.add, a, 1, 1) == CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    Context c;
    Loaded m;
    CUdeviceptr a;
    OK(cuMemAlloc_v2(&a, 4));
    OK(launch_add(m.add, a, 1, 1));
    CHECK(words(a, 1)[0] == 0x80000000u);  // poison + 1
}

TEST_CASE("images that cannot run are refused") {
    Context c;
    CUmodule m;
    const char machine_code[64] = "\x7f" "ELF\2\1\1";   // a header's bytes
    CHECK(cuModuleLoadData(&m, machine_code) == CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK(cuModuleLoadData(&m, "no image at all") == CUDA_ERROR_INVALID_IMAGE);
    char log[400] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
    CHECK(cuModuleLoadDataEx(&m, ".version 7.5\n.target sm_75\n.address_size 64\n.visible .entry k() { .reg .b32 %r<2>; nonsense.b32 %r0, %r1; }\n", 2, options, values) == CUDA_ERROR_INVALID_PTX);
    CHECK(std::string(log).find("nonsense") != std::string::npos);
}

TEST_CASE("linked PTX is loaded as the cubin would be") {
    Context c;
    CUlinkState link;
    OK(cuLinkCreate_v2(0, nullptr, nullptr, &link));
    std::string text = module_text;
    OK(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, text.data(), text.size() + 1, "one.ptx", 0, nullptr, nullptr));
    void* image;
    size_t bytes;
    OK(cuLinkComplete(link, &image, &bytes));
    CUmodule m;
    OK(cuModuleLoadData(&m, image));
    CUfunction f;
    OK(cuModuleGetFunction(&f, m, "add"));
    OK(cuLinkDestroy(link));
}
