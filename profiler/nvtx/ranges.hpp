// Which NVTX ranges the program is in, by thread: those that the thread pushed, and those that any thread has started and
// none has ended. Fed by the program's NVTX calls (injection.cpp), read by the launch path while an iteration is learned.
//
// Invariants
//   - Space is bounded: names are cut at 128 bytes, ranges beyond 64 at a time are counted and not named, and after 2^17
//     different paths here() answers "".
//   - Once listening has ended every call returns at once, and it never begins again. A forked child does not listen.
// Thread-safe; nothing throws.
#pragma once

#include <cstdint>
#include <string_view>

namespace udnnmem::profiler::nvtx {

// Domains are told apart by handle; 0 is the default one. A pushed range is popped by its own thread in its own domain.
void pushed(std::uintptr_t domain, std::string_view name) noexcept;
int popped(std::uintptr_t domain) noexcept;   // the level of the range that ended, 0 the outermost of its domain; -1: there was none
void started(std::uintptr_t domain, std::uint64_t id, std::string_view name) noexcept;
void ended(std::uintptr_t domain, std::uint64_t id) noexcept;
void marked(std::uintptr_t domain, std::string_view name) noexcept;   // a point, not a range
int depth(std::uintptr_t domain) noexcept;    // ranges that this thread has pushed and not popped

// The ranges around the calling thread, outermost (first begun) first, joined by slashes: "step/forward/conv1". A range of
// another domain than the default one reads "domain:name". Lives as long as the process.
const char* here() noexcept;

// `told` is called, on the thread that does it, whenever a range or mark of that name begins, until listening ends. Once.
void watch(std::string_view name, void (*told)() noexcept) noexcept;

bool listening() noexcept;
void stop_listening() noexcept;

// What a domain is called in paths; for injection.cpp.
void name_domain(std::uintptr_t domain, std::string_view name) noexcept;

}  // namespace udnnmem::profiler::nvtx
