// Kernels with known parameters, compiled into every form of image that the parser reads.
#include <cstdint>
__device__ std::uint32_t counter[3];   // machine code with a section of variables
struct Pair {
    double* at;
    int n;
    char tag;
};
struct Big {
    float weights[700];
};
extern "C" __global__ void none() {}
extern "C" __global__ void plain(float* a, const float* b, int n) { a[0] = b[n]; }
extern "C" __global__ void mixed(char c, Pair p, std::uint16_t h, void* q, bool last) {
    if (last) p.at[p.n] = c + h + (q != nullptr);
}
extern "C" __global__ void large(Big x, Big y, float* out) { out[0] = x.weights[1] + y.weights[2]; }
