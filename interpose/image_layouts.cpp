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

// What a section `.nv.info.FUNCTION` lists: {format, id, u16} or, for format 4, {4, id, u16 bytes, payload}.
constexpr std::string_view kInfo = ".nv.info.";
constexpr unsigned kParam = 0x17, kParamV2 = 0x45, kBankBytes = 0x19, kExternals = 0x0f;

// body(id, value, payload: empty but for format 4), which says whether to go on. False: it did not, or the list does not end where it should.
template <class Body>
bool attributes_of(Bytes info, Body body) {
    for (std::uint64_t at = 0; info.has(at, 4);) {
        const unsigned format = info.data[at], id = info.data[at + 1], value = info.get<std::uint16_t>(at + 2);
        at += 4;
        const std::uint64_t bytes = format == 4 ? value : 0;
        if (!info.has(at, bytes) || !body(id, value, info.part(at, bytes))) return false;
        at += bytes;
    }
    return true;
}

std::optional<std::vector<KernelLayout::Param>> read_info(Bytes info) {
    std::map<unsigned, KernelLayout::Param> by_ordinal;
    unsigned total = 0;
    const bool good = attributes_of(info, [&](unsigned id, unsigned value, Bytes payload) {
        if (id == kBankBytes && !payload.size) total = value;
        if ((id != kParam && id != kParamV2) || payload.size < 12) return true;
        const unsigned ordinal = payload.get<std::uint16_t>(4), offset = payload.get<std::uint16_t>(6);
        const auto word = payload.get<std::uint32_t>(8);
        const std::uint32_t size = id == kParam ? word >> 18 : word;
        by_ordinal[ordinal] = {offset, size};
        return ordinal < max_params && size <= 65536;
    });
    if (!good) return std::nullopt;
    std::vector<KernelLayout::Param> params;
    for (auto& [ordinal, p] : by_ordinal) {
        if (ordinal != params.size()) return std::nullopt;  // a hole
        params.push_back(p);
    }
    if (params.empty() && total != 0) return std::nullopt;
    return params;
}

std::string_view text_at(Bytes strings, std::uint64_t at) {
    if (at >= strings.size) return {};
    const char* text = reinterpret_cast<const char*>(strings.data) + at;
    return {text, strnlen(text, strings.size - at)};
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

// The symbols of an ELF file, none where it has no table.
class Symbols {
  public:
    explicit Symbols(Bytes elf) {
        Elf64_Word link = 0;
        headers_of(elf, [&](unsigned, std::string_view, const Elf64_Shdr& s) {
            if (s.sh_type == SHT_SYMTAB) table_ = elf.part(s.sh_offset, s.sh_size), link = s.sh_link;
        });
        headers_of(elf, [&](unsigned at, std::string_view, const Elf64_Shdr& s) {
            if (at == link && s.sh_type == SHT_STRTAB) names_ = elf.part(s.sh_offset, s.sh_size);
        });
    }
    std::size_t count() const { return table_.size / sizeof(Elf64_Sym); }
    Elf64_Sym at(std::size_t i) const { return table_.get<Elf64_Sym>(i * sizeof(Elf64_Sym)); }
    std::string_view name(std::size_t i) const { return i < count() ? text_at(names_, at(i).st_name) : std::string_view(); }

  private:
    Bytes table_{nullptr, 0}, names_{nullptr, 0};
};

void read_cubin(Bytes elf, ImageLayouts& layouts) {
    sections_of(elf, [&](std::string_view name, Bytes data) {
        if (name.substr(0, kInfo.size()) != kInfo) return;
        if (auto params = read_info(data)) layouts.emplace(name.substr(kInfo.size()), std::move(*params));
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
    const Symbols symbols({elf, bytes});
    sections_of({elf, bytes}, [&](std::string_view section, Bytes info) {
        if (section.substr(0, kInfo.size()) != kInfo) return;
        attributes_of(info, [&](unsigned id, unsigned, Bytes payload) {
            for (std::size_t at = 0; id == kExternals && payload.has(at, 4); at += 4) body(to, section.substr(kInfo.size()), symbols.name(payload.get<std::uint32_t>(at)));
            return true;
        });
    });
}

void for_each_variable(const unsigned char* elf, std::size_t bytes, void (*body)(void*, std::string_view, std::uint64_t), void* to) {
    std::map<unsigned, bool> named;   // sections of variables
    headers_of({elf, bytes}, [&](unsigned at, std::string_view name, const Elf64_Shdr&) {
        if (name.substr(0, 10) == ".nv.global" || name == ".nv.constant3") named[at] = false;
    });
    const Symbols symbols({elf, bytes});
    for (std::size_t i = 0; i < symbols.count(); ++i) {
        const Elf64_Sym symbol = symbols.at(i);
        const auto section = named.find(symbol.st_shndx);
        if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || section == named.end()) continue;
        section->second = true;
        body(to, symbols.name(i), symbol.st_size);
    }
    for (const auto& [section, some] : named)
        if (!some) body(to, {}, 0);
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
