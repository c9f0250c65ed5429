// The page that the library and `udnnmem top` share. Fields are only ever added at the end of the text.
//
// Asking: add 1 to `asked`, wake whoever waits on it, wait until `answered` has reached what it was then. The text is valid
// while `sequence` is even and the same before and after it was read.
#pragma once

#include <atomic>
#include <cstdint>

namespace udnnmem::live {

inline constexpr const char* page_name = "udnnmem-live";   // of the memfd
inline constexpr char page_magic[8] = {'u', 'd', 'n', 'n', 'm', 'e', 'm', '1'};

struct Page {
    char magic[8];
    std::int32_t pid;                         // as the process itself knows it
    std::atomic<std::uint32_t> asked, answered, sequence;
    std::uint32_t length;                     // of the text
    char text[64 * 1024 - 28];                // JSON Lines
};
static_assert(sizeof(Page) == 64 * 1024 && std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace udnnmem::live
