#include "profiler/trace/writer/trace_writer.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>

#include "profiler/ring.hpp"
#include "profiler/trace/writer/json_line.hpp"
#include "profiler/trace/writer/trace_file.hpp"

namespace udnnmem::profiler {
namespace {

constexpr std::int64_t period_ns = 400'000'000;   // between two visits of the thread; well under the second promised
constexpr std::size_t longest_side = 1 << 20;     // bytes of config and link lines that wait

// How many forks lie between this process and the first one. A writer made before a fork is dead in the
// child: its thread is not there, and its file is the parent's.
std::atomic<std::uint32_t> generation{0};

void watch_forks() noexcept {
    static std::once_flag once;
    std::call_once(once, [] { ::pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); }); });
}

timespec after(clockid_t clock, std::int64_t ns) {
    timespec now{};
    ::clock_gettime(clock, &now);
    const std::int64_t sum = now.tv_nsec + ns;
    return {now.tv_sec + sum / 1'000'000'000, sum % 1'000'000'000};
}

void append(std::string& lines, const RunEvent& event) {
    JsonLine line("event");
    line.add("event", event_kind_names[static_cast<int>(event.kind)]).add("device", event.device).add("buffer", event.buffer);
    line.add("bytes", event.bytes).add("start_ns", event.start).add("end_ns", event.end);
    lines += line.finish();
}

std::string header_line(const RunHeader& header) {
    JsonLine line("header");
    line.add("schema", 1).add("name", header.name).add("origin", "udnnmem " + header.version).add("host", header.host);
    line.add("pid", header.pid).add("started_unix_ns", header.started_unix_ns);
    if (header.rank >= 0) line.add("rank", header.rank);
    if (header.local_rank >= 0) line.add("local_rank", header.local_rank);
    if (header.world_size >= 0) line.add("world_size", header.world_size);
    return line.finish();
}

std::string summary_line(const RunSummary& summary, std::int64_t dropped, bool last) {
    JsonLine line("summary");
#define FIGURE(type, name) line.add(#name, summary.name);
#include "profiler/trace/run_record.def"
#undef FIGURE
    line.add("events_dropped", dropped).add("last", last);
    return line.finish();
}

}  // namespace

struct TraceWriter::State {
    static Settings numbered(Settings s) {
        if (s.numbered) s.path = TraceFile::unused(s.path);
        return s;
    }
    explicit State(Settings given) : settings(numbered(std::move(given))), promising(TraceFile::would_open(settings.path) == 0), ring(settings.queue) {
        watch_forks();
        born = generation.load(std::memory_order_relaxed);
        pthread_condattr_t monotonic;
        ::pthread_condattr_init(&monotonic);
        ::pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        ::pthread_cond_init(&wake, &monotonic);
        ::pthread_condattr_destroy(&monotonic);
    }
    ~State() { ::pthread_cond_destroy(&wake); }

    Settings settings;
    const bool promising;
    Ring<RunEvent> ring;
    std::uint32_t born = 0;
    std::atomic<bool> started{false};
    std::atomic<bool> closed{false};   // nothing more is taken in
    std::atomic<bool> broken{false};   // nothing more can be written
    std::atomic<bool> complete{false}; // all is in the file, and that is closed
    std::atomic<std::int64_t> dropped{0};

    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t wake;
    bool ending = false;               // under mutex
    std::string side;                  // under mutex: lines that are no events
    pthread_t thread{};
    bool running = false;              // the thread was made

    bool live() const noexcept { return !closed.load(std::memory_order_relaxed) && born == generation.load(std::memory_order_relaxed); }

    void add_side(std::string line) noexcept {
        ::pthread_mutex_lock(&mutex);
        if (side.size() + line.size() <= longest_side) {
            side += line;
        } else {
            dropped.fetch_add(1, std::memory_order_relaxed);
        }
        ::pthread_mutex_unlock(&mutex);
    }

    // One visit: everything that waits goes to the file. False when writing failed.
    bool visit(TraceFile& file, bool last) {
        std::string lines;
        ::pthread_mutex_lock(&mutex);
        lines.swap(side);
        ::pthread_mutex_unlock(&mutex);
        const bool full = file.written() >= settings.longest.value;
        RunEvent event;
        while (ring.pop(event)) {
            if (full) {
                dropped.fetch_add(1, std::memory_order_relaxed);
                continue;
            }
            append(lines, event);
            if (lines.size() < (1 << 16)) continue;
            if (file.append(lines)) return false;
            lines.clear();
        }
        if (settings.more) {
            const std::string text = settings.more(last);
            // Few and bounded (iterations, refusals, shortest times): of a full file they have a quarter more.
            if (full) beyond += static_cast<std::int64_t>(text.size());
            if (last || beyond <= settings.longest.value / 4) lines += text;
            else if (!text.empty()) dropped.fetch_add(1, std::memory_order_relaxed);
        }
        if (settings.figures) {
            const RunSummary now = settings.figures();
            RunSummary news = now;
            news.wall_ns = told.wall_ns;  // that time goes by is none
            // Of a full file when it has been so for twice as long: a run that is killed leaves figures that are half as old at most.
            full_visits += full;
            if (last || (news != told && (!full || full_visits >= next_full))) {
                if (full) next_full = 2 * full_visits;
                lines += summary_line(now, dropped.load(std::memory_order_relaxed), last);
                told = now;
            }
        }
        if (lines.empty()) return true;
        return file.append(lines) == 0 && file.flush() == 0;
    }

