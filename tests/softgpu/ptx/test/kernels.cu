// Kernels for the translator's tests, in plain CUDA C++ as anybody writes it.
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdio.h>

#include "shared_math.hpp"

namespace cg = cooperative_groups;

__device__ int counter = 5;
__device__ float field[64];
__constant__ float weights[8] = {1, 2, 3, 4, 5, 6, 7, 8};
__device__ float* pointer_to_field = field + 3;

template <class T>
__device__ void integers(const T* a, const T* b, const T* c, T* out, int n, int stride) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) integer_results<T>(a[i], b[i], c[i], out + i * stride);
}
#define INTEGERS(name, T) \
    extern "C" __global__ void name(const T* a, const T* b, const T* c, T* out, int n, int stride) { integers<T>(a, b, c, out, n, stride); }
INTEGERS(ints_s8, int8_t) INTEGERS(ints_u8, uint8_t) INTEGERS(ints_s16, int16_t) INTEGERS(ints_u16, uint16_t)
INTEGERS(ints_s32, int32_t) INTEGERS(ints_u32, uint32_t) INTEGERS(ints_s64, int64_t) INTEGERS(ints_u64, uint64_t)

template <class T>
__device__ void floats(const T* a, const T* b, const T* c, T* out, int n, int stride) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) float_results<T>(a[i], b[i], c[i], out + i * stride);
}
extern "C" __global__ void floats_f32(const float* a, const float* b, const float* c, float* out, int n, int stride) { floats(a, b, c, out, n, stride); }
extern "C" __global__ void floats_f64(const double* a, const double* b, const double* c, double* out, int n, int stride) { floats(a, b, c, out, n, stride); }

extern "C" __global__ void converts(const double* a, const int64_t* l, double* out32, double* out64, int n, int stride) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    convert_results<float>((float)a[i], (int32_t)l[i], (uint32_t)l[i], l[i], (uint64_t)l[i], out32 + i * stride);
    convert_results<double>(a[i], (int32_t)l[i], (uint32_t)l[i], l[i], (uint64_t)l[i], out64 + i * stride);
}

// Directed rounding and saturation.
extern "C" __global__ void rounding(const float* a, const float* b, const double* d, const double* e, float* f, double* g, int* h, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    f += i * 20, g += i * 16, h += i * 12;
    f[0] = __fadd_rz(a[i], b[i]), f[1] = __fadd_rd(a[i], b[i]), f[2] = __fadd_ru(a[i], b[i]);
    f[3] = __fmul_rz(a[i], b[i]), f[4] = __fmul_rd(a[i], b[i]), f[5] = __fmul_ru(a[i], b[i]);
    f[6] = __fmaf_rz(a[i], b[i], a[i]), f[7] = __fmaf_rd(a[i], b[i], -b[i]), f[8] = __fmaf_ru(a[i], b[i], b[i]);
    f[9] = __fdiv_rz(a[i], b[i]), f[10] = __fdiv_rd(a[i], b[i]), f[11] = __fdiv_ru(a[i], b[i]);
    f[12] = __fsqrt_rz(fabsf(a[i])), f[13] = __fsqrt_rd(fabsf(a[i])), f[14] = __fsqrt_ru(fabsf(a[i]));
    f[15] = __double2float_rz(d[i]), f[16] = __double2float_rd(d[i]), f[17] = __double2float_ru(d[i]);
    f[18] = __saturatef(a[i]), f[19] = __fsub_rd(a[i], b[i]);
    g[0] = __dadd_rz(d[i], e[i]), g[1] = __dadd_rd(d[i], e[i]), g[2] = __dadd_ru(d[i], e[i]);
    g[3] = __dmul_rz(d[i], e[i]), g[4] = __dmul_rd(d[i], e[i]), g[5] = __dmul_ru(d[i], e[i]);
    g[6] = __fma_rz(d[i], e[i], d[i]), g[7] = __fma_rd(d[i], e[i], -e[i]), g[8] = __fma_ru(d[i], e[i], e[i]);
    g[9] = __ddiv_rz(d[i], e[i]), g[10] = __ddiv_rd(d[i], e[i]), g[11] = __ddiv_ru(d[i], e[i]);
    g[12] = __dsqrt_rz(fabs(d[i])), g[13] = __dsqrt_rd(fabs(d[i])), g[14] = __dsqrt_ru(fabs(d[i])), g[15] = __ll2double_rz((long long)(d[i] * 1e15) | 1);
    h[0] = __float2int_rn(a[i]), h[1] = __float2int_rz(a[i]), h[2] = __float2int_ru(a[i]), h[3] = __float2int_rd(a[i]);
    h[4] = __double2int_rn(d[i]), h[5] = __double2int_ru(d[i]);
    h[6] = __float2int_rz(a[i] * 1e20f), h[7] = (int)__float2uint_rz(a[i] * 1e20f), h[8] = __float2int_rz(nanf("")), h[9] = __double2int_rz(d[i] * 1e300);
    h[10] = __float_as_int(__int2float_rz(__float_as_int(a[i]))), h[11] = __float_as_int(__uint2float_ru(__float_as_uint(a[i])));
}

