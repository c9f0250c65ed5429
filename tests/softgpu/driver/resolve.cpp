// cuGetProcAddress, both versions: the highest version of a base name that is at most the one asked
// for; flag 2 asks for the per-thread-default-stream variant and falls back to the plain one where a
// name has none. Also the calls about the driver itself. cuGetExportTable hands out nothing: the
// tables behind it are private, and are not imitated here.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "tests/softgpu/driver/core.hpp"
#include "tests/softgpu/driver/table.hpp"

namespace {
using softgpu::Entry;

const std::vector<const Entry*>* find(std::string_view base) {
    static const auto* const index = [] {
        auto* map = new std::unordered_map<std::string_view, std::vector<const Entry*>>;
        for (auto& e : softgpu::entries()) (*map)[e.base].push_back(&e);
        return map;
    }();
    auto found = index->find(base);
    return found == index->end() ? nullptr : &found->second;
}

CUresult resolve(const char* symbol, void** out, int version, cuuint64_t flags, CUdriverProcAddressQueryResult* result) {
    if (!symbol || !out || flags > 2) return CUDA_ERROR_INVALID_VALUE;
    *out = nullptr;
    auto answer = [&](CUdriverProcAddressQueryResult r, CUresult code) {
        if (result) *result = r;
        return code;
    };
    const auto* versions = find(symbol);
    if (!versions) return answer(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, result ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
    const Entry *plain = nullptr, *per_thread = nullptr;
    for (auto* e : *versions)
        if (e->version <= version) {
            auto& best = e->per_thread ? per_thread : plain;
            if (!best || e->version >= best->version) best = e;
        }
    const Entry* chosen = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM && per_thread ? per_thread : plain;
    if (!chosen) return answer(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, result ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
    *out = chosen->address;
    return answer(CU_GET_PROC_ADDRESS_SUCCESS, CUDA_SUCCESS);
}
}  // namespace

SOFTGPU_API cuGetProcAddress(const char* symbol, void** pfn, int version, cuuint64_t flags) {
    return resolve(symbol, pfn, version, flags, nullptr);
}

SOFTGPU_API cuGetProcAddress_v2(const char* symbol, void** pfn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult* result) {
    return resolve(symbol, pfn, version, flags, result);
}

SOFTGPU_API cuGetExportTable(const void** table, const CUuuid*) {
    if (table) *table = nullptr;
    return CUDA_ERROR_NOT_SUPPORTED;
}

SOFTGPU_API cuDriverGetVersion(int* version) {
    REQUIRE(version);
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

SOFTGPU_API cuInit(unsigned int flags) {
    REQUIRE(flags == 0);
    return softgpu::initialise();
}

SOFTGPU_API cuProfilerStart() { return CUDA_SUCCESS; }
SOFTGPU_API cuProfilerStop() { return CUDA_SUCCESS; }
