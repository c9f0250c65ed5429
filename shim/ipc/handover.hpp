// Descriptors handed to other processes of the same user. Each process that offers any listens on an abstract unix
// socket whose name follows from its id and a key, so nothing is left in a file system; who asks names an offer by number.
//
// Invariant: the thread that answers holds the mutex while it sends, so that what was withdrawn is sent no more.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

namespace udnnmem::ipc {

struct Piece {
    int descriptor = -1;
    std::uint64_t bytes = 0;
};
// Closes them.
void discard(std::vector<Piece>&);

class Handover {
  public:
    // From the first offer on; `thread_started` is called by the thread that answers.
    explicit Handover(std::function<void()> thread_started) : thread_started_(std::move(thread_started)) {}

    // Takes the descriptors over. 0: no socket or thread can be had.
    std::uint64_t offer(std::vector<Piece> pieces);
    void withdraw(std::uint64_t number);
    std::uint64_t key() const { return key_; }
    // In a forked child: the offers are the parent's.
    void forked();

  private:
    bool start();
    void run();
    void answer(int connection);

    std::function<void()> thread_started_;
    std::mutex mutex_;
    std::map<std::uint64_t, std::vector<Piece>> offers_;
    std::uint64_t key_ = 0, next_ = 1;
    int listening_ = -1;
};

// What process `pid` with that key offers under that number; empty: it does not answer, or offers no such thing.
std::vector<Piece> fetch(pid_t pid, std::uint64_t key, std::uint64_t number);

}  // namespace udnnmem::ipc
