// Device images as compilers write them. A fatbin is a list of entries, PTX or cubin, perhaps compressed; a cubin is an
// ELF file in which a section `.nv.info.<kernel>` lists each parameter's ordinal, offset and size; PTX declares them in
// the text, and they are laid out by their alignment.
#include "interpose/internal.hpp"

#include "interpose/image_layouts.hpp"

#include <elf.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "interpose/ptx_words.hpp"

namespace udnnmem::interpose {
namespace {

constexpr std::uint32_t fatbin_magic = 0xba55ed50, wrapper_magic = 0x466243b1;
constexpr std::size_t max_bytes = std::size_t{1} << 30;
constexpr std::size_t max_params = 4096;

struct Bytes {
    const unsigned char* data;
    std::size_t size;
    bool has(std::uint64_t offset, std::uint64_t count) const { return offset <= size && count <= size - offset; }
    Bytes part(std::uint64_t offset, std::uint64_t count) const { return {data + offset, static_cast<std::size_t>(count)}; }
    template <class T>
    T get(std::uint64_t offset) const {  // after has()
        T value;
        std::memcpy(&value, data + offset, sizeof value);
        return value;
    }
};

// One LZ4 block. False unless it fills `out` exactly.
bool unpack_lz4(Bytes in, std::vector<unsigned char>& out) {
    std::size_t at = 0, to = 0;
    const auto length = [&](std::size_t base) -> std::optional<std::size_t> {
        if (base != 15) return base;
        for (;;) {
            if (at >= in.size) return std::nullopt;
            const unsigned char more = in.data[at++];
            base += more;
            if (more != 255) return base;
        }
    };
    while (at < in.size && to < out.size()) {
        const unsigned char token = in.data[at++];
        const auto literals = length(token >> 4);
        if (!literals || !in.has(at, *literals) || *literals > out.size() - to) return false;
        std::copy_n(in.data + at, *literals, out.begin() + static_cast<std::ptrdiff_t>(to));
        at += *literals, to += *literals;
        if (to == out.size()) break;
        if (!in.has(at, 2)) return false;
        const std::size_t back = in.get<std::uint16_t>(at);
        at += 2;
        const auto match = length(token & 15);
        if (!match || back == 0 || back > to || *match + 4 > out.size() - to) return false;
        for (std::size_t i = 0; i < *match + 4; ++i, ++to) out[to] = out[to - back];
    }
    return to == out.size();
}

// The attributes of one kernel: {format, id, u16} or, for format 4, {4, id, u16 bytes, payload}.
std::optional<std::vector<KernelLayout::Param>> read_info(Bytes info) {
    constexpr unsigned sized = 4, param = 0x17, param_v2 = 0x45, bank_bytes = 0x19;
    std::map<unsigned, KernelLayout::Param> by_ordinal;
    unsigned total = 0;
    for (std::uint64_t at = 0; info.has(at, 4);) {
        const unsigned format = info.data[at], id = info.data[at + 1], value = info.get<std::uint16_t>(at + 2);
        at += 4;
        if (format != sized) {
            if (id == bank_bytes) total = value;
            continue;
        }
        if (!info.has(at, value)) return std::nullopt;
        if ((id == param || id == param_v2) && value >= 12) {
            const unsigned ordinal = info.get<std::uint16_t>(at + 4), offset = info.get<std::uint16_t>(at + 6);
            const auto word = info.get<std::uint32_t>(at + 8);
            const std::uint32_t size = id == param ? word >> 18 : word;
            if (ordinal >= max_params || size > 65536) return std::nullopt;
            by_ordinal[ordinal] = {offset, size};
        }
        at += value;
    }
    std::vector<KernelLayout::Param> params;
    for (auto& [ordinal, p] : by_ordinal) {
        if (ordinal != params.size()) return std::nullopt;  // a hole
        params.push_back(p);
    }
    if (params.empty() && total != 0) return std::nullopt;
    return params;
}

std::string_view text_at(Bytes strings, std::uint64_t at) {
    const char* text = reinterpret_cast<const char*>(strings.data) + at;
    return at < strings.size ? std::string_view(text, strnlen(text, strings.size - at)) : std::string_view();
}

// The sections of an ELF file that lie within it: body(its number, its name, its header).
template <class Body>
void headers_of(Bytes elf, Body body) {
    if (!elf.has(0, sizeof(Elf64_Ehdr))) return;
    const auto header = elf.get<Elf64_Ehdr>(0);
    if (header.e_shentsize != sizeof(Elf64_Shdr) || !elf.has(header.e_shoff, std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr))) return;
    const auto section = [&](unsigned i) { return elf.get<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr)); };
    if (header.e_shstrndx >= header.e_shnum) return;
    const Elf64_Shdr names = section(header.e_shstrndx);
    if (!elf.has(names.sh_offset, names.sh_size)) return;
    const Bytes text = elf.part(names.sh_offset, names.sh_size);
    for (unsigned i = 0; i < header.e_shnum; ++i) {
        const Elf64_Shdr s = section(i);
        if (s.sh_name < text.size && (s.sh_type == SHT_NOBITS || elf.has(s.sh_offset, s.sh_size))) body(i, text_at(text, s.sh_name), s);
    }
}

