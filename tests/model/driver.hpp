// A driver for the model: memory in granules of a few words that matter, streams that run when the explorer says so, and
// the questions that the pager asks. What a kernel finds unmapped, or mapped elsewhere at its end than at its beginning, is
// a violation: on a card it would be a fault, or a lost write.
#pragma once

#include "tests/model/pager_under_model.hpp"

namespace model {
using namespace udnnmem;

inline constexpr std::size_t granule = 64 << 10;
inline constexpr int words = 4;
inline constexpr int pointer_word = words - 1;
inline bool is_pointer(std::uint64_t word) { return word >> 32; }

struct StreamOp {
    enum class Kind { kernel, fill, copy, hash, find, event, wait, gate } kind;
    std::vector<CUdeviceptr> touches;   // kernel: whose word `word` grows by one; fill: all words become `value`
    int word = 0;
    std::uint64_t value = 0;
    CUdeviceptr to = 0, from = 0;       // copy, hash
    std::uint64_t* answer = nullptr;    // hash, find
    std::vector<std::pair<CUdeviceptr, CUdeviceptr>> looks;  // find: through the first, at what stands at the second
    CUdeviceptr* found = nullptr;       // find
    CUdeviceptr pointer = 0;            // kernel: what it writes into the last word of the first that it touches, if anything
    int event = -1;
    bool begun = false;
    std::vector<std::uint64_t> frames;  // behind `touches` when it began
};

class FakeDriver {
  public:
    explicit FakeDriver(std::size_t device_granules, bool landing);
    pager::Driver table();

    // The program's own calls.
    void submit(CUstream, StreamOp);
    bool gate_open = false;

    std::vector<CUstream> streams() const;
    bool can_step(CUstream) const;
    // Ends what is in front, on the mover's streams all up to the next event.
    void step(CUstream);
    void begin(CUstream);
    void end(CUstream);
    bool idle() const;
    // A bit for the stream by its place in streams(), and for those that it may have to wait for.
    std::uint64_t bits(CUstream) const;
    // ... and for those that an event waits for.
    std::uint64_t bits_behind(int event) const;
    bool answered(const std::uint64_t* answer) const;
    std::uint64_t word_at(CUdeviceptr, int word) const;
    // `names`: of the frames that somebody has, by handle; what the others hold matters to nobody.
    std::uint64_t hash(const std::map<std::uint64_t, std::uint64_t>& names) const;
    int pending(CUevent event) const { return event ? pending_of_event[reinterpret_cast<std::uintptr_t>(event) - 1] : -1; }

    struct Physical {
        std::uint64_t data[words] = {};
        std::size_t bytes = 0;
        bool host = false;
    };
    std::map<std::uint64_t, Physical> physical;       // by handle
    std::map<CUdeviceptr, std::uint64_t> mapped;      // granule -> handle
    std::map<CUstream, std::deque<StreamOp>> queues;
    std::vector<int> pending_of_event;                // ops in front of the newest record, and the record; 0: passed
    std::size_t device_bytes = 0, device_memory;
    bool landing;
    CUdeviceptr hole = 0;                             // where something was unmapped last, if nothing was mapped since
    std::uint64_t next_handle = 1;
    CUdeviceptr next_address = 0x100000000;
    std::uintptr_t next_stream = 1;

    std::uint64_t behind(CUdeviceptr at) const {
        auto it = mapped.find(at / granule * granule);
        return it == mapped.end() ? 0 : it->second;
    }
};

// The driver of the execution under way.
extern FakeDriver* driver;

}  // namespace model
