// Strong types for the quantities that cross module boundaries: a byte count is not a time, and an op
// index is not a buffer id. Each is an explicit wrapper with comparison and the arithmetic that makes
// sense for it; `.value` is the raw number. Plain C++, no CUDA.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace udnnmem {

// A quantity: may be added, subtracted, scaled.
template <class Tag, class Raw>
struct Quantity {
    Raw value = 0;
    constexpr Quantity() = default;
    constexpr explicit Quantity(Raw v) : value(v) {}
    constexpr auto operator<=>(const Quantity&) const = default;
    constexpr Quantity& operator+=(Quantity o) { value += o.value; return *this; }
    constexpr Quantity& operator-=(Quantity o) { value -= o.value; return *this; }
    friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.value + b.value); }
    friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.value - b.value); }
    static constexpr Quantity max() { return Quantity(std::numeric_limits<Raw>::max()); }
};

// An identity: only compared and used as an index.
template <class Tag, class Raw>
struct Identity {
    Raw value = 0;
    constexpr Identity() = default;
    constexpr explicit Identity(Raw v) : value(v) {}
    constexpr auto operator<=>(const Identity&) const = default;
};

using Bytes = Quantity<struct BytesTag, std::int64_t>;        // signed, so that differences are safe
using Nanoseconds = Quantity<struct NanosecondsTag, std::int64_t>;
using OpIndex = Identity<struct OpIndexTag, std::int32_t>;    // position in the iteration; -1: before its first op
using BufferId = Identity<struct BufferIdTag, std::int32_t>;  // index into Trace::buffers

}  // namespace udnnmem
