#include "shim/host/card.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "profiler/trace/descriptor.hpp"
#include "shim/host/write_signals.hpp"

namespace udnnmem::host {
namespace {

constexpr int slots = 128;
constexpr std::uint64_t groups = std::uint64_t{1} << 48;   // their bytes are numbers of the file, which has none there
constexpr off_t figures_at = 4096;  // behind the bytes that are locked

// A folder that nobody else can write to; empty if it cannot be had.
std::string folder() {
    const std::string path = "/dev/shm/udnnmem-" + std::to_string(::getuid());
    ::mkdir(path.c_str(), 0700);
    struct stat s{};
    const bool ours = ::lstat(path.c_str(), &s) == 0 && S_ISDIR(s.st_mode) && s.st_uid == ::getuid() && (s.st_mode & 0077) == 0;
    return ours ? path : std::string();
}

// Ranks of one job on this machine have one parent, the launcher or its agent: which one it is, among all that have been or
// are in another pid namespace, and what it says of the job to keep apart those that it starts at once.
std::uint64_t this_job() {
    const std::string parent = std::to_string(::getppid());
    struct stat pids{};
    ::stat("/proc/self/ns/pid", &pids);
    std::string line, started;
    std::getline(std::ifstream("/proc/" + parent + "/stat"), line);
    std::istringstream fields(line.substr(line.rfind(')') + 1));   // a program's name may hold anything
    for (int field = 3; field <= 22; ++field) fields >> started;
    std::string name = std::to_string(pids.st_ino) + " " + parent + " " + started;
    for (const char* variable : {"MASTER_PORT", "TORCHELASTIC_RUN_ID"})
        if (const char* const value = std::getenv(variable)) name += std::string(" ") + variable + "=" + value;
    return XXH3_64bits(name.data(), name.size());
}

struct flock byte(off_t at) {
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = at;
    lock.l_len = 1;
    return lock;
}

}  // namespace

Gathering::Gathering(std::string_view name, std::uint64_t group) : first_(static_cast<off_t>(group % groups) * slots) {
    const std::string in = folder();
    if (!in.empty()) file_ = above_standard(::open((in + "/" + std::string(name)).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
}

bool Gathering::join(Bytes figure) {
    if (file_ < 0) return false;
    const WithoutWriteSignals quietly;
    for (int slot = 0; slot < slots; ++slot) {
        struct flock lock = byte(first_ + slot);
        if (::fcntl(file_, F_SETLK, &lock) != 0) continue;
        slot_ = slot;
        // A file system without room keeps locks, which take none: this process counts without its figure.
        if (figure.value && ::pwrite(file_, &figure.value, sizeof figure.value, figures_at + slot * static_cast<off_t>(sizeof figure.value)) < 0) errno = 0;
        return true;
    }
    return false;
}

Gathering::Members Gathering::members() const {
    Members all;
    for (int slot = 0; file_ >= 0 && slot < slots; ++slot) {
        struct flock lock = byte(first_ + slot);
        if (slot != slot_ && (::fcntl(file_, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK)) continue;
        ++all.count;
        Bytes figure;
        if (::pread(file_, &figure.value, sizeof figure.value, figures_at + slot * static_cast<off_t>(sizeof figure.value)) == sizeof figure.value) all.largest = std::max(all.largest, figure);
    }
    return all;
}

CardShare share_card(std::string_view card, Bytes free, int expected, std::chrono::milliseconds patience) {
    Gathering here("card-" + std::string(card));
    if (!here.join(free)) return {1, free, false};
    auto now_here = here.members();
    if (expected <= 1) return {now_here.count, std::max(now_here.largest, free)};
    Gathering job("jobs", this_job());
    const bool counted = job.join(Bytes(0));
    const auto until = std::chrono::steady_clock::now() + patience;
    while (counted && now_here.count < expected && job.members().count < expected && std::chrono::steady_clock::now() < until) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        now_here = here.members();
    }
    if (counted) now_here = here.members();  // the last one came to some card, perhaps this
    return {std::max(now_here.count, 1), std::max(now_here.largest, free)};
}

}  // namespace udnnmem::host
