// One activation kernel of each kind: some may be run again, some must not be. All take (in, out, extra, count, salt).
#define EACH(i) for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
#define KERNEL(name) extern "C" __global__ void name(unsigned* in, unsigned* out, unsigned* extra, unsigned count, unsigned salt)

__device__ static unsigned mix(unsigned v, unsigned salt) {
    v = (v ^ salt) * 2654435761u;
    return v ^ v >> 15;
}

KERNEL(pure) { EACH(i) out[i] = mix(in[i], salt); }
KERNEL(update) { EACH(i) out[i] = mix(out[i] + in[i], salt); }
KERNEL(in_place) { EACH(i) out[i] = out[i] > 0x40000000u ? out[i] : 0u; }
KERNEL(self_modifying) { EACH(i) { unsigned v = in[i]; in[i] = v + 1; out[i] = mix(v, salt); } }
KERNEL(zero) { EACH(i) out[i] = 0; }
KERNEL(integer_atomics) { EACH(i) atomicAdd(&out[mix(in[i], salt) % count], in[i]); }
KERNEL(float_atomics) { EACH(i) { out[i] = mix(in[i], salt); atomicAdd(reinterpret_cast<float*>(extra), 1.0f); } }
KERNEL(partial) { EACH(i) if (i % 2) out[i] = mix(in[i], salt); }
KERNEL(clock_reader) { EACH(i) out[i] = mix(in[i], salt) + (clock64() == 12345 ? 1u : 0u); }
KERNEL(volatile_reader) { EACH(i) out[i] = mix(in[i] + *reinterpret_cast<volatile unsigned*>(extra), salt); }
KERNEL(address) { EACH(i) out[i] = mix(in[i], salt) ^ static_cast<unsigned>(reinterpret_cast<unsigned long long>(out) >> 12); }
KERNEL(neighbour) { EACH(i) out[i] = mix(in[i] + extra[128 + i % 16], salt); }
KERNEL(with_state) { EACH(i) out[i] = mix(in[i] + extra[0], salt); }
KERNEL(advance) { if (blockIdx.x * blockDim.x + threadIdx.x == 0) extra[0] = mix(extra[0], salt + 1); }
KERNEL(statistics) { EACH(i) { out[i] = mix(in[i], salt); if (i < 16) extra[i] = extra[i] / 2 + in[i] / 2; } }
KERNEL(mask) { EACH(i) { out[i] = mix(in[i], salt); extra[i] = in[i] & 1; } }
KERNEL(optional) { EACH(i) { out[i] = mix(in[i], salt); if (extra && i < 16) extra[i] += in[i]; } }
// Writes to its input only when that holds a rare word.
KERNEL(rare_write) { EACH(i) { out[i] = mix(in[i], salt); if (salt > 1000) in[i] = 7; } }
// Adds to what it leaves alone as a rule.
KERNEL(rare_sum) { EACH(i) { out[i] = mix(in[i], salt); if (salt > 1000) extra[i] += in[i]; } }
// Leaves more aside when it is given more room for it.
KERNEL(larger) { EACH(i) { out[i] = mix(in[i], salt); for (unsigned k = 0; k < (salt > 4000 ? 3 : 1); k++) extra[k * count + i] = in[i] + k; } }
// A queue: its length is the place of what comes next. And blocks that take turns: the word is 0 before and after.
KERNEL(append) { EACH(i) { out[i] = mix(in[i], salt); if (!i) { unsigned n = extra[0]; extra[16 + n] = salt; extra[0] = n + 1; } } }
KERNEL(turns) {
    EACH(i) out[i] = mix(in[i], salt);
    if (threadIdx.x) return;
    while (atomicCAS(extra, blockIdx.x, blockIdx.x) != blockIdx.x) {}
    extra[1] = extra[1] * 3 + salt + blockIdx.x;
    __threadfence();
    atomicExch(extra, blockIdx.x + 1 == gridDim.x ? 0u : blockIdx.x + 1);
}
// Leaves alone what a word of memory says.
KERNEL(branch) { EACH(i) if (extra[i]) out[i] = mix(in[i], salt); }
KERNEL(rare_keep) { EACH(i) if (salt < 1000 || i % 3) out[i] = mix(in[i], salt); }

