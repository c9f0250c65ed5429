// Devices and what they say of themselves: a plausible card of the compute capability asked for.
#include <cstring>

#include "tests/softgpu/driver/context.hpp"
#include "tests/softgpu/driver/memory.hpp"

using namespace softgpu;

namespace softgpu {
namespace {

bool is_device(CUdevice d) { return d >= 0 && d < options().devices; }

CUuuid uuid_of(CUdevice d) {
    CUuuid id{};
    std::memcpy(id.bytes, "softgpu", 7);
    id.bytes[7] = static_cast<char>('0' + d);
    std::memcpy(id.bytes + 8, &options().card, 8);
    return id;
}

// What a card of this kind would answer; what is not in the list is 0, "no".
int attribute(CUdevice d, int a) {
    const int sm = options().sm;
    switch (a) {
        case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return 1024;
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X: return 1024;
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: return 1024;
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: return 64;
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: return 0x7fffffff;
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y: return 65535;
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: return 65535;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return 48 << 10;
        case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY: return 64 << 10;
        case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
        case CU_DEVICE_ATTRIBUTE_MAX_PITCH: return 0x7fffffff;
        case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: return 65536;
        case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return 1500000;
        case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT: return 512;
        case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP: return 1;
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return 40;
        case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY: return 1;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: return CU_COMPUTEMODE_DEFAULT;
        case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT: return 512;
        case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS: return 1;
        case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return d + 1;
        case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: return 5000000;
        case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: return 256;
        case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return 4 << 20;
        case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return 1024;
        case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: return 2;
        case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: return 1;
        case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT: return 32;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return sm / 10;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return sm % 10;
        case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED: return 1;
        case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED: return 1;
        case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED: return 1;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return (sm >= 90 ? 227 : sm >= 80 ? 99 : 64) << 10;
        case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: return 65536;
        case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY: return 1;
        case CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID: return d;
        case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO: return 32;
        case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS: return 1;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED: return 1;
        case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1: return 1;
        case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1: return 1;
        case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS: return 1;
        case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR: return 1;
        case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: return 1;
        case CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES: return 0;
        case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED: return 1;
        case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: return 1;
        case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: return 1;
        case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED: return 1;
        case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED: return 1;
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: return 16;
        case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: return sm >= 80 ? 1024 : 0;
        case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED: return 1;
        case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: return 1;
        case CU_DEVICE_ATTRIBUTE_NUMA_ID: return -1;
        case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: return 0;
        case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: return 1;
        case CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: return 1;
        case CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS: return 0;
        case CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID: return 0x1eb810de;
        default: return 0;
    }
}

}  // namespace

}  // namespace softgpu

SOFTGPU_API cuDeviceGetCount(int* n) {
    ENTER(cuDeviceGetCount);
    REQUIRE(n);
    *n = options().devices;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuDeviceGet(CUdevice* out, int ordinal) {
    ENTER(cuDeviceGet);
    REQUIRE(out);
    if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    *out = ordinal;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuDeviceGetName(char* name, int length, CUdevice d) {
    ENTER(cuDeviceGetName);
    REQUIRE(name && length > 0);
    if (!is_device(d)) return CUDA_ERROR_INVALID_DEVICE;
    std::snprintf(name, static_cast<std::size_t>(length), "Software GPU sm_%d", options().sm);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuDeviceGetUuid(CUuuid* out, CUdevice d) {
    ENTER(cuDeviceGetUuid);
    REQUIRE(out);
    if (!is_device(d)) return CUDA_ERROR_INVALID_DEVICE;
    *out = uuid_of(d);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuDeviceGetUuid_v2(CUuuid* out, CUdevice d) { return cuDeviceGetUuid(out, d); }
SOFTGPU_API cuDeviceTotalMem_v2(size_t* bytes, CUdevice d) {
    ENTER(cuDeviceTotalMem_v2);
    REQUIRE(bytes);
    if (!is_device(d)) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = options().memory;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuDeviceGetAttribute(int* value, CUdevice_attribute a, CUdevice d) {
    ENTER(cuDeviceGetAttribute);
    REQUIRE(value && a > 0 && a < CU_DEVICE_ATTRIBUTE_MAX);
    if (!is_device(d)) return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute(d, a);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuDeviceComputeCapability(int* major, int* minor, CUdevice d) {
    ENTER(cuDeviceComputeCapability);
    REQUIRE(major && minor);
    if (!is_device(d)) return CUDA_ERROR_INVALID_DEVICE;
    *major = options().sm / 10;
    *minor = options().sm % 10;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuDeviceGetProperties(CUdevprop* p, CUdevice d) {
    ENTER(cuDeviceGetProperties);
    REQUIRE(p);
    if (!is_device(d)) return CUDA_ERROR_INVALID_DEVICE;
    *p = {1024, {1024, 1024, 64}, {0x7fffffff, 65535, 65535}, 48 << 10, 64 << 10, 32, 0x7fffffff, 65536, 1500000, 512};
    return CUDA_SUCCESS;
}
SOFTGPU_API cuDeviceGetPCIBusId(char* text, int length, CUdevice d) {
    ENTER(cuDeviceGetPCIBusId);
    REQUIRE(text && length > 0);
    if (!is_device(d)) return CUDA_ERROR_INVALID_DEVICE;
    std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", d + 1);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuDeviceGetByPCIBusId(CUdevice* out, const char* text) {
    ENTER(cuDeviceGetByPCIBusId);
    REQUIRE(out && text);
    unsigned domain = 0, bus = 0, slot = 0;
    if (std::sscanf(text, "%x:%x:%x", &domain, &bus, &slot) < 2 || !is_device(static_cast<int>(bus) - 1)) return CUDA_ERROR_INVALID_DEVICE;
    *out = static_cast<int>(bus) - 1;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuDeviceCanAccessPeer(int* can, CUdevice d, CUdevice peer) {
    ENTER(cuDeviceCanAccessPeer);
    REQUIRE(can);
    if (!is_device(d) || !is_device(peer)) return CUDA_ERROR_INVALID_DEVICE;
    *can = d != peer;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute a, CUdevice from, CUdevice to) {
    ENTER(cuDeviceGetP2PAttribute);
    REQUIRE(value);
    if (!is_device(from) || !is_device(to) || from == to) return CUDA_ERROR_INVALID_DEVICE;
    *value = a == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuDeviceGetExecAffinitySupport(int* value, CUexecAffinityType, CUdevice d) {
    ENTER(cuDeviceGetExecAffinitySupport);
    REQUIRE(value);
    if (!is_device(d)) return CUDA_ERROR_INVALID_DEVICE;
    *value = 0;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget, CUflushGPUDirectRDMAWritesScope) {
    ENTER(cuFlushGPUDirectRDMAWrites);
    return CUDA_SUCCESS;
}
