// A page is found by who may look into the process, answers whoever asks, and a process that cannot answer is an error.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "shim/live/publisher.hpp"
#include "shim/live/reader.hpp"
#include "tests/catch.hpp"

using namespace udnnmem;
using namespace std::chrono_literals;

TEST_CASE("every question is answered anew") {
    std::atomic<int> asked{0};
    live::Publisher publisher([&] { return "answer " + std::to_string(++asked) + std::string(1000, 'x'); }, [] {});
    auto process = live::Process::open(getpid());
    REQUIRE(process);
    CHECK(asked == 0);  // nobody asked, nothing was computed
    std::vector<std::thread> threads;
    std::atomic<int> good{0};   // Catch's own checks are of one thread
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            auto other = live::Process::open(getpid());
            for (int i = 0; i < 50; ++i) {
                const int before = asked;
                const auto said = other->ask(5s);
                good += said && said->size() == said->find('x') + 1000 && std::stoi(said->substr(7)) > before;
            }
        });
    for (std::thread& t : threads) t.join();
    CHECK(good == 4 * 50);
    publisher.stop();
    const auto late = process->ask(50ms);
    CHECK_FALSE(late);
    CHECK(late.error().message.find("does not answer") != std::string::npos);
    const auto none = live::Process::open(getpid());
    REQUIRE_FALSE(none);
    CHECK(none.error().message.find("does not run under udnnmem") != std::string::npos);
}

TEST_CASE("what is too long is left out") {
    live::Publisher publisher([] { return std::string(100'000, 'x'); }, [] {});
    CHECK(live::Process::open(getpid())->ask(5s).value().empty());
}

TEST_CASE("children, stopped and ended processes") {
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    const pid_t other = fork();
    if (other == 0) {
        live::Publisher own([] { return std::string("other"); }, [] {});
        (void)!write(ready[1], "x", 1);
        pause();
        _exit(0);
    }
    char byte;
    REQUIRE(read(ready[0], &byte, 1) == 1);
    auto process = live::Process::open(other);
    REQUIRE(process);
    CHECK(process->ask(5s).value() == "other");
    const auto all = live::find_processes();
    CHECK(std::find(all.begin(), all.end(), other) != all.end());
    kill(other, SIGSTOP);
    waitpid(other, nullptr, WUNTRACED);
    CHECK_FALSE(process->ask(100ms));
    CHECK(process->running());
    kill(other, SIGCONT);
    CHECK(process->ask(5s).value() == "other");
    kill(other, SIGKILL);
    waitpid(other, nullptr, 0);
    CHECK_FALSE(process->running());
    CHECK_FALSE(process->ask(5s));
    CHECK_FALSE(live::Process::open(other));

    live::Publisher publisher([] { return std::string("parent"); }, [] {});
    const pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    CHECK_FALSE(live::Process::open(child));  // it has its parent's page, none of its own
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(ready[0]), close(ready[1]);
}

TEST_CASE("where no file may be that long there is no page, and no signal") {
    const pid_t child = fork();
    if (child == 0) {
        const rlimit none{0, 0};
        setrlimit(RLIMIT_FSIZE, &none);
        live::Publisher publisher([] { return std::string(); }, [] {});
        _exit(live::Process::open(getpid()) ? 1 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(status == 0);
}
