// Programs of a few calls, drawn at random or by a fuzzer, run under a pager on the fake GPU beside a model of what their
// buffers hold. An op on a held stream runs when the stream is let go: until then what it names stays mapped as it was
// submitted. Any list of calls is a correctly ordered program: what would not be is ordered by letting streams go.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace udnnmem::pager::test {

struct Call {
    enum class Kind : std::uint8_t {
        allocate, allocate_in_order, free, free_in_order, launch, launch_everything, fill, fill_refused, hold, let_go, evict, clean, fetch, pin, yield, fill_up, refuse_to_map, follow, forget, kinds
    };
    // As often as each should come.
    static Kind drawn(std::uint8_t number);
    Kind kind = Kind::launch;
    std::uint8_t stream = 0, a = 0, b = 0, c = 0;   // of streams, buffers or sizes there are: the remainder counts
};
std::ostream& operator<<(std::ostream&, const Call&);

// What any bytes mean.
std::vector<Call> calls_of(const std::uint8_t* data, std::size_t size);

// What is wrong with how the calls went, with the call; empty if nothing is. `lands`: host frames can be mapped.
std::string wrong_with(const std::vector<Call>& calls, bool lands);

}  // namespace udnnmem::pager::test
