// Expressions that the device kernels and the host oracle share: the same source, compiled by nvcc to
// PTX (no contraction) and by the host's compiler. Each FOR_* list names one output slot a line.
#pragma once

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define HD __host__ __device__ inline
#else
#define HD inline
#endif

// Integer expressions of a and b (b is never 0 where it divides).
template <class T>
HD int integer_results(T a, T b, T c, T* out) {
    int n = 0;
    const T d = b ? b : (T)7;
    out[n++] = (T)(a + b);
    out[n++] = (T)(a - b);
    out[n++] = (T)(a * b);
    out[n++] = (T)(a * b + c);
    out[n++] = (T)(a / d);
    out[n++] = (T)(a % d);
    out[n++] = (T)(a & b);
    out[n++] = (T)(a | b);
    out[n++] = (T)(a ^ b);
    out[n++] = (T)(~a);
    out[n++] = (T)(-a);
    out[n++] = (T)(a << (b & 7));
    out[n++] = (T)(a >> (b & 7));
    out[n++] = a < b ? a : b;
    out[n++] = a > b ? a : b;
    out[n++] = (T)(a < b) + (T)((a <= c) << 1) + (T)((a > c) << 2) + (T)((a == b) << 3) + (T)((a != c) << 4);
    out[n++] = (T)(int8_t)a;
    out[n++] = (T)(uint8_t)b;
    out[n++] = (T)(int16_t)a;
    out[n++] = (T)(uint16_t)b;
    out[n++] = (T)(int32_t)a;
    out[n++] = (T)(int64_t)(a * c);
    out[n++] = (T)(a / (T)10);
    out[n++] = (T)(a % (T)10);
    out[n++] = (T)((a >> 1) * (T)3 + (b << 1));
    return n;
}

template <class T>
HD int float_results(T a, T b, T c, T* out) {
    int n = 0;
    out[n++] = a + b;
    out[n++] = a - b;
    out[n++] = a * b;
    out[n++] = a / b;
    out[n++] = a * b + c;
    out[n++] = (T)fma((T)a, (T)b, (T)c);
    out[n++] = (T)sqrt((T)fabs(a));
    out[n++] = -a;
    out[n++] = (T)fabs(b);
    out[n++] = (T)fmin(a, b);
    out[n++] = (T)fmax(a, b);
    out[n++] = (T)floor(a);
    out[n++] = (T)ceil(a);
    out[n++] = (T)trunc(a);
    out[n++] = (T)rint(a);
    out[n++] = (T)copysign(a, b);
    out[n++] = a < b ? a : c;
    out[n++] = a >= b ? a : c;
    out[n++] = a == b ? a : c;
    out[n++] = a != b ? a : c;
    out[n++] = !(a < c) ? b : c;
    out[n++] = (T)(float)a;
    out[n++] = (T)(double)b;
    return n;
}

// Between integers and floats; a is within every type's range.
template <class F>
HD int convert_results(F a, int32_t i, uint32_t u, int64_t l, uint64_t m, double* out) {
    int n = 0;
    out[n++] = (double)(int32_t)a;
    out[n++] = (double)(uint32_t)(a < 0 ? -a : a);
    out[n++] = (double)(int64_t)a;
    out[n++] = (double)(uint64_t)(a < 0 ? -a : a);
    out[n++] = (double)(int16_t)a;
    out[n++] = (double)(int8_t)(a / 512);
    out[n++] = (double)(F)i;
    out[n++] = (double)(F)u;
    out[n++] = (double)(F)l;
    out[n++] = (double)(F)m;
    out[n++] = (double)(F)(int8_t)i;
    out[n++] = (double)(F)(uint16_t)u;
    return n;
}
