// A program's kernels as C texts, with what their users must know. No compiler runs here: this is the
// whole path that hostile text takes before anything is executed (and what the fuzzer drives).
#pragma once

#include <string>
#include <vector>

#include "tests/softgpu/ptx/ast.hpp"
#include "tests/softgpu/ptx/module.hpp"

namespace softgpu::ptx {

struct TranslatedKernel {
    Kernel kernel;
    std::string text;           // C, without the prelude
    bool stopping = false;      // exports softgpu_step and softgpu_frame, else softgpu_block
    bool parallel = false;      // blocks may run at the same time without a chance to change bits
    std::uint32_t dynamic_offset = 0;  // where dynamic shared memory starts
};

struct GlobalPatch {            // an address inside a global's initial value
    std::size_t global = 0, offset = 0;
    bool function = false;
    std::size_t target = 0;     // a global, or a function's number as a pointer
    std::int64_t addend = 0;
};

struct Translation {
    std::vector<TranslatedKernel> kernels;
    std::vector<Global> globals;
    std::vector<GlobalPatch> patches;
};

// Throws Refusal. The message of a refusal inside a kernel names the kernel.
Translation translate(Program& program, bool count_work);

// What stands in front of every kernel's text.
std::string prelude();

// The value of a pointer to function number n.
constexpr std::uint64_t function_pointer(std::uint64_t n) { return 0x10000u + 16u * n; }

}  // namespace softgpu::ptx
