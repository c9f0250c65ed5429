// What the fake libraries run. The order of a collective comes through memory, that of a matrix product through parameters.
struct Order {
    const unsigned* in;
    unsigned* out;
    unsigned words, add, from, to, again, channel_words;
    unsigned* channel;  // the communicator's own device memory: what is sent passes through it
};

extern "C" __global__ void collective(const Order* orders, unsigned count) {
    for (unsigned k = 0; k < count; ++k) {
        const Order o = orders[k];
        for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < o.words; i += gridDim.x * blockDim.x) {
            volatile unsigned* const channel = o.channel + i % o.channel_words;
            *channel = o.in[o.from + i];
            const unsigned v = *channel;
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

// A convolution in two kernels, by way of the middle of the program's workspace; the addresses lie inside one structure.
struct Tile {
    unsigned words, stride;
    const unsigned* x;
    const unsigned* w;
    unsigned* y;
    unsigned* workspace;
};
extern "C" __global__ void convolve_gather(Tile t) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < t.words; i += gridDim.x * blockDim.x) t.workspace[i] = t.x[(i * t.stride + 1) % t.words];
}
extern "C" __global__ void convolve_multiply(Tile t) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < t.words; i += gridDim.x * blockDim.x) t.y[i] = t.workspace[i] * t.w[i % 64] + t.y[i];
}

// A sum by way of memory that the library allocates for itself; the result goes to the program's buffer and to the library's pinned word.
extern "C" __global__ void reduce(const unsigned* x, unsigned words, unsigned* own, unsigned* out, volatile unsigned* told) {
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) own[i] = x[i] ^ i;
    __syncthreads();
    if (threadIdx.x) return;
    unsigned sum = 0;
    for (unsigned i = 0; i < words; ++i) sum += own[i];
    out[0] += sum;
    *told = sum;
}

// A transform in two kernels that are given a plan in device memory; where the work area is stands in it.
struct Plan {
    unsigned* area;
    unsigned words, unused;
};
extern "C" __global__ void transform_out(const Plan* plan, const unsigned* in) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < plan->words; i += gridDim.x * blockDim.x) plan->area[i] = in[i] * 3 + 1;
}
extern "C" __global__ void transform_back(const Plan* plan, unsigned* out) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < plan->words; i += gridDim.x * blockDim.x) out[i] = plan->area[plan->words - 1 - i];
}
