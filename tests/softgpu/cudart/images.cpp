// Registration: what nvcc's host code calls before main, and the look-ups at first use (images.hpp).
#include "tests/softgpu/cudart/images.hpp"
#include <cstring>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace cudart {
namespace {

struct ManagedVariable { void** host; std::string name; };
struct Image {
  const void* data;
  CUlibrary library = nullptr;
  std::vector<ManagedVariable> managed;
};
struct Symbol { Image* image; std::string name; };
struct Function { Image* image; std::string name; CUkernel kernel = nullptr; };

struct Registry {
  std::mutex mutex;
  std::list<Image> images;
  std::unordered_map<const void*, Function> functions;
  std::unordered_map<const void*, Symbol> symbols;
  std::unordered_map<CUkernel, const void*> by_kernel;
};
// Never destroyed: images are unregistered from exit handlers.
Registry& registry() { static auto* r = new Registry; return *r; }

// Both need the registry's lock.
cudaError_t load(Image& image) {
  if (image.library) return cudaSuccess;
  if (CUresult r = DRIVER(cuLibraryLoadData, 12000)(&image.library, image.data, nullptr, nullptr, 0, nullptr, nullptr, 0)) {
    image.library = nullptr;
    return to_runtime(r);
  }
  for (auto& v : image.managed) {
    CUdeviceptr at = 0;
    if (CUresult r = DRIVER(cuLibraryGetManaged, 12000)(&at, nullptr, image.library, v.name.c_str())) return to_runtime(r);
    *v.host = pointer(at);
  }
  return cudaSuccess;
}

thread_local struct { dim3 grid, block; size_t shared; void* stream; } pushed;

}  // namespace

cudaError_t find_kernel(const void* function, CUkernel* out) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto found = r.functions.find(function);
  if (found == r.functions.end()) {
    auto kernel = reinterpret_cast<CUkernel>(const_cast<void*>(function));
    if (!function || !r.by_kernel.contains(kernel)) return cudaErrorInvalidDeviceFunction;
    *out = kernel;
    return cudaSuccess;
  }
  Function& f = found->second;
  if (!f.kernel) {
    if (cudaError_t e = load(*f.image)) return e;
    if (CUresult e = DRIVER(cuLibraryGetKernel, 12000)(&f.kernel, f.image->library, f.name.c_str())) {
      f.kernel = nullptr;
      return e == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidDeviceFunction : to_runtime(e);
    }
    r.by_kernel[f.kernel] = function;
  }
  *out = f.kernel;
  return cudaSuccess;
}

void* host_function(CUkernel kernel) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto found = r.by_kernel.find(kernel);
  return found == r.by_kernel.end() ? static_cast<void*>(kernel) : const_cast<void*>(found->second);
}

cudaError_t find_function(const void* function, CUfunction* out) {
  CUkernel kernel;
  if (cudaError_t e = find_kernel(function, &kernel)) return e;
  return to_runtime(DRIVER(cuKernelGetFunction, 12000)(out, kernel));
}

cudaError_t find_symbol(const void* symbol, CUdeviceptr* at, size_t* bytes) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto found = r.symbols.find(symbol);
  if (found == r.symbols.end()) return cudaErrorInvalidSymbol;
  if (cudaError_t e = load(*found->second.image)) return e;
  CUresult e = DRIVER(cuLibraryGetGlobal, 12000)(at, bytes, found->second.image->library, found->second.name.c_str());
  return e == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidSymbol : to_runtime(e);
}

}  // namespace cudart

using namespace cudart;

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void** __cudaRegisterFatBinary(void* image) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  r.images.push_back(Image{.data = image});
  return reinterpret_cast<void**>(&r.images.back());
}

EXPORT void __cudaRegisterFatBinaryEnd(void**) {}

EXPORT void __cudaUnregisterFatBinary(void** handle) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto* image = reinterpret_cast<Image*>(handle);
  std::erase_if(r.by_kernel, [&](auto& e) { auto f = r.functions.find(e.second); return f != r.functions.end() && f->second.image == image; });
  std::erase_if(r.functions, [&](auto& e) { return e.second.image == image; });
  std::erase_if(r.symbols, [&](auto& e) { return e.second.image == image; });
  if (image->library) DRIVER(cuLibraryUnload, 12000)(image->library);
  r.images.remove_if([&](Image& i) { return &i == image; });
}

