// The preload's trace file, as the reader finds it: whole, cut at every byte, on a full disk, after a
// kill, beside a fork, under a file limit, with queues and files too small.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "profiler/trace/record.hpp"
#include "profiler/trace/run_record.hpp"
#include "profiler/trace/trace_io.hpp"
#include "profiler/trace/writer/json_line.hpp"
#include "profiler/trace/writer/trace_file.hpp"
#include "profiler/trace/writer/trace_writer.hpp"
#include "tests/catch.hpp"

using namespace udnnmem;
using namespace udnnmem::profiler;
namespace fs = std::filesystem;

namespace {

struct Folder {
    std::string path = fs::temp_directory_path() / "udnnmem-writer-XXXXXX";
    Folder() { REQUIRE(::mkdtemp(path.data())); }
    ~Folder() { fs::remove_all(path); }
    std::string file(const char* name) const { return path + "/" + name; }
};

RunEvent event(EventKind kind, int buffer, std::int64_t bytes, std::int64_t start = 100, std::int64_t end = 200) {
    return {kind, 0, BufferId(buffer), Bytes(bytes), Nanoseconds(start), Nanoseconds(end)};
}

// Warnings, to be read when the writer is closed.
struct Warnings {
    std::atomic<int> count{0};
    std::string last;
    auto callback() {
        return [this](const char* message) {
            last = message;
            ++count;
        };
    }
};

TraceWriter::Settings settings(const std::string& path, Warnings& warnings) {
    TraceWriter::Settings s;
    s.path = path;
    s.header = {"train", "0.1.0", "node7", 4711, 5};
    s.warn = warnings.callback();
    return s;
}

std::string bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream data;
    data << file.rdbuf();
    return data.str();
}

// What the library adds of its own: an iteration, another one in its place, and what is known at the end.
std::string other_lines(bool last) {
    std::string text;
    for (const char* name : {"conv", "gemm"}) {
        text += "{\"kind\":\"learned\",\"ops\":2,\"first_op\":4,\"ideal_ns\":30}\n";
        text += "{\"kind\":\"buffer\",\"id\":0,\"bytes\":4096,\"persistent\":true,\"run_id\":3}\n{\"kind\":\"buffer\",\"id\":1,\"bytes\":512,\"persistent\":false,\"alloc_op\":0,\"free_op\":1}\n";
        text += std::string("{\"kind\":\"op\",\"index\":0,\"name\":\"") + name + "\",\"stream\":0,\"duration_ns\":10,\"start_ns\":5,\"reads\":[0],\"writes\":[0,1],\"call\":\"c\",\"flops\":2e9}\n";
        text += "{\"kind\":\"op\",\"index\":1,\"name\":\"add\",\"stream\":0,\"duration_ns\":20,\"start_ns\":15,\"reads\":[0,1],\"writes\":[0]}\n";
    }
    if (!last) return text;
    return "{\"kind\":\"unchanged\",\"ops\":2,\"op\":0,\"name\":\"gemm\",\"buffers\":[3]}\n{\"kind\":\"sequence\",\"id\":0,\"first\":\"gemm\",\"ops\":2,\"turns\":1,\"iterations\":3,\"planned_iterations\":2,\"given_up\":0,\"ideal_ns\":30,\"promised_ns\":40,"
           "\"peak_promised_bytes\":9,\"peak_bytes\":8,\"planned_ns\":41,\"demand_ns\":60}\n{\"kind\":\"step\",\"sequence\":0,\"index\":1,\"name\":\"add\",\"planned_start_ns\":10,\"start_ns\":12,\"planned_ns\":20,\"took_ns\":21,\"held_ns\":2,"
           "\"held_times\":1,\"cause\":0,\"buffer\":3}\n{\"kind\":\"misprediction\",\"expected\":\"add\",\"seen\":\"mul\",\"times\":2}\n{\"kind\":\"adaptation\",\"sequence\":0,\"change\":\"x\",\"before_ns\":60,\"promised_ns\":40,\"measured_ns\":41,\"kept\":true}\n"
           "{\"kind\":\"out_of_memory\",\"what\":\"cuMemAlloc\",\"device\":0,\"at_ns\":7,\"wanted_bytes\":9,\"live_bytes\":4608,\"device_bytes\":4608,\"host_bytes\":0,\"budget_bytes\":4608,\"host_budget_bytes\":0,\"enough_bytes\":4617,\"buffers\":[3],\"buffer_bytes\":[4096],"
           "\"on_host\":[0]}\n{\"kind\":\"not_replayable\",\"kernel\":\"add\",\"why\":\"reads a clock\",\"ops\":1}\n";
}

