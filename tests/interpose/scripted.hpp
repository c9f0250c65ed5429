// For tests that link interpose and play the driver themselves: functions of the test take the place of the driver's
// in interpose's own table. The driver that only notes calls stands behind for the rest.
#pragma once

#include "interpose/internal.hpp"

namespace scripted {

using namespace udnnmem::interpose;

inline void put(Symbol symbol, void* function) {
    resolve_driver();
    slots[static_cast<std::size_t>(symbol)].store(function);
}
// SCRIPT(cuGraphGetNodes, function): a function, or a lambda that captures nothing, of the header's signature.
#define SCRIPT(symbol, ...) \
    ::scripted::put(::udnnmem::interpose::Symbol::symbol, reinterpret_cast<void*>(static_cast<decltype(&::symbol)>(__VA_ARGS__)))
#define UNSCRIPT(symbol) ::scripted::put(::udnnmem::interpose::Symbol::symbol, nullptr)

}  // namespace scripted
