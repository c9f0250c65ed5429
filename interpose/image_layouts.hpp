// Parameter layouts read from device images (cubin, fatbin, PTX), for drivers that cannot be asked. Images are the
// program's own input: every offset is checked, sizes are bounded, and what does not parse is not known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "interpose/handlers.hpp"

namespace udnnmem::interpose {

using ImageLayouts = std::map<std::string, std::vector<KernelLayout::Param>, std::less<>>;

// The layouts of all kernels of an image of that many bytes; kernels that cannot be read are left out. Allocates at
// most a few times the image, decompressed parts included, and never more than 1 GiB.
ImageLayouts parse_image(const void* image, std::size_t bytes);

// How long an image in memory is, by its own headers; 0: not an image that we know.
std::size_t image_bytes(const void* image) noexcept;

// Reads the layouts of the image that was loaded as `owner` (CUmodule, CUlibrary). `image` is what the driver was
// given: its own headers say how long it is. Thread-safe.
void remember_image(void* owner, const void* image) noexcept;
void remember_image_file(void* owner, const char* path) noexcept;
void forget_image(void* owner) noexcept;

// The parameters of a kernel of that image; false: not known.
bool image_layout(void* owner, const std::string& kernel, std::vector<KernelLayout::Param>& params) noexcept;

}  // namespace udnnmem::interpose