// A small run with everything in it.
void write_run(const std::string& path, int moves = 40, bool others = false) {
    Warnings warnings;
    auto s = settings(path, warnings);
    RunSummary figures;
    figures.ops = 12;
    figures.bytes_in = Bytes(3 << 20);
    figures.wall_ns = Nanoseconds(99);
    s.figures = [figures] { return figures; };
    if (others) s.more = [first = true](bool last) mutable { return std::exchange(first, false) ? other_lines(false) + (last ? other_lines(true) : "") : last ? other_lines(true) : std::string(); };
    TraceWriter writer(s);
    writer.config({0, "Software GPU \"zero\"", Bytes(1 << 30), Bytes(350 << 20), Bytes::max(), Bytes(65536), "demand", 0.01});
    writer.link({0, 15.75e9, 15.5e9, 0, 0});
    writer.event(event(EventKind::evict, 3, 1 << 20));
    writer.start();
    for (int i = 0; i < moves; ++i) writer.event(event(EventKind::fetch, i % 4, 1 << 20, 1000 * i, 1000 * i + 700));
    writer.event(event(EventKind::stall, 3, 0, 50, 80));
    writer.event(event(EventKind::served_from_host, -1, 0));
    CHECK_FALSE(writer.complete());
    writer.close();
    CHECK(writer.complete());
    CHECK(warnings.count == 0);
}

}  // namespace

TEST_CASE("what is written is read back, plain and compressed") {
    Folder folder;
    for (const char* name : {"run.jsonl", "run.jsonl.zst"}) {
        const std::string path = folder.file(name);
        write_run(path);
        const auto run = read_run(path);
        REQUIRE(run);
        CHECK((bytes_of(path).substr(0, 4) == "\x28\xb5\x2f\xfd") == (std::string(name) == "run.jsonl.zst"));
        CHECK(run->header.name == "train");
        CHECK(run->header.version == "0.1.0");
        CHECK(run->header.host == "node7");
        CHECK(run->header.pid == 4711);
        REQUIRE(run->configs.size() == 1);
        CHECK(run->configs[0].device_name == "Software GPU \"zero\"");
        CHECK(run->configs[0].budget == Bytes(350 << 20));
        CHECK(run->configs[0].host_budget == Bytes::max());
        CHECK(run->configs[0].granule == Bytes(65536));
        CHECK(run->configs[0].policy == "demand");
        CHECK(run->configs[0].verify == 0.01);
        REQUIRE(run->links.size() == 1);
        CHECK(run->links[0].in_bytes_per_second == 15.75e9);
        CHECK(run->ended);
        CHECK(run->summary.ops == 12);
        CHECK(run->summary.bytes_in == Bytes(3 << 20));
        CHECK(run->summary.wall_ns == Nanoseconds(99));
        CHECK(run->events_dropped == 0);
        CHECK(run->events[static_cast<int>(EventKind::fetch)] == 40);
        CHECK(run->events[static_cast<int>(EventKind::evict)] == 1);
        CHECK(run->events[static_cast<int>(EventKind::served_from_host)] == 1);
        REQUIRE(run->buffers.size() == 4);
        CHECK(run->buffers[0].buffer == BufferId(3));  // the most moved
        CHECK(run->buffers[0].in == Bytes(10 << 20));
        CHECK(run->buffers[0].out == Bytes(1 << 20));
        CHECK(run->buffers[0].stall == Nanoseconds(30));
        CHECK(run->iteration.ops.empty());
    }
}

