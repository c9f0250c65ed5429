// libFuzzer over what the library itself reads of the images that a program loads: PTX and machine code, packed or not. What does
// not parse is not looked at further; it never crashes, hangs or asks for memory without bound.
#include <cstdint>
#include <vector>

#include "interpose/image_layouts.hpp"
#include "interpose/kernel_code.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace udnnmem::interpose;
    const std::vector<char> image(data, data + size);   // of its exact size: a read past the end is seen
    for (const auto& [name, code] : read_code(image.data(), size))
        for (const auto* words : {&code.writes, &code.steers, &code.scattered})
            for (const std::uint32_t word : *words)
                if (word % 8 || word >= 32'768 + 8) __builtin_trap();   // behind all that a launch can be given, the second word of a vector among it
    parse_image(image.data(), size);
    return 0;
}
