// Names and texts of the driver API's results.
#include <unordered_map>

#include "tests/softgpu/driver/core.hpp"

namespace {
struct Text {
    const char *name, *meaning;
};
const Text* find(CUresult code) {
#define RESULT(name, meaning) {name, {#name, meaning}},
    static const auto* const all = new std::unordered_map<int, Text>{
        RESULT(CUDA_SUCCESS, "no error")
        RESULT(CUDA_ERROR_INVALID_VALUE, "invalid argument")
        RESULT(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")
        RESULT(CUDA_ERROR_NOT_INITIALIZED, "initialization error")
        RESULT(CUDA_ERROR_DEINITIALIZED, "deinitialized")
        RESULT(CUDA_ERROR_PROFILER_DISABLED, "profiler disabled")
        RESULT(CUDA_ERROR_PROFILER_NOT_INITIALIZED, "profiler not initialized")
        RESULT(CUDA_ERROR_PROFILER_ALREADY_STARTED, "profiler already started")
        RESULT(CUDA_ERROR_PROFILER_ALREADY_STOPPED, "profiler already stopped")
        RESULT(CUDA_ERROR_STUB_LIBRARY, "stub library")
        RESULT(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, "call requires newer driver")
        RESULT(CUDA_ERROR_DEVICE_UNAVAILABLE, "device unavailable")
        RESULT(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected")
        RESULT(CUDA_ERROR_INVALID_DEVICE, "invalid device")
        RESULT(CUDA_ERROR_DEVICE_NOT_LICENSED, "device not licensed")
        RESULT(CUDA_ERROR_INVALID_IMAGE, "invalid image")
        RESULT(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")
        RESULT(CUDA_ERROR_CONTEXT_ALREADY_CURRENT, "context already current")
        RESULT(CUDA_ERROR_MAP_FAILED, "map failed")
        RESULT(CUDA_ERROR_UNMAP_FAILED, "unmap failed")
        RESULT(CUDA_ERROR_ARRAY_IS_MAPPED, "array is mapped")
        RESULT(CUDA_ERROR_ALREADY_MAPPED, "already mapped")
        RESULT(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device")
        RESULT(CUDA_ERROR_ALREADY_ACQUIRED, "already acquired")
        RESULT(CUDA_ERROR_NOT_MAPPED, "not mapped")
        RESULT(CUDA_ERROR_NOT_MAPPED_AS_ARRAY, "not mapped as array")
        RESULT(CUDA_ERROR_NOT_MAPPED_AS_POINTER, "not mapped as pointer")
        RESULT(CUDA_ERROR_ECC_UNCORRECTABLE, "ecc uncorrectable")
        RESULT(CUDA_ERROR_UNSUPPORTED_LIMIT, "unsupported limit")
        RESULT(CUDA_ERROR_CONTEXT_ALREADY_IN_USE, "context already in use")
        RESULT(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access unsupported")
        RESULT(CUDA_ERROR_INVALID_PTX, "invalid ptx")
        RESULT(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT, "invalid graphics context")
        RESULT(CUDA_ERROR_NVLINK_UNCORRECTABLE, "nvlink uncorrectable")
        RESULT(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "jit compiler not found")
        RESULT(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "unsupported ptx version")
        RESULT(CUDA_ERROR_JIT_COMPILATION_DISABLED, "jit compilation disabled")
        RESULT(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "unsupported exec affinity")
        RESULT(CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC, "unsupported devside sync")
        RESULT(CUDA_ERROR_CONTAINED, "contained")
        RESULT(CUDA_ERROR_INVALID_SOURCE, "invalid source")
        RESULT(CUDA_ERROR_FILE_NOT_FOUND, "file not found")
        RESULT(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "shared object symbol not found")
        RESULT(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "shared object init failed")
        RESULT(CUDA_ERROR_OPERATING_SYSTEM, "operating system")
        RESULT(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")
        RESULT(CUDA_ERROR_ILLEGAL_STATE, "illegal state")
        RESULT(CUDA_ERROR_LOSSY_QUERY, "lossy query")
        RESULT(CUDA_ERROR_NOT_FOUND, "named symbol not found")
        RESULT(CUDA_ERROR_NOT_READY, "device not ready")
        RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")
        RESULT(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "launch out of resources")
        RESULT(CUDA_ERROR_LAUNCH_TIMEOUT, "launch timeout")
        RESULT(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING, "launch incompatible texturing")
        RESULT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access already enabled")
        RESULT(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access not enabled")
        RESULT(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "primary context active")
        RESULT(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")
        RESULT(CUDA_ERROR_ASSERT, "assert")
        RESULT(CUDA_ERROR_TOO_MANY_PEERS, "too many peers")
        RESULT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "host memory already registered")
        RESULT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "host memory not registered")
        RESULT(CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error")
        RESULT(CUDA_ERROR_ILLEGAL_INSTRUCTION, "illegal instruction")
        RESULT(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address")
        RESULT(CUDA_ERROR_INVALID_ADDRESS_SPACE, "invalid address space")
        RESULT(CUDA_ERROR_INVALID_PC, "invalid pc")
        RESULT(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")
        RESULT(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "cooperative launch too large")
        RESULT(CUDA_ERROR_TENSOR_MEMORY_LEAK, "tensor memory leak")
        RESULT(CUDA_ERROR_NOT_PERMITTED, "not permitted")
        RESULT(CUDA_ERROR_NOT_SUPPORTED, "operation not supported")
        RESULT(CUDA_ERROR_SYSTEM_NOT_READY, "system not ready")
        RESULT(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system driver mismatch")
        RESULT(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "compat not supported on device")
        RESULT(CUDA_ERROR_MPS_CONNECTION_FAILED, "mps connection failed")
        RESULT(CUDA_ERROR_MPS_RPC_FAILURE, "mps rpc failure")
        RESULT(CUDA_ERROR_MPS_SERVER_NOT_READY, "mps server not ready")
        RESULT(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, "mps max clients reached")
        RESULT(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED, "mps max connections reached")
        RESULT(CUDA_ERROR_MPS_CLIENT_TERMINATED, "mps client terminated")
        RESULT(CUDA_ERROR_CDP_NOT_SUPPORTED, "cdp not supported")
        RESULT(CUDA_ERROR_CDP_VERSION_MISMATCH, "cdp version mismatch")
        RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "stream capture unsupported")
        RESULT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "stream capture invalidated")
        RESULT(CUDA_ERROR_STREAM_CAPTURE_MERGE, "stream capture merge")
        RESULT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "stream capture unmatched")
        RESULT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "stream capture unjoined")
        RESULT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "stream capture isolation")
        RESULT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "stream capture implicit")
        RESULT(CUDA_ERROR_CAPTURED_EVENT, "captured event")
        RESULT(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "stream capture wrong thread")
        RESULT(CUDA_ERROR_TIMEOUT, "timeout")
        RESULT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "graph exec update failure")
        RESULT(CUDA_ERROR_EXTERNAL_DEVICE, "external device")
        RESULT(CUDA_ERROR_INVALID_CLUSTER_SIZE, "invalid cluster size")
        RESULT(CUDA_ERROR_FUNCTION_NOT_LOADED, "function not loaded")
        RESULT(CUDA_ERROR_INVALID_RESOURCE_TYPE, "invalid resource type")
        RESULT(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "invalid resource configuration")
        RESULT(CUDA_ERROR_KEY_ROTATION, "key rotation")
        RESULT(CUDA_ERROR_UNKNOWN, "unknown")
    };
#undef RESULT
    auto it = all->find(code);
    return it == all->end() ? nullptr : &it->second;
}
}  // namespace

SOFTGPU_API cuGetErrorName(CUresult code, const char** out) {
    REQUIRE(out);
    const Text* t = find(code);
    *out = t ? t->name : nullptr;
    return t ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SOFTGPU_API cuGetErrorString(CUresult code, const char** out) {
    REQUIRE(out);
    const Text* t = find(code);
    *out = t ? t->meaning : nullptr;
    return t ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
