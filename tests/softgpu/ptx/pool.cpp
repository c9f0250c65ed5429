// See pool.hpp.
#include "tests/softgpu/ptx/pool.hpp"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace softgpu::ptx {
namespace {

struct Job {
    const std::function<void()>* work;
    int wanted;      // helpers that may still join
    int inside = 0;  // helpers in it
};

struct Pool {
    std::mutex mutex;
    std::condition_variable wake, left;
    std::vector<Job*> jobs;
    int threads = 0;
    pid_t owner = getpid();

    void helper() {
        std::unique_lock lock(mutex);
        for (;;) {
            wake.wait(lock, [&] { return !jobs.empty(); });
            Job* job = jobs.front();
            if (--job->wanted == 0) jobs.erase(jobs.begin());
            ++job->inside;
            lock.unlock();
            (*job->work)();
            lock.lock();
            --job->inside;
            left.notify_all();
        }
    }
    void grow(int to) {  // with the lock
        for (; threads < to && threads < 64; ++threads) {
            // Helpers take no signals but those of wrong accesses.
            sigset_t all, old;
            sigfillset(&all);
            for (int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&all, s);
            pthread_sigmask(SIG_SETMASK, &all, &old);
            try {
                std::thread([this] { helper(); }).detach();
            } catch (...) {
                pthread_sigmask(SIG_SETMASK, &old, nullptr);
                return;
            }
            pthread_sigmask(SIG_SETMASK, &old, nullptr);
        }
    }
};

Pool& pool() {
    static Pool* const one = new Pool;
    return *one;
}

}  // namespace

void with_helpers(int helpers, const std::function<void()>& work) {
    Pool& p = pool();
    if (helpers <= 0 || p.owner != getpid()) return work();
    Job job{&work, helpers};
    {
        std::lock_guard lock(p.mutex);
        p.grow(helpers);
        p.jobs.push_back(&job);
    }
    for (int i = 0; i < helpers; ++i) p.wake.notify_one();
    work();
    std::unique_lock lock(p.mutex);
    std::erase(p.jobs, &job);
    p.left.wait(lock, [&] { return job.inside == 0; });
}

}  // namespace softgpu::ptx
