// NCCL's public calls (nccl.def), for the look-ups that reach them.
#pragma once

namespace udnnmem::interpose {

// What dlsym(handle, name) answers for a name of NCCL that we hook: the hook, if the program would have found NCCL's own; null
// for any other name, which is looked up as ever. Never allocates.
void* nccl_look_up(void* handle, const char* name) noexcept;

// Whether the code at `caller` is NCCL's. What NCCL allocates for itself is named by no call and known to other devices and to
// network cards: it stays the driver's. A look at one word for a caller that was seen before.
bool is_nccl(const void* caller) noexcept;

}  // namespace udnnmem::interpose
