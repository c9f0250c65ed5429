// Processes on a card, as forked children that come to cards nobody has: what each is told, and how long it waits for it.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "shim/host/card.hpp"
#include "tests/catch.hpp"

using namespace udnnmem;
using namespace std::chrono_literals;

namespace {

struct Told {
    host::CardShare share;
    std::chrono::milliseconds after{};
};

std::string card(int number) { return "test-" + std::to_string(getpid()) + "-" + std::to_string(number); }

constexpr auto kPatience = 500ms;

// What share_card() tells children that come one after another to `cards`, each after its `prepare`, and stay until the last one was told.
std::vector<Told> told(const std::vector<std::string>& cards, int expected, const std::function<void(int)>& prepare = [](int) {}) {
    int answers[2], hold[2];
    REQUIRE((pipe(answers) == 0 && pipe(hold) == 0));
    std::vector<pid_t> children;
    for (int i = 0; i < static_cast<int>(cards.size()); ++i)
        if (children.push_back(fork()); children.back() == 0) {
            close(hold[1]);
            prepare(i);
            const auto start = std::chrono::steady_clock::now();
            std::pair<int, Told> answer{i, {host::share_card(cards[static_cast<std::size_t>(i)], Bytes(1000 + i), expected, kPatience), {}}};
            answer.second.after = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
            char c;
            _exit(write(answers[1], &answer, sizeof answer) != sizeof answer || read(hold[0], &c, 1) != 0);
        }
    close(answers[1]), close(hold[0]);
    std::vector<Told> all(cards.size());
    std::pair<int, Told> answer;
    std::size_t came = 0;
    while (read(answers[0], &answer, sizeof answer) == sizeof answer && ++came)
        if (all[static_cast<std::size_t>(answer.first)] = answer.second; came == cards.size()) break;
    close(answers[0]), close(hold[1]);
    for (const pid_t child : children) {
        int status = -1;
        waitpid(child, &status, 0);
        CHECK(status == 0);
    }
    CHECK(came == cards.size());
    for (const std::string& name : cards) unlink(("/dev/shm/udnnmem-" + std::to_string(getuid()) + "/card-" + name).c_str());
    return all;
}

void limit(int what, rlim_t to) {
    const rlimit both{to, to};
    setrlimit(static_cast<__rlimit_resource_t>(what), &both);
}

}  // namespace

TEST_CASE("ranks of one job wait for each other, and count who is on their card") {
    for (const Told& t : told({card(0), card(0)}, 2)) {
        CHECK(t.share.ranks == 2);
        CHECK(t.share.free == Bytes(1001));
    }
    for (const Told& t : told({card(1), card(2)}, 2)) CHECK((t.share.ranks == 1 && t.after < kPatience));
}

TEST_CASE("ranks of another job of the same parent are not waited for, nor taken for one's own") {
    for (const char* variable : {"MASTER_PORT", "TORCHELASTIC_RUN_ID"})
        for (const Told& t : told({card(5), card(6)}, 2, [=](int rank) { setenv(variable, std::to_string(29500 + rank).c_str(), 1); })) CHECK((t.share.ranks == 1 && t.after >= kPatience));
}

TEST_CASE("a job leaves nothing behind but the empty file that all jobs have") {
    const auto ours = [] {   // others of this user may run, whose files go by their own parents and cards
        std::set<std::string> names;
        for (const auto& entry : std::filesystem::directory_iterator("/dev/shm/udnnmem-" + std::to_string(getuid())))
            if (const std::string name = entry.path().filename(); name.find("-" + std::to_string(getpid())) != name.npos) names.insert(name);
        return names;
    };
    const auto before = ours();
    told({card(7)}, 1, [](int) { setenv("MASTER_PORT", "1", 1); });
    told({card(7), card(7)}, 2, [](int) { setenv("MASTER_PORT", "2", 1); });
    CHECK(ours() == before);
    CHECK(std::filesystem::file_size("/dev/shm/udnnmem-" + std::to_string(getuid()) + "/jobs") == 0);
}

TEST_CASE("a place that has no room for figures counts its ranks all the same") {
    for (const Told& t : told({card(3), card(3)}, 2, [](int) { limit(RLIMIT_FSIZE, 0); })) CHECK((t.share.ranks == 2 && t.share.seen));
}

TEST_CASE("where no file can be had, nobody else is seen") {
    const Told blind = told({card(4)}, 2, [](int) { limit(RLIMIT_NOFILE, 3); })[0];
    CHECK_FALSE(blind.share.seen);
    CHECK((blind.share.ranks == 1 && blind.share.free == Bytes(1000) && blind.after < kPatience));
    CHECK(told({card(4)}, 1)[0].share.seen);
}
