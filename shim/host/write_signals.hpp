// Writes of the library's own do not end the program: SIGPIPE, of a pipe that nobody reads, and SIGXFSZ, of a file that is
// as long as the process may make it, are held back while one of these lives, and what came by then is taken away.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <cerrno>

namespace udnnmem::host {

// Of the calling thread; errno stays. One that was pending before stays so.
class WithoutWriteSignals {
  public:
    WithoutWriteSignals() noexcept {
        sigemptyset(&held_);
        sigaddset(&held_, SIGPIPE);
        sigaddset(&held_, SIGXFSZ);
        pthread_sigmask(SIG_BLOCK, &held_, &before_);
        sigset_t pending;
        sigpending(&pending);
        for (const int signal : {SIGPIPE, SIGXFSZ})
            if (sigismember(&pending, signal)) sigdelset(&held_, signal);
    }
    ~WithoutWriteSignals() {
        const int reason = errno;
        const timespec now{};
        while (sigtimedwait(&held_, nullptr, &now) > 0) {
        }
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        errno = reason;
    }
    WithoutWriteSignals(const WithoutWriteSignals&) = delete;
    WithoutWriteSignals& operator=(const WithoutWriteSignals&) = delete;

  private:
    sigset_t held_, before_;
};

}  // namespace udnnmem::host