extern "C" __global__ void bits(const unsigned* a, const unsigned long long* b, unsigned* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned x = a[i], y = (unsigned)b[i];
    const unsigned long long w = b[i];
    unsigned* o = out + i * 24;
    o[0] = __popc(x), o[1] = __popcll(w), o[2] = __clz(x), o[3] = __clzll(w), o[4] = __brev(x), o[5] = (unsigned)(__brevll(w) >> 32);
    o[6] = __ffs(x), o[7] = __ffsll(w), o[8] = __byte_perm(x, y, 0x5410), o[9] = __byte_perm(x, y, w & 0xffff);
    o[10] = __funnelshift_l(x, y, w & 63), o[11] = __funnelshift_r(x, y, w & 63), o[12] = __umulhi(x, y), o[13] = __mulhi((int)x, (int)y);
    o[14] = (unsigned)__umul64hi(w, w * 3), o[15] = (unsigned)__mul64hi((long long)w, (long long)x * -5), o[16] = __sad((int)x, (int)y, 5u), o[17] = __usad(x, y, 9u);
    o[18] = __mul24((int)x, (int)y), o[19] = __umul24(x, y), o[20] = __dp4a((int)x, (int)y, 3), o[21] = __dp4a(x, y, 3u);
    unsigned r;
    asm("bfe.u32 %0, %1, 5, 11;" : "=r"(r) : "r"(x));
    o[22] = r;
    asm("{ .reg .pred p; lop3.b32 %0, %1, %2, 0xff00ff00, 0xe8; }" : "=r"(r) : "r"(x), "r"(y));
    o[23] = r;
}

// 128-bit products through carries.
extern "C" __global__ void wide_product(const unsigned long long* a, const unsigned long long* b, unsigned long long* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned r0, r1, r2, r3;
    const unsigned a0 = (unsigned)a[i], a1 = (unsigned)(a[i] >> 32), b0 = (unsigned)b[i], b1 = (unsigned)(b[i] >> 32);
    asm("{ mul.lo.u32 %0, %4, %6;\n mul.hi.u32 %1, %4, %6;\n mad.lo.cc.u32 %1, %4, %7, %1;\n madc.hi.u32 %2, %4, %7, 0;\n"
        "mad.lo.cc.u32 %1, %5, %6, %1;\n madc.hi.cc.u32 %2, %5, %6, %2;\n addc.u32 %3, 0, 0;\n mad.lo.cc.u32 %2, %5, %7, %2;\n madc.hi.u32 %3, %5, %7, %3; }"
        : "=&r"(r0), "=&r"(r1), "=&r"(r2), "=&r"(r3) : "r"(a0), "r"(a1), "r"(b0), "r"(b1));
    out[2 * i] = r0 | (unsigned long long)r1 << 32, out[2 * i + 1] = r2 | (unsigned long long)r3 << 32;
}

