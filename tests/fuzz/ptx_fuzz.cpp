// libFuzzer over everything that hostile PTX meets before it is compiled: lexer, parser, analysis and the
// writing of C. A text is accepted or refused; it never crashes, hangs or asks for memory without bound.
#include <cstdint>
#include <string_view>

#include "tests/softgpu/ptx/module.hpp"
#include "tests/softgpu/ptx/parser.hpp"
#include "tests/softgpu/ptx/translate.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace softgpu::ptx;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    looks_like_ptx(text);
    Program program;
    try {
        parse(text, program);
        resolve(program);
        translate(program, size & 1);
    } catch (const Refusal&) {
    }
    return 0;
}
