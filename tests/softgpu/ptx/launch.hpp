// Runs one launch of a compiled kernel: blocks in order on the calling thread, or shared with a small
// pool where the kernel allows it and the launch is long enough to gain from it.
#pragma once

#include <tl/expected.hpp>

#include "tests/softgpu/ptx/abi.hpp"
#include "tests/softgpu/ptx/module.hpp"

namespace softgpu::ptx {

struct Code {
    abi::BlockFunction* block = nullptr;  // one of these two
    abi::StepFunction* step = nullptr;
    std::size_t frame_bytes = 0;
    bool parallel = false;
};

// `launch` is complete but for the workspace. `name` is for messages.
tl::expected<Work, Error> execute(const Code& code, const abi::Launch& launch, const std::string& name, int workers);

}  // namespace softgpu::ptx