extern "C" __global__ void math32(const float* a, const float* b, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float x = a[i], y = fabsf(b[i]) + 0.01f;
    float* o = out + i * 20;
    o[0] = expf(x), o[1] = logf(y), o[2] = sinf(x), o[3] = cosf(x), o[4] = tanhf(x), o[5] = powf(y, x), o[6] = sqrtf(y), o[7] = rsqrtf(y);
    o[8] = erff(x), o[9] = exp2f(x), o[10] = log2f(y), o[11] = log1pf(y), o[12] = expm1f(x), o[13] = atan2f(x, y), o[14] = tanf(x), o[15] = cbrtf(x);
    o[16] = fmodf(x, y), o[17] = lgammaf(y), o[18] = sinf(x * 1e6f), o[19] = asinf(x / (fabsf(x) + 1));
}
extern "C" __global__ void math64(const double* a, const double* b, double* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const double x = a[i], y = fabs(b[i]) + 0.01;
    double* o = out + i * 16;
    o[0] = exp(x), o[1] = log(y), o[2] = sin(x), o[3] = cos(x), o[4] = tanh(x), o[5] = pow(y, x), o[6] = sqrt(y), o[7] = rsqrt(y);
    o[8] = erf(x), o[9] = exp2(x), o[10] = log2(y), o[11] = sin(x * 1e8), o[12] = atan2(x, y), o[13] = cbrt(x), o[14] = fmod(x, y), o[15] = lgamma(y);
}

extern "C" __global__ void halves(const float* a, const float* b, unsigned short* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const __half x = __float2half(a[i]), y = __float2half(b[i]);
    const __nv_bfloat16 p = __float2bfloat16(a[i]), q = __float2bfloat16(b[i]);
    __half* h = (__half*)(out + i * 20);
    __nv_bfloat16* g = (__nv_bfloat16*)(h + 12);
    h[0] = x, h[1] = x + y, h[2] = x - y, h[3] = x * y, h[4] = __hfma(x, y, x), h[5] = x < y ? x : y, h[6] = __float2half_rz(a[i]);
    const __half2 v = __halves2half2(x, y), w = __hmul2(v, __half2half2(y));
    h[7] = __low2half(w), h[8] = __high2half(w), h[9] = -x, h[10] = __int2half_rn((int)(a[i] * 100)), h[11] = (__half)(float)(short)__half2int_rz(x);
    g[0] = p, g[1] = p + q, g[2] = p * q, g[3] = p * q + p, g[4] = p < q ? p : q, g[5] = __float2bfloat16_rz(a[i]), g[6] = p - q, g[7] = -p;
}

extern "C" __global__ void block_sum(const float* in, float* out, int n) {
    __shared__ float s[256];
    const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int o = blockDim.x / 2; o > 0; o >>= 1) {
        if (t < o) s[t] += s[t + o];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}

extern "C" __global__ void dynamic_reverse(int* data) {
    extern __shared__ int s[];
    const int t = threadIdx.x, n = blockDim.x;
    s[t] = data[blockIdx.x * n + t];
    __syncthreads();
    data[blockIdx.x * n + t] = s[n - 1 - t];
}

extern "C" __global__ void matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float x[16][16], y[16][16];
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        x[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        y[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + col];
        __syncthreads();
        for (int j = 0; j < 16; ++j) sum = fmaf(x[threadIdx.y][j], y[j][threadIdx.x], sum);
        __syncthreads();
    }
    c[row * n + col] = sum;
}

