// All that defines a kernel launch, a copy or a fill, so that it can be made again; and where it comes from.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace udnnmem::replay {

struct Launch {
    enum class Kind : std::uint8_t { kernel, copy, fill };
    Kind kind = Kind::kernel;
    CUfunction function = nullptr;   // a kernel's; the arguments of a copy within the device are CopyArguments, of a fill CUDA's own
    const char* name = "";           // the kernel's; lives as long as the process
    unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
    unsigned shared_bytes = 0;
    std::vector<CUlaunchAttribute> attributes;
    std::vector<char> arguments;     // the parameter buffer
    std::vector<std::pair<std::uint32_t, std::uint32_t>> parameters;  // offset and size of each that may hold an address
};

struct CopyArguments {
    std::uint64_t from, to, bytes;
};
using FillArguments = CUDA_MEMSET_NODE_PARAMS_v1;

// An op that the program is about to submit, as seen by whoever hooks it. Valid during the call.
class LaunchSource {
  public:
    // Why the op cannot be run again by its launch alone, whatever it computes: one phrase; null: nothing is against it.
    // May be slow.
    virtual const char* refused() const = 0;
    // The same of this launch, whatever the code that it runs. Quick.
    virtual const char* tied() const = 0;
    // Whether it may write to what the word of its arguments at that offset leads to.
    virtual bool may_write(std::uint32_t offset) const = 0;
    // Whether what is there may decide which addresses it uses or which way it goes: tried with other contents it could do anything.
    virtual bool may_steer(std::uint32_t offset) const = 0;
    // Whether it writes there only where, or when, what is in memory says so: what it leaves out at one time it may not at others.
    virtual bool may_leave_out(std::uint32_t offset) const = 0;
    // Whether what lies there is no address that it uses, whatever it leads to, as long as that is no memory of the program's
    // (pager::Op::strays). Quick.
    virtual bool stray(std::uint32_t offset) const = 0;
    // Whether its code was read, and says all that it may write, and what steers it. Where not, may_write() and may_leave_out() say what is
    // known, and may_steer() says yes.
    virtual bool inspected() const = 0;
    // What code a kernel runs: its name and the images that it comes from, the same in every run that loads the same ones; 0:
    // not known. May be slow.
    virtual std::uint64_t code() const = 0;
    // Whether it is that launch again, by all of its arguments. False: it may be. Quick.
    virtual bool again(const Launch& launch) const = 0;
    // Allocates nothing if `out` was used for the same op before. False: it has no such form.
    virtual bool copy(Launch& out) const = 0;

  protected:
    ~LaunchSource() = default;
};

}  // namespace udnnmem::replay
