// What the library has against running kernels again: a line KERNEL: HAZARD each, of an image or of all that a program or shared
// library holds in its section .nv_fatbin.
//   code_of FILE
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "interpose/image_layouts.hpp"
#include "interpose/kernel_code.hpp"

using namespace udnnmem::interpose;

namespace {

void print(const void* image, std::size_t bytes) {
    for (const auto& [name, code] : read_code(image, bytes)) std::printf("%s: %s\n", name.c_str(), code.hazard ? code.hazard : "");
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    std::ifstream file(argv[1], std::ios::binary);
    const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    struct Section {
        const unsigned char* data = nullptr;
        std::size_t bytes = 0;
    } images;
    const auto* start = reinterpret_cast<const unsigned char*>(all.data());
    for_each_section(start, all.size(), [](void* to, std::string_view name, const unsigned char* data, std::size_t bytes) {
        if (name == ".nv_fatbin") *static_cast<Section*>(to) = {data, bytes};
    }, &images);
    if (!images.data) print(all.data(), all.size());
    while (images.bytes >= 16) {   // each begins at a multiple of 8
        const std::uint32_t magic = 0xba55ed50;
        const std::size_t bytes = std::memcmp(images.data, &magic, sizeof magic) == 0 ? image_bytes(images.data) : 0;
        if (bytes && bytes <= images.bytes) print(images.data, bytes);
        const std::size_t step = std::min(images.bytes, bytes && bytes <= images.bytes ? (bytes + 7) / 8 * 8 : 8);
        images.data += step, images.bytes -= step;
    }
}
