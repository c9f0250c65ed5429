// What a shared library on disk defines and needs, read before it is loaded.
#pragma once

#include <string>
#include <vector>

namespace udnnmem::interpose {

// One library file, mapped for reading. Files are the program's input: every offset is checked against the file, and
// what does not parse has no symbols.
class ElfFile {
  public:
    explicit ElfFile(const std::string& path) noexcept;
    ~ElfFile();
    ElfFile(const ElfFile&) = delete;
    ElfFile& operator=(const ElfFile&) = delete;

    // Whether it defines a data symbol (not a function) of that name.
    bool defines_data(const char* name) const noexcept;
    // The libraries that it needs, and where it says they may be ($ORIGIN put in).
    std::vector<std::string> needed() const;
    std::vector<std::string> search_folders() const;

  private:
    // `count` objects of T at a virtual address, null if they do not lie in the file.
    template <class T>
    const T* at(std::uint64_t address, std::uint64_t count = 1) const noexcept;
    const char* text(std::uint64_t offset) const noexcept;

    std::string path_;
    const unsigned char* base_ = nullptr;
    std::size_t bytes_ = 0;
    struct Segment {
        std::uint64_t address, offset, bytes;
    };
    std::vector<Segment> segments_;
    std::uint64_t symbols_ = 0, strings_ = 0, string_bytes_ = 0, gnu_hash_ = 0, hash_ = 0;
    std::vector<std::uint64_t> needed_, folders_;
};

}  // namespace udnnmem::interpose
