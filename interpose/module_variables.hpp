// Variables of device modules: those that a kernel's result may depend on, and those that nobody ever writes. Nearly each file that
// nvcc compiles has some of the latter, in PyTorch all but a few.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace udnnmem::interpose {

// Whether nothing writes a variable of that name: what compilers make for literals and for functions of their own, tables of cuRAND's
// headers, and objects of one byte, which hold nothing, of the namespaces of CUDA's own C++ libraries. Bytes: 0 where that is not known.
bool never_written(std::string_view symbol, std::uint64_t bytes) noexcept;

// Whether machine code, an ELF file, has others, or may have some: a section of variables that no symbol names.
bool has_written_variables(const unsigned char* elf, std::size_t bytes);

}  // namespace udnnmem::interpose
