// The pager's declarations as the checker compiles them: with the model's locks and atomics, and nothing private.
#pragma once

#include "tests/model/sync.hpp"
#include <cuda.h>
#define private public
#include "shim/pager/pager.hpp"
#undef private

namespace udnnmem::pager {
const std::atomic<Lease*>& first_lease();  // of the list of all
void fresh_leases(int n);  // as in a new process, but made already
}