template <class Body>
void sections_of(Bytes elf, Body body) {
    headers_of(elf, [&](unsigned, std::string_view name, const Elf64_Shdr& s) { body(name, s.sh_type == SHT_NOBITS ? Bytes{nullptr, 0} : elf.part(s.sh_offset, s.sh_size)); });
}

void read_cubin(Bytes elf, ImageLayouts& layouts) {
    constexpr std::string_view prefix = ".nv.info.";
    sections_of(elf, [&](std::string_view name, Bytes data) {
        if (name.substr(0, prefix.size()) != prefix) return;
        if (auto params = read_info(data)) layouts.emplace(name.substr(prefix.size()), std::move(*params));
    });
}

// ---- PTX ----
unsigned bytes_of_type(std::string_view type) {
    if (type.size() < 3 || type[0] != '.' || !std::strchr("usfb", type[1])) return 0;
    unsigned bits = 0;
    for (char c : type.substr(2)) {
        if (c < '0' || c > '9' || bits > 128) return 0;
        bits = bits * 10 + static_cast<unsigned>(c - '0');
    }
    return bits % 8 == 0 && bits <= 128 ? bits / 8 : 0;
}

class PtxReader {
  public:
    explicit PtxReader(std::string_view text) : words_(text, "()[]{},;") {}

    void read(ImageLayouts& layouts) {
        for (std::string_view t = next(); !t.empty(); t = next()) {
            if (t != ".entry") continue;
            const std::string_view name = next();
            std::vector<KernelLayout::Param> params;
            t = next();
            if (t == "(" ? read_params(params) : true) layouts.emplace(name, std::move(params));
        }
    }

  private:
    std::string_view next() { return words_.next(); }
    static std::uint64_t number(std::string_view t) {
        std::uint64_t n = 0;
        for (char c : t) {
            if (c < '0' || c > '9' || n > 1u << 20) return 0;
            n = n * 10 + static_cast<unsigned>(c - '0');
        }
        return n;
    }
    // `.param [.align n] .type [.ptr ...] name [[count]]`, up to the closing bracket.
    bool read_params(std::vector<KernelLayout::Param>& params) {
        std::uint64_t offset = 0;
        for (;;) {
            std::uint64_t align = 0, element = 0, count = 1;
            std::string_view t = next();
            if (t == ")") return true;
            for (; !t.empty() && t != "," && t != ")"; t = next()) {
                if (t == ".align" && element == 0)
                    align = number(next());
                else if (element == 0 && bytes_of_type(t) != 0)
                    element = bytes_of_type(t);
                else if (t == "[")
                    count = number(next());
            }
            if (t.empty() || element == 0 || count == 0 || params.size() >= max_params) return false;
            if (align == 0) align = element;
            offset = (offset + align - 1) / align * align;
            if (offset + element * count > 65536) return false;
            params.push_back({static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(element * count)});
            offset += element * count;
            if (t == ")") return true;
        }
    }
    PtxWords words_;
};

// ---- the container ----
void read_image(Bytes image, ImageVisitor& visitor, bool within_fatbin);

