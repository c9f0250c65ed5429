// dlopen, for the sake of libraries whose own data is named like the driver's functions (a loader's table of function
// pointers): bound to our exports they would crash at the first write.
#include "interpose/internal.hpp"

#include <dlfcn.h>

namespace udnnmem::interpose {
bool hide_exports() noexcept { return false; }
}
