// Threads of the library's own: the program's signals go to the program's threads, never to these.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace udnnmem::host {

// Throws std::system_error where no thread can be had, as std::thread does.
template <class Body>
std::thread quiet_thread(Body&& body) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    struct Restore {
        const sigset_t* mask;
        ~Restore() { pthread_sigmask(SIG_SETMASK, mask, nullptr); }
    } restore{&before};
    return std::thread(std::forward<Body>(body));
}

}  // namespace udnnmem::host
