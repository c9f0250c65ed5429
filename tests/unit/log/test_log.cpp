// Lines as they arrive: levels, one write a line, once-only messages, a debug file, errno untouched.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "shim/log/log.hpp"
#include "tests/catch.hpp"

using namespace udnnmem;

namespace {

// What a child process writes to stderr while it runs `body` (so that each test starts unconfigured).
template <class Body>
std::string stderr_of(Body body) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        ::dup2(ends[1], STDERR_FILENO);
        ::close(ends[0]);
        body();
        ::_exit(0);
    }
    ::close(ends[1]);
    std::string text;
    char piece[4096];
    for (ssize_t n; (n = ::read(ends[0], piece, sizeof piece)) > 0;) text.append(piece, static_cast<std::size_t>(n));
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    REQUIRE(WIFEXITED(status));
    return text;
}

std::string contents(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

void all_levels() {
    log::error("e {}", 1);
    log::warn("w {}", 2);
    log::info("i {}", 3);
    log::trace("t {}", 4);
}

}  // namespace

TEST_CASE("levels") {
    CHECK(stderr_of(all_levels) == "udnnmem: error: e 1\nudnnmem: warning: w 2\n");
    CHECK(stderr_of([] { log::configure(Level::error, {}); all_levels(); }) == "udnnmem: error: e 1\n");
    CHECK(stderr_of([] { log::configure(Level::trace, {}); all_levels(); }) ==
          "udnnmem: error: e 1\nudnnmem: warning: w 2\nudnnmem: info: i 3\nudnnmem: trace: t 4\n");
    CHECK(stderr_of([] { log::configure(Level::error, {}); log::note("budget {}", 5); }) == "udnnmem: budget 5\n");
}

TEST_CASE("a message is one line, cut at its longest") {
    CHECK(stderr_of([] { log::warn("two\nlines\tand {}", "\x1b[31m"); }) == "udnnmem: warning: two lines and  [31m\n");
    const std::string cut = stderr_of([] { log::warn("{}", std::string(5000, 'x')); });
    CHECK(cut == "udnnmem: warning: " + std::string(1024, 'x') + "\n");
}

TEST_CASE("lines of several threads do not mix") {
    const std::string text = stderr_of([] {
        std::vector<std::thread> threads;
        for (int t = 0; t < 8; ++t) threads.emplace_back([t] { for (int i = 0; i < 50; ++i) log::warn("{}", std::string(60, static_cast<char>('a' + t))); });
        for (auto& thread : threads) thread.join();
    });
    std::istringstream lines(text);
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
        REQUIRE(line.size() == 18 + 60);
        REQUIRE(line.substr(18) == std::string(60, line[18]));
    }
    CHECK(count == 400);
}

TEST_CASE("once means once, over threads") {
    const std::string text = stderr_of([] {
        std::vector<std::thread> threads;
        for (int t = 0; t < 8; ++t) threads.emplace_back([] { for (int i = 0; i < 100; ++i) UDNNMEM_LOG_ONCE(warn, "only {}", "this"); });
        for (auto& thread : threads) thread.join();
    });
    CHECK(text == "udnnmem: warning: only this\n");
}

TEST_CASE("a debug file takes the lines, with time and thread; one that cannot be opened is said") {
    const std::string folder = std::filesystem::temp_directory_path() / ("udnnmem-log-" + std::to_string(::getpid()));
    std::filesystem::create_directory(folder);
    const std::string on_stderr = stderr_of([&] { log::configure(Level::info, Pattern{folder + "/log"}); all_levels(); log::note("n"); });
    CHECK(on_stderr == "udnnmem: n\n");
    const std::string text = contents(folder + "/log");
    CHECK(text.find(" info: i 3\n") != std::string::npos);
    CHECK(text.find(" trace:") == std::string::npos);
    CHECK(std::count(text.begin(), text.end(), '\n') == 3);
    CHECK(stderr_of([&] { log::configure(Level::warn, Pattern{folder + "/none/log"}); log::warn("after"); }) ==
          "udnnmem: warning: cannot open UDNNMEM_DEBUG_FILE " + folder + "/none/log: No such file or directory; messages go to stderr\n"
          "udnnmem: warning: after\n");
    REQUIRE(::mkfifo((folder + "/pipe").c_str(), 0600) == 0);
    CHECK(stderr_of([&] { log::configure(Level::warn, Pattern{folder + "/pipe"}); }) ==
          "udnnmem: warning: cannot open UDNNMEM_DEBUG_FILE " + folder + "/pipe: nobody reads from it; messages go to stderr\n");
    std::filesystem::remove_all(folder);
}

TEST_CASE("a line that nobody reads, or that a file may not hold, is no signal to the program") {
    const auto survives = [](auto prepare) {
        stderr_of([&] {   // it requires that the child ends by itself
            prepare();
            errno = E2BIG;
            log::warn("w");
            log::note("n");
            sigset_t pending, blocked;
            sigpending(&pending);
            sigprocmask(SIG_BLOCK, nullptr, &blocked);
            if (errno != E2BIG || sigismember(&pending, SIGPIPE) != sigismember(&blocked, SIGPIPE) || sigismember(&blocked, SIGXFSZ)) ::abort();
        });
    };
    const auto pipe_without_reader = [] {
        int ends[2];
        if (::pipe(ends) != 0) ::abort();
        ::dup2(ends[1], STDERR_FILENO);
        ::close(ends[0]);
    };
    survives(pipe_without_reader);
    survives([&] {   // a signal that the program holds back itself stays
        pipe_without_reader();
        sigset_t own;
        sigemptyset(&own);
        sigaddset(&own, SIGPIPE);
        sigprocmask(SIG_BLOCK, &own, nullptr);
        ::raise(SIGPIPE);
    });
    survives([] {
        ::dup2(::memfd_create("full", 0), STDERR_FILENO);
        const rlimit none{0, 0};
        ::setrlimit(RLIMIT_FSIZE, &none);
    });
}

TEST_CASE("without stderr lines go nowhere but to a file that is named, and never into the program's own") {
    const std::string folder = std::filesystem::temp_directory_path() / ("udnnmem-log-" + std::to_string(::getpid()));
    std::filesystem::create_directory(folder);
    const auto run = [&](const Pattern& file) {
        stderr_of([&] {
            ::close(STDERR_FILENO);
            log::find_stderr();
            log::configure(Level::warn, file);
            if (::open((folder + "/mine").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600) != STDERR_FILENO) ::abort();
            log::warn("w");
            log::note("n");
        });
        return contents(folder + "/mine");
    };
    CHECK(run({}).empty());
    CHECK(run(Pattern{folder + "/none/log"}).empty());
    CHECK(run(Pattern{folder + "/log"}).empty());
    CHECK(contents(folder + "/log").find(" warning: w\n") != std::string::npos);
    std::filesystem::remove_all(folder);
}

TEST_CASE("errno stays, and a closed stderr is no harm") {
    stderr_of([] {
        ::close(STDERR_FILENO);
        errno = E2BIG;
        log::warn("lost");
        log::configure(Level::warn, Pattern{"/nonexistent/x"});
        if (errno != E2BIG) ::abort();
    });
}
