// What following a plan costs the launching thread: the time in Executor's calls around each op, of an iteration of OPS ops on
// the software GPU that holds 8 buffers an op, in half of its memory. Time that a launch waits for memory is not in them, nor what the
// software GPU takes for the events that it is asked to record and about: that is told apart.
// Prints the medians over ops without actions and over those with some, and over ops of the same kernels that are steps of none of
// eight sequences that are known.
//   executor_bench [ROUNDS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "policy/planner.hpp"
#include "shim/executor/executor.hpp"
#include "tests/workloads/small/driver_program.hpp"

using namespace udnnmem;

namespace {

constexpr std::size_t kBytes = 1 << 18;
constexpr std::int32_t kLayers = 128;   // ops: forward and backward through them

struct Quiet : pager::Sink {
    void line(Level level, const std::string& text) override {
        if (level == Level::error) std::fprintf(stderr, "%s\n", text.c_str());
    }
    void event(const profiler::RunEvent&) override {}
    void thread_started() override {}
};

double quantile(std::vector<double>& v, std::size_t part) {   // one part of `part` lies below it
    if (v.empty()) return -1;
    const auto there = v.begin() + static_cast<std::ptrdiff_t>(v.size() / part);
    std::nth_element(v.begin(), there, v.end());
    return *there;
}
double median(std::vector<double>& v) { return quantile(v, 2); }

std::int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

thread_local std::int64_t t_in_driver = 0;   // ns

template <auto function, class... Arguments>
CUresult timed(Arguments... arguments) {
    const std::int64_t begin = now();
    const CUresult result = function(arguments...);
    t_in_driver += now() - begin;
    return result;
}

// A launch of a kernel that is given eight addresses.
struct Addresses final : executor::LaunchWords {
    CUdeviceptr at[8];
    std::size_t count() const override { return 8; }
    bool copy(std::uint64_t* to) const override { return std::copy_n(at, 8, to), true; }
    bool match(const std::uint64_t* words) const override { return std::equal(at, at + 8, words); }
};

pager::Driver driver() {
    pager::Driver d;
#define UDNNMEM_FILL(symbol, required) d.symbol = ::symbol;
    UDNNMEM_PAGER_DRIVER_CALLS(UDNNMEM_FILL)
#undef UDNNMEM_FILL
    d.cuEventRecord = timed<::cuEventRecord, CUevent, CUstream>;
    d.cuEventQuery = timed<::cuEventQuery, CUevent>;
    return d;
}

}  // namespace

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 160;   // after some 80 the ops were timed often enough
    Program p;
    CUfunction nothing;
    CHECK(cuModuleGetFunction(&nothing, p.module, "nothing"));
    CUstream stream;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    Quiet sink;
    pager::Settings settings;
    settings.device_budget = kLayers * kBytes / 2;
    settings.host_budget = std::size_t{1} << 32;
    pager::Pager pager(driver(), settings, sink);
    pager::DevicePager* device = pager.current_device();
    if (!device || device->start() != CUDA_SUCCESS) return 1;

    // Op k of 2 * kLayers names 8 buffers that lie around its layer's.
    std::vector<CUdeviceptr> at(kLayers);
    for (CUdeviceptr& a : at)
        if (device->allocate(kBytes, stream, false, nullptr, a) != CUDA_SUCCESS) return 1;
    const auto named = [](std::int32_t k, std::int32_t i) {
        const std::int32_t layer = k < kLayers ? k : 2 * kLayers - 1 - k;
        return std::clamp(layer - 4, 0, kLayers - 8) + i;
    };
    profiler::Iteration iteration;
    for (std::int32_t b = 0; b < kLayers; ++b) {
        profiler::TraceBuffer& buffer = iteration.trace.buffers.emplace_back();
        buffer.id = BufferId(b);
        buffer.bytes = Bytes(kBytes);
        buffer.persistent = true;
        iteration.address.push_back(at[static_cast<std::size_t>(b)]);
    }
    for (std::int32_t k = 0; k < 2 * kLayers; ++k) {
        profiler::TraceOp& op = iteration.trace.ops.emplace_back();
        op.index = OpIndex(k);
        op.name = "nothing";
        op.duration = Nanoseconds(200'000);
        iteration.trace.header.ideal += op.duration;
        iteration.steps.push_back({"nothing", static_cast<std::uint64_t>(k), static_cast<std::uint32_t>(iteration.used.size()), 8});
        for (std::int32_t i = 0; i < 8; ++i) iteration.used.push_back(named(k, i)), op.reads.push_back(BufferId(named(k, i)));
    }
    executor::Executor::Settings how;
    how.planner = policy::find_planner("udnn");
    how.second_look = Nanoseconds(0);
    how.lie = 0;   // never given up, for the device here is no device; the plan is a third wrong, the calls are the same
    how.say = [](const std::string&) {};
    how.note = how.say;
    executor::Executor executor(pager, std::move(how));
    executor.learned(iteration);

    std::vector<double> without, with, events;
    void* list[8];
    for (int r = 0; r < rounds; ++r) {
        while (!executor.on()) std::this_thread::yield();
        for (std::int32_t k = 0; k < 2 * kLayers; ++k) {
            pager::Op op;
            op.stream = stream;
            op.kernel = true;
            Addresses words;
            for (std::int32_t i = 0; i < 8; ++i) {
                list[i] = &at[static_cast<std::size_t>(named(k, i))];
                words.at[i] = at[static_cast<std::size_t>(named(k, i))];
            }
            t_in_driver = 0;
            executor::Executor::Place place;
            std::int64_t a = now();
            if (!executor.recall("nothing", words, op, place)) {
                for (const CUdeviceptr address : words.at) op.name(pager.find(address));
                a = now();   // that is the preload's time
                place = executor.before("nothing", static_cast<std::uint64_t>(k), op, &words);
            }
            const std::int64_t b = now();
            std::int64_t in_driver = t_in_driver;
            if (pager.enter(op) != CUDA_SUCCESS) return 1;
            t_in_driver = in_driver;   // without pager.enter()'s
            const std::int64_t c = now();
            executor.submitting(place, op);
            const std::int64_t d = now();
            CHECK(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, list, nullptr));
            const std::int64_t e = now();
            executor.submitted(place, op);
            const std::int64_t f = now();
            in_driver = t_in_driver;
            pager.leave(op, CUDA_SUCCESS);
            t_in_driver = in_driver;
            const std::int64_t g = now();
            executor.after(place, op);
            const std::int64_t h = now();
            if (r < rounds / 2) continue;
            const bool acts = executor.acts_after(place);
            (acts ? with : without).push_back(static_cast<double>((b - a) + (d - c) + (f - e) + (h - g) - t_in_driver));
            if (acts) events.push_back(static_cast<double>(t_in_driver));
        }
        CHECK(cuStreamSynchronize(stream));
    }
    for (std::size_t s = 1; s < 8; ++s) {   // other sequences of the same kernels
        for (std::size_t k = 0; k < iteration.used.size(); ++k) iteration.used[k] = static_cast<std::int32_t>((static_cast<std::size_t>(iteration.used[k]) + 1) % kLayers);
        for (profiler::TraceOp& op : iteration.trace.ops) {
            for (BufferId& b : op.reads) b = BufferId((b.value + 1) % kLayers);
            std::sort(op.reads.begin(), op.reads.end());
        }
        executor.learned(iteration);
        while (executor.sequences().size() <= s) std::this_thread::yield();
    }
    std::vector<double> lost;
    std::uint64_t draw = 1;
    for (int r = 0; r < 20; ++r)
        for (std::int32_t k = 0; k < 2 * kLayers; ++k) {
            pager::Op op;
            op.stream = stream;
            op.kernel = true;
            while (op.count < 8) op.name(pager.find(at[(draw = draw * 6364136223846793005u + 1442695040888963407u) >> 57]));
            const std::int64_t a = now();
            const auto place = executor.before("nothing", static_cast<std::uint64_t>(k), op);
            const std::int64_t b = now();
            executor.after(place, op);
            lost.push_back(static_cast<double>((b - a) + (now() - b)));
        }
    std::vector<double> pairs;   // of looks at the clock, four at a time
    for (int i = 0; i < 1000; ++i) {
        const std::int64_t begin = now();
        for (int k = 0; k < 7; ++k) (void)now();
        pairs.push_back(static_cast<double>(now() - begin) / 2);
    }
    const double clock = median(pairs);
    const double a = median(without) - clock, b = median(with) - clock;
    std::printf("{\"name\": \"plan_launch_ns\", \"value\": %.0f, \"unit\": \"ns\", \"goal\": 300}\n", a);
    std::printf("{\"name\": \"plan_launch_undisturbed_ns\", \"value\": %.0f, \"unit\": \"ns\", \"goal\": 300}\n", quantile(without, 10) - clock);
    std::printf("{\"name\": \"plan_launch_with_actions_ns\", \"value\": %.0f, \"unit\": \"ns\", \"goal\": 1000}\n", b);
    std::printf("{\"name\": \"plan_events_with_actions_ns\", \"value\": %.0f, \"unit\": \"ns\"}\n", median(events));
    std::printf("{\"name\": \"plan_lost_launch_ns\", \"value\": %.0f, \"unit\": \"ns\", \"goal\": 1000}\n", median(lost) - clock / 2);
    std::fflush(stdout);
    executor.stop();
    std::_Exit(0);   // threads of the pager's live on
}