TEST_CASE("a file cut at any byte is read to its last whole line") {
    Folder folder;
    for (const char* name : {"run.jsonl", "run.jsonl.zst"}) {
        const std::string whole_path = folder.file(name), cut_path = folder.file("cut");
        write_run(whole_path, 12, true);
        const std::string whole = bytes_of(whole_path);
        const auto all = read_text(whole_path);
        REQUIRE(all);
        std::size_t shortest = std::string::npos, last_events = 0;
        for (std::size_t size = 0; size <= whole.size(); ++size) {
            std::ofstream(cut_path, std::ios::binary).write(whole.data(), static_cast<std::streamsize>(size));
            const auto text = read_text(cut_path);
            INFO(name << " cut to " << size << " of " << whole.size() << (text ? "" : ": " + text.error().message));
            REQUIRE(text);
            if (size >= 4) REQUIRE(all->compare(0, text->size(), *text) == 0);
            const auto run = read_run(cut_path);
            if (!run) {
                REQUIRE(text->find('\n') == std::string::npos);  // only while the header is not whole
                REQUIRE(run.error().message.find("header: is missing") != std::string::npos);
                continue;
            }
            if (shortest == std::string::npos) shortest = size;
            std::size_t events = 0;
            for (const auto n : run->events) events += static_cast<std::size_t>(n);
            REQUIRE(events >= last_events);
            last_events = events;
            REQUIRE(run->ended == (text->find("\"last\":true}") != std::string::npos));
            // Of every kind of line as many as are whole; a line that lacks nothing but its end is whole.
            const auto is_whole = [&](std::size_t at) { return (*text)[std::min(text->find('\n', at), text->size()) - 1] == '}'; };
            const auto lines_between = [&](const char* kind, std::size_t from, std::size_t to) {
                const std::string begins = std::string("{\"kind\":\"") + kind + "\"";
                std::size_t n = 0;
                for (std::size_t at = std::min(from, text->size()); (at = text->find(begins, at)) < to; ++at) n += is_whole(at);
                return n;
            };
            // The iteration is the last one whose ops are all there, or what there is of the first.
            std::size_t from = std::string::npos, to = std::string::npos;
            for (std::size_t at = 0; (at = text->find("{\"kind\":\"learned\"", at)) != std::string::npos && is_whole(at); ++at) {
                const std::size_t next = text->find("{\"kind\":\"learned\"", at + 1), said = std::stoul(text->substr(text->find("\"ops\":", at) + 6));
                if (from == std::string::npos || lines_between("op", at, next) == said) from = at, to = next;
            }
            const auto lines = [&](const char* kind) {
                const bool of_iteration = !std::strcmp(kind, "op") || !std::strcmp(kind, "buffer");
                return of_iteration ? lines_between(kind, from, to) : lines_between(kind, 0, std::string::npos);
            };
            REQUIRE(run->iteration.ops.size() == lines("op"));
            REQUIRE(run->iteration.buffers.size() == lines("buffer"));
            REQUIRE(run->sequences.size() == lines("sequence"));
            REQUIRE(run->steps.size() == lines("step"));
            REQUIRE(run->refusals.size() == (text->find("\"on_host\":[0]}") != std::string::npos));
            REQUIRE(run->mispredictions.size() + run->adaptations.size() + run->not_replayable.size() == lines("misprediction") + lines("adaptation") + lines("not_replayable"));
            if (!run->iteration.ops.empty()) REQUIRE(validate(run->iteration).has_value());
        }
        CHECK(shortest < whole.size() / 2);
        CHECK(last_events == 15);
    }
}

TEST_CASE("nothing is written before the start, and no thread is there") {
    Folder folder;
    Warnings warnings;
    {
        TraceWriter writer(settings(folder.file("run"), warnings));
        writer.event(event(EventKind::fetch, 1, 1));
        writer.config({});
    }
    CHECK_FALSE(fs::exists(folder.file("run")));
}

