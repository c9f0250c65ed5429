// All that an execution of the model can change, so that it can be put back to where it was: the heap of the model (operator
// new while `inside`), the stacks of its threads, and the program's own data. A schedule need not be repeated from its
// beginning to try another continuation.
//
// The model's threads are run one at a time on stacks of their own in one thread of the system; each has its own copy of
// the program's thread-local variables. Objects of the explorer are made outside and stay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace model {

// Whether memory is taken from the model's heap. Set while the model's threads run.
bool inside();
class Inside {
  public:
    explicit Inside(bool on);
    ~Inside();

  private:
    bool before_;
};

// A thread of the model; `body` ends by returning. Made inside.
struct Fiber;
Fiber* make_fiber(std::function<void()> body);
// Runs it until it gives way or ends; from the explorer.
void run_fiber(Fiber*);
// From inside a fiber: back to the explorer.
void give_way();
// Of where in the code it is, and how it came there: the calls on its stack.
std::uint64_t place_of(const Fiber*);

// Of which the first page alone matters.
void* large_memory(std::size_t bytes, bool rest_is_never_written);
// ... and from now on the pages of these bytes.
void keep(const void* memory, std::size_t bytes);

struct Snapshot {
    char* bytes = nullptr;
    std::size_t size = 0;
};
// From the explorer, between steps.
Snapshot save();
void restore(const Snapshot&);
void forget(Snapshot&);

}  // namespace model