EXPORT void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  r.functions[host] = Function{reinterpret_cast<Image*>(handle), name};
}

EXPORT void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, size_t, int, int) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  r.symbols[host] = Symbol{reinterpret_cast<Image*>(handle), name};
}

EXPORT void __cudaRegisterManagedVar(void** handle, void** host, char*, const char* name, int, size_t, int, int) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto* image = reinterpret_cast<Image*>(handle);
  image->managed.push_back({host, name});
  r.symbols[host] = Symbol{image, name};
}

// Called before a managed variable is first read: its address is known once the image is loaded.
EXPORT char __cudaInitModule(void** handle) {
  cudaError_t e = call([&]() -> cudaError_t {
    std::lock_guard lock(registry().mutex);
    return load(*reinterpret_cast<Image*>(handle));
  });
  return e == cudaSuccess;
}

EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
  pushed = {grid, block, shared, stream};
  return 0;
}

EXPORT cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = pushed.grid;
  *block = pushed.block;
  *shared = pushed.shared;
  memcpy(stream, &pushed.stream, sizeof(void*));
  return cudaSuccess;
}

EXPORT cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  return call([&] { return find_kernel(function, reinterpret_cast<CUkernel*>(kernel)); });
}

EXPORT cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* function) { return __cudaGetKernel(kernel, function); }

EXPORT cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* symbol) {
  return call([&] { return find_function(symbol, reinterpret_cast<CUfunction*>(function)); });
}

EXPORT cudaError_t cudaGetSymbolAddress(void** at, const void* symbol) {
  return call([&] { size_t bytes; return find_symbol(symbol, reinterpret_cast<CUdeviceptr*>(at), &bytes); });
}

EXPORT cudaError_t cudaGetSymbolSize(size_t* bytes, const void* symbol) {
  return call([&] { CUdeviceptr at; return find_symbol(symbol, &at, bytes); });
}

EXPORT cudaError_t cudaFuncGetName(const char** name, const void* function) {
  return call([&]() -> cudaError_t {
    CUkernel kernel;
    if (cudaError_t e = find_kernel(function, &kernel)) return e;
    return to_runtime(DRIVER(cuKernelGetName, 12030)(name, kernel));
  });
}

EXPORT cudaError_t cudaFuncGetParamInfo(const void* function, size_t index, size_t* offset, size_t* bytes) {
  return call([&]() -> cudaError_t {
    CUkernel kernel;
    if (cudaError_t e = find_kernel(function, &kernel)) return e;
    return to_runtime(DRIVER(cuKernelGetParamInfo, 12040)(kernel, index, offset, bytes));
  });
}

EXPORT cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return call([&]() -> cudaError_t {
    CUfunction f;
    if (cudaError_t e = find_function(function, &f)) return e;
    return to_runtime(DRIVER(cuFuncSetAttribute, 9000)(f, static_cast<CUfunction_attribute>(attribute), value));
  });
}

EXPORT cudaError_t cudaFuncSetCacheConfig(const void* function, cudaFuncCache config) {
  return call([&]() -> cudaError_t {
    CUfunction f;
    if (cudaError_t e = find_function(function, &f)) return e;
    return to_runtime(DRIVER(cuFuncSetCacheConfig, 3000)(f, static_cast<CUfunc_cache>(config)));
  });
}

EXPORT cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* function) {
  return call([&]() -> cudaError_t {
    CUfunction f;
    if (cudaError_t e = find_function(function, &f)) return e;
    *out = {};
    auto get = [&](CUfunction_attribute which) { int v = 0; DRIVER(cuFuncGetAttribute, 2020)(&v, which, f); return v; };
    out->sharedSizeBytes = get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
    out->constSizeBytes = get(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES);
    out->localSizeBytes = get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
    out->maxThreadsPerBlock = get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    out->numRegs = get(CU_FUNC_ATTRIBUTE_NUM_REGS);
    out->ptxVersion = get(CU_FUNC_ATTRIBUTE_PTX_VERSION);
    out->binaryVersion = get(CU_FUNC_ATTRIBUTE_BINARY_VERSION);
    out->cacheModeCA = get(CU_FUNC_ATTRIBUTE_CACHE_MODE_CA);
    out->maxDynamicSharedSizeBytes = get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    out->preferredShmemCarveout = get(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
    return cudaSuccess;
  });
}
