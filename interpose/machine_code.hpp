// What a kernel's machine code says against running it again. It is searched for a few instructions, not understood: where none is
// found nothing is proven, and what the code may write stays unknown. NVIDIA does not document the encoding; the numbers are what ptxas
// of CUDA 13 makes of PTX with each instruction, from compute capability 7.5 to 12.0 (tests/interpose/machine_code_suite.py).
#pragma once

#include <cstddef>

namespace udnnmem::interpose {

// The compute capability that a cubin is for, times ten; 0: not known.
unsigned compute_capability(const unsigned char* elf, std::size_t bytes) noexcept;

// A phrase of hazards.hpp, or null. `code` is a section `.text.KERNEL`: instructions of 16 bytes.
const char* hazard_of_machine_code(unsigned capability, const unsigned char* code, std::size_t bytes) noexcept;

}  // namespace udnnmem::interpose
