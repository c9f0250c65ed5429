// The pager: any bytes are a program, whose buffers hold what they would without it.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "tests/pager/programs.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace udnnmem::pager::test;
    if (size == 0) return 0;
    const auto calls = calls_of(data + 1, size - 1);
    const std::string wrong = wrong_with(calls, data[0] % 2 == 0);
    if (wrong.empty()) return 0;
    for (const Call& call : calls) std::cerr << call << '\n';
    std::cerr << wrong << std::endl;
    std::abort();
}
