// Descriptors go through a socket of the process to itself, as they would to another.
#include "shim/ipc/handover.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/catch.hpp"

using namespace udnnmem::ipc;

namespace {

std::vector<Piece> made(std::size_t count, std::vector<ino_t>& inodes) {
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < count; ++i) {
        pieces.push_back({memfd_create("piece", MFD_CLOEXEC), 1000 + i});
        struct stat s {};
        fstat(pieces.back().descriptor, &s);
        inodes.push_back(s.st_ino);
    }
    return pieces;
}
std::size_t open_descriptors() {
    std::size_t n = 0;
    for (int fd = 0; fd < 1024; ++fd) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

}  // namespace

// First, for TSan lets a process that has had threads not fork and make more.
TEST_CASE("what a process offered ends with it, though it left a child behind") {
    int there[2], hold[2];
    REQUIRE(pipe(there) == 0);
    REQUIRE(pipe(hold) == 0);
    const pid_t owner = fork();
    if (!owner) {
        static Handover& desk = *new Handover([] {});
        std::vector<ino_t> inodes;
        const std::uint64_t told[2] = {desk.offer(made(1, inodes)), desk.key()};
        if (!fork()) {
            desk.forked();
            close(hold[1]);
            char c;
            _exit(read(hold[0], &c, 1) < 0);
        }
        _exit(write(there[1], told, sizeof told) != sizeof told);
    }
    std::uint64_t told[2];
    REQUIRE(read(there[0], told, sizeof told) == sizeof told);
    int status;
    waitpid(owner, &status, 0);
    REQUIRE(fetch(owner, told[1], told[0]).empty());
    for (int fd : {there[0], there[1], hold[0], hold[1]}) close(fd);
}

TEST_CASE("offers are fetched whole, in order, until they are withdrawn") {
    static int started = 0;
    static Handover& desk = *new Handover([] { ++started; });  // as in the library: never torn down, its thread goes on
    std::vector<ino_t> few, many;
    const auto a = desk.offer(made(1, few)), b = desk.offer(made(150, many));
    REQUIRE(a);
    REQUIRE(b);
    REQUIRE(a != b);
    const std::size_t before = open_descriptors();
    for (auto [number, inodes] : {std::pair{a, &few}, std::pair{b, &many}}) {
        auto got = fetch(getpid(), desk.key(), number);
        REQUIRE(got.size() == inodes->size());
        for (std::size_t i = 0; i < got.size(); ++i) {
            struct stat s {};
            REQUIRE(fstat(got[i].descriptor, &s) == 0);
            REQUIRE(s.st_ino == (*inodes)[i]);
            REQUIRE(got[i].bytes == 1000 + i);
            REQUIRE((fcntl(got[i].descriptor, F_GETFD) & FD_CLOEXEC) != 0);
        }
        discard(got);
    }
    REQUIRE(started == 1);
    REQUIRE(fetch(getpid(), desk.key(), b + 1).empty());
    REQUIRE(fetch(getpid(), desk.key() + 1, a).empty());
    desk.withdraw(b);
    REQUIRE(fetch(getpid(), desk.key(), b).empty());
    REQUIRE(fetch(getpid(), desk.key(), a).size() == 1);
    REQUIRE(open_descriptors() <= before - 150 + 2);  // the one just fetched; the desk may still be closing its end
}
