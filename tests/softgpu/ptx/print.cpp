// See print.hpp.
#include "tests/softgpu/ptx/print.hpp"

#include <cstdio>
#include <cstring>
#include <string>

namespace softgpu::ptx {

abi::u32 print_formatted(abi::Block*, const char* format, const abi::u8* arguments, abi::u64 view_offset) {
    std::string out;
    abi::u32 conversions = 0;
    std::size_t at = 0;
    auto take = [&](auto& value) {
        at = (at + sizeof value - 1) & ~(sizeof value - 1);
        std::memcpy(&value, arguments + at, sizeof value);
        at += sizeof value;
    };
    for (const char* p = format; *p; ++p) {
        if (*p != '%') { out += *p; continue; }
        if (p[1] == '%') { out += *p++; continue; }
        std::string spec = "%";
        bool wide = false;
        for (++p; *p && std::strchr("-+ #0123456789.*hlLzjtq", *p); ++p) {
            if (*p == '*') {
                int width = 0;
                take(width);
                spec += std::to_string(width);
            } else if (std::strchr("lLzjtq", *p)) {
                wide = true;
            } else if (*p != 'h') {
                spec += *p;
            }
        }
        if (!*p) break;
        ++conversions;
        char text[512] = "";
        if (std::strchr("diuoxXc", *p)) {
            unsigned long long v = 0;
            if (wide) take(v);
            else { unsigned narrow = 0; take(narrow); v = *p == 'd' || *p == 'i' ? static_cast<unsigned long long>(static_cast<long long>(static_cast<int>(narrow))) : narrow; }
            if (*p == 'c') std::snprintf(text, sizeof text, (spec + "c").c_str(), static_cast<int>(v));
            else std::snprintf(text, sizeof text, (spec + "ll" + *p).c_str(), v);
        } else if (std::strchr("fFeEgGaA", *p)) {
            double v = 0;
            take(v);
            std::snprintf(text, sizeof text, (spec + *p).c_str(), v);
        } else if (*p == 'p' || *p == 's') {
            abi::u64 v = 0;
            take(v);
            if (*p == 'p') std::snprintf(text, sizeof text, (spec + "p").c_str(), reinterpret_cast<void*>(v));
            else std::snprintf(text, sizeof text, (spec + "s").c_str(), v ? reinterpret_cast<const char*>(v + view_offset) : "(null)");
        } else {
            return ~0u;
        }
        out += text;
    }
    std::fwrite(out.data(), 1, out.size(), stdout);
    return conversions;
}

}  // namespace softgpu::ptx