extern "C" __global__ void warps(const int* in, int* out) {
    const int t = threadIdx.x, v = in[t];
    int* o = out + t * 20;
    o[0] = __shfl_sync(~0u, v, 5), o[1] = __shfl_up_sync(~0u, v, 3), o[2] = __shfl_down_sync(~0u, v, 7, 16), o[3] = __shfl_xor_sync(~0u, v, 9);
    o[4] = __shfl_sync(~0u, v, t + 1, 8), o[5] = __ballot_sync(~0u, v & 1), o[6] = __any_sync(~0u, v > 90), o[7] = __all_sync(~0u, v > -1);
    o[8] = __match_any_sync(~0u, v % 5);
    int pred = 0;
    o[9] = __match_all_sync(~0u, t == 40, &pred), o[10] = pred;
    float f = (float)v;
    for (int k = 16; k; k >>= 1) f += __shfl_xor_sync(~0u, f, k);
    o[11] = (int)f;
    if (t % 3 == 0) o[12] = __activemask() ;
    else o[12] = -(int)__popc(__activemask());
    __syncwarp();
    o[13] = (t & 1) ? __ballot_sync(0xaaaaaaaau, v & 2) : __ballot_sync(0x55555555u, v & 4);
    o[14] = __syncthreads_count(v & 1), o[15] = __syncthreads_and(v < 99), o[16] = __syncthreads_or(v == 50);
    const long long wide = (long long)v << 33;
    o[17] = (int)(__shfl_down_sync(~0u, wide, 1) >> 33);
    o[18] = __shfl_down_sync(~0u, v, 30), o[19] = (int)(threadIdx.x & 31) == __ffs(__activemask()) - 1;
}

extern "C" __global__ void atomics(int* i, unsigned* u, unsigned long long* l, float* f, double* d, int* order) {
    const unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&i[0], (int)t), atomicSub(&i[1], 3), atomicMin(&i[2], -(int)t), atomicMax(&i[3], (int)t), atomicAnd(&i[4], ~(1 << (t & 31)) | 0x70000000);
    atomicOr(&i[5], 1 << (t & 31)), atomicXor(&i[6], (int)t), order[t] = atomicAdd(&i[7], 1);
    atomicInc(&u[0], 9), atomicDec(&u[1], 6), atomicMin(&u[2], 7 + t), atomicMax(&u[3], t), atomicExch(&u[4], t), atomicCAS(&u[5], t, t + 1);
    atomicAdd(&l[0], (unsigned long long)t << 20), atomicMax(&l[1], (unsigned long long)t * 3), atomicCAS(&l[2], t, (unsigned long long)t + 1), atomicExch(&l[3], t);
    atomicAdd(&f[0], 0.1f * t), atomicAdd(&d[0], 0.1 * t);
    float old = f[1], seen;  // a maximum by compare and swap
    do {
        seen = old;
        old = __int_as_float(atomicCAS((int*)&f[1], __float_as_int(seen), __float_as_int(fmaxf(seen, (float)t))));
    } while (__float_as_int(old) != __float_as_int(seen));
    __shared__ int s[2];
    if (threadIdx.x < 2) s[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&s[0], 1), atomicMax(&s[1], (int)t);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&i[8], s[0] * s[1]);
    atomicAdd((__half2*)&u[6], __floats2half2_rn(1, 2));
}

extern "C" __global__ void globals(float* out) {
    const int t = threadIdx.x;
    field[t] = weights[t & 7] * t;
    out[t] = pointer_to_field == field + 3 ? field[t] : -1;
    if (t == 0) out[63] = (float)atomicAdd(&counter, 1);
}

struct Nested { char tag; short pair[3]; double value; float tail[5]; };
__device__ __noinline__ float use(Nested n, const float* p, int k) { return n.tag + n.pair[k % 3] + (float)n.value + n.tail[k % 5] + p[k & 1]; }
__device__ __noinline__ int factorial(int n) { return n < 2 ? 1 : n * factorial(n - 1); }
extern "C" __global__ void structs(Nested n, float* out, int count) {
    const int t = threadIdx.x;
    float local[16];
    for (int k = 0; k < 16; ++k) local[k] = k * t + count;
    const float two[2] = {(float)t, n.tail[0]};
    out[t] = use(n, two, t) + local[(t * 7) % 16];
    if (t == 3) out[t] += factorial(5);
}

