// The library's way in. The constructor hands the handlers to the hooks and does nothing else: no CUDA, no file, no
// thread, no line. Everything starts at the program's first managed call.
#include "shim/preload/session.hpp"

namespace {
__attribute__((constructor)) void install_handlers() { udnnmem::interpose::install(&udnnmem::preload::handlers); }
}  // namespace
