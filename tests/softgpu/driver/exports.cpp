// The twins of every entry point that uses a stream: NAME, whose NULL stream is the legacy one, and
// NAME_ptsz / NAME_ptds, whose NULL stream is the calling thread's.
#include "tests/softgpu/driver/streams.hpp"

#define PREPEND(d, ...) (d, __VA_ARGS__)
#define PREPEND_LEGACY(...) (softgpu::Default::legacy, __VA_ARGS__)
#define PREPEND_THREAD(...) (softgpu::Default::per_thread, __VA_ARGS__)
#define STREAMED(name, suffix, parameters, arguments)                                \
    SOFTGPU_API name parameters { return impl_##name PREPEND_LEGACY arguments; }     \
    SOFTGPU_API name##suffix parameters { return impl_##name PREPEND_THREAD arguments; }
#include "tests/softgpu/driver/streams.def"
