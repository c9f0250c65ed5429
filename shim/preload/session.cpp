#include "shim/preload/session.hpp"

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "interpose/driver.hpp"
#include "profiler/math/calls.hpp"
#include "profiler/nvtx/emit.hpp"
#include "profiler/nvtx/ranges.hpp"
#include "profiler/trace/writer/json_line.hpp"
#include "profiler/trace/writer/run_lines.hpp"
#include "shim/host/card.hpp"
#include "shim/host/host_memory.hpp"
#include "shim/host/launcher.hpp"
#include "shim/host/tools.hpp"
#include "shim/log/log.hpp"
#include "shim/options/pattern.hpp"
#include "shim/preload/link_cache.hpp"
#include "shim/preload/uncaptured.hpp"

extern char** environ;

namespace udnnmem::preload {
namespace {

std::atomic<Session*> g_session{nullptr};
std::atomic<bool> g_over{false};     // never again in this process
std::mutex g_starting;

pager::Driver driver_table(const char** missing) {
    pager::Driver d;
    *missing = nullptr;
#define UDNNMEM_FILL(symbol, required)                             \
    d.symbol = UDNNMEM_REAL(symbol);                               \
    if (required && !d.symbol && !*missing) *missing = #symbol;
    UDNNMEM_PAGER_DRIVER_CALLS(UDNNMEM_FILL)
#undef UDNNMEM_FILL
    if (*missing) return d;
    d.cuEventQuery = UDNNMEM_UNCAPTURED(cuEventQuery);
    d.cuStreamSynchronize = UDNNMEM_UNCAPTURED(cuStreamSynchronize);
    d.cuMemHostAlloc = UDNNMEM_UNCAPTURED(cuMemHostAlloc);
    return d;
}

void forked_child() {
    // The mover's thread and the driver's state are the parent's.
    g_over.store(true);
    if (Session* s = g_session.exchange(nullptr)) s->sharing().forked();
    interpose::install(nullptr);
}

void at_exit() {
    if (Session* s = g_session.load()) {
        s->end();
    }
}

// CUPTI's own end at exit, and that of what it loads, comes before at_exit(): both are younger.
void leave_cupti_at_exit() {
    std::atexit([] {
        Session* s = g_session.load();
        if (Learner* learner = s ? s->learner() : nullptr) learner->stop();
    });
}

}  // namespace

// Whoever starts it holds the guard, so that the driver's answers to our own questions do not come back here.
Session* Session::get(bool start) noexcept {
    Session* s = g_session.load(std::memory_order_acquire);
    if (s || !start || g_over.load(std::memory_order_relaxed)) return s;
    std::lock_guard lock(g_starting);
    s = g_session.load();
    if (s || g_over.load()) return s;
    try {
        auto made = std::make_unique<Session>();
        if (!made->start()) {
            g_over.store(true);
            interpose::install(nullptr);
            return nullptr;
        }
        s = made.release();
    } catch (...) {
        g_over.store(true);
        interpose::install(nullptr);
        return nullptr;
    }
    g_session.store(s, std::memory_order_release);
    pthread_atfork(nullptr, nullptr, forked_child);
    std::atexit(at_exit);
    return s;
}

void Session::end_paging(const std::string& why) noexcept {
    Session* s = g_session.load();
    if (!s) {
        g_over.store(true);
        interpose::install(nullptr);
    } else {
        s->accepting_.store(false);
    }
    log::warn("{}: memory allocated from now on is not managed", why);
}

bool Session::start() {
    auto parsed = parse_options();
    if (!parsed) {
        log::error("{}; this run is not managed", parsed.error().message);
        return false;
    }
    options_ = *parsed;
    log::configure(options_.debug, options_.debug_file);
    if (options_.disable || !is_managed_process(options_)) return false;
    for (const std::string& text : unknown_options(environ)) log::warn("{}", text);
    // CUPTI is theirs.
    if (const host::Tool* tool = host::tool_at_work([](const char* variable) -> const char* { return std::getenv(variable); })) {
        options_.cupti = false;
        if (tool->runs_kernels_again) options_.recompute = When::off;
        if (!options_.quiet) log::note("{} is at work here ({}): ops are timed by events{}; {}", tool->name, tool->variable, tool->runs_kernels_again ? ", nothing is computed again" : "", tool->advice);
    }
    if (!interpose::resolve_driver()) {
        log::warn("{}: this run is not managed", interpose::driver_error());
        return false;
    }
    int version = 0;
    if (auto ask = UDNNMEM_REAL(cuDriverGetVersion); !ask || ask(&version) != CUDA_SUCCESS || version < interpose::kOldestDriver) {
        log::warn("needs a driver of CUDA 12.4 or later, this one is {}.{}: update the driver; this run is not managed",
                  version / 1000, version % 1000 / 10);
        return false;
    }
    const char* missing = nullptr;
    const pager::Driver driver = driver_table(&missing);
    if (missing) {
        log::warn("the driver lacks {}, which paging needs: this run is not managed", missing);
        return false;
    }
    pager::Settings settings;
    if (options_.budget.form == Size::Form::absolute) settings.device_budget = static_cast<std::size_t>(options_.budget.bytes.value);
    if (options_.budget.form == Size::Form::share) settings.device_share = options_.budget.share;
    // Where the kernel does not say, the physical pages that are free now.
    const Bytes available = host::usable_memory().value_or(Bytes(sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE)));
    settings.host_budget = static_cast<std::size_t>(options_.host_budget.resolve(available, available).value);
    const char* const nodes = std::getenv("UDNNMEM_TEST_NODES");   // as node_list() reads them
    settings.host_nodes = nodes ? host::node_list(nodes) : host::memory_nodes();
    settings.verify = options_.verify;
    settings.always_land = options_.landing == Landing::always;
    settings.lazy_free = options_.lazy_free;
    settings.measure_link = true;
    // For the tests: every miss served from host frames; budgets that change under way; another deadline for launches that
    // are held back; another patience with the link.
    settings.force_host = std::getenv("UDNNMEM_TEST_FORCE_HOST") != nullptr;
    if (const char* text = std::getenv("UDNNMEM_TEST_BUDGETS")) {  // MILLISECONDS:BYTES,BYTES...
        char* end = nullptr;
        settings.budget_turn_ns = std::strtoll(text, &end, 10) * 1'000'000;
        while (*end) settings.budgets.push_back(std::strtoull(end + 1, &end, 10));
    }
    if (const char* ms = std::getenv("UDNNMEM_TEST_DEADLINE_MS")) settings.deadline_ns = std::atoll(ms) * 1'000'000;
    if (const char* ms = std::getenv("UDNNMEM_TEST_LINK_MS")) settings.link_patience_ns = std::atoll(ms) * 1'000'000;
    pager_ = std::make_unique<pager::Pager>(driver, settings, *this);
    sharing_ = std::make_unique<ipc::Sharing>(*pager_, [] {
        interpose::hold_guard_for_life();
        pthread_setname_np(pthread_self(), "udnnmem-ipc");
    });
    open_trace();
    start_learning();
    live_ = std::make_unique<live::Publisher>([this] { return live_figures(); }, [] {
        interpose::hold_guard_for_life();
        pthread_setname_np(pthread_self(), "udnnmem-live");
    });
    return true;
}

