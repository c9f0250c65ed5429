// The kernels of `digits`: one source for all builds, linked as registered device code into the runtime-API programs
// and embedded as PTX into the driver-API one. Row-major matrices of float; every dimension of a matrix product is a
// multiple of 4 (each thread makes a 4 x 4 tile). No float atomics and no order that depends on scheduling, so that
// the same inputs give the same bits on the same device. Rows are `m`, columns `n`, the inner dimension `k`.

namespace {

__device__ inline int flat_thread() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline float4 load4(const float* p) { return *reinterpret_cast<const float4*>(p); }
__device__ inline void store4(float* p, float4 v) { *reinterpret_cast<float4*>(p) = v; }
__device__ inline void add_scaled(float4& to, float s, float4 v) { to.x += s * v.x; to.y += s * v.y; to.z += s * v.z; to.w += s * v.w; }
__device__ inline float dot(float4 a, float4 b, float sum) { return sum + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }

}  // namespace

extern "C" {

__global__ void gather_rows(const float* data, const int* index, float* out, int m, int n) {
  const int t = flat_thread();
  if (t < m * n) out[t] = data[index[t / n] * n + t % n];
}

__global__ void gather_labels(const int* labels, const int* index, int* out, int m) {
  const int t = flat_thread();
  if (t < m) out[t] = labels[index[t]];
}

// c[m x n] = a[m x k] b[k x n]
__global__ void matmul(const float* a, const float* b, float* c, int m, int k, int n) {
  const int t = flat_thread(), columns = n / 4;
  if (t >= m / 4 * columns) return;
  const int i = t / columns * 4, j = t % columns * 4;
  float4 r0 = {0, 0, 0, 0}, r1 = r0, r2 = r0, r3 = r0;
  const float *a0 = a + i * k, *a1 = a0 + k, *a2 = a1 + k, *a3 = a2 + k;
  for (int p = 0; p < k; p++) {
    const float4 v = load4(b + p * n + j);
    add_scaled(r0, a0[p], v);
    add_scaled(r1, a1[p], v);
    add_scaled(r2, a2[p], v);
    add_scaled(r3, a3[p], v);
  }
  float* out = c + i * n + j;
  store4(out, r0);
  store4(out + n, r1);
  store4(out + 2 * n, r2);
  store4(out + 3 * n, r3);
}

// c[m x n] = a[m x k] b[n x k]^T
__global__ void matmul_transposed(const float* a, const float* b, float* c, int m, int k, int n) {
  const int t = flat_thread(), columns = n / 4;
  if (t >= m / 4 * columns) return;
  const int i = t / columns * 4, j = t % columns * 4;
  float4 r0 = {0, 0, 0, 0}, r1 = r0, r2 = r0, r3 = r0;
  const float *a0 = a + i * k, *b0 = b + j * k;
  for (int p = 0; p < k; p += 4) {
    const float4 w0 = load4(b0 + p), w1 = load4(b0 + k + p), w2 = load4(b0 + 2 * k + p), w3 = load4(b0 + 3 * k + p);
    float4 v = load4(a0 + p);
    r0.x = dot(v, w0, r0.x); r0.y = dot(v, w1, r0.y); r0.z = dot(v, w2, r0.z); r0.w = dot(v, w3, r0.w);
    v = load4(a0 + k + p);
    r1.x = dot(v, w0, r1.x); r1.y = dot(v, w1, r1.y); r1.z = dot(v, w2, r1.z); r1.w = dot(v, w3, r1.w);
    v = load4(a0 + 2 * k + p);
    r2.x = dot(v, w0, r2.x); r2.y = dot(v, w1, r2.y); r2.z = dot(v, w2, r2.z); r2.w = dot(v, w3, r2.w);
    v = load4(a0 + 3 * k + p);
    r3.x = dot(v, w0, r3.x); r3.y = dot(v, w1, r3.y); r3.z = dot(v, w2, r3.z); r3.w = dot(v, w3, r3.w);
  }
  float* out = c + i * n + j;
  store4(out, r0);
  store4(out + n, r1);
  store4(out + 2 * n, r2);
  store4(out + 3 * n, r3);
}

// Gradients of a layer y = x w + b over the rows of one chunk (blockIdx.y): partial[chunk] = [x^T dy (k x n) | column sums of dy (n)].
__global__ void layer_gradient(const float* x, const float* dy, float* partial, int m, int k, int n, int chunk_rows) {
  const int t = flat_thread(), columns = n / 4, tiles = k / 4 * columns;
  const int first = blockIdx.y * chunk_rows, last = min(first + chunk_rows, m);
  float* out = partial + blockIdx.y * (k * n + n);
  if (t < tiles) {
    const int i = t / columns * 4, j = t % columns * 4;
    float4 r0 = {0, 0, 0, 0}, r1 = r0, r2 = r0, r3 = r0;
    for (int r = first; r < last; r++) {
      const float4 u = load4(x + r * k + i), v = load4(dy + r * n + j);
      add_scaled(r0, u.x, v);
      add_scaled(r1, u.y, v);
      add_scaled(r2, u.z, v);
      add_scaled(r3, u.w, v);
    }
    out += i * n + j;
    store4(out, r0);
    store4(out + n, r1);
    store4(out + 2 * n, r2);
    store4(out + 3 * n, r3);
  } else if (t < tiles + n) {
    float sum = 0;
    for (int r = first; r < last; r++) sum += dy[r * n + t - tiles];
    out[k * n + t - tiles] = sum;
  }
}

__global__ void sum_partials(const float* partial, float* out, int count, int chunks) {
  const int t = flat_thread();
  if (t >= count) return;
  float sum = 0;
  for (int c = 0; c < chunks; c++) sum += partial[c * count + t];
  out[t] = sum;
}

__global__ void bias_add(const float* z, const float* b, float* out, int count, int n) {
  const int t = flat_thread();
  if (t < count) out[t] = z[t] + b[t % n];
}

__global__ void bias_relu(const float* z, const float* b, float* out, int count, int n) {
  const int t = flat_thread();
  if (t < count) out[t] = fmaxf(z[t] + b[t % n], 0.0f);
}

__global__ void relu_backward(const float* dy, const float* y, float scale, float* dx, int count) {
  const int t = flat_thread();
  if (t < count) dx[t] = y[t] > 0.0f ? scale * dy[t] : 0.0f;
}

__global__ void residual_add(const float* x, const float* branch, float scale, float* out, int count) {
  const int t = flat_thread();
  if (t < count) out[t] = x[t] + scale * branch[t];
}

// Layer normalisation of each row, without affine part; stats = [mean (m) | 1 / deviation (m)].
__global__ void norm_forward(const float* x, float* y, float* stats, int m, int n) {
  const int row = flat_thread();
  if (row >= m) return;
  const float* in = x + row * n;
  float sum = 0;
  for (int j = 0; j < n; j++) sum += in[j];
  const float mean = sum / n;
  float square = 0;
  for (int j = 0; j < n; j++) square += (in[j] - mean) * (in[j] - mean);
  const float scale = 1.0f / sqrtf(square / n + 1e-5f);
  for (int j = 0; j < n; j++) y[row * n + j] = (in[j] - mean) * scale;
  stats[row] = mean;
  stats[m + row] = scale;
}

// dx = skip + the gradient of norm_forward; skip may be null.
__global__ void norm_backward(const float* dy, const float* x, const float* stats, const float* skip, float* dx, int m, int n) {
  const int row = flat_thread();
  if (row >= m) return;
  const float *in = x + row * n, *g = dy + row * n;
  const float mean = stats[row], scale = stats[m + row];
  float sum = 0, product = 0;
  for (int j = 0; j < n; j++) {
    sum += g[j];
    product += g[j] * ((in[j] - mean) * scale);
  }
  sum /= n;
  product /= n;
  for (int j = 0; j < n; j++) {
    const float d = scale * (g[j] - sum - (in[j] - mean) * scale * product);
    dx[row * n + j] = skip ? skip[row * n + j] + d : d;
  }
}

// The first `classes` of n columns are logits; the gradient of the mean loss goes to all n (0 past the classes).
__global__ void softmax_cross_entropy(const float* logits, const int* labels, float* gradient, float* row_loss, int m, int n, int classes) {
  const int row = flat_thread();
  if (row >= m) return;
  const float* in = logits + row * n;
  float top = in[0];
  for (int j = 1; j < classes; j++) top = fmaxf(top, in[j]);
  float sum = 0;
  for (int j = 0; j < classes; j++) sum += expf(in[j] - top);
  row_loss[row] = logf(sum) + top - in[labels[row]];
  for (int j = 0; j < n; j++)
    gradient[row * n + j] = j < classes ? (expf(in[j] - top) / sum - (j == labels[row] ? 1.0f : 0.0f)) / m : 0.0f;
}

// One block of 256 threads: strided sums, then a tree in shared memory.
__global__ void mean_loss(const float* row_loss, float* out, int m) {
  __shared__ float sums[256];
  float sum = 0;
  for (int r = threadIdx.x; r < m; r += 256) sum += row_loss[r];
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) *out = sums[0] / m;
}

