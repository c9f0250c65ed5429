#include "shim/cli/page.hpp"

namespace udnnmem::cli {

#include "shim/cli/page.inc"

}  // namespace udnnmem::cli