void read_fatbin(Bytes image, ImageVisitor& visitor) {
    constexpr std::uint64_t lz4 = 0x2000, zstd = 0x8000;
    if (!image.has(0, 16)) return;
    std::uint64_t at = image.get<std::uint16_t>(6);
    const std::uint64_t end = std::min<std::uint64_t>(image.size, at + std::min<std::uint64_t>(image.get<std::uint64_t>(8), max_bytes));
    std::size_t unpacked = 0;
    while (at >= 16 && at + 64 <= end) {
        const auto header = image.get<std::uint32_t>(at + 4), packed = image.get<std::uint32_t>(at + 16);
        const auto size = image.get<std::uint64_t>(at + 8), flags = image.get<std::uint64_t>(at + 40),
                   raw = image.get<std::uint64_t>(at + 56);
        if (header < 64 || !image.has(at, header) || !image.has(at + header, size)) return;
        Bytes payload = image.part(at + header, size);
        std::vector<unsigned char> out;
        if (flags & (lz4 | zstd)) {
            const Bytes in = payload.part(0, packed != 0 ? std::min<std::uint64_t>(packed, size) : size);
            if (raw == 0 || raw > max_bytes || (unpacked += raw) > max_bytes) return;
            out.resize(raw);
            const bool good = flags & zstd ? ZSTD_decompress(out.data(), out.size(), in.data, in.size) == out.size() : unpack_lz4(in, out);
            payload = good ? Bytes{out.data(), out.size()} : Bytes{nullptr, 0};
        }
        if (payload.size != 0) read_image(payload, visitor, true);
        at += header + size;
    }
}

void read_image(Bytes image, ImageVisitor& visitor, bool within_fatbin) {
    if (!image.has(0, 4)) return;
    const auto magic = image.get<std::uint32_t>(0);
    if (std::memcmp(image.data, ELFMAG, SELFMAG) == 0)
        visitor.cubin(image.data, image.size);
    else if (magic == fatbin_magic && !within_fatbin)
        read_fatbin(image, visitor);
    else if (magic != fatbin_magic)
        visitor.ptx({reinterpret_cast<const char*>(image.data), strnlen(reinterpret_cast<const char*>(image.data), image.size)});
}

struct Images {
    std::mutex mutex;
    std::unordered_map<void*, ImageLayouts> by_owner;
};
Images& images() {
    static Images& i = *new Images;
    return i;
}

void remember(void* owner, ImageLayouts&& layouts) {
    Images& all = images();
    std::lock_guard lock(all.mutex);
    all.by_owner[owner] = std::move(layouts);
}

struct LayoutReader final : ImageVisitor {
    ImageLayouts layouts;
    void ptx(std::string_view text) override { PtxReader(text).read(layouts); }
    void cubin(const unsigned char* elf, std::size_t bytes) override { read_cubin({elf, bytes}, layouts); }
};

}  // namespace

ImageLayouts parse_image(const void* image, std::size_t bytes) {
    LayoutReader reader;
    visit_image(image, bytes, reader);
    return std::move(reader.layouts);
}

void visit_image(const void* image, std::size_t bytes, ImageVisitor& visitor) {
    read_image({static_cast<const unsigned char*>(image), bytes}, visitor, false);
}

void for_each_section(const unsigned char* elf, std::size_t bytes, void (*body)(void*, std::string_view, const unsigned char*, std::size_t), void* to) {
    sections_of({elf, bytes}, [&](std::string_view name, Bytes data) { body(to, name, data.data, data.size); });
}

void for_each_external(const unsigned char* elf, std::size_t bytes, void (*body)(void*, std::string_view, std::string_view), void* to) {
    constexpr unsigned sized = 4, externals = 0x0f;
    constexpr std::string_view prefix = ".nv.info.";
    const Bytes all{elf, bytes};
    std::vector<Bytes> strings;   // by section
    Elf64_Shdr symbols{};
    headers_of(all, [&](unsigned at, std::string_view, const Elf64_Shdr& s) {
        strings.resize(at + 1, Bytes{nullptr, 0});
        if (s.sh_type == SHT_STRTAB) strings[at] = all.part(s.sh_offset, s.sh_size);
        if (s.sh_type == SHT_SYMTAB) symbols = s;
    });
    const auto name_of = [&](std::uint64_t symbol) {
        if (symbol >= symbols.sh_size / sizeof(Elf64_Sym) || symbols.sh_link >= strings.size()) return std::string_view();
        return text_at(strings[symbols.sh_link], all.get<Elf64_Sym>(symbols.sh_offset + symbol * sizeof(Elf64_Sym)).st_name);
    };
    sections_of(all, [&](std::string_view section, Bytes info) {
        if (section.substr(0, prefix.size()) != prefix) return;
        for (std::uint64_t at = 0; info.has(at, 4);) {
            const unsigned format = info.data[at], id = info.data[at + 1], value = info.get<std::uint16_t>(at + 2);
            at += 4;
            if (format != sized) continue;
            if (!info.has(at, value)) return;
            for (unsigned i = 0; id == externals && i + 4 <= value; i += 4) body(to, section.substr(prefix.size()), name_of(info.get<std::uint32_t>(at + i)));
            at += value;
        }
    });
}