// Adds the number of rows whose largest logit is the label's.
__global__ void count_correct(const float* logits, const int* labels, int* correct, int m, int n, int classes) {
  const int row = flat_thread();
  if (row >= m) return;
  int best = 0;
  for (int j = 1; j < classes; j++)
    if (logits[row * n + j] > logits[row * n + best]) best = j;
  if (best == labels[row]) atomicAdd(correct, 1);
}

// Optimisers; hyper = {rate, momentum or beta1, beta2, epsilon, 1 - beta1^t, 1 - beta2^t}.
__global__ void sgd_update(float* w, const float* g, const float* hyper, int count) {
  const int t = flat_thread();
  if (t < count) w[t] -= hyper[0] * g[t];
}

__global__ void momentum_update(float* w, const float* g, float* velocity, const float* hyper, int count) {
  const int t = flat_thread();
  if (t >= count) return;
  const float v = hyper[1] * velocity[t] + g[t];
  velocity[t] = v;
  w[t] -= hyper[0] * v;
}

__global__ void adam_update(float* w, const float* g, float* first, float* second, const float* hyper, int count) {
  const int t = flat_thread();
  if (t >= count) return;
  const float m = hyper[1] * first[t] + (1.0f - hyper[1]) * g[t];
  const float v = hyper[2] * second[t] + (1.0f - hyper[2]) * g[t] * g[t];
  first[t] = m;
  second[t] = v;
  w[t] -= hyper[0] * (m / hyper[4]) / (sqrtf(v / hyper[5]) + hyper[3]);
}

}  // extern "C"
