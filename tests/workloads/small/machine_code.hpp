// Kernels as most programs bring them: an image that holds machine code and no PTX. What the software GPU runs is in a section that
// only it knows; the library sees kernels, and whether their module has variables.
#pragma once
#include <elf.h>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// `variables`: the module has some, and says so.
inline std::string machine_code(const std::string& ptx, bool variables) {
  std::vector<std::pair<std::string, std::string>> sections = {{"", ""}, {".softgpu.ptx", ptx + '\0'}};
  if (variables) sections.emplace_back(".nv.global", std::string(8, '\0'));
  constexpr std::string_view entry = ".entry ";
  for (std::size_t at = 0; (at = ptx.find(entry, at)) != std::string::npos;) {
    at += entry.size();
    const std::string kernel = ptx.substr(at, ptx.find_first_of("( \n", at) - at);
    sections.emplace_back(".text." + kernel, std::string(16, '\0'));
    sections.emplace_back(".nv.constant0." + kernel, std::string(16, '\0'));   // what tells a kernel from other functions
  }
  sections.emplace_back(".shstrtab", "");
  std::string names;
  std::vector<Elf64_Shdr> table(sections.size());
  for (std::size_t i = 0; i < sections.size(); ++i) {
    table[i].sh_name = static_cast<Elf64_Word>(names.size());
    names += sections[i].first + '\0';
  }
  sections.back().second = names;
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64, header.e_ident[EI_DATA] = ELFDATA2LSB, header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_EXEC, header.e_machine = EM_CUDA, header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof header, header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = static_cast<Elf64_Half>(table.size()), header.e_shstrndx = static_cast<Elf64_Half>(table.size() - 1);
  std::string image(sizeof header, '\0');
  for (std::size_t i = 0; i < sections.size(); ++i) {
    table[i].sh_type = i == 0 ? SHT_NULL : i + 1 == sections.size() ? SHT_STRTAB : SHT_PROGBITS;
    table[i].sh_offset = image.size(), table[i].sh_size = sections[i].second.size();
    image += sections[i].second;
    image.resize((image.size() + 7) / 8 * 8);
  }
  header.e_shoff = image.size();
  image.append(reinterpret_cast<const char*>(table.data()), table.size() * sizeof(Elf64_Shdr));
  std::memcpy(image.data(), &header, sizeof header);
  return image;
}
