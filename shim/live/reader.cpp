#include "shim/live/reader.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <utility>

#include "shim/live/page.hpp"

namespace udnnmem::live {
namespace {

using Folder = std::unique_ptr<DIR, int (*)(DIR*)>;
Folder open_folder(const std::string& path) { return {::opendir(path.c_str()), ::closedir}; }

// The process's id in its own pid namespace; 0: not known.
int inner_pid(int pid) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(status, line);)
        if (line.rfind("NSpid:", 0) == 0) return std::atoi(line.substr(line.find_last_of(" \t") + 1).c_str());
    return 0;
}

// Its page, open; -1 and errno: none. ENOENT: it runs, and has none.
int open_page(int pid) {
    const std::string path = "/proc/" + std::to_string(pid) + "/fd";
    const Folder folder = open_folder(path);
    if (!folder) return -1;
    std::string wanted = "/memfd:";
    wanted += page_name;   // in one expression GCC 12 warns of what is right
    while (const dirent* entry = ::readdir(folder.get())) {
        char target[64];
        const std::string link = path + "/" + entry->d_name;
        const ssize_t n = ::readlink(link.c_str(), target, sizeof target);
        if (n < static_cast<ssize_t>(wanted.size()) || wanted.compare(0, wanted.size(), target, wanted.size()) != 0) continue;
        if (const int file = ::open(link.c_str(), O_RDWR | O_CLOEXEC); file >= 0) return file;
    }
    errno = ENOENT;
    return -1;
}

}  // namespace

Expected<Process> Process::open(int pid) {
    const auto refuse = [&](const std::string& why) { return tl::make_unexpected(Error{"process " + std::to_string(pid) + ": " + why}); };
    const int handle = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
    if (handle < 0) return refuse(errno == ESRCH ? "there is none" : std::strerror(errno));
    const int file = open_page(pid);
    if (file < 0) {
        const int reason = errno;
        ::close(handle);
        return refuse(reason == ENOENT ? "has no live figures: it does not run under udnnmem, or has used no device memory yet" : reason == EACCES ? "belongs to another user: ask as that user, or as root" : std::strerror(reason));
    }
    struct stat about;
    void* const at = ::fstat(file, &about) == 0 && about.st_size == sizeof(Page) ? ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    ::close(file);
    auto* const page = static_cast<Page*>(at);
    // A child that was forked holds its parent's page.
    if (at == MAP_FAILED || std::memcmp(page->magic, page_magic, sizeof page_magic) != 0 || page->pid != inner_pid(pid)) {
        if (at != MAP_FAILED) ::munmap(at, sizeof(Page));
        ::close(handle);
        return refuse("has no live figures of its own: a child of a process that has, or of another version of udnnmem");
    }
    return Process(pid, handle, page);
}

Process::Process(Process&& other) noexcept : pid_(other.pid_), handle_(std::exchange(other.handle_, -1)), page_(std::exchange(other.page_, nullptr)) {}

Process& Process::operator=(Process&& other) noexcept {
    std::swap(pid_, other.pid_), std::swap(handle_, other.handle_), std::swap(page_, other.page_);
    return *this;
}

Process::~Process() {
    if (page_) ::munmap(page_, sizeof *page_);
    if (handle_ >= 0) ::close(handle_);
}

bool Process::running() const {
    pollfd ended{handle_, POLLIN, 0};
    return ::poll(&ended, 1, 0) == 0;
}

Expected<std::string> Process::ask(std::chrono::milliseconds patience) {
    const auto until = std::chrono::steady_clock::now() + patience;
    const auto word = [](std::atomic<std::uint32_t>& a) { return reinterpret_cast<std::uint32_t*>(&a); };
    const std::uint32_t ticket = page_->asked.fetch_add(1) + 1;
    ::syscall(SYS_futex, word(page_->asked), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    while (true) {
        const std::uint32_t answered = page_->answered.load();
        if (static_cast<std::int32_t>(answered - ticket) >= 0) break;
        const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(until - std::chrono::steady_clock::now()).count();
        if (left <= 0 || !running()) return tl::make_unexpected(Error{"process " + std::to_string(pid_) + (running() ? ": does not answer" : ": has ended")});
        const timespec wait{0, static_cast<long>(std::min<std::int64_t>(left, 50'000'000))};
        ::syscall(SYS_futex, word(page_->answered), FUTEX_WAIT, answered, &wait, nullptr, 0);
    }
    std::string text;
    for (int tries = 0; tries < 1000; ++tries) {  // somebody else may ask at the same time
        const std::uint32_t before = page_->sequence.load();
        text.assign(page_->text, std::min<std::size_t>(page_->length, sizeof page_->text));
        std::atomic_thread_fence(std::memory_order_acquire);
        if (before % 2 == 0 && page_->sequence.load() == before) return text;
        ::usleep(50);
    }
    return tl::make_unexpected(Error{"process " + std::to_string(pid_) + ": does not answer"});
}

std::vector<int> find_processes() {
    std::vector<int> found;
    const Folder folder = open_folder("/proc");
    while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
        const int pid = std::atoi(entry->d_name);
        if (pid <= 0) continue;
        if (Process::open(pid)) found.push_back(pid);
    }
    std::sort(found.begin(), found.end());
    return found;
}

}  // namespace udnnmem::live
