// What may be handed to cuModuleLoadData and its like: PTX text, a fat binary (plain, zstd or LZ4
// entries), the wrapper that nvcc's host code passes. Code without PTX cannot run here and is refused
// with a line, save for this driver's own machine code: a cubin with its PTX in a section `.softgpu.ptx`. Everything is bounds-checked as far as the format tells sizes.
#include <elf.h>
#include <zstd.h>

#include <cerrno>
#include <cstdio>

#include "tests/softgpu/driver/module.hpp"

namespace softgpu {
namespace {

constexpr std::string_view packed_mark = "// softgpu linked PTX\n";

template <class T>
T read(const unsigned char* p) {
    T v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

// LZ4 block format, as in fat binaries of toolkits before zstd.
bool unpack_lz4(const unsigned char* in, std::size_t n, std::string& out) {
    const unsigned char* const end = in + n;
    std::size_t at = 0;
    auto length = [&](std::size_t l) {
        if (l == 15)
            for (unsigned char c = 255; c == 255 && in < end;) l += c = *in++;
        return l;
    };
    while (in < end) {
        const unsigned token = *in++;
        std::size_t literal = length(token >> 4);
        if (literal > static_cast<std::size_t>(end - in) || literal > out.size() - at) return false;
        std::memcpy(&out[at], in, literal);
        in += literal, at += literal;
        if (in == end) break;
        if (end - in < 2) return false;
        std::size_t distance = in[0] | in[1] << 8;
        in += 2;
        std::size_t match = length(token & 15) + 4;
        if (!distance || distance > at || match > out.size() - at) return false;
        for (; match; --match, ++at) out[at] = out[at - distance];
    }
    out.resize(at);
    return true;
}

CUresult read_fat_binary(const unsigned char* p, Image* out) {
    constexpr std::uint64_t too_large = 1ull << 31;
    const std::uint64_t header = read<std::uint16_t>(p + 6), size = read<std::uint64_t>(p + 8);
    if (header < 16 || size > too_large) return CUDA_ERROR_INVALID_IMAGE;
    const unsigned char *entry = p + header, *end = entry + size, *best = nullptr;
    int best_sm = -1;
    bool machine_code = false;
    while (end - entry >= 64) {
        const std::uint64_t entry_header = read<std::uint32_t>(entry + 4), payload = read<std::uint64_t>(entry + 8);
        if (entry_header < 64 || payload > too_large || entry_header + payload > static_cast<std::uint64_t>(end - entry)) return CUDA_ERROR_INVALID_IMAGE;
        const int kind = read<std::uint16_t>(entry), sm = static_cast<int>(read<std::uint32_t>(entry + 28));
        if (kind == 1 && sm <= options().sm && sm > best_sm) best = entry, best_sm = sm;
        machine_code |= kind == 2;
        entry += entry_header + payload;
    }
    if (!best) {
        say("the fat binary holds no PTX for compute capability %d.%d or lower%s: compile with -gencode arch=compute_75,code=compute_75", options().sm / 10,
            options().sm % 10, machine_code ? ", only machine code" : "");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    const unsigned char* data = best + read<std::uint32_t>(best + 4);
    const std::uint64_t payload = read<std::uint64_t>(best + 8), flags = read<std::uint64_t>(best + 40), raw = read<std::uint64_t>(best + 56);
    const std::uint64_t compressed = read<std::uint32_t>(best + 16);
    std::string text;
    if (flags & 0xa000) {
        if (raw > too_large || compressed > payload) return CUDA_ERROR_INVALID_IMAGE;
        text.resize(raw);
        if (flags & 0x8000) {
            std::size_t n = ZSTD_decompress(text.data(), raw, data, compressed ? compressed : payload);
            if (ZSTD_isError(n)) return CUDA_ERROR_INVALID_IMAGE;
            text.resize(n);
        } else if (!unpack_lz4(data, compressed ? compressed : payload, text)) {
            return CUDA_ERROR_INVALID_IMAGE;
        }
    } else {
        text.assign(reinterpret_cast<const char*>(data), payload);
    }
    out->texts.push_back(std::move(text));
    return CUDA_SUCCESS;
}

// Null: it has none. The tests' own writer is trusted (tests/workloads/small/machine_code.hpp), other cubins have no such section.
const char* own_code(const unsigned char* elf) {
    const auto header = read<Elf64_Ehdr>(elf);
    if (!header.e_shoff || header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum) return nullptr;
    const auto section = [&](unsigned i) { return read<Elf64_Shdr>(elf + header.e_shoff + i * sizeof(Elf64_Shdr)); };
    const char* const names = reinterpret_cast<const char*>(elf) + section(header.e_shstrndx).sh_offset;
    for (unsigned i = 0; i < header.e_shnum; ++i)
        if (!std::strcmp(names + section(i).sh_name, ".softgpu.ptx")) return reinterpret_cast<const char*>(elf) + section(i).sh_offset;
    return nullptr;
}

}  // namespace

CUresult read_image(const void* data, Image* out) {
    if (!data) return CUDA_ERROR_INVALID_VALUE;
    auto* p = static_cast<const unsigned char*>(data);
    if (!p[0] || !p[1] || !p[2] || !p[3]) return CUDA_ERROR_INVALID_IMAGE;
    const auto magic = read<std::uint32_t>(p);
    if (magic == 0x466243b1) return read_image(reinterpret_cast<const void*>(read<std::uint64_t>(p + 8)), out);
    if (magic == 0xba55ed50) return read_fat_binary(p, out);
    if (!std::memcmp(p, "\x7f" "ELF", 4)) {
        if (const char* const ptx = own_code(p)) return read_image(ptx, out);
        say("the image is machine code (a cubin), which cannot run here: pass PTX");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    std::string text = static_cast<const char*>(data);
    if (text.starts_with(packed_mark)) {
        for (std::size_t at = 0; (at = text.find(packed_mark, at)) != std::string::npos;) {
            at += packed_mark.size();
            out->texts.push_back(text.substr(at, text.find(packed_mark, at) - at));
        }
        return CUDA_SUCCESS;
    }
    if (!ptx::looks_like_ptx(text)) return CUDA_ERROR_INVALID_IMAGE;
    out->texts.push_back(std::move(text));
    return CUDA_SUCCESS;
}

std::string pack_texts(const Image& image) {
    std::string all;
    for (auto& text : image.texts) all.append(packed_mark).append(text);
    return all;
}

CUresult read_file(const char* path, std::string* out) {
    FILE* f = path ? std::fopen(path, "rbe") : nullptr;
    if (!f) return CUDA_ERROR_FILE_NOT_FOUND;
    char block[65536];
    for (std::size_t n; (n = std::fread(block, 1, sizeof block, f)) > 0;) out->append(block, n);
    std::fclose(f);
    out->append(8, '\0');
    return CUDA_SUCCESS;
}

}  // namespace softgpu
