/* What the software GPU tells about itself: the figures that the tests judge by. A program on a real
 * driver finds no such symbol: look it up with dlsym on the handle of libcuda.so.1.
 * All figures are of this process, all devices together; reading them takes no lock. */
#ifndef SOFTGPU_H
#define SOFTGPU_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct softgpu_stats {
    uint64_t device_bytes;       /* device memory held now: legacy allocations, pools, VMM handles, module globals */
    uint64_t device_bytes_peak;  /* most ever held, exact */
    uint64_t host_bytes;         /* pinned and host-NUMA memory held now */
    uint64_t host_bytes_peak;
    uint64_t frames;             /* VMM handles alive now, of any location */
    uint64_t mappings;           /* VMM mappings alive now */
    uint64_t ops;                /* ops that ran to their end: kernels, copies, memsets, host functions */
    uint64_t kernels;            /* of them kernels */
    uint64_t faults;             /* ops that touched memory that they may not */
    uint64_t bytes_to_device;    /* copied host to device by copies (not by kernels) */
    uint64_t bytes_to_host;
    uint64_t bytes_on_device;
};

/* Fills *stats; the signature of the exported function. */
void softgpu_stats(struct softgpu_stats* stats);
/* Who wants to know when ops (kernels, copies, memsets) ran. One at a time; NULL: nobody. */
struct softgpu_watcher {
    void (*submitted)(uint64_t op);  /* on the thread that submits it; calls no driver */
    void (*ended)(uint64_t op, const char* kind, int64_t begin_ns, int64_t end_ns);  /* "kernel", "copy", "memset"; the clock of events */
    void (*called)(void);  /* a thread is about to leave the driver; of cuCtxGetCurrent alone */
};
void softgpu_watch(const struct softgpu_watcher* watcher);
/* Now, on that clock. */
int64_t softgpu_now(void);
/* The calling thread takes so long, on that clock where it is modelled: what a program does between two calls. */
void softgpu_spend(int64_t ns);
/* Sets the peaks to what is held now. */
void softgpu_reset_peaks(void);

#ifdef __cplusplus
}
#endif
#endif