TEST_CASE("what cannot be written costs one line and the trace") {
    Folder folder;
    std::ofstream(folder.file("taken")) << "mine";
    const std::pair<std::string, const char*> cases[] = {{folder.file("none/run.zst"), "No such file or directory"},
                                                         {folder.file("taken"), "it exists already"},
                                                         {folder.path, "it is a directory: name a file"},
                                                         {"/dev/full", "No space left on device"}};
    for (const auto& [path, reason] : cases) {
        Warnings warnings;
        TraceWriter writer(settings(path, warnings));
        writer.start();
        for (int i = 0; i < 100000; ++i) writer.event(event(EventKind::fetch, i, 1));
        writer.close();
        CHECK_FALSE(writer.complete());
        CHECK(warnings.count == 1);
        CHECK(warnings.last == "cannot write the trace " + path + ": " + reason +
                                   "; the run goes on without it (UDNNMEM_TRACE names another file, with %p for the process id, or off)");
    }
    CHECK(bytes_of(folder.file("taken")) == "mine");
}

TEST_CASE("a name that is taken gets a number, where it may") {
    Folder folder;
    for (const char* taken : {"run.jsonl.zst", "run.2.jsonl.zst", "plain.jsonl", "other.log"}) std::ofstream(folder.file(taken)) << "mine";
    for (const auto& [name, expected] : {std::pair{"run.jsonl.zst", "run.3.jsonl.zst"}, {"plain.jsonl", "plain.2.jsonl"}, {"other.log", "other.log.2"}, {"free.zst", "free.zst"}}) {
        Warnings warnings;
        TraceWriter::Settings s = settings(folder.file(name), warnings);
        s.numbered = true;
        TraceWriter writer(std::move(s));
        CHECK(writer.path() == folder.file(expected));
        writer.start();
        writer.close();
        CHECK((writer.complete() && fs::exists(writer.path()) && warnings.count == 0));
    }
    CHECK(bytes_of(folder.file("run.jsonl.zst")) == "mine");
}