typedef float (*Unary)(float);
__device__ float twice(float x) { return 2 * x; }
__device__ float square(float x) { return x * x; }
__device__ Unary table[2] = {twice, square};
struct Shape { __device__ virtual float area(float x) const { return x; } };
struct Disc : Shape { float k; __device__ Disc(float v) : k(v) {} __device__ float area(float x) const override { return k * x * x; } };
extern "C" __global__ void pointers(float* out, int which) {
    Shape plain;
    Disc disc(3.5f);
    const Shape* s = (which + threadIdx.x) & 1 ? (const Shape*)&disc : &plain;
    out[threadIdx.x] = table[(which + threadIdx.x) % 2](threadIdx.x) + s->area(2);
}

__device__ __noinline__ float block_total(float x, float* s) {
    s[threadIdx.x] = x;
    __syncthreads();
    float sum = 0;
    for (unsigned k = 0; k < blockDim.x; ++k) sum += s[k];
    __syncthreads();
    return sum;
}
extern "C" __global__ void called_barrier(float* out) {
    __shared__ float s[64];
    const float a = block_total((float)threadIdx.x, s);
    float b = 0;
    if (blockIdx.x == 1) b = block_total(a + threadIdx.x, s);
    out[blockIdx.x * blockDim.x + threadIdx.x] = a * 1000 + b;
}

extern "C" __global__ void grid3(int* out, int depth) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z * blockDim.z + threadIdx.z;
    const int w = gridDim.x * blockDim.x, h = gridDim.y * blockDim.y;
    if (z < depth) out[(z * h + y) * w + x] = x + 100 * y + 10000 * z;
}

extern "C" __global__ void early_exit(int* out) {
    if (threadIdx.x >= 20) return;
    __syncthreads();
    out[threadIdx.x] = __popc(__activemask()) + (int)threadIdx.x;
    __syncthreads();
}

extern "C" __global__ void switches(const int* in, int* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int r = 0;
    for (int k = 0; k < in[i]; ++k) {
        switch ((in[i] + k) % 9) {
            case 0: r += 3; break;
            case 1: r ^= k; break;
            case 2: r = r * 5 + 1; break;
            case 3: r -= k; break;
            case 4: if (r > 100) goto done; r += 50; break;
            case 5: continue;
            case 7: r |= 1; break;
            default: r += in[(i + k) % n];
        }
    }
done:
    out[i] = r;
}

extern "C" __global__ void grid_sync(int* data, int* out) {
    cg::grid_group g = cg::this_grid();
    const int t = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    data[t] = t * 3;
    g.sync();
    out[t] = data[n - 1 - t];
    g.sync();
    data[t] = out[(t + 1) % n];
}

extern "C" __global__ void spin_lock(int* lock, int* value) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();
        *value = *value * 2 + 1;
        __threadfence();
        atomicExch(lock, 0);
    }
    __syncthreads();
}

extern "C" __global__ void last_block(const float* in, float* partial, unsigned* tickets, float* out) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = in[blockIdx.x] * 2;
        __threadfence();
        last = atomicInc(tickets, gridDim.x) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float s = 0;
        for (unsigned k = 0; k < gridDim.x; ++k) s += ((volatile float*)partial)[k];
        *out = s;
    }
}

extern "C" __global__ void prints(int n) {
    if (threadIdx.x == 0) printf("n %d, %s, %.3f %5u|%lld\n", n, "text", 1.5, 7u, -5000000000ll);
}

extern "C" __global__ void traps(int* out, int n) {
    out[threadIdx.x] = 1;
    if ((int)threadIdx.x == n) __trap();
}

extern "C" __global__ void vectors(const float4* in, float4* out, const double2* d, double2* e, const uchar4* u, uchar4* v, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float4 x = in[i];
    out[i] = make_float4(x.w, x.z, x.y, x.x);
    e[i] = make_double2(d[i].y, d[i].x);
    v[i] = make_uchar4(u[i].w, u[i].z, u[i].y, u[i].x);
}
