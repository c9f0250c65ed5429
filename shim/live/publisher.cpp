// Nothing that others write to the page is trusted but the number in `asked`. The file cannot be shrunk under the mapping.
#include "shim/live/publisher.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstring>
#include <new>

#include "profiler/trace/descriptor.hpp"
#include "shim/host/quiet_thread.hpp"
#include "shim/host/write_signals.hpp"
#include "shim/live/page.hpp"

namespace udnnmem::live {

namespace {
void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value) {
    ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, nullptr, nullptr, 0);
}
}  // namespace

struct Publisher::State {
    int file = -1;
    Page* page = nullptr;
    std::function<std::string()> figures;
    std::function<void()> thread_started;
    std::atomic<bool> stopping{false};
    std::thread thread;

    ~State() {
        if (page) ::munmap(page, sizeof *page);
        // The program may have closed it and given the number to another file.
        char link[64] = "", path[32];
        std::snprintf(path, sizeof path, "/proc/self/fd/%d", file);
        const ssize_t n = file < 0 ? -1 : ::readlink(path, link, sizeof link - 1);
        if (n > 0 && std::strstr(link, page_name)) ::close(file);
    }

    void run() {
        thread_started();
        std::uint32_t seen = 0;
        while (!stopping.load()) {
            const std::uint32_t asked = page->asked.load();
            if (asked == seen) {
                futex(page->asked, FUTEX_WAIT, asked);
                continue;
            }
            std::string text;
            try {
                text = figures();
            } catch (const std::bad_alloc&) {  // an empty answer
            }
            if (text.size() > sizeof page->text) text.clear();
            page->sequence.fetch_add(1);
            std::memcpy(page->text, text.data(), text.size());
            page->length = static_cast<std::uint32_t>(text.size());
            page->sequence.fetch_add(1);
            page->answered.store(seen = asked);
            futex(page->answered, FUTEX_WAKE, INT_MAX);
        }
    }
};

Publisher::Publisher(std::function<std::string()> figures, std::function<void()> thread_started) {
    try {
        auto state = std::make_unique<State>();
        State& s = *state;
        s.figures = std::move(figures);
        s.thread_started = std::move(thread_started);
        const host::WithoutWriteSignals quietly;   // a limit for files is one for this, too
        s.file = above_standard(::memfd_create(page_name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
        if (s.file < 0 || ::ftruncate(s.file, sizeof(Page)) != 0 || ::fcntl(s.file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return;
        void* const at = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, s.file, 0);
        if (at == MAP_FAILED) return;
        s.page = new (at) Page;
        s.page->pid = ::getpid();
        s.thread = host::quiet_thread([&s] { s.run(); });
        std::memcpy(s.page->magic, page_magic, sizeof page_magic);
        state_ = std::move(state);
    } catch (...) {  // no memory, no thread: nobody can look
    }
}

Publisher::~Publisher() { stop(); }

void Publisher::stop() noexcept {
    if (!state_) return;
    state_->stopping.store(true);
    state_->page->asked.fetch_add(1);
    futex(state_->page->asked, FUTEX_WAKE, INT_MAX);
    state_->thread.join();
    state_.reset();
}

}  // namespace udnnmem::live
