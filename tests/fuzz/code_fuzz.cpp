// libFuzzer over what the library itself reads of the images that a program loads: PTX and machine code, packed or not. What does
// not parse is not looked at further; it never crashes, hangs or asks for memory without bound.
#include <cstdint>
#include <vector>

#include "interpose/image_layouts.hpp"
#include "interpose/kernel_code.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace udnnmem::interpose;
    const std::vector<char> image(data, data + size);   // of its exact size: a read past the end is seen
    read_code(image.data(), size);
    parse_image(image.data(), size);
    return 0;
}
