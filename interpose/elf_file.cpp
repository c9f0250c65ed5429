#include <cstdint>

#include "interpose/elf_file.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

namespace udnnmem::interpose {
namespace {

std::uint32_t gnu_hash_of(const char* name) noexcept {
    std::uint32_t h = 5381;
    for (; *name; ++name) h = h * 33 + static_cast<unsigned char>(*name);
    return h;
}

std::uint32_t sysv_hash_of(const char* name) noexcept {
    std::uint32_t h = 0;
    for (; *name; ++name) {
        h = (h << 4) + static_cast<unsigned char>(*name);
        h ^= (h >> 24) & 0xf0;
    }
    return h & 0x0fffffff;
}

}  // namespace

ElfFile::ElfFile(const std::string& path) noexcept : path_(path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    struct stat st {};
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= static_cast<off_t>(sizeof(Elf64_Ehdr))) {
        void* p = mmap(nullptr, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p != MAP_FAILED) base_ = static_cast<const unsigned char*>(p), bytes_ = st.st_size;
    }
    close(fd);
    if (base_ == nullptr) return;
    Elf64_Ehdr header;
    std::memcpy(&header, base_, sizeof header);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phoff > bytes_ ||
        header.e_phnum > (bytes_ - header.e_phoff) / sizeof(Elf64_Phdr))
        return;
    std::uint64_t dynamic = 0, dynamic_bytes = 0;
    for (unsigned i = 0; i < header.e_phnum; ++i) {
        Elf64_Phdr ph;
        std::memcpy(&ph, base_ + header.e_phoff + i * sizeof ph, sizeof ph);
        if (ph.p_offset > bytes_ || ph.p_filesz > bytes_ - ph.p_offset) continue;
        if (ph.p_type == PT_LOAD) segments_.push_back({ph.p_vaddr, ph.p_offset, ph.p_filesz});
        if (ph.p_type == PT_DYNAMIC) dynamic = ph.p_offset, dynamic_bytes = ph.p_filesz;
    }
    for (std::uint64_t at = dynamic; at + sizeof(Elf64_Dyn) <= dynamic + dynamic_bytes; at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn d;
        std::memcpy(&d, base_ + at, sizeof d);
        if (d.d_tag == DT_NULL) break;
        switch (d.d_tag) {
            case DT_SYMTAB: symbols_ = d.d_un.d_ptr; break;
            case DT_STRTAB: strings_ = d.d_un.d_ptr; break;
            case DT_STRSZ: string_bytes_ = d.d_un.d_val; break;
            case DT_GNU_HASH: gnu_hash_ = d.d_un.d_ptr; break;
            case DT_HASH: hash_ = d.d_un.d_ptr; break;
            case DT_NEEDED: needed_.push_back(d.d_un.d_val); break;
            case DT_RPATH:
            case DT_RUNPATH: folders_.push_back(d.d_un.d_val); break;
            default: break;
        }
    }
}

ElfFile::~ElfFile() {
    if (base_) munmap(const_cast<unsigned char*>(base_), bytes_);
}

template <class T>
const T* ElfFile::at(std::uint64_t address, std::uint64_t count) const noexcept {
    for (const Segment& s : segments_) {
        if (address < s.address || address - s.address > s.bytes) continue;
        const std::uint64_t inside = address - s.address;
        if (count > (s.bytes - inside) / sizeof(T)) continue;
        const unsigned char* p = base_ + s.offset + inside;
        return reinterpret_cast<std::uintptr_t>(p) % alignof(T) ? nullptr : reinterpret_cast<const T*>(p);
    }
    return nullptr;
}

// The string, if it ends within the table.
const char* ElfFile::text(std::uint64_t offset) const noexcept {
    if (offset >= string_bytes_) return nullptr;
    const char* table = at<char>(strings_, string_bytes_);
    return table && std::memchr(table + offset, 0, string_bytes_ - offset) ? table + offset : nullptr;
}

bool ElfFile::defines_data(const char* name) const noexcept {
    const auto is_it = [&](std::uint32_t index) {
        const auto* s = at<Elf64_Sym>(symbols_ + std::uint64_t{index} * sizeof(Elf64_Sym));
        if (!s || s->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(s->st_info) != STT_OBJECT) return false;
        const char* its = text(s->st_name);
        return its && std::strcmp(its, name) == 0;
    };
    if (gnu_hash_ != 0) {
        // {buckets, first symbol, bloom words, shift}, bloom filter, buckets, chains that end with an odd hash
        const auto* head = at<std::uint32_t>(gnu_hash_, 4);
        if (!head || head[0] == 0 || head[2] == 0) return false;
        const std::uint32_t h = gnu_hash_of(name);
        const std::uint64_t bloom_at = gnu_hash_ + 16, buckets_at = bloom_at + std::uint64_t{head[2]} * 8;
        const auto* bloom = at<std::uint64_t>(bloom_at + (h / 64 % head[2]) * 8);
        if (!bloom || !(*bloom >> (h % 64) & 1) || !(*bloom >> ((h >> (head[3] & 31)) % 64) & 1)) return false;
        const auto* bucket = at<std::uint32_t>(buckets_at + std::uint64_t{h % head[0]} * 4);
        if (!bucket || *bucket < head[1]) return false;
        const std::uint64_t chains_at = buckets_at + std::uint64_t{head[0]} * 4;
        for (std::uint32_t i = *bucket;; ++i) {
            const auto* chain = at<std::uint32_t>(chains_at + std::uint64_t{i - head[1]} * 4);
            if (!chain) return false;
            if ((*chain | 1) == (h | 1) && is_it(i)) return true;
            if (*chain & 1) return false;
        }
    }
    if (hash_ == 0) return false;
    const auto* head = at<std::uint32_t>(hash_, 2);
    if (!head || head[0] == 0) return false;
    const auto* index = at<std::uint32_t>(hash_ + 8 + std::uint64_t{sysv_hash_of(name) % head[0]} * 4);
    for (std::uint32_t steps = 0; index && *index != 0 && steps < head[1]; ++steps) {
        if (is_it(*index)) return true;
        index = at<std::uint32_t>(hash_ + 8 + (std::uint64_t{head[0]} + *index) * 4);
    }
    return false;
}

std::vector<std::string> ElfFile::needed() const {
    std::vector<std::string> names;
    for (std::uint64_t offset : needed_)
        if (const char* name = text(offset)) names.emplace_back(name);
    return names;
}

std::vector<std::string> ElfFile::search_folders() const {
    std::vector<std::string> folders;
    const std::string origin = path_.find('/') == std::string::npos ? "." : path_.substr(0, path_.rfind('/'));
    for (std::uint64_t offset : folders_) {
        const char* list = text(offset);
        for (std::string rest = list ? list : ""; !rest.empty();) {
            const std::size_t colon = rest.find(':');
            std::string folder = rest.substr(0, colon);
            rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
            for (const char* word : {"${ORIGIN}", "$ORIGIN"})
                if (const std::size_t p = folder.find(word); p != std::string::npos) folder.replace(p, std::strlen(word), origin);
            if (!folder.empty()) folders.push_back(std::move(folder));
        }
    }
    return folders;
}

}  // namespace udnnmem::interpose
