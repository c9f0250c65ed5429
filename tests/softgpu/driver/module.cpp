// Modules and libraries: loading, the look-up of functions and globals, unloading.
#include "tests/softgpu/driver/module.hpp"

#include <algorithm>

#include "tests/softgpu/driver/memory.hpp"

namespace softgpu {
namespace {

std::mutex& modules_mutex() {
    static auto* const m = new std::mutex;
    return *m;
}

std::unique_ptr<ptx::Module> translate(CUcontext c, const Image& image, std::string* error) {
    ptx::Options o;
    o.view_offset = view(c->device);
    o.cache_folder = options().cache_folder;
    o.count_work = options().count;
    o.workers = options().workers;
    auto loaded = [&] {
        if (image.texts.size() == 1) return ptx::load(image.texts[0], o);
        return ptx::link({image.texts.begin(), image.texts.end()}, o);
    }();
    if (!loaded) {
        *error = loaded.error().message;
        return nullptr;
    }
    return std::move(*loaded);
}

void destroy_module(CUmodule m) {
    for (Address a : m->globals) release(a, [](const Range& r) { return r.kind == Kind::global || r.kind == Kind::managed; });
    for (CUfunction f : m->functions) f->magic = 0;  // shells stay: a stale handle is an error
    m->magic = 0;
    m->code.reset();
    m->globals.clear();
}

bool valid(CUmodule m) { return m && m->magic == module_magic; }
bool valid(CUlibrary l) { return l && l->magic == library_magic; }

CUresult library_module(CUlibrary l, CUcontext c, CUmodule* out) {
    std::lock_guard lock(l->mutex);
    auto& m = l->modules[c];
    if (!m || m->magic != module_magic) {
        m = nullptr;
        CUmodule fresh = nullptr;
        if (CUresult r = load_module(c, l->image, l->log, &fresh)) {
            l->modules.erase(c);
            return r;
        }
        fresh->library = l;
        m = fresh;
    }
    *out = m;
    return CUDA_SUCCESS;
}

// Libraries belong to no context; where none is current, the first device's primary one stands in.
CUresult library_context(CUcontext* out) {
    if (current_context()) return usable_context(out);
    TRY(cuDevicePrimaryCtxRetain(out, 0));
    return CUDA_SUCCESS;
}

}  // namespace

JitLog::JitLog(unsigned count, CUjit_option* options, void** values) {
    for (unsigned i = 0; options && values && i < count; ++i) {
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER) error = static_cast<char*>(values[i]);
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) error_bytes = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(values[i]));
    }
}

void JitLog::write(const std::string& text) const {
    if (error && error_bytes) std::snprintf(error, error_bytes, "%s", text.c_str());
}

CUresult load_module(CUcontext c, const Image& image, const JitLog& log, CUmodule* out) {
    std::string error;
    std::shared_ptr<ptx::Module> code = translate(c, image, &error);
    if (!code) {
        say("%s", error.c_str());
        log.write(error);
        return CUDA_ERROR_INVALID_PTX;
    }
    for (const ptx::Kernel& k : code->kernels()) {
        if (k.sm_version <= options().sm) continue;
        error = "kernel " + k.name + " is for compute capability " + std::to_string(k.sm_version / 10) + "." + std::to_string(k.sm_version % 10) + " and higher";
        say("%s", error.c_str());
        log.write(error);
        return CUDA_ERROR_INVALID_PTX;
    }
    auto* m = new CUmod_st;
    m->context = c;
    m->code = std::move(code);
    const auto& globals = m->code->globals();
    for (std::size_t i = 0; i < globals.size(); ++i) {
        auto& g = globals[i];
        Address a = 0;
        // As on a card, variables that no initialiser sets are zero.
        if (CUresult r = allocate(std::max<std::size_t>(g.bytes, 1), g.managed ? Kind::managed : Kind::global, c, c->device, CU_MEM_ATTACH_GLOBAL, &a)) {
            destroy_module(m);
            return r;
        }
        m->globals.push_back(a);
        m->global_names[g.name] = i;
        std::memset(at(a, c->device), 0, g.bytes);
        if (!g.initial.empty()) std::memcpy(at(a, c->device), g.initial.data(), std::min<std::size_t>(g.bytes, g.initial.size()));
        m->code->place_global(i, a);
    }
    const auto& kernels = m->code->kernels();
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        auto* f = new CUfunc_st;
        f->module = m;
        f->index = i;
        f->kernel = &kernels[i];
        f->name_hash = mix(std::hash<std::string>{}(kernels[i].name), 77);
        m->functions.push_back(f);
        m->function_names[kernels[i].name] = i;
    }
    std::lock_guard lock(modules_mutex());
    c->modules.push_back(m);
    *out = m;
    return CUDA_SUCCESS;
}

