// From a hook's description of its work to the buffers that it names: spans, kernel parameters, parameter buffers,
// structs passed by value. Every 8-byte word that points into the arena names the buffer there.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "interpose/handlers.hpp"
#include "profiler/recorder/observed.hpp"
#include "shim/pager/pager.hpp"

namespace udnnmem::preload {

// The addresses that were found, each with what is known of the access.
using Touches = std::vector<profiler::Touch>;

// Adds what `work` names to `op`, and to `touches` if there is one. Does not allocate for up to Lease::kMany buffers (save
// in `touches`). `own`: memory outside the arena that nothing but the whole op of which `work` is a part has filled.
void name_accesses(pager::Pager& pager, const interpose::Work& work, pager::Op& op, Touches* touches = nullptr, std::span<const interpose::Span> own = {});

// Whether the word at that offset of its parameters is known as one that cannot be used as an address (stray_words.hpp).
bool is_stray(const char* kernel, std::size_t offset);

// Whether that word inside a structure, which leads elsewhere where the kernel is launched again for the same, is one that the kernel
// cannot be using as an address: so it counts from now on (stray_words.hpp).
bool leads_by_chance(const char* kernel, std::uint16_t word);

// Once all is named: those beyond Lease::kMany each once, as the recorder has them.
void drop_repeats(pager::Op& op);

// Adds what tables of addresses lead a kernel to, beyond what it was given.
void name_led(pager::Pager& pager, const interpose::Work& work, Touches& touches);

// Adds what a copy's bytes, as they are in host memory now, point to: a later node of the same graph may go there.
void name_carried(pager::Pager& pager, const interpose::Work& work, pager::Op& op);

// Before a copy is made: addresses among the bytes that it brings make the destination a pointer table.
void note_pointers_copied(pager::Pager& pager, const interpose::Work& work);

// Before a copy is made that may carry addresses to device memory that is not managed (a module's variable): nobody can
// say which kernel follows them from there. `escaping` is told each of them; the first error that it answers is returned.
CUresult pointers_escaping(pager::Pager& pager, const interpose::Work& work, const std::function<CUresult(CUdeviceptr)>& escaping);

// A tensor map descriptor was encoded for an address: kernels that get these 128 bytes by value name it.
void remember_tensor_map(pager::Pager& pager, const void* descriptor, CUdeviceptr address);
// Where in what lies at that offset of a parameter buffer the first address may be: they are 8 bytes at multiples of 8 there.
constexpr std::size_t first_address(std::size_t offset) { return (8 - offset % 8) % 8; }

// Whether what a parameter of so many bytes names may be in such a descriptor.
bool may_hold_tensor_map(std::size_t bytes);
// One that was encoded has other bytes now.
void forward_tensor_map(const void* before, const void* after);

}  // namespace udnnmem::preload
