// Learning that fails, or hangs, and the program that goes on beside it.
#include "tests/unit/learner/made_up_driver.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include "shim/preload/learner.hpp"
#include "tests/catch.hpp"

namespace {
std::atomic<bool> no_threads{false};
}
// In front of the C library's.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) {
    static const auto real = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
    return no_threads ? EAGAIN : real(thread, attributes, body, argument);
}

using namespace udnnmem;
using namespace udnnmem::preload;

namespace {
void tell_iterations(Learner& learner, int count) {
    for (int i = 0; i < count; ++i)
        for (std::uint64_t k = 0; k < 10; ++k) {
            const auto stream = MadeUpDriver::stream(1);
            const std::int32_t timer = learner.recorder.timing() ? learner.timers.start(stream) : -1;
            learner.timers.stop(timer, stream, true);
            learner.tell("op", k, stream, false, Touches{{1 << 20, profiler::Mode::read_write}}, timer);
        }
}
}  // namespace

TEST_CASE("what fails while the iteration is learned ends the learning, not the program") {
    MadeUpDriver::play();
    Learner learner(true, {.only_events = true}, [](const profiler::Iteration&) { throw std::bad_alloc(); });
    learner.recorder.allocated(1 << 20, 4096);
    tell_iterations(learner, 50);
    CHECK(soon([&] { return !learner.recorder.on(); }));
    learner.stop();
    CHECK(MadeUpDriver::one().held() == 0);
    CHECK(learner.take_lines().empty());
}

TEST_CASE("without a thread nothing is learned, and nothing noted for nobody") {
    MadeUpDriver::play();
    Learner learner(true, {.only_events = true}, [](const profiler::Iteration&) {});
    learner.recorder.allocated(1 << 20, 4096);
    no_threads = true;
    tell_iterations(learner, 1);
    no_threads = false;
    CHECK_FALSE(learner.recorder.on());
    CHECK(MadeUpDriver::one().held() == 0);
    learner.stop();
}

TEST_CASE("a program's end waits for learning that hangs no longer than it may") {
    MadeUpDriver::play();
    static std::atomic<bool> hangs{true}, inside{false};
    static auto& learner = *new Learner(true, {.only_events = true}, [](const profiler::Iteration&) {   // stays: the thread needs it
        inside = true;
        while (hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    learner.patience = std::chrono::milliseconds(50);
    learner.recorder.allocated(1 << 20, 4096);
    tell_iterations(learner, 50);
    REQUIRE(soon([&] { return inside.load(); }));
    const auto before = std::chrono::steady_clock::now();
    learner.stop();
    CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(5));
    learner.stop();
    hangs = false;
}