__device__ unsigned counter;
KERNEL(global_counter) { EACH(i) { out[i] = mix(in[i], salt); atomicAdd(&counter, 1u); } }
extern "C" __global__ void read_counter(unsigned* out) { *out = counter; }
__device__ unsigned* elsewhere;
extern "C" __global__ void write_elsewhere(unsigned count, unsigned salt) { EACH(i) elsewhere[i] = salt + i; }
__device__ unsigned scale;
KERNEL(module_variable) { EACH(i) out[i] = mix(in[i] * scale, salt); }
__constant__ unsigned table[16];
KERNEL(constant) { EACH(i) out[i] = mix(in[i] * table[i % 16], salt); }
__device__ __noinline__ static unsigned through_call(unsigned v) { return mix(v, atomicAdd(&counter, 0u) * 0u); }
KERNEL(calls) { EACH(i) out[i] = through_call(in[i] + salt); }

KERNEL(pointer_table) { unsigned* const* from = reinterpret_cast<unsigned* const*>(extra); EACH(i) out[i] = mix(in[i] + from[0][i], salt); }

// A table that nobody but the device has seen, and a kernel that writes to where it leads.
extern "C" __global__ void make_table(unsigned** table, unsigned* target) { *table = target; }
KERNEL(table_writer) { unsigned* const* to = reinterpret_cast<unsigned* const*>(extra); EACH(i) { out[i] = mix(in[i], salt); to[0][i] += in[i]; } }

// From a begin to an end.
extern "C" __global__ void over(unsigned* begin, unsigned* end, unsigned salt) { for (unsigned* p = begin + blockIdx.x * blockDim.x + threadIdx.x; p < end; p += gridDim.x * blockDim.x) *p = mix(*p, salt); }

struct Inside { unsigned tag; const unsigned* from; unsigned long long pad; unsigned* to; };
extern "C" __global__ void by_struct(Inside s, unsigned count, unsigned salt) { EACH(i) s.to[i] = mix(s.from[i], salt + s.tag); }
// Works on what the third word leads to as well, if `salt` says so.
struct Led { unsigned tag; const unsigned* from; unsigned* other; unsigned* to; };
extern "C" __global__ void led(Led s, unsigned count, unsigned salt) { EACH(i) { s.to[i] = mix(s.from[i], salt % 4096 + s.tag); if (salt >= 4096) s.other[i] = mix(s.other[i], salt); } }
extern "C" __global__ void aliasing(unsigned* out, const unsigned* a, const unsigned* b, unsigned* again, unsigned count, unsigned salt) { EACH(i) { if (i % 2) out[i] = mix(a[i], salt); else again[i] = mix(b[i], salt); } }

// The loss' side: in place, and no two of them commute.
extern "C" __global__ void back(unsigned* gradient, const unsigned* x, unsigned count, unsigned salt) { EACH(i) gradient[i] = (gradient[i] ^ x[i]) * 2654435761u + salt; }
// Like `back` of something that `address` has made.
extern "C" __global__ void back_address(unsigned* gradient, const unsigned* x, unsigned count, unsigned salt) {
    EACH(i) gradient[i] = (gradient[i] ^ x[i] ^ static_cast<unsigned>(reinterpret_cast<unsigned long long>(x) >> 12)) * 2654435761u + salt;
}
KERNEL(undo_address) { EACH(i) out[i] = mix(in[i] ^ static_cast<unsigned>(reinterpret_cast<unsigned long long>(in) >> 12), salt) ^ static_cast<unsigned>(reinterpret_cast<unsigned long long>(out) >> 12); }