void Session::line(Level level, const std::string& text) {
    switch (level) {
        case Level::error: log::error("{}", text); break;
        case Level::warn: log::warn("{}", text); break;
        case Level::info: log::info("{}", text); break;
    }
}

std::uint64_t Session::move_began(const char* what, BufferId buffer, Bytes bytes) {
    return profiler::nvtx::begin(what, buffer.value, static_cast<std::uint64_t>(bytes.value));
}

void Session::move_ended(std::uint64_t move) { profiler::nvtx::end(move); }

void Session::thread_started() {
    interpose::hold_guard_for_life();
    t_relaxed = true;  // it is the first thing that the mover does
    pthread_setname_np(pthread_self(), "udnnmem-mover");
}

// Ranks that start together find each other within this time; those that never use a device are not waited for longer.
constexpr std::chrono::milliseconds kPatience{3000};

// Of a MIG instance, its own; empty: the driver does not say.
std::string card_of(CUdevice device) {
    CUuuid id{};
    const auto ask = UDNNMEM_REAL(cuDeviceGetUuid_v2);
    if (!ask || ask(&id, device) != CUDA_SUCCESS) return {};
    std::string card;
    for (const char byte : id.bytes) card += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return card;
}

profiler::RunLink link_of(CUdevice device, const pager::LinkSpeeds& speeds) {
    profiler::RunLink link{device, speeds.in, speeds.out, speeds.both_in, speeds.both_out, {}, {}, {}};
    for (const auto& size : speeds.by_size) {
        link.sizes.push_back(static_cast<std::int64_t>(size.bytes));
        link.in_by_size.push_back(static_cast<std::int64_t>(size.in));
        link.out_by_size.push_back(static_cast<std::int64_t>(size.out));
    }
    return link;
}

pager::LinkSpeeds Session::link_before(CUdevice device) {
    const std::string card = card_of(device);
    return card.empty() ? pager::LinkSpeeds{} : read_link(card);
}

