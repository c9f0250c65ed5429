// The per-thread-default-stream forms (_ptds, _ptsz) of everything in ordered.cpp.
#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1
#include "tests/softgpu/cudart/ordered.cpp"
