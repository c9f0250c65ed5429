// The build on the driver API alone: the kernels are PTX text in the program, the driver is linked.
#include "tests/workloads/digits/backend.hpp"
#include <cuda.h>
#include <string>

asm(R"(
  .section .rodata
  .global digits_ptx
digits_ptx:
  .incbin ")" DIGITS_PTX R"("
  .byte 0
  .previous
)");
extern "C" const char digits_ptx[];

namespace digits {
namespace {

void check(CUresult r, const char* call) {
  if (r == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(r, &name);
  throw std::runtime_error(std::string(call) + ": " + (name ? name : "error") + " (" + std::to_string(r) + ")");
}
#define CHECK(call) check(call, #call)

CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

class Driver : public Backend {
 public:
  Driver() {
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device_, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context_, device_));
    CHECK(cuCtxSetCurrent(context_));
    CHECK(cuModuleLoadData(&module_, digits_ptx));
    static const char* const names[] = {
#define K(name) #name,
        DIGITS_KERNELS(K)
#undef K
    };
    for (size_t i = 0; i < static_cast<size_t>(Kernel::count); i++) CHECK(cuModuleGetFunction(&functions_[i], module_, names[i]));
  }
  ~Driver() override {
    cuModuleUnload(module_);
    cuDevicePrimaryCtxRelease(device_);
  }
  void* allocate(size_t bytes) override {
    CUdeviceptr p = 0;
    const CUresult r = cuMemAlloc(&p, bytes);
    if (r == CUDA_ERROR_OUT_OF_MEMORY) throw OutOfMemory(bytes, live());
    check(r, "cuMemAlloc");
    account(reinterpret_cast<void*>(p), bytes);
    return reinterpret_cast<void*>(p);
  }
  void release(void* p) override {
    unaccount(p);
    CHECK(cuMemFree(address(p)));
  }
  void launch(Kernel kernel, Grid g, void** arguments) override {
    CHECK(cuLaunchKernel(functions_[static_cast<int>(kernel)], g.x, g.y, 1, g.threads, 1, 1, 0, nullptr, arguments, nullptr));
  }
  void zero(void* to, size_t bytes) override { CHECK(cuMemsetD8(address(to), 0, bytes)); }
  void upload(void* to, const void* from, size_t bytes) override { CHECK(cuMemcpyHtoD(address(to), from, bytes)); }
  void download(void* to, const void* from, size_t bytes) override { CHECK(cuMemcpyDtoH(to, address(from), bytes)); }

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction functions_[static_cast<size_t>(Kernel::count)] = {};
};

}  // namespace

std::unique_ptr<Backend> make_backend() { return std::make_unique<Driver>(); }
int run_in_thread(const std::function<int()>& body) { return body(); }

}  // namespace digits