void unload_modules(CUcontext c) {
    std::lock_guard lock(modules_mutex());
    for (CUmodule m : c->modules) destroy_module(m);
    c->modules.clear();
}

CUfunction find_function(CUmodule m, const char* name) {
    auto it = m->function_names.find(name);
    return it == m->function_names.end() ? nullptr : m->functions[it->second];
}

CUresult resolve_function(CUfunction handle, CUcontext c, CUfunction* out) {
    if (!handle) return CUDA_ERROR_INVALID_HANDLE;
    if (handle->magic == function_magic) [[likely]] {
        *out = handle;
        return CUDA_SUCCESS;
    }
    if (handle->magic != kernel_magic) return CUDA_ERROR_INVALID_HANDLE;
    auto kernel = reinterpret_cast<CUkernel>(handle);
    if (kernel->last_context.load(std::memory_order_acquire) == c) {
        CUfunction f = kernel->last_function.load(std::memory_order_acquire);
        if (f && f->magic == function_magic && f->module->context == c) {
            *out = f;
            return CUDA_SUCCESS;
        }
    }
    CUmodule m;
    TRY(library_module(kernel->library, c, &m));
    CUfunction f = find_function(m, kernel->name.c_str());
    if (!f) return CUDA_ERROR_NOT_FOUND;
    kernel->last_function.store(f, std::memory_order_release);
    kernel->last_context.store(c, std::memory_order_release);
    *out = f;
    return CUDA_SUCCESS;
}

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuModuleLoadDataEx(CUmodule* out, const void* data, unsigned count, CUjit_option* jit, void** values) {
    ENTER(cuModuleLoadDataEx);
    REQUIRE(out && data);
    CUcontext c;
    TRY(usable_context(&c));
    TRY(refuse_under_capture());
    Image image;
    JitLog log(count, jit, values);
    TRY(read_image(data, &image));
    return load_module(c, image, log, out);
}
SOFTGPU_API cuModuleLoadData(CUmodule* out, const void* data) { return cuModuleLoadDataEx(out, data, 0, nullptr, nullptr); }
SOFTGPU_API cuModuleLoadFatBinary(CUmodule* out, const void* data) { return cuModuleLoadDataEx(out, data, 0, nullptr, nullptr); }
SOFTGPU_API cuModuleLoad(CUmodule* out, const char* path) {
    std::string bytes;
    TRY(read_file(path, &bytes));
    return cuModuleLoadDataEx(out, bytes.data(), 0, nullptr, nullptr);
}
SOFTGPU_API cuModuleUnload(CUmodule m) {
    ENTER(cuModuleUnload);
    if (!valid(m) || m->library) return CUDA_ERROR_INVALID_HANDLE;
    TRY(refuse_under_capture());
    synchronise(m->context);
    std::lock_guard lock(modules_mutex());
    std::erase(m->context->modules, m);
    destroy_module(m);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
    ENTER(cuModuleGetLoadingMode);
    REQUIRE(mode);
    *mode = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuModuleGetFunction(CUfunction* out, CUmodule m, const char* name) {
    ENTER(cuModuleGetFunction);
    REQUIRE(out && name);
    if (!valid(m)) return CUDA_ERROR_INVALID_HANDLE;
    *out = find_function(m, name);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
SOFTGPU_API cuModuleGetFunctionCount(unsigned* count, CUmodule m) {
    ENTER(cuModuleGetFunctionCount);
    REQUIRE(count);
    if (!valid(m)) return CUDA_ERROR_INVALID_HANDLE;
    *count = static_cast<unsigned>(m->functions.size());
    return CUDA_SUCCESS;
}
SOFTGPU_API cuModuleEnumerateFunctions(CUfunction* out, unsigned count, CUmodule m) {
    ENTER(cuModuleEnumerateFunctions);
    REQUIRE(out);
    if (!valid(m)) return CUDA_ERROR_INVALID_HANDLE;
    std::copy_n(m->functions.begin(), std::min<std::size_t>(count, m->functions.size()), out);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuModuleGetGlobal_v2(CUdeviceptr* a, size_t* bytes, CUmodule m, const char* name) {
    ENTER(cuModuleGetGlobal_v2);
    REQUIRE(name && (a || bytes));
    if (!valid(m)) return CUDA_ERROR_INVALID_HANDLE;
    auto it = m->global_names.find(name);
    if (it == m->global_names.end()) return CUDA_ERROR_NOT_FOUND;
    if (a) *a = m->globals[it->second];
    if (bytes) *bytes = m->code->globals()[it->second].bytes;
    return CUDA_SUCCESS;
}

SOFTGPU_API cuLibraryLoadData(CUlibrary* out, const void* data, CUjit_option* jit, void** values, unsigned count, CUlibraryOption*, void**, unsigned) {
    ENTER(cuLibraryLoadData);
    REQUIRE(out && data);
    auto* l = new CUlib_st;
    l->log = JitLog(count, jit, values);
    CUresult r = read_image(data, &l->image);
    // Loaded at once where a context is there to load it in, so that errors come where they belong.
    CUmodule m;
    CUcontext c = current_context();
    if (r == CUDA_SUCCESS && c && c->alive) r = library_module(l, c, &m);
    l->log = {};  // the buffers are the caller's for this call only
    if (r != CUDA_SUCCESS) {
        delete l;
        return r;
    }
    *out = l;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuLibraryLoadFromFile(CUlibrary* out, const char* path, CUjit_option* jit, void** values, unsigned count, CUlibraryOption* o, void** v, unsigned n) {
    std::string bytes;
    TRY(read_file(path, &bytes));
    return cuLibraryLoadData(out, bytes.data(), jit, values, count, o, v, n);
}
SOFTGPU_API cuLibraryUnload(CUlibrary l) {
    ENTER(cuLibraryUnload);
    if (!valid(l)) return CUDA_ERROR_INVALID_HANDLE;
    std::lock_guard own(l->mutex);
    for (auto& [c, m] : l->modules) {
        if (!m || m->magic != module_magic) continue;
        synchronise(c);
        std::lock_guard lock(modules_mutex());
        std::erase(c->modules, m);
        destroy_module(m);
    }
    l->modules.clear();
    for (auto& [name, k] : l->kernels) k->magic = 0;
    l->magic = 0;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuLibraryGetKernel(CUkernel* out, CUlibrary l, const char* name) {
    ENTER(cuLibraryGetKernel);
    REQUIRE(out && name);
    if (!valid(l)) return CUDA_ERROR_INVALID_HANDLE;
    CUcontext c;
    TRY(library_context(&c));
    CUmodule m;
    TRY(library_module(l, c, &m));
    if (!find_function(m, name)) return CUDA_ERROR_NOT_FOUND;
    std::lock_guard lock(l->mutex);
    auto& k = l->kernels[name];
    if (!k) {
        k = new CUkern_st;
        k->library = l;
        k->name = name;
    }
    *out = k;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuLibraryGetModule(CUmodule* out, CUlibrary l) {
    ENTER(cuLibraryGetModule);
    REQUIRE(out);
    if (!valid(l)) return CUDA_ERROR_INVALID_HANDLE;
    CUcontext c;
    TRY(usable_context(&c));
    return library_module(l, c, out);
}
SOFTGPU_API cuLibraryGetGlobal(CUdeviceptr* a, size_t* bytes, CUlibrary l, const char* name) {
    ENTER(cuLibraryGetGlobal);
    if (!valid(l)) return CUDA_ERROR_INVALID_HANDLE;
    CUcontext c;
    TRY(usable_context(&c));
    CUmodule m;
    TRY(library_module(l, c, &m));
    return cuModuleGetGlobal_v2(a, bytes, m, name);
}
SOFTGPU_API cuLibraryGetManaged(CUdeviceptr* a, size_t* bytes, CUlibrary l, const char* name) {
    ENTER(cuLibraryGetManaged);
    CUdeviceptr found;
    TRY(cuLibraryGetGlobal(&found, bytes, l, name));
    auto r = find_range(found);
    if (!r || r->kind != Kind::managed) return CUDA_ERROR_NOT_FOUND;
    if (a) *a = found;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuLibraryGetKernelCount(unsigned* count, CUlibrary l) {
    ENTER(cuLibraryGetKernelCount);
    REQUIRE(count);
    if (!valid(l)) return CUDA_ERROR_INVALID_HANDLE;
    CUcontext c;
    TRY(library_context(&c));
    CUmodule m;
    TRY(library_module(l, c, &m));
    *count = static_cast<unsigned>(m->functions.size());
    return CUDA_SUCCESS;
}
SOFTGPU_API cuLibraryEnumerateKernels(CUkernel* out, unsigned count, CUlibrary l) {
    ENTER(cuLibraryEnumerateKernels);
    REQUIRE(out);
    if (!valid(l)) return CUDA_ERROR_INVALID_HANDLE;
    CUcontext c;
    TRY(library_context(&c));
    CUmodule m;
    TRY(library_module(l, c, &m));
    for (unsigned i = 0; i < count && i < m->functions.size(); ++i) TRY(cuLibraryGetKernel(&out[i], l, m->functions[i]->kernel->name.c_str()));
    return CUDA_SUCCESS;
}
