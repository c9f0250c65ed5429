// What a plan asks of a device's mover ahead of need: a wish, never a promise. An order whose buffer was freed, used again,
// or is elsewhere by then is dropped; launches that need memory now come first. So an order that is wrong costs time only.
//
// Orders of one direction are begun in the order in which they were given, fetches one behind the other.
#pragma once

#include <cstdint>

namespace udnnmem::pager {

struct Buffer;
struct StreamSlot;

struct Order {
    enum class Kind : std::uint8_t {
        evict,  // once the ops up to `after` have completed, if none that came later uses the buffer
        clean,  // likewise copied out while it stays, so that a later eviction has nothing to copy
        fetch,  // once the op `after` of `stream` has completed, as soon as there is room
        drop,   // as evict, but hashed and given up: who orders it can compute it again (Restorer, pager.hpp)
    };
    Kind kind = Kind::evict;
    Buffer* buffer = nullptr;
    std::uint32_t id = 0;      // of the allocation that is meant (Buffer::id)
    std::uint64_t after = 0;   // evict, clean: number of the op that is the buffer's last use before it
    StreamSlot* stream = nullptr;
};

}  // namespace udnnmem::pager
