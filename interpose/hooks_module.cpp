// Modules, libraries and the kernels born from them: what the layouts of parameters are found by. On drivers that
// can be asked for layouts the images are looked at for hazards alone. Kept also while no handlers are installed.
#include "interpose/internal.hpp"

#include <algorithm>

#include "interpose/image_layouts.hpp"
#include "interpose/kernel_code.hpp"
#include "interpose/kernel_layouts.hpp"

namespace udnnmem::interpose {

static bool images_are_needed() noexcept { return !driver_has(Symbol::cuFuncGetParamInfo); }

// ---- loading ----
// Code and variables take device memory.
#define LOADS(symbol, PARAMS, ARGS, AFTER) ALWAYS_OBSERVE_TAKING(0, symbol, PARAMS, ARGS, AFTER)
LOADS(cuModuleLoad, (CUmodule * module, const char* file), (module, file),
      note_code_of_file(file); if (images_are_needed()) remember_image_file(*module, file))
LOADS(cuModuleLoadData, (CUmodule * module, const void* image), (module, image),
      note_code(image); if (images_are_needed()) remember_image(*module, image))
LOADS(cuModuleLoadDataEx, (CUmodule * module, const void* image, unsigned count, CUjit_option* options, void** values),
      (module, image, count, options, values), note_code(image); if (images_are_needed()) remember_image(*module, image))
LOADS(cuModuleLoadFatBinary, (CUmodule * module, const void* image), (module, image),
      note_code(image); if (images_are_needed()) remember_image(*module, image))
LOADS(cuLibraryLoadData,
      (CUlibrary * library, const void* image, CUjit_option* jit, void** jit_values, unsigned jit_count,
       CUlibraryOption* options, void** values, unsigned count),
      (library, image, jit, jit_values, jit_count, options, values, count),
      note_code(image); if (images_are_needed()) remember_image(*library, image))
LOADS(cuLibraryLoadFromFile,
      (CUlibrary * library, const char* file, CUjit_option* jit, void** jit_values, unsigned jit_count,
       CUlibraryOption* options, void** values, unsigned count),
      (library, file, jit, jit_values, jit_count, options, values, count),
      note_code_of_file(file); if (images_are_needed()) remember_image_file(*library, file))

// ---- linking: in what comes out there is no PTX to read any more ----
static bool holds_ptx(CUjitInputType type) { return type == CU_JIT_INPUT_PTX || type == CU_JIT_INPUT_FATBINARY; }
ALWAYS_OBSERVE(cuLinkAddData_v2,
               (CUlinkState state, CUjitInputType type, void* data, size_t bytes, const char* name, unsigned count,
                CUjit_option* options, void** values),
               (state, type, data, bytes, name, count, options, values), if (holds_ptx(type)) note_code_of(data, bytes))
ALWAYS_OBSERVE(cuLinkAddFile_v2,
               (CUlinkState state, CUjitInputType type, const char* path, unsigned count, CUjit_option* options, void** values),
               (state, type, path, count, options, values), if (holds_ptx(type)) note_code_of_file(path))

// ---- unloading ----
static bool may_unload() noexcept {
    Guard up;
    return !up || !up->code_unloading || up->code_unloading();
}
template <class Handle>
static CUresult unload(CUresult (*real)(Handle), Handle handle) noexcept {
    if (!may_unload()) return CUDA_SUCCESS;   // nobody finds it any more, and it may still be launched
    forget_layouts();
    const CUresult result = real(handle);
    if (result == CUDA_SUCCESS) forget_image(handle);
    return result;
}
HOOK(cuModuleUnload, (CUmodule module)) { return unload(REAL(cuModuleUnload), module); }
HOOK(cuLibraryUnload, (CUlibrary library)) { return unload(REAL(cuLibraryUnload), library); }

// ---- births ----
// Code may be loaded no earlier than here.
ALWAYS_OBSERVE_TAKING(0, cuModuleGetFunction, (CUfunction * f, CUmodule module, const char* name), (f, module, name),
        function_born(*f, module, name))
ALWAYS_OBSERVE_TAKING(0, cuKernelGetFunction, (CUfunction * f, CUkernel kernel), (f, kernel), )
ALWAYS_OBSERVE_TAKING(0, cuFuncLoad, (CUfunction f), (f), )
ALWAYS_OBSERVE(cuLibraryGetKernel, (CUkernel * k, CUlibrary library, const char* name), (k, library, name),
        kernel_born(*k, library, name))
static void kernels_born(const CUkernel* kernels, unsigned count, CUlibrary library) noexcept {
    for (unsigned i = 0; i < count; ++i) {
        const char* name = nullptr;
        if (kernels[i] != nullptr && driver_has(Symbol::cuKernelGetName)) OWN(cuKernelGetName)(&name, kernels[i]);
        if (kernels[i] != nullptr) kernel_born(kernels[i], library, name);
    }
}
// It fills in as many as there are: the others are left as they were, so no more than the library has are read.
HOOK(cuLibraryEnumerateKernels, (CUkernel * kernels, unsigned count, CUlibrary library)) {
    const CUresult result = REAL(cuLibraryEnumerateKernels)(kernels, count, library);
    unsigned there = 0;
    if (result == CUDA_SUCCESS && kernels && OWN(cuLibraryGetKernelCount)(&there, library) == CUDA_SUCCESS)
        kernels_born(kernels, std::min(count, there), library);
    return result;
}

// ---- variables ----
// Told of with their size, whether or not the program asks for it.
#define VARIABLE(symbol, HANDLE, KIND)                                                                                 \
    HOOK(symbol, (CUdeviceptr * at, size_t* bytes, HANDLE owner, const char* name)) {                                  \
        Guard up;                                                                                                      \
        size_t size = 0;                                                                                               \
        size_t* const told = bytes || !at ? bytes : &size;                                                             \
        const CUresult result = REAL(symbol)(at, told, owner, name);                                                   \
        if (up && result == CUDA_SUCCESS && at && up->unmanaged_memory) up->unmanaged_memory(*at, *told, Outside::KIND); \
        return result;                                                                                                 \
    }
VARIABLE(cuModuleGetGlobal_v2, CUmodule, variable)
VARIABLE(cuLibraryGetGlobal, CUlibrary, variable)
VARIABLE(cuLibraryGetManaged, CUlibrary, device)

}  // namespace udnnmem::interpose
