// The library's side of the page: a thread that sleeps until somebody asks.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace udnnmem::live {

class Publisher {
  public:
    // `figures`: JSON Lines of at most 63 KiB, called on the publisher's own thread, after `thread_started`.
    Publisher(std::function<std::string()> figures, std::function<void()> thread_started);
    ~Publisher();   // stop()
    Publisher(const Publisher&) = delete;
    Publisher& operator=(const Publisher&) = delete;

    // Nobody is answered any more; the page goes. Not from the publisher's own thread.
    void stop() noexcept;

  private:
    struct State;
    std::unique_ptr<State> state_;   // null: there could be no page, or no thread
};

}  // namespace udnnmem::live
