// A few helper threads for launches that share their blocks. Process-wide, started at first use,
// never joined: they hold nothing but their stacks between launches. Not used after a fork.
#pragma once

#include <functional>

namespace softgpu::ptx {

// Runs `work` on the calling thread and on up to `helpers` others that are idle; returns when all have
// returned from it. `work` must cope with any number of callers, this thread alone included.
void with_helpers(int helpers, const std::function<void()>& work);

}  // namespace softgpu::ptx
