// What the launch path tells the recorder: one op with the addresses that it touches, or what orders the ops of one stream behind
// those of another, or the host behind them. Trivially copyable, so that it goes through a ring; nothing is looked up or allocated
// for an op of up to `inline_touches` addresses.
#pragma once

#include <cstdint>
#include <vector>

namespace udnnmem::profiler {

// `write`: `bytes` from the address are written and nothing is read. What is not known is read_write.
enum class Mode : std::uint8_t { read, write, read_write };

struct Touch {
    std::uint64_t address = 0;  // device address, anywhere in an allocation
    Mode mode = Mode::read_write;
    std::uint64_t bytes = UINT64_MAX;
    bool led = false;           // the op was not given it: a table of addresses that it was given leads there
    std::uint16_t word = 0;     // where among a kernel's parameters, inside a structure, it was found: its offset; 0: elsewhere, or nobody knows
};

// event_recorded: `event` on `stream`. stream_waits: `stream` for `event`. host_waited: the host, for `event`, else for what is on
// `stream`, else for everything.
enum class Told : std::uint8_t { op, event_recorded, stream_waits, host_waited };

struct ObservedOp {
    static constexpr std::uint32_t inline_touches = 12;

    const char* name = "";      // of the kernel or the entry point; lives as long as the process
    std::uint64_t shape = 0;    // hash of what else makes two ops the same: dimensions, sizes
    std::uint64_t stream = 0;   // the stream's handle
    std::int32_t timer = -1;    // that measures it; -1: none
    const char* range = "";     // the program's NVTX ranges around it; lives as long as the process
    const char* call = "";      // of a mathematics library, that submitted it; lives as long as the process
    std::uint64_t call_number = 0;  // 0: none
    double call_flops = 0;      // of all ops of that call together
    Told told = Told::op;       // if it is no op, `stream` and `event` are all there is
    bool blocking = false;      // the call returns once it has completed
    std::uint64_t event = 0;    // the event's handle
    bool after_gap = false;     // the recorder's: ops before it were dropped
    std::uint32_t count = 0;    // of touches
    Touch touches[inline_touches];
    std::vector<Touch>* more = nullptr;  // those beyond; owned by whoever holds the record
};

}  // namespace udnnmem::profiler
