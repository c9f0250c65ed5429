// Modules, functions, libraries and kernels. A library is an image; each context that uses it has a
// module of its own made from it. Handles may be passed for each other where the API says so: a CUkernel
// is accepted wherever a CUfunction is (told apart by the magic at their start).
#pragma once

#include <unordered_map>

#include "tests/softgpu/driver/work.hpp"
#include "tests/softgpu/ptx/module.hpp"

namespace softgpu {
inline constexpr std::uint32_t function_magic = 0x46554e43, kernel_magic = 0x4b45524e, module_magic = 0x4d4f4431, library_magic = 0x4c494231;

// PTX texts found in an image (PTX text, fat binary or its wrapper), the best for compute capability sm.
struct Image {
    std::vector<std::string> texts;
};
CUresult read_image(const void* data, Image* out);
// Several texts as one image that read_image takes apart again.
std::string pack_texts(const Image& image);
CUresult read_file(const char* path, std::string* out);

// Where errors of the translator are to be written too (CU_JIT_ERROR_LOG_BUFFER).
struct JitLog {
    char* error = nullptr;
    std::size_t error_bytes = 0;
    JitLog() = default;
    JitLog(unsigned count, CUjit_option* options, void** values);
    void write(const std::string& text) const;
};
CUresult load_module(CUcontext context, const Image& image, const JitLog& log, CUmodule* out);
void unload_modules(CUcontext context);
CUfunction find_function(CUmodule module, const char* name);

// A CUfunction or a CUkernel, as a function of this context.
CUresult resolve_function(CUfunction handle, CUcontext context, CUfunction* out);
}  // namespace softgpu

struct CUfunc_st {
    std::uint32_t magic = softgpu::function_magic;
    CUmodule module = nullptr;
    std::size_t index = 0;
    const softgpu::ptx::Kernel* kernel = nullptr;
    std::uint64_t name_hash = 0;
    int max_dynamic_shared = 0;       // 0: 48 KiB less what is static
    int carveout = -1;
    int block[3] = {1, 1, 1};         // cuFuncSetBlockShape
};

struct CUmod_st {
    std::uint32_t magic = softgpu::module_magic;
    CUcontext context = nullptr;
    CUlibrary library = nullptr;
    std::shared_ptr<softgpu::ptx::Module> code;
    std::vector<CUfunction> functions;
    std::vector<softgpu::Address> globals;
    std::unordered_map<std::string, std::size_t> function_names, global_names;
};

struct CUkern_st {
    std::uint32_t magic = softgpu::kernel_magic;
    CUlibrary library = nullptr;
    std::string name;
    std::atomic<CUcontext> last_context{nullptr};  // cache of the look-up below
    std::atomic<CUfunction> last_function{nullptr};
};

struct CUlib_st {
    std::uint32_t magic = softgpu::library_magic;
    softgpu::Image image;
    std::mutex mutex;
    std::unordered_map<CUcontext, CUmodule> modules;
    std::unordered_map<std::string, CUkernel> kernels;
    softgpu::JitLog log;
};

namespace softgpu {

struct KernelWork final : Work {
    CUfunction function = nullptr;
    std::shared_ptr<ptx::Module> code;
    ptx::LaunchDims dims;
    std::uint32_t param_bytes = 0;
    alignas(16) char small[256];
    std::unique_ptr<char[]> large;
    std::vector<void*> pointers;  // made on demand for cuGraphKernelNodeGetParams
    CUfunction handle = nullptr;  // as the program gave it
    std::unordered_map<int, CUlaunchAttributeValue> attributes;
    char* params() { return large ? large.get() : small; }
    EngineKind engine() const override { return EngineKind::compute; }
    CUresult run() override;
    std::int64_t table_ns() const override;
    std::string describe() const override;
    std::uint64_t identity() const override { return function->name_hash; }
};

// Checks a launch and copies its parameters.
CUresult make_kernel(CUcontext context, const CUDA_KERNEL_NODE_PARAMS& params, bool cooperative, std::shared_ptr<KernelWork>* out);

}  // namespace softgpu
