// What the PTX of the images that a program loads says of its kernels: those that do more than their arguments say, or other
// things each time, through which of their arguments each may write, and what steers it. Machine code, beside PTX or not, is searched
// for what speaks against running it again, no more. Images are the program's own input: what does not parse is not looked at further.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace udnnmem::interpose {

struct KernelCode {
    const char* hazard = nullptr;          // why it must not be run again: one phrase; null: nothing is known against it
    bool follows_variables = false;        // it uses memory by addresses that it finds in variables which kernels may write; unknown of machine code
    bool writes_known = false;             // `writes` is all: else it may write through others too
    std::uint64_t images = 0;              // of the images that it comes from: the same in every run that loads the same ones; 0: not known
    std::set<std::uint32_t> writes;        // offsets of the 8-byte words of the parameter buffer that lead to what it stores to
    std::set<std::uint32_t> steers;        // ... to memory whose contents decide which addresses it uses or which way it goes; if writes_known
    std::set<std::uint32_t> scattered;     // ... to what it stores to at addresses, or by predicates or branches, that come from memory; if writes_known
};
using KernelCodes = std::map<std::string, KernelCode, std::less<>>;

KernelCodes read_code(const void* image, std::size_t bytes);

// An image was loaded; images of more than `most_bytes` are left alone (libraries of hundreds of MB). Thread-safe.
void note_code(const void* image) noexcept;
void note_code_of_file(const char* path) noexcept;
void note_code_of(const void* image, std::size_t bytes) noexcept;   // PTX with or without its closing 0, or an image

// Of all kernels of that name that were loaded so far together.
KernelCode kernel_code(std::string_view name) noexcept;
// Whether one of them may write through the word at that offset of its parameters. Yes, of every word, where machine code of
// them was read; no where no image of them was. For the launch path: takes a lock, allocates nothing.
bool kernel_may_write(std::string_view name, std::size_t offset) noexcept;

}  // namespace udnnmem::interpose