void Session::link_measured(CUdevice device, const pager::LinkSpeeds& speeds, std::int64_t took_ns) {
    const auto gb = [](double rate) { return rate / 1e9; };
    log::info("device {}: the link carries {:.3g} GB/s in, {:.3g} out, {:.3g} and {:.3g} at once; found out in {:.1f} ms", device, gb(speeds.in), gb(speeds.out), gb(speeds.both_in), gb(speeds.both_out), static_cast<double>(took_ns) / 1e6);
    if (const std::string card = card_of(device); !card.empty() && !speeds.hurried) write_link(card, speeds);
    if (trace_) trace_->link(link_of(device, speeds));
}

std::size_t Session::share_of(CUdevice device, std::size_t free) {
    const std::string card = card_of(device);
    if (card.empty()) return free;
    const host::CardShare share = host::share_card(card, Bytes(static_cast<std::int64_t>(free)), host::ranks_here(), kPatience);
    ranks_on_[device & 63] = share.ranks;
    if (!share.seen && host::ranks_here() > 1) UDNNMEM_LOG_ONCE(warn, "{} ranks are expected here and cannot find each other, which needs a file in /dev/shm: if they share a card, set UDNNMEM_BUDGET to each one's part of it", host::ranks_here());
    return std::min(free, static_cast<std::size_t>(share.free.value) / static_cast<std::size_t>(share.ranks));
}

void Session::event(const profiler::RunEvent& event) {
    if (trace_) trace_->event(event);
    if (executor_) executor_->paging();
}

void Session::open_trace() {
    started_ns_ = pager::now_ns();
    if (options_.trace.off()) return;
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    profiler::TraceWriter::Settings settings;
    settings.path = expand_pattern(options_.trace.text);
    settings.numbered = names_process(options_.trace.text);   // a program that became another by exec has had this name
    settings.header.name = program_invocation_short_name;
    settings.header.version = UDNNMEM_VERSION;
    settings.header.host = host;
    settings.header.pid = getpid();
    const host::Ranks ranks = host::launched_ranks();
    settings.header.rank = ranks.rank;
    settings.header.local_rank = ranks.local_rank;
    settings.header.world_size = ranks.world_size;
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    settings.header.started_unix_ns = now.tv_sec * 1'000'000'000LL + now.tv_nsec;
    settings.warn = [](const char* message) { log::warn("{}", message); };
    settings.figures = [this] { return figures(); };
    settings.more = [this](bool last) {
        std::string lines = (learner_ ? learner_->take_lines() : std::string()) + refusals_.take_lines();
        {
            std::lock_guard lock(lines_mutex_);
            lines += std::exchange(lines_, {});
        }
        if (!executor_) return lines;
        for (const profiler::RunTimes& t : executor_->shortest(last)) lines += profiler::line_of(t);
        if (!last) return lines;
        for (const profiler::RunSequence& s : executor_->sequences()) lines += profiler::line_of(s);
        for (const profiler::Adaptation& a : executor_->adaptations()) lines += profiler::line_of(a);
        for (const profiler::RunStep& s : executor_->steps()) lines += profiler::line_of(s);
        for (const profiler::NotReplayable& r : executor_->not_replayable()) lines += profiler::line_of(r);
        for (const profiler::Misprediction& m : executor_->mispredictions()) lines += profiler::line_of(m);
        return lines;
    };
    trace_ = std::make_unique<profiler::TraceWriter>(std::move(settings));
}

void Session::first_launch() noexcept {
    if (launched_.exchange(true)) return;
    if (trace_) trace_->start();
    if (learner_) learner_->start();
}