    void complain(int reason) {
        broken.store(true, std::memory_order_relaxed);
        if (!settings.warn) return;
        std::string message = "cannot write the trace" + (settings.path.empty() ? settings.path : " " + settings.path) + ": ";
        struct stat is {};
        const bool folder = reason == EEXIST && ::stat(settings.path.c_str(), &is) == 0 && S_ISDIR(is.st_mode);
        message += settings.path.empty() ? "its name is empty" : folder ? "it is a directory: name a file" : reason == EEXIST ? "it exists already" : std::strerror(reason);
        message += "; the run goes on without it (UDNNMEM_TRACE names another file, with %p for the process id, or off)";
        settings.warn(message.c_str());
    }

    void write_all() {
        TraceFile file;
        int reason = file.open(settings.path);
        if (!reason) reason = file.append(header_line(settings.header));
        if (!reason) reason = file.flush();
        for (bool last = false; !reason && !last;) {
            ::pthread_mutex_lock(&mutex);
            if (!ending) {
                const timespec until = after(CLOCK_MONOTONIC, period_ns);
                ::pthread_cond_timedwait(&wake, &mutex, &until);
            }
            last = ending;
            ::pthread_mutex_unlock(&mutex);
            if (!visit(file, last)) reason = file.flush();
        }
        if (!reason) reason = file.finish();
        if (reason) {
            complain(reason);
        } else {
            complete.store(true);
        }
    }

    RunSummary told;
    std::int64_t beyond = 0;           // bytes of further lines since the file was full
    std::uint64_t full_visits = 0;     // since then ...
    std::uint64_t next_full = 1;       // ... and that with the next summary

    static void* main(void* argument) {
        const std::unique_ptr<std::shared_ptr<State>> state(static_cast<std::shared_ptr<State>*>(argument));
        ::pthread_setname_np(::pthread_self(), "udnnmem-trace");
        try {
            (*state)->write_all();
        } catch (...) {
            (*state)->broken.store(true, std::memory_order_relaxed);  // no memory for a line: the trace ends here
        }
        return nullptr;
    }
};

TraceWriter::TraceWriter(Settings settings) : state_(std::make_shared<State>(std::move(settings))) {}

TraceWriter::~TraceWriter() { close(); }

void TraceWriter::start() noexcept {
    State& state = *state_;
    if (state.started.load(std::memory_order_acquire) || !state.live()) return;
    if (state.started.exchange(true)) return;
    // The program's signals are not for this thread; a file limit's SIGXFSZ stays pending here and write() says EFBIG.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    auto* argument = new (std::nothrow) std::shared_ptr<State>(state_);
    const int reason = argument ? ::pthread_create(&state.thread, nullptr, &State::main, argument) : ENOMEM;
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (reason == 0) {
        state.running = true;
        return;
    }
    delete argument;
    state.broken.store(true, std::memory_order_relaxed);
    if (state.settings.warn) state.settings.warn("cannot write a trace: no thread for it; the run goes on without it");
}

void TraceWriter::event(const RunEvent& event) noexcept {
    State& state = *state_;
    if (!state.live() || state.broken.load(std::memory_order_relaxed)) return;
    std::uint64_t turn = 0;
    if (!state.ring.push(event, turn)) {
        state.dropped.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    if ((turn + 1) % (state.ring.capacity() / 4) == 0) wake();
}

void TraceWriter::wake() noexcept { ::pthread_cond_signal(&state_->wake); }

void TraceWriter::config(const RunConfig& config) noexcept try {
    if (!state_->live()) return;
    JsonLine line("config");
    line.add("device", config.device).add("device_name", config.device_name).add("memory_bytes", config.memory);
    line.add("budget_bytes", config.budget).add("host_budget_bytes", config.host_budget).add("granule_bytes", config.granule);
    line.add("policy", config.policy).add("verify", config.verify);
    state_->add_side(line.finish());
} catch (...) {
}

void TraceWriter::link(const RunLink& link) noexcept try {
    if (!state_->live()) return;
    JsonLine line("link");
    line.add("device", link.device).add("in_bytes_per_second", link.in_bytes_per_second).add("out_bytes_per_second", link.out_bytes_per_second);
    line.add("both_in_bytes_per_second", link.both_in_bytes_per_second).add("both_out_bytes_per_second", link.both_out_bytes_per_second);
    if (!link.sizes.empty()) line.add("sizes", link.sizes).add("in_by_size", link.in_by_size).add("out_by_size", link.out_by_size);
    state_->add_side(line.finish());
} catch (...) {
}

void TraceWriter::close() noexcept {
    State& state = *state_;
    if (!state.live()) return;
    state.closed.store(true, std::memory_order_relaxed);
    if (!state.running) return;
    ::pthread_mutex_lock(&state.mutex);
    state.ending = true;
    ::pthread_cond_signal(&state.wake);
    ::pthread_mutex_unlock(&state.mutex);
    const timespec until = after(CLOCK_REALTIME, state.settings.patience.value);
    if (::pthread_timedjoin_np(state.thread, nullptr, &until) != 0) ::pthread_detach(state.thread);
}

bool TraceWriter::promising() const noexcept { return state_->promising; }

bool TraceWriter::complete() const noexcept { return state_->complete.load(); }

const std::string& TraceWriter::path() const noexcept { return state_->settings.path; }

}  // namespace udnnmem::profiler
