// Stream-ordered memory; see pool.cpp.
#pragma once
#include "tests/softgpu/driver/context.hpp"

namespace softgpu {
// Gives back what pools of a device keep for later, after waiting for pending frees. True if there was any.
bool release_unused_pool_memory(int device);
// cuMemFree of pool memory: does not wait for streams.
CUresult pool_free_now(Address a);
// Of a device's default pool, for graphs: it counts from when it is held (memory.hpp).
CUresult pool_allocate_now(CUcontext context, int device, std::uint64_t bytes, Address* out);
}  // namespace softgpu
