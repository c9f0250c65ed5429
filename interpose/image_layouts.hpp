// Parameter layouts read from device images (cubin, fatbin, PTX), for drivers that cannot be asked. Images are the
// program's own input: every offset is checked, sizes are bounded, and what does not parse is not known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "interpose/handlers.hpp"

namespace udnnmem::interpose {

using ImageLayouts = std::map<std::string, std::vector<KernelLayout::Param>, std::less<>>;

// The layouts of all kernels of an image of that many bytes; kernels that cannot be read are left out. Allocates at
// most a few times the image, decompressed parts included, and never more than 1 GiB.
ImageLayouts parse_image(const void* image, std::size_t bytes);

// What an image holds, unpacked. Bounds as above.
class ImageVisitor {
  public:
    virtual void ptx(std::string_view text) = 0;
    virtual void cubin(const unsigned char* elf, std::size_t bytes) = 0;

  protected:
    ~ImageVisitor() = default;
};
void visit_image(const void* image, std::size_t bytes, ImageVisitor& visitor);
// The name of each section of an ELF file.
void for_each_section(const unsigned char* elf, std::size_t bytes, void (*body)(void* to, std::string_view name, const unsigned char* data, std::size_t bytes), void* to);

// The name and size of each variable of a module, an ELF file; ("", 0) for what has none: a section of variables without symbols.
void for_each_variable(const unsigned char* elf, std::size_t bytes, void (*body)(void* to, std::string_view name, std::uint64_t size), void* to);

// The function of each section of machine code that calls such, and what it calls from outside of the ELF file.
void for_each_external(const unsigned char* elf, std::size_t bytes, void (*body)(void* to, std::string_view function, std::string_view called), void* to);

// The image inside of the wrapper that compilers put around a fatbin.
const void* unwrapped_image(const void* image) noexcept;

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
