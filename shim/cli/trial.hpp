// Trials of the driver for doctor. Attributes lie and some drivers crash on odd machines: so each trial
// does the real thing, on a small piece of memory, in a child process that may crash or hang.
#pragma once

#include <functional>
#include <string>

#include "shim/options/option_types.hpp"

namespace udnnmem::cli {

enum class Verdict { ok, warn, fail };

struct Finding {
    Verdict verdict = Verdict::fail;
    std::string text;   // what was found, against what is needed, and the fix
};

// Runs `body` in a child process and hands back what it returns. A child that crashes, or has not
// answered after `seconds`, is a failure that says so. The process must have one thread.
Finding in_child(const std::function<Finding()>& body, int seconds = 20);

Finding try_driver();          // is there one, and is it 12.4 or later
Finding try_device();          // is there a device
int count_devices();           // in a child of its own; 0: none, or no answer

// Of the device of that number.
Finding try_virtual_memory(int ordinal);  // reserve, create, map, write through it, unmap, map again elsewhere
Finding try_link(int ordinal);            // copies each way, timed
Finding try_host_frames(int ordinal);     // physical host memory mapped into the device's address space, written by the device, read here
Finding try_budget(int ordinal, const Size& wanted);  // would the library take UDNNMEM_BUDGET as it is given

}  // namespace udnnmem::cli
