// Parameter layouts read from device images (cubin, fatbin), for drivers that cannot be asked. Images are the
// program's own input: every offset is checked, sizes are bounded, and what does not parse is not known.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "interpose/handlers.hpp"

namespace udnnmem::interpose {

// Reads the layouts of the image that was loaded as `owner` (CUmodule, CUlibrary). `image` is what the driver was
// given: its own headers say how long it is. Thread-safe.
void remember_image(void* owner, const void* image) noexcept;
void remember_image_file(void* owner, const char* path) noexcept;
void forget_image(void* owner) noexcept;

// The parameters of a kernel of that image; false: not known.
bool image_layout(void* owner, const std::string& kernel, std::vector<KernelLayout::Param>& params) noexcept;

}  // namespace udnnmem::interpose
