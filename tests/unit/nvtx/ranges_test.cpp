// Which ranges a thread is in: pushed ones by thread and domain, started ones for all threads, in the order in which they began.
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "profiler/nvtx/ranges.hpp"
#include "tests/catch.hpp"

using namespace udnnmem::profiler;

TEST_CASE("paths") {
    CHECK(std::string(nvtx::here()).empty());
    nvtx::pushed(0, "step");
    nvtx::started(0, 7, "forward");
    nvtx::pushed(0, "conv");
    CHECK(std::string(nvtx::here()) == "step/forward/conv");
    const char* const once = nvtx::here();
    CHECK(nvtx::here() == once);
    std::thread([] {
        CHECK(std::string(nvtx::here()) == "forward");
        nvtx::pushed(0, "loader");
        CHECK(std::string(nvtx::here()) == "forward/loader");
    }).join();
    nvtx::ended(0, 7);
    CHECK(std::string(nvtx::here()) == "step/conv");
    CHECK(nvtx::depth(0) == 2);
    CHECK(nvtx::popped(0) == 1);
    CHECK(nvtx::popped(0) == 0);
    CHECK(nvtx::popped(0) == -1);
    CHECK(std::string(nvtx::here()).empty());
    nvtx::pushed(0, "step"), nvtx::started(0, 8, "forward"), nvtx::pushed(0, "conv");
    CHECK(nvtx::here() == once);  // the same path is the same text
    nvtx::ended(0, 8), nvtx::popped(0), nvtx::popped(0);
}

TEST_CASE("domains") {
    nvtx::name_domain(5, "mylib");
    nvtx::pushed(0, "step");
    nvtx::pushed(5, "gemm");
    nvtx::pushed(6, "unnamed domain");
    CHECK(std::string(nvtx::here()) == "step/mylib:gemm/unnamed domain");
    CHECK(nvtx::popped(0) == 0);  // of its own domain, though not the last that was pushed
    CHECK(std::string(nvtx::here()) == "mylib:gemm/unnamed domain");
    nvtx::started(5, 1, "a");
    nvtx::ended(6, 1);  // the same id in another domain is another range
    CHECK(std::string(nvtx::here()) == "mylib:gemm/unnamed domain/mylib:a");
    nvtx::ended(5, 1);
    CHECK(nvtx::popped(5) == 0);
    CHECK(nvtx::popped(6) == 0);
}

TEST_CASE("space is bounded") {
    nvtx::pushed(0, std::string(1000, 'x'));
    CHECK(std::string(nvtx::here()).size() == 128);
    for (int i = 0; i < 1000; ++i) nvtx::pushed(0, "deep");
    CHECK(nvtx::depth(0) == 1001);
    CHECK(std::string(nvtx::here()).size() == 128 + 63 * 5);
    for (int i = 1000; i >= 0; --i) REQUIRE(nvtx::popped(0) == i);
    for (std::uint64_t i = 0; i < 1000; ++i) nvtx::started(0, i, "s");
    CHECK(std::string(nvtx::here()).size() == 64 * 2 - 1);
    for (std::uint64_t i = 0; i < 1000; ++i) nvtx::ended(0, i);
    CHECK(std::string(nvtx::here()).empty());
    for (int i = 0; i < (1 << 17) + 10; ++i) {
        nvtx::pushed(0, "p" + std::to_string(i));
        if (i == 1000) CHECK(std::string(nvtx::here()) == "p1000");
        else nvtx::here();
        nvtx::popped(0);
    }
    nvtx::pushed(0, "one too many");
    CHECK(std::string(nvtx::here()).empty());
    nvtx::popped(0);
}

TEST_CASE("watched names, forks, and the end of listening") {
    static int told = 0;
    nvtx::watch("iteration", []() noexcept { ++told; });
    nvtx::pushed(0, "iteration"), nvtx::marked(0, "iteration"), nvtx::started(5, 3, "iteration"), nvtx::pushed(0, "iterations");
    CHECK(told == 3);
    const pid_t child = fork();
    if (child == 0) _exit(nvtx::listening() || *nvtx::here() ? 1 : 0);
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(status == 0);
    nvtx::stop_listening();
    nvtx::pushed(0, "iteration");
    CHECK(told == 3);
    CHECK(std::string(nvtx::here()).empty());
    CHECK(nvtx::popped(0) == -1);
}
