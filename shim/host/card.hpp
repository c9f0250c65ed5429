// Who else is on this card: the processes of one user that manage memory on the same device, so that `auto` budgets of
// several ranks add up to the card and not to several of it. Each process that uses a card holds a lock of one byte of a file
// under /dev/shm that is named after the card; the kernel lets go of it when the process ends, however it ends. Ranks of jobs
// do so in one file for all jobs, which stays empty.
//
// Invariants: nothing here waits longer than it is told to; where files cannot be had, a process is alone. Processes that
// see different /dev/shm (containers without a common IPC namespace) do not see each other.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "profiler/trace/units.hpp"

namespace udnnmem::host {

// A set of processes, by a file's name and a number. Joined for life: the lock goes with the process (also at exec), not with the object; a forked
// child is no member. Not thread-safe. Nothing in the process closes the file, which would let go of its locks.
class Gathering {
  public:
    explicit Gathering(std::string_view file, std::uint64_t group = 0);  // letters, digits and dashes; those with figures are group 0
    // Becomes a member, which tells `figure` to the others where there is room for it; 0: none. False: no file, or 128 members are there.
    bool join(Bytes figure);
    struct Members {
        int count = 0;
        Bytes largest;   // of their figures
    };
    Members members() const;  // this process included, if it has joined

  private:
    int file_ = -1;
    off_t first_ = 0;   // the byte of its first slot
    int slot_ = -1;
};

// What each rank on the card may take of it.
struct CardShare {
    int ranks = 1;       // on this card, this one included
    Bytes free;          // the most that any of them found free when it came
    bool seen = true;    // false: others that are here are not counted, for lack of a file
};

// Joins those on `card` (by its UUID), and where the launcher has started more than one rank here (`expected`), waits at most
// `patience` until all of them have come to some card. `free`: what this process finds free.
CardShare share_card(std::string_view card, Bytes free, int expected, std::chrono::milliseconds patience);

}  // namespace udnnmem::host