void for_each_variable(const unsigned char* elf, std::size_t bytes, void (*body)(void*, std::string_view, std::uint64_t), void* to) {
    const Bytes all{elf, bytes};
    std::vector<bool> holds;          // by section: variables
    std::vector<Bytes> strings;       // by section
    headers_of(all, [&](unsigned at, std::string_view name, const Elf64_Shdr& s) {
        holds.resize(at + 1), strings.resize(at + 1, Bytes{nullptr, 0});
        holds[at] = name.substr(0, 10) == ".nv.global" || name == ".nv.constant3";
        if (s.sh_type == SHT_STRTAB) strings[at] = all.part(s.sh_offset, s.sh_size);
    });
    std::vector<bool> unnamed = holds;
    headers_of(all, [&](unsigned, std::string_view, const Elf64_Shdr& table) {
        if (table.sh_type != SHT_SYMTAB || table.sh_link >= strings.size()) return;
        for (std::uint64_t i = 0; i < table.sh_size / sizeof(Elf64_Sym); ++i) {
            const auto symbol = all.get<Elf64_Sym>(table.sh_offset + i * sizeof(Elf64_Sym));
            if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_shndx >= holds.size() || !holds[symbol.st_shndx]) continue;
            const std::string_view name = text_at(strings[table.sh_link], symbol.st_name);
            if (!name.empty()) unnamed[symbol.st_shndx] = false;
            body(to, name, symbol.st_size);
        }
    });
    for (const bool u : unnamed)
        if (u) body(to, {}, 0);
}

// {magic, version, pointer}
const void* unwrapped_image(const void* image) noexcept {
    std::uint32_t magic;
    std::memcpy(&magic, image, sizeof magic);
    if (magic != wrapper_magic) return image;
    const void* inside;
    std::memcpy(&inside, static_cast<const char*>(image) + 8, sizeof inside);
    return inside;
}

std::size_t image_bytes(const void* image) noexcept {
    std::uint32_t magic;
    std::memcpy(&magic, image, sizeof magic);
    if (magic == fatbin_magic) {
        const Bytes head{static_cast<const unsigned char*>(image), 16};
        const std::uint64_t body = head.get<std::uint64_t>(8);
        return body > max_bytes ? 0 : head.get<std::uint16_t>(6) + body;
    }
    if (std::memcmp(image, ELFMAG, SELFMAG) == 0) {
        const Bytes all{static_cast<const unsigned char*>(image), max_bytes};
        const auto header = all.get<Elf64_Ehdr>(0);
        const std::uint64_t table = std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr);
        if (header.e_shentsize != sizeof(Elf64_Shdr) || !all.has(header.e_shoff, table)) return 0;
        std::uint64_t end = header.e_shoff + table;
        for (unsigned i = 0; i < header.e_shnum; ++i) {
            const auto s = all.get<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr));
            if (s.sh_type != SHT_NOBITS && all.has(s.sh_offset, s.sh_size)) end = std::max(end, s.sh_offset + s.sh_size);
        }
        return end;
    }
    const std::size_t text = strnlen(static_cast<const char*>(image), max_bytes);
    return text < max_bytes ? text : 0;
}

void remember_image(void* owner, const void* image) noexcept {
    if (image == nullptr || (image = unwrapped_image(image)) == nullptr) return;
    remember(owner, parse_image(image, image_bytes(image)));
}

void remember_image_file(void* owner, const char* path) noexcept {
    std::ifstream file(path ? path : "", std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    remember(owner, parse_image(bytes.data(), bytes.size()));
}

void forget_image(void* owner) noexcept {
    Images& all = images();
    std::lock_guard lock(all.mutex);
    all.by_owner.erase(owner);
}

bool image_layout(void* owner, const std::string& kernel, std::vector<KernelLayout::Param>& params) noexcept {
    Images& all = images();
    std::lock_guard lock(all.mutex);
    const auto image = all.by_owner.find(owner);
    if (image == all.by_owner.end()) return false;
    const auto it = image->second.find(kernel);
    if (it == image->second.end()) return false;
    params = it->second;
    return true;
}

}  // namespace udnnmem::interpose
