// y[i] = sum over j < length of x[i + j] * w[j], indices modulo the sizes: count * length multiply-adds.
extern "C" __global__ void dot(const float* x, unsigned xs, const float* w, unsigned ws, float* y, unsigned count, unsigned length) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    float sum = 0;
    for (unsigned j = 0; j < length; j++) sum += x[(i + j) % xs] * w[j % ws];
    y[i] = sum;
  }
}
extern "C" __global__ void clear(float* y, unsigned count) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) y[i] = 0;
}