void Session::start_learning() {
    if (options_.policy == Policy::demand && !options_.plan.off()) log::warn("UDNNMEM_PLAN={}: policy demand makes no plan and follows none; the file is left alone", options_.plan.text);
    if (options_.policy != Policy::demand) {
        executor::Executor::Settings settings;
        settings.planner = policy::find_planner(name_of(options_.policy));
        settings.note = [](const std::string& text) { log::warn("{}", text); };
        if (!options_.plan.off()) settings.plan_file = expand_pattern(options_.plan.text);
        settings.device_name = [](CUdevice device) {
            char name[256] = "";
            if (const auto ask = UDNNMEM_REAL(cuDeviceGetName)) ask(name, sizeof name, device);
            return std::string(name);
        };
        settings.say = [](const std::string& text) { log::info("{}", text); };
        if (trace_)
            settings.record = [this](const std::string& text) {
                std::lock_guard lock(lines_mutex_);
                lines_ += text;
            };
        settings.recompute = options_.recompute == When::automatic;
        settings.verify_replay = options_.verify_replay;
        settings.recorder_listens = [this] { return learner_ && learner_->recorder.hears_ops(); };
        settings.search_again = [this] {
            if (learner_) learner_->recorder.again();
        };
        settings.thread_started = [] {
            interpose::hold_guard_for_life();
            pthread_setname_np(pthread_self(), "udnnmem-plan");
        };
        // For the tests: less time for better plans; buffers computed again wrongly; plans that lie.
        if (const char* ms = std::getenv("UDNNMEM_TEST_LOOK_MS")) settings.second_look = Nanoseconds(std::atoll(ms) * 1'000'000);
        if (const char* nth = std::getenv("UDNNMEM_TEST_FLIP")) settings.flip.result = std::strtoull(nth, nullptr, 10);
        if (const char* nth = std::getenv("UDNNMEM_TEST_FLIP_SAVED")) settings.flip.saved = std::strtoull(nth, nullptr, 10);
        if (const char* seed = std::getenv("UDNNMEM_TEST_LIE")) settings.lie = std::strtoull(seed, nullptr, 10);
        executor_ = std::make_unique<executor::Executor>(*pager_, std::move(settings));
    }
    if (!executor_ && !trace_) return profiler::nvtx::stop_listening();
    OpTimers::Settings timing{.only_events = !options_.cupti, .quiet = options_.quiet, .cupti_opened = leave_cupti_at_exit};
    // For the tests: more time with CUPTI, or less.
    if (const char* ms = std::getenv("UDNNMEM_TEST_CUPTI_MS")) timing.longest_cupti = Nanoseconds(std::atoll(ms) * 1'000'000);
    learner_ = std::make_unique<Learner>(trace_ != nullptr, timing, [this](const profiler::Iteration& iteration) {
        if (executor_) executor_->learned(iteration);
    }, [this] { return executor_ && !executor_->on(); });
    profiler::math::watch(true);
    if (!options_.iteration_mark.off()) {
        learner_->expect_marks();
        profiler::nvtx::watch(options_.iteration_mark.text, []() noexcept {
            Session* s = get();
            if (Learner* learner = s ? s->learning() : nullptr) learner->recorder.mark();
        });
    }
}

// What a user wants to know before the program's own output.
void Session::introduce(pager::DevicePager& d) {
    if (told_[d.device() & 63].exchange(true)) return;
    const auto s = d.stats();
    const auto size = [](std::size_t bytes) { return bytes < std::size_t{1} << 30 ? fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)) : fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30)); };
    if (!options_.quiet)
        log::note("{} manages device {}{}: budget {}, host budget {}, policy {}{}", UDNNMEM_VERSION, static_cast<int>(d.device()),
                  ranks_on_[d.device() & 63] > 1 ? fmt::format(" with {} other{}", ranks_on_[d.device() & 63] - 1, ranks_on_[d.device() & 63] > 2 ? "s" : "") : "", size(s.budget), size(s.host_budget),
                  name_of(options_.policy), trace_ && trace_->promising() ? ", trace " + trace_->path() : "");   // a program that is killed says it no more
    if (!trace_) return;
    profiler::RunConfig config;
    config.device = d.device();
    char name[256] = "";
    if (auto ask = UDNNMEM_REAL(cuDeviceGetName)) ask(name, sizeof name, d.device());
    config.device_name = name;
    std::size_t total = 0;
    pager_->driver().cuDeviceTotalMem_v2(&total, d.device());
    config.memory = Bytes(static_cast<std::int64_t>(total));
    config.budget = Bytes(static_cast<std::int64_t>(s.budget));
    config.host_budget = Bytes(static_cast<std::int64_t>(s.host_budget));
    config.granule = Bytes(static_cast<std::int64_t>(d.granule()));
    config.policy = name_of(options_.policy);
    config.verify = options_.verify;
    trace_->config(config);
}

// At exit. Destructors that run later may still call the driver, so the movers live on.
void Session::end() {
    if (live_) live_->stop();
    if (learner_) learner_->stop();
    if (executor_) executor_->stop();
    if (trace_) {
        for (pager::DevicePager* d : pager_->devices())
            if (const auto room = d->room(); room.in > 0 || room.out > 0) {
                // What the run's own moves reached; the rest as it was at the start.
                profiler::RunLink link = link_of(d->device(), d->link());
                link.in_bytes_per_second = room.in;
                link.out_bytes_per_second = room.out;
                trace_->link(link);
            }
        trace_->close();
    }
    summary();
    if constexpr (pager::checked)
        for (pager::DevicePager* d : pager_->devices()) {
            pager::must_be_valid(d->is_valid());
            std::size_t frames, mappings;
            d->held(frames, mappings);
            log::note("device {} holds {} frames in {} mappings", static_cast<int>(d->device()), frames, mappings);
        }
}

}  // namespace udnnmem::preload
