// cuLink: PTX in; the "cubin" that comes out is PTX again, for this driver alone. One input comes out as
// it is. Several come out as one image of ours that lists the texts, which loading links (image.cpp).
#include <cstring>

#include "tests/softgpu/driver/module.hpp"

struct CUlinkState_st {
    softgpu::Image image;
    softgpu::JitLog log;
    std::string out;
};

using namespace softgpu;

SOFTGPU_API cuLinkCreate_v2(unsigned count, CUjit_option* jit, void** values, CUlinkState* out) {
    ENTER(cuLinkCreate_v2);
    REQUIRE(out);
    CUcontext c;
    TRY(usable_context(&c));
    *out = new CUlinkState_st;
    (*out)->log = JitLog(count, jit, values);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuLinkAddData_v2(CUlinkState s, CUjitInputType type, void* data, size_t bytes, const char*, unsigned, CUjit_option*, void**) {
    ENTER(cuLinkAddData_v2);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    REQUIRE(data && bytes);
    if (type == CU_JIT_INPUT_CUBIN || type == CU_JIT_INPUT_OBJECT || type == CU_JIT_INPUT_LIBRARY || type == CU_JIT_INPUT_NVVM) {
        // A "cubin" of ours is text.
        if (type != CU_JIT_INPUT_CUBIN || !ptx::looks_like_ptx({static_cast<char*>(data), bytes})) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    if (type == CU_JIT_INPUT_FATBINARY) return read_image(data, &s->image);
    std::string text(static_cast<char*>(data), ::strnlen(static_cast<char*>(data), bytes));
    if (!ptx::looks_like_ptx(text)) return CUDA_ERROR_INVALID_PTX;
    s->image.texts.push_back(std::move(text));
    return CUDA_SUCCESS;
}
SOFTGPU_API cuLinkAddFile_v2(CUlinkState s, CUjitInputType type, const char* path, unsigned count, CUjit_option* jit, void** values) {
    std::string bytes;
    TRY(read_file(path, &bytes));
    return cuLinkAddData_v2(s, type, bytes.data(), bytes.size(), path, count, jit, values);
}
SOFTGPU_API cuLinkComplete(CUlinkState s, void** out, size_t* bytes) {
    ENTER(cuLinkComplete);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    REQUIRE(!s->image.texts.empty());
    CUcontext c;
    TRY(usable_context(&c));
    CUmodule trial;  // so that an error is told here, where the caller's log is
    TRY(load_module(c, s->image, s->log, &trial));
    cuModuleUnload(trial);
    s->out = s->image.texts.size() == 1 ? s->image.texts[0] : pack_texts(s->image);
    s->out.push_back('\0');
    if (out) *out = s->out.data();
    if (bytes) *bytes = s->out.size();
    return CUDA_SUCCESS;
}
SOFTGPU_API cuLinkDestroy(CUlinkState s) {
    ENTER(cuLinkDestroy);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    delete s;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuLinkCreate(unsigned count, CUjit_option* jit, void** values, CUlinkState* out) { return cuLinkCreate_v2(count, jit, values, out); }
SOFTGPU_API cuLinkAddData(CUlinkState s, CUjitInputType t, void* d, size_t n, const char* name, unsigned c, CUjit_option* o, void** v) {
    return cuLinkAddData_v2(s, t, d, n, name, c, o, v);
}
SOFTGPU_API cuLinkAddFile(CUlinkState s, CUjitInputType t, const char* path, unsigned c, CUjit_option* o, void** v) { return cuLinkAddFile_v2(s, t, path, c, o, v); }
