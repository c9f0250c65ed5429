// The table of exports as data: base name, address, version, variant, from the same list as the stubs
// (and for the same reason without cuda.h). Addresses are the exported symbols' own: the library is
// linked -Bsymbolic, so that dlsym and cuGetProcAddress agree even under a preload of the same names.
#include "tests/softgpu/driver/table.hpp"

#define ENTRY(base, symbol, version, per_thread) extern "C" __attribute__((visibility("default"))) int symbol();
#include "tests/softgpu/driver/entries.def"
#undef ENTRY

namespace softgpu {

const std::vector<Entry>& entries() {
    static const auto* const all = new std::vector<Entry>{
#define ENTRY(base, symbol, version, per_thread) {#base, #symbol, reinterpret_cast<void*>(&symbol), version, per_thread != 0},
#include "tests/softgpu/driver/entries.def"
#undef ENTRY
    };
    return *all;
}

}  // namespace softgpu