TEST_CASE("a file limit stops the trace, not the process, and what is there is readable") {
    Folder folder;
    const std::string path = folder.file("run.jsonl");
    const pid_t child = ::fork();
    if (child == 0) {
        const rlimit limit{20000, 20000};
        ::setrlimit(RLIMIT_FSIZE, &limit);
        static Warnings warnings;
        TraceWriter writer(settings(path, warnings));
        writer.start();
        for (int i = 0; i < 5000; ++i) writer.event(event(EventKind::fetch, i, 1));
        writer.close();
        ::_exit(warnings.count == 1 && warnings.last.find("File too large") != std::string::npos ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    const auto run = read_run(path);
    REQUIRE(run);
    CHECK(run->events[static_cast<int>(EventKind::fetch)] > 50);
    CHECK(fs::file_size(path) == 20000);
}

TEST_CASE("of a compressed file that is damaged everything before the damaged block is read; one that ends within a block is cut short") {
    Folder folder;
    const std::string header = "{\"kind\":\"header\",\"schema\":1}\n", line = "{\"kind\":\"event\",\"event\":\"fetch\",\"bytes\":1}\n";
    TraceFile file;
    REQUIRE(file.open(folder.file("run.zst")) == 0);
    std::vector<std::int64_t> ends;
    for (const std::string& block : {header, line + line, line}) {
        file.append(block);
        REQUIRE(file.flush() == 0);
        ends.push_back(file.written());
    }
    REQUIRE(file.finish() == 0);
    const std::string whole = bytes_of(folder.file("run.zst"));
    const auto read = [&](const std::string& bytes) {
        std::ofstream(folder.file("other.zst"), std::ios::binary) << bytes;
        return read_text(folder.file("other.zst"));
    };
    const auto at = [&](std::size_t block) { return static_cast<std::size_t>(ends[block]); };
    std::string damaged = whole;
    damaged[at(1)] = '\x06';   // of the type that is reserved
    CHECK(*read(damaged) == header + line + line + "\ndamaged\n");
    damaged = whole;
    damaged[at(0)] = '\x06';
    CHECK(*read(damaged) == header + "\ndamaged\n");
    CHECK(*read(whole) == header + line + line + line);
    CHECK(*read(whole.substr(0, at(1))) == header + line + line);   // as a killed program leaves it
    CHECK(*read(whole.substr(0, at(1) + 8)) == header + line + line + "{");
    CHECK(*read(whole.substr(0, at(0) + 8)) == header + "{");
}

TEST_CASE("a killed process leaves all but its last second") {
    Folder folder;
    for (const char* name : {"run.jsonl", "run.jsonl.zst"}) {
        const std::string path = folder.file(name);
        const pid_t child = ::fork();
        if (child == 0) {
            static Warnings warnings;
            auto s = settings(path, warnings);
            s.figures = [] { RunSummary r; r.fetches = 250; return r; };
            TraceWriter writer(s);
            writer.start();
            for (int i = 0; i < 250; ++i) writer.event(event(EventKind::fetch, i, 1));
            std::this_thread::sleep_for(std::chrono::milliseconds(1000));
            ::kill(::getpid(), SIGKILL);
        }
        ::waitpid(child, nullptr, 0);
        const auto run = read_run(path);
        REQUIRE(run);
        CHECK(run->events[static_cast<int>(EventKind::fetch)] == 250);
        CHECK(run->summary.fetches == 250);
        CHECK(run->has_summary);
        CHECK_FALSE(run->ended);
    }
}

TEST_CASE("a forked child adds nothing and does not hang") {
    Folder folder;
    const std::string path = folder.file("run.jsonl");
    Warnings warnings;
    TraceWriter writer(settings(path, warnings));
    writer.start();
    writer.event(event(EventKind::fetch, 1, 1));
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(5);
        writer.event(event(EventKind::evict, 2, 1));
        writer.config({});
        writer.start();
        writer.close();
        ::_exit(0);
    }
    int status = 1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
    writer.event(event(EventKind::fetch, 1, 1));
    writer.close();
    const auto run = read_run(path);
    REQUIRE(run);
    CHECK(run->events[static_cast<int>(EventKind::fetch)] == 2);
    CHECK(run->events[static_cast<int>(EventKind::evict)] == 0);
    CHECK(run->configs.empty());
}

TEST_CASE("a queue or a file that is too small drops events and counts them") {
    Folder folder;
    Warnings warnings;
    auto s = settings(folder.file("small-queue"), warnings);
    s.queue = 16;
    s.figures = [] { return RunSummary{}; };
    {
        TraceWriter writer(s);
        for (int i = 0; i < 100; ++i) writer.event(event(EventKind::fetch, i, 1));
        writer.start();
    }
    auto run = read_run(folder.file("small-queue"));
    REQUIRE(run);
    CHECK(run->events[static_cast<int>(EventKind::fetch)] == 16);
    CHECK(run->events_dropped == 84);

    s = settings(folder.file("small-file"), warnings);
    s.longest = Bytes(4000);
    std::atomic<int> asked{0};
    s.figures = [&asked] {
        RunSummary figures;
        figures.ops = ++asked;
        return figures;
    };
    std::size_t told = 0;
    s.more = [&told](bool) { return ++told, std::string("{\"kind\":\"misprediction\",\"expected\":\"add\",\"seen\":\"mul\",\"times\":2}\n"); };
    constexpr int bursts = 4, burst = 1000;
    {
        TraceWriter writer(s);
        writer.start();
        for (int b = 0; b < bursts; ++b) {
            for (int i = 0; i < burst; ++i) writer.event(event(EventKind::fetch, i, 1));
            std::this_thread::sleep_for(std::chrono::milliseconds(600));
        }
        while (asked < 12) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        const std::string text = bytes_of(folder.file("small-file"));
        const auto so_far = read_run(folder.file("small-file"));   // as a killed run leaves it
        REQUIRE(so_far);
        CHECK(so_far->summary.ops >= 4);
        std::size_t summaries = 0;
        for (std::size_t at = 0; (at = text.find("\"kind\":\"summary\"", at)) != std::string::npos; ++at) ++summaries;
        CHECK(summaries > 1);
        CHECK(summaries < 9);   // not each time
    }
    run = read_run(folder.file("small-file"));
    REQUIRE(run);
    CHECK(run->ended);
    const std::int64_t written = run->events[static_cast<int>(EventKind::fetch)];
    CHECK(written >= burst);   // what is written at once is written whole; on a busy machine that is more than one burst
    CHECK(run->events_dropped > 0);
    CHECK(written + run->events_dropped == bursts * burst);
    CHECK(told > 4);
    CHECK(run->mispredictions.size() == told);   // what is told of the run is, also of a full file
    CHECK(warnings.count == 0);
}

TEST_CASE("an idle run writes no summary after summary") {
    Folder folder;
    Warnings warnings;
    auto s = settings(folder.file("idle"), warnings);
    std::atomic<int> asked{0};
    s.figures = [&] {
        RunSummary figures;
        figures.ops = 1;
        figures.wall_ns = Nanoseconds(++asked);
        return figures;
    };
    {
        TraceWriter writer(s);
        writer.start();
        while (asked < 3) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    const std::string text = bytes_of(folder.file("idle"));
    std::size_t summaries = 0;
    for (std::size_t at = 0; (at = text.find("{\"kind\":\"summary\"", at)) != std::string::npos; ++at) ++summaries;
    CHECK(summaries == 2);   // the first, and the last
}

TEST_CASE("events of many threads arrive once each") {
    Folder folder;
    Warnings warnings;
    auto s = settings(folder.file("run.jsonl.zst"), warnings);
    s.figures = [] { return RunSummary{}; };
    constexpr int each = 20000, threads = 4;
    {
        TraceWriter writer(s);
        std::vector<std::thread> pushers;
        for (int t = 0; t < threads; ++t) {
            pushers.emplace_back([&writer, t] {
                writer.start();
                for (int i = 0; i < each; ++i) writer.event(event(EventKind::fetch, t, 1));
            });
        }
        for (auto& thread : pushers) thread.join();
    }
    const auto run = read_run(s.path);
    REQUIRE(run);
    const auto arrived = run->events[static_cast<int>(EventKind::fetch)];
    CHECK(arrived + run->events_dropped == each * threads);
    CHECK(arrived >= (1 << 14));
}

TEST_CASE("close does not wait for ever for a disk that hangs") {
    Folder folder;
    Warnings warnings;
    auto s = settings(folder.file("run"), warnings);
    s.figures = [] {
        std::this_thread::sleep_for(std::chrono::seconds(2));
        return RunSummary{};
    };
    s.patience = Nanoseconds(100'000'000);
    const auto start = std::chrono::steady_clock::now();
    {
        TraceWriter writer(s);
        writer.start();
    }
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));  // the folder is removed only after it
}

TEST_CASE("text of any bytes is valid JSON") {
    std::string every;
    for (int c = 0; c < 256; ++c) every += static_cast<char>(c);
    every += "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xed\xa0\x80 \xc0\xaf \xf4\x90\x80\x80 \xe2\x82";
    const std::string line = JsonLine("k").add(every, every).add("n", 1e300 * 1e10).add("f", 0.1).add("i", INT64_MIN).add("t", true).finish();
    const auto parsed = nlohmann::json::parse(line);
    CHECK(parsed["n"] == 0);
    CHECK(parsed["f"] == 0.1);
    CHECK(parsed["i"] == INT64_MIN);
    CHECK(parsed["t"] == true);
    CHECK(line.find('\n') == line.size() - 1);
    CHECK(line.find("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80") != std::string::npos);
}
