// What the fake libraries run. The order of a collective comes through memory, that of a matrix product through parameters.
struct Order {
    const unsigned* in;
    unsigned* out;
    unsigned words, add, from, to, again, unused;
};

extern "C" __global__ void collective(const Order* orders, unsigned count) {
    for (unsigned k = 0; k < count; ++k) {
        const Order o = orders[k];
        for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < o.words; i += gridDim.x * blockDim.x) {
            const unsigned v = o.in[o.from + i];
            for (unsigned n = 0; n <= o.again; ++n) *(volatile unsigned*)(o.out + o.to + i) = v + o.add;
        }
    }
}

// out[i] = a[i] * b[i] by way of the workspace.
extern "C" __global__ void product(const unsigned* a, const unsigned* b, unsigned* out, unsigned* workspace, unsigned words) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) {
        workspace[i] = a[i] * b[i];
        out[i] = workspace[i];
    }
}

extern "C" __global__ void product_batched(const unsigned* const* a, const unsigned* const* b, unsigned* const* out, unsigned words, unsigned count) {
    for (unsigned k = 0; k < count; ++k)
        for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) out[k][i] = a[k][i] * b[k][i];
}
