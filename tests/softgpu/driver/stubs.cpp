// A refusal for every exported name that nothing else defines: weak, so that an implementation in
// another file of this library replaces it at link time. Refused by name: the first call of each says
// so on stderr, every call answers CUDA_ERROR_NOT_SUPPORTED. cuda.h is left out on purpose: these
// definitions share names, not types, with it (the C ABI lets arguments go unread).
#include <atomic>
#include <cstdio>
#include <unistd.h>

namespace {
int refuse(std::atomic<bool>& said, const char* name) {
    if (!said.exchange(true)) {
        char line[160];
        int n = std::snprintf(line, sizeof line, "softgpu: %s is not implemented: CUDA_ERROR_NOT_SUPPORTED\n", name);
        if (::write(2, line, static_cast<std::size_t>(n)) < 0) return 801;
    }
    return 801;
}
}  // namespace

#define ENTRY(base, symbol, version, per_thread)                                  \
    extern "C" __attribute__((weak, visibility("default"))) int symbol() {        \
        static std::atomic<bool> said{false};                                     \
        return refuse(said, #symbol);                                             \
    }
#include "tests/softgpu/driver/entries.def"
#undef ENTRY
