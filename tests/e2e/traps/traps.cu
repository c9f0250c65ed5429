// Device code of the traps. Kernels that take a time (nanoseconds) keep at it for so long: long enough that memory is
// pushed out under them if anything lets it be. They run as one thread, so that what they do does not depend on order.
typedef unsigned long long u64;

static __device__ u64 now() {
  u64 t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

// Adds 1 to `count` words, `stride` words apart, again and again; `lost` counts the words that do not hold all of it at
// the end. Then each word is what it was before and 1.
static __device__ void toil_at(volatile unsigned* words, unsigned count, unsigned stride, u64 ns, unsigned* lost) {
  const u64 start = now();
  unsigned rounds = 0;
  do {
    for (unsigned i = 0; i < count; i++) words[i * stride] = words[i * stride] + 1;
    rounds++;
    asm volatile("nanosleep.u32 500000;");
  } while (now() - start < ns);
  unsigned first = words[0] - rounds;
  for (unsigned i = 0; i < count; i++) {
    if (words[i * stride] != first + i + rounds) atomicAdd(lost, 1u);
    words[i * stride] = words[i * stride] - rounds + 1;
  }
}

extern "C" {

// words[i * stride] must hold words[0] + i.
__global__ void toil(unsigned* words, unsigned count, unsigned stride, u64 ns, unsigned* lost) {
  toil_at(words, count, stride, ns, lost);
}

// Words of memory that is named by an address outside.
__global__ void toil_outside(unsigned* outside, long long words, unsigned count, unsigned stride, u64 ns, unsigned* lost) {
  toil_at(outside + words, count, stride, ns, lost);
}

struct Reach {
  char tag;
  unsigned* words;
};
__global__ void toil_struct(Reach r, unsigned count, unsigned stride, u64 ns, unsigned* lost) {
  toil_at(r.words, count, stride, ns, lost);
}

// The address counts only if it is said to.
struct Perhaps {
  u64 counts;
  unsigned* words;
};
__global__ void toil_perhaps(Perhaps p, unsigned count, unsigned stride, u64 ns, unsigned* lost) {
  if (p.counts) toil_at(p.words, count, stride, ns, lost);
}

// Through `depth` tables, each of which holds the address of the next; the last one holds that of the words.
__global__ void toil_table(u64* table, unsigned entry, unsigned depth, unsigned count, unsigned stride, u64 ns, unsigned* lost) {
  u64* at = table + entry;
  for (unsigned d = 1; d < depth; d++) at = (u64*)*(volatile u64*)at;
  toil_at((unsigned*)*(volatile u64*)at, count, stride, ns, lost);
}

__constant__ unsigned* in_constant[4];
__device__ unsigned* in_global[4];
__global__ void toil_constant(unsigned count, unsigned stride, u64 ns, unsigned* lost) {
  toil_at(in_constant[1], count, stride, ns, lost);
}
__global__ void put_global(unsigned* address) { in_global[2] = address; }
__global__ void toil_global(unsigned count, unsigned stride, u64 ns, unsigned* lost) {
  toil_at(in_global[2], count, stride, ns, lost);
}

// words[i] = first + i / stride at multiples of the stride, else i.
__global__ void steps(unsigned* words, unsigned count, unsigned stride, unsigned first) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    words[i] = i % stride ? i : first + i / stride;
}

__global__ void not_all(unsigned* words, unsigned* unused) { words[0] = 7; }
__global__ void put_address(u64* table, unsigned entry, unsigned* address) { table[entry] = (u64)address; }
__global__ void put_through(u64* table, unsigned entry, unsigned count, unsigned value) {
  for (unsigned i = 0; i < count; i++) ((unsigned*)table[entry])[i] = value + i;
}
__global__ void move_entries(const u64* from, u64* to, unsigned count, u64 ns) {
  const u64 start = now();
  while (now() - start < ns) {}
  for (unsigned i = 0; i < count; i++) to[i] = from[i];
}

// Waits, then writes.
__global__ void late_fill(unsigned* out, unsigned count, unsigned seed, u64 ns) {
  const u64 start = now();
  while (now() - start < ns) {}
  for (unsigned i = 0; i < count; i++) out[i] = i * 2654435761u + seed;
}
// Reads, waits, reads again: what changed meanwhile is counted.
__global__ void watch(const volatile unsigned* in, unsigned count, u64 ns, unsigned* changed) {
  unsigned first = 0, last = 0;
  for (unsigned i = 0; i < count; i++) first = first * 31 + in[i];
  const u64 start = now();
  while (now() - start < ns) {}
  for (unsigned i = 0; i < count; i++) last = last * 31 + in[i];
  if (first != last) atomicAdd(changed, 1u);
}
// One word, as a later reader on the host sees it.
__global__ void late_flag(volatile unsigned* flag, unsigned value, u64 ns) {
  const u64 start = now();
  while (now() - start < ns) {}
  *flag = value;
}

}
