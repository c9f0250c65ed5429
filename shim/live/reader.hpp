// The tool's side of the page: which processes have one, and what they say.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "profiler/trace/error.hpp"

namespace udnnmem::live {

struct Page;

// One process, as long as it is looked at. Another process may end, stop or be replaced at any time: that is an error, no more.
class Process {
  public:
    // Error: why it cannot be looked at (no such process, not ours to look into, not under the library).
    static Expected<Process> open(int pid);
    Process(Process&& other) noexcept;
    Process& operator=(Process&& other) noexcept;
    ~Process();

    int pid() const { return pid_; }
    bool running() const;   // false: it has ended
    // What it says now: JSON Lines. Error: it does not answer within `patience` (stopped, ending).
    Expected<std::string> ask(std::chrono::milliseconds patience);

  private:
    Process(int pid, int handle, Page* page) : pid_(pid), handle_(handle), page_(page) {}
    int pid_, handle_;   // pidfd
    Page* page_;
};

// Every process that the user may look into and that has a page, ascending.
std::vector<int> find_processes();

}  // namespace udnnmem::live
