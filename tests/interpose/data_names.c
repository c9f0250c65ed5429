// A library whose own data is named like the driver's functions, as loaders of function pointers have it, written at
// once when it is loaded.
#define NAMES(X)                                                                                                       \
    X(cuInit) X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemcpyHtoD_v2) X(cuMemcpyDtoH_v2) X(cuMemcpyDtoD_v2)                 \
    X(cuLaunchKernel) X(cuLaunchKernelEx) X(cuStreamCreate) X(cuStreamDestroy_v2) X(cuStreamSynchronize)               \
    X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize) X(cuCtxSynchronize) X(cuCtxDestroy_v2) X(cuMemsetD8_v2)     \
    X(cuMemsetD32_v2) X(cuMemGetInfo_v2) X(cuModuleGetFunction) X(cuModuleLoadData) X(cuModuleUnload)                  \
    X(cuPointerGetAttribute) X(cuGetProcAddress_v2) X(cuGraphLaunch) X(cuMemAllocAsync) X(cuMemFreeAsync)              \
    X(cuTexObjectCreate) X(cuDeviceGet) X(cuDeviceGetCount)
#define DEFINE(name) __attribute__((visibility("default"))) void* name;
NAMES(DEFINE)

static int mine;
__attribute__((constructor)) static void fill(void) {
#define FILL(name) name = &mine;
    NAMES(FILL)
}
__attribute__((visibility("default"))) int data_is_mine(void) {
    int all = 1;
#define CHECK(name) all = all && name == (void*)&mine;
    NAMES(CHECK)
    return all;
}
