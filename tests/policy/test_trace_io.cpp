// Trace and plan files: what is written is read back, real traces load, files cut short are read to
// their last whole line, and every way of being wrong is answered by file, line, field and rule.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/core.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy/compiled.hpp"
#include "policy/liveness.hpp"
#include "policy/plan_io.hpp"
#include "profiler/trace/record.hpp"
#include "profiler/trace/run_record.hpp"
#include "profiler/trace/trace_io.hpp"
#include "tests/catch.hpp"
#include "tests/policy/patience.hpp"

using namespace udnnmem;
using namespace udnnmem::profiler;
using namespace udnnmem::policy;

namespace {

const std::string header = R"({"kind":"header","schema":1,"name":"t"})" "\n";
const std::string two_buffers = R"({"kind":"buffer","id":0,"bytes":10,"persistent":true})" "\n" R"({"kind":"buffer","id":1,"bytes":20,"alloc_op":0,"free_op":1})" "\n";
const std::string two_ops = R"({"kind":"op","index":0,"duration_ns":5,"reads":[0],"writes":[1]})" "\n" R"({"kind":"op","index":1,"duration_ns":7,"reads":[1,0,1]})" "\n";

std::string trace_error(const std::string& text) {
    const auto trace = parse_trace("F", text);
    return trace ? "" : trace.error().message;
}

std::string plan_error(const std::string& text) {
    const auto trace = parse_trace("F", header + two_buffers + two_ops);
    const auto plan = parse_plan("P", text, &trace.value());
    return plan ? "" : plan.error().message;
}

std::string scratch(const char* name) {
    return (std::filesystem::temp_directory_path() / fmt::format("udnnmem-{}-{}", ::getpid(), name)).string();
}

bool same(const Trace& a, const Trace& b) { return format_trace(a) == format_trace(b); }

}  // namespace

TEST_CASE("a trace is read as it was written", "[trace]") {
    auto trace = parse_trace("F", header + two_buffers + two_ops);
    REQUIRE(trace);
    REQUIRE(trace->ops.size() == 2);
    CHECK(trace->ops[1].reads == std::vector<BufferId>{BufferId(0), BufferId(1)});
    CHECK(trace->buffers[1].free_op == OpIndex(1));
    CHECK(validate(*trace));
    trace->ops[0].flops = 1.25e18;
    trace->ops[0].name = "a \"quoted\"\nname \xff";
    for (const char* name : {"a.jsonl", "a.jsonl.zst"}) {
        const std::string path = scratch(name);
        REQUIRE(write_trace(path, *trace));
        const auto again = read_trace(path);
        std::filesystem::remove(path);
        REQUIRE(again);
        CHECK(again->ops[0].flops == 1.25e18);
        CHECK(same(*again, *parse_trace("F", format_trace(*trace))));
        CHECK(again->ops[0].name.substr(0, 15) == "a \"quoted\"\nname");
    }
}

TEST_CASE("every trace of tests/traces loads", "[trace]") {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("tests/traces")) {
        if (entry.path().extension() != ".zst") continue;
        const auto trace = read_trace(entry.path().string());
        INFO(entry.path().string());
        REQUIRE(trace);
        CHECK(validate(*trace));
        Nanoseconds sum;
        for (const TraceOp& op : trace->ops) sum += op.duration;
        CHECK(trace->header.ideal == sum);
        CHECK(same(*trace, *parse_trace("again", format_trace(*trace))));
        ++count;
    }
    CHECK(count == 19);
}

TEST_CASE("a trace cut short is read to its last whole line", "[trace]") {
    const std::string whole = header + two_buffers + two_ops;
    for (std::size_t length = header.size(); length <= whole.size(); ++length) {
        const auto trace = parse_trace("F", std::string_view(whole).substr(0, length));
        INFO(length);
        REQUIRE(trace);
        CHECK(validate(*trace));
        // Half a line says that there was more; a line end, or a last line that lacks but that, does not.
        const char* end = whole.c_str() + length;
        const bool half = end[-1] != '\n' && *end != '\n' && *end != '\0';
        CHECK(trace->damaged == (half ? 1 + std::count(whole.c_str(), end, '\n') : 0));
    }
    // A header that says how long the ops take says where they are missing; a run may be killed once it has told them.
    const std::string timed = R"({"kind":"header","schema":1,"name":"t","ideal_ns":12})" "\n" + two_buffers;
    const std::string first_op = two_ops.substr(0, two_ops.find('\n') + 1), event = R"({"kind":"event","event":"fetch","buffer":1)";
    const auto cut = parse_trace("F", timed + first_op);
    CHECK((cut->damaged == 5 && cut->ops.size() == 1));
    CHECK(parse_run("F", timed + first_op)->damaged == 5);
    CHECK(parse_trace("F", timed + two_ops + event)->damaged == 0);
    CHECK((parse_run("F", timed + two_ops + event)->damaged == 6 && parse_run("F", timed + two_ops + event)->cut_short));   // a move is lost, and a report shows moves
    CHECK(parse_run("F", timed + two_ops + event)->iteration.ops.size() == 2);
    CHECK(parse_trace("F", timed + first_op + event)->damaged == 5);
    // Of a run that learned twice and ended in the middle, the first iteration. One that lacks ops that it said lacks them at a line's end, too.
    const std::string learned = R"({"kind":"learned","ops":2,"ideal_ns":12})" "\n", run = header + learned + two_buffers + two_ops;
    CHECK((parse_trace("F", run)->damaged == 0 && parse_trace("F", run)->ops.size() == 2));
    for (const std::string& more : {learned, learned + two_buffers, learned + two_buffers + first_op}) {
        const auto kept = parse_trace("F", run + more);
        CHECK((kept->ops.size() == 2 && kept->buffers.size() == 2 && validate(*kept)));
        CHECK(kept->damaged == 1 + std::count(run.begin(), run.end(), '\n') + std::count(more.begin(), more.end(), '\n'));
    }
    const auto lacks = parse_trace("F", header + learned + two_buffers + first_op);
    CHECK((lacks->damaged == 6 && lacks->ops.size() == 1));
    Trace big = *parse_trace("F", header);
    for (int k = 0; k < 20000; ++k) big.ops.push_back({OpIndex(k), fmt::format("op{}", k * 7919 % 10007)});
    const std::string path = scratch("cut.jsonl.zst");
    REQUIRE(write_trace(path, big));
    const auto size = std::filesystem::file_size(path);
    std::filesystem::resize_file(path, size - size / 10);
    const auto trace = read_trace(path);
    std::filesystem::remove(path);
    REQUIRE(trace);
    CHECK(trace->ops.size() < 20000);
    CHECK(trace->damaged > 1);
    // What was not written yet when the power failed may read as zeros.
    REQUIRE(write_trace(path, big));
    std::filesystem::resize_file(path, size + 5000);
    const auto filled = read_trace(path);
    std::filesystem::remove(path);
    REQUIRE(filled);
    CHECK(filled->ops.size() == 20000);
}

TEST_CASE("what no op names lives to the iteration's end, or from its begin, for everybody", "[trace]") {
    const std::string ops = "{\"kind\":\"op\",\"index\":0,\"duration_ns\":1}\n{\"kind\":\"op\",\"index\":1,\"duration_ns\":1}\n{\"kind\":\"op\",\"index\":2,\"duration_ns\":1}\n";
    for (const char* end : {"\"alloc_op\":1", "\"free_op\":1", "\"alloc_op\":1,\"free_op\":9"}) {
        const auto trace = parse_trace("F", header + "{\"kind\":\"buffer\",\"id\":0,\"bytes\":10," + end + "}\n" + ops);
        INFO(end);
        REQUIRE(trace);
        REQUIRE(validate(*trace));
        CHECK(peak_live(*trace) == Bytes(10));
        CHECK(Liveness(*trace).peak() == Bytes(10));
        CHECK(CompiledTrace(*trace).peak_live == 10);
        CHECK((trace->buffers[0].alloc_op == OpIndex(0)) == (std::string(end) == "\"free_op\":1"));
    }
}

TEST_CASE("a large trace loads in reasonable time", "[trace]") {
    Trace big = *parse_trace("F", header);
    for (int k = 0; k < 100000; ++k) big.buffers.push_back({BufferId(k), Bytes(1 << 20), false, OpIndex(-1), OpIndex(-1), "activation"});
    for (int k = 0; k < 100000; ++k) big.ops.push_back({OpIndex(k), "kernel_with_a_name", Phase::forward, 0, Nanoseconds(1000), {BufferId(k)}, {BufferId((k + 1) % 100000)}});
    const std::string text = format_trace(big);
    const auto start = std::chrono::steady_clock::now();
    const auto trace = parse_trace("F", text);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    REQUIRE(trace);
    CHECK(trace->ops.size() == 100000);
    CHECK(seconds.count() < 10 * tests::patience);  // about 1 s on an idle core; room for neighbours
}

TEST_CASE("bad traces are answered by line, field and rule", "[trace]") {
    const std::string b = header + two_buffers;
    const auto op = [&](const std::string& fields) { return trace_error(b + R"({"kind":"op",)" + fields + "}\n"); };
    CHECK(trace_error("") == "F: line 1: header: is missing: not a trace");
    CHECK(trace_error("hello\n") == "F: not a trace of udnnmem (JSON lines, plain or zstd)");
    CHECK(trace_error("[1]\n") == trace_error("hello\n"));
    CHECK(trace_error(std::string("\n\0\1", 3)) == trace_error("hello\n"));
    CHECK(trace_error("{\n") == trace_error("hello\n"));
    CHECK(trace_error("{}\n") == "F: line 1: kind: is missing");
    CHECK(trace_error("{\"kind\":3}\n") == "F: line 1: kind: must be text, is 3");
    CHECK(trace_error(two_buffers) == "F: line 1: buffer.kind: the first record must be the header");
    CHECK(trace_error("{\"kind\":\"plan\"}\n") == "F: is a plan, not a trace: udnnmem plan TRACE --check F judges it");
    CHECK(parse_run("F", "{\"kind\":\"plan\"}\n").error().message == trace_error("{\"kind\":\"plan\"}\n"));
    CHECK(trace_error("{\"kind\":\"header\",\"schema\":1,\"batch\":4611686018427387904}\n") == "F: line 1: header.batch: must be between 0 and 2147483647, is 4611686018427387904");
    CHECK(trace_error(header + header) == "F: line 2: header.kind: a trace has one header, this is the second");
    CHECK(trace_error("{\"kind\":\"header\"}\n") == "F: line 1: header.schema: is missing");
    CHECK(trace_error("{\"kind\":\"header\",\"schema\":2}\n") == "F: line 1: header.schema: must be 1, is 2: written by a newer version");
    CHECK(trace_error("{\"kind\":\"header\",\"schema\":1,\"name\":7}\n") == "F: line 1: header.name: must be text, is 7");
    CHECK(trace_error(header + "{\"kind\":\"buffer\",\"id\":1,\"bytes\":1}\n") == "F: line 2: buffer.id: buffers come in ascending order from 0: must be 0, is 1");
    CHECK(trace_error(header + "{\"kind\":\"buffer\",\"id\":0}\n") == "F: line 2: buffer.bytes: is missing");
    CHECK(trace_error(header + "{\"kind\":\"buffer\",\"id\":0,\"bytes\":-1}\n") == "F: line 2: buffer.bytes: must be between 0 and 4611686018427387904, is -1");
    CHECK(trace_error(header + "{\"kind\":\"buffer\",\"id\":0,\"bytes\":1e3}\n") == "F: line 2: buffer.bytes: must be a whole number, is 1000.0");
    CHECK(trace_error(header + "{\"kind\":\"buffer\",\"id\":0,\"bytes\":18446744073709551615}\n") ==
          "F: line 2: buffer.bytes: must be between 0 and 4611686018427387904, is 18446744073709551615");
    CHECK(trace_error(header + "{\"kind\":\"buffer\",\"id\":0,\"bytes\":4611686018427387904}\n{\"kind\":\"buffer\",\"id\":1,\"bytes\":1}\n") ==
          "F: line 3: buffer.bytes: the sizes of all buffers exceed 2^62 bytes");
    std::string four = header;   // whose sum is 2^64
    for (const char* id : {"0", "1", "2", "3"}) four += std::string("{\"kind\":\"buffer\",\"id\":") + id + ",\"bytes\":4611686018427387904,\"persistent\":true}\n";
    CHECK(trace_error(four + "{\"kind\":\"op\",\"index\":0,\"duration_ns\":1,\"reads\":[0,1,2,3]}\n") == "F: line 3: buffer.bytes: the sizes of all buffers exceed 2^62 bytes");
    CHECK(trace_error(header + "{\"kind\":\"buffer\",\"id\":0,\"bytes\":1,\"persistent\":1}\n") == "F: line 2: buffer.persistent: must be true or false, is 1");
    CHECK(trace_error(header + "{\"kind\":\"buffer\",\"id\":0,\"bytes\":1,\"alloc_op\":5,\"free_op\":4}\n") == "F: line 2: buffer.free_op: is 4, before its alloc_op 5");
    CHECK(op("\"index\":1,\"duration_ns\":1") == "F: line 4: op.index: ops come in ascending order from 0: must be 0, is 1");
    CHECK(op("\"index\":0") == "F: line 4: op.duration_ns: is missing");
    CHECK(op("\"index\":0,\"duration_ns\":-3") == "F: line 4: op.duration_ns: must be between 0 and 4611686018427387904, is -3");
    CHECK(op("\"index\":0,\"duration_ns\":1,\"reads\":[2]") == "F: line 4: op.reads: names buffer 2, which no earlier line defines");
    CHECK(op("\"index\":0,\"duration_ns\":1,\"writes\":[-1]") == "F: line 4: op.writes: names buffer -1, which no earlier line defines");
    CHECK(op("\"index\":0,\"duration_ns\":1,\"reads\":3") == "F: line 4: op.reads: must be a list, is 3");
    CHECK(op("\"index\":0,\"duration_ns\":1,\"reads\":[\"x\"]") == "F: line 4: op.reads: must hold whole numbers, holds \"x\"");
    CHECK(op("\"index\":0,\"duration_ns\":1,\"workspace_bytes\":-1") == "F: line 4: op.workspace_bytes: must be between 0 and 4611686018427387904, is -1");
    CHECK(op("\"index\":0,\"duration_ns\":1,\"replayable\":\"yes\"") == "F: line 4: op.replayable: must be true or false, is \"yes\"");
    CHECK(op("\"index\":0,\"duration_ns\":1,\"flops\":-1") == "F: line 4: op.flops: must be a number of at least 0, is -1");
    CHECK(trace_error(b + two_ops + "{\"kind\":\"op\",\"index\":2,\"duration_ns\":1,\"reads\":[1]}\n") == "F: line 6: op.reads: names buffer 1 after its free_op 1");
    CHECK(trace_error(b + two_ops + "{\"kind\":\"op\",\"index\":2,\"duration_ns\":4611686018427387904}\n") == "F: line 6: op.duration_ns: the times of all ops exceed 2^62 ns");
    CHECK(trace_error(header + "{\"kind\":\"op\",\"index\":0,\"duration_ns\":4611686018427387904}\n{\"kind\":\"op\",\"index\":1,\"duration_ns\":4611686018427387904}\n") ==
          "F: line 3: op.duration_ns: the times of all ops exceed 2^62 ns");
    CHECK(trace_error(header + "{\"kind\":\"buffer\",\"id\":0,\"bytes\":1,\"alloc_op\":1}\n{\"kind\":\"op\",\"index\":0,\"duration_ns\":1,\"reads\":[0]}\n") ==
          "F: line 3: op.reads: names buffer 0 before its alloc_op 1");
    const std::string scratch_op = "{\"kind\":\"op\",\"index\":0,\"duration_ns\":1,\"workspace_bytes\":4611686018427387904}\n";
    CHECK(trace_error(header + scratch_op) == "");
    CHECK(trace_error(b + scratch_op) == "F: line 4: op.workspace_bytes: with the sizes of all buffers exceeds 2^62 bytes");
    CHECK(trace_error(header + scratch_op + two_buffers) == "F: line 3: buffer.bytes: the sizes of all buffers exceed 2^62 bytes");
    CHECK(trace_error(header + "{\"kind\":\"event\",\"what\":\"stall\"}\n" + two_buffers + two_ops) == "");
    CHECK(read_trace("/nonexistent/trace").error().message == "/nonexistent/trace: No such file or directory");
}

TEST_CASE("a trace is read up to a damaged line, a plan is refused", "[trace]") {
    const auto trace = parse_trace("F", header + two_buffers + "{]\n" + two_ops);
    REQUIRE(trace);
    CHECK(trace->damaged == 4);
    CHECK((trace->buffers.size() == 2 && trace->ops.empty()));
    CHECK(parse_trace("F", header + two_buffers + two_ops)->damaged == 0);
    CHECK(parse_trace("F", header + "7\n")->damaged == 2);
    CHECK(parse_plan("F", "{\"kind\":\"plan\"}\n7\n").error().message == "F: line 2: is not a JSON object");
    CHECK(parse_plan("F", "{\"kind\":\"plan\"}\n{\"kind\":\"act").error().message == "F: cut short at line 2: half of a plan is none, write or copy it again");
    CHECK(parse_plan("F", "{\"kind\":\"plan\"}"));
    CHECK(parse_plan("F", "7\n").error().message == "F: not a plan of udnnmem (JSON lines, plain or zstd)");
    const std::string stored = scratch("stored");
    std::ofstream(stored, std::ios::binary) << std::string("\x55\x2a\x4d\x18\x10\0\0\0", 8) << std::string(16, 'x') << "\x28\xb5\x2f\xfd";
    CHECK(read_trace(stored).error().message.find("holds plans that a run stored (UDNNMEM_PLAN): only the library reads it") != std::string::npos);
    CHECK(read_plan(stored).error().message == read_trace(stored).error().message);
    std::filesystem::remove(stored);
    // What zstd cannot unpack any more is such a line too.
    const std::string path = scratch("damaged") + ".zst";
    std::string text = header + two_buffers;
    for (int i = 0; i < 100000; ++i) text += fmt::format("{{\"kind\":\"other\",\"value\":{}}}\n", i * 7919);
    REQUIRE(write_text(path, text));
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(path) * 3 / 4));
    file << std::string(64, '\x5a');
    file.close();
    const auto packed = read_trace(path);
    REQUIRE(packed);
    CHECK(packed->damaged > 3);
    CHECK(packed->buffers.size() == 2);
    std::filesystem::remove(path);
}

TEST_CASE("lists and objects are read however deep they are nested", "[trace]") {
    const std::size_t deep = 1'000'000;
    const std::string list = std::string(deep, '[') + std::string(deep, ']');
    std::string object;
    for (std::size_t i = 0; i < deep; ++i) object += "{\"a\":";
    object += "1" + std::string(deep, '}');
    CHECK(trace_error("{\"kind\":" + list + "}\n") == "F: line 1: kind: must be text, is a list");
    CHECK(trace_error("{\"kind\":" + object + "}\n") == "F: line 1: kind: must be text, is an object");
    CHECK(trace_error(header + "{\"kind\":\"buffer\",\"id\":0,\"bytes\":" + list + "}\n") == "F: line 2: buffer.bytes: must be a whole number, is a list");
    CHECK(trace_error(header + two_buffers + "{\"kind\":\"op\",\"index\":0,\"duration_ns\":1,\"reads\":" + list + "}\n") == "F: line 4: op.reads: must hold whole numbers, holds a list");
    CHECK(trace_error(header + "{\"kind\":\"buffer\",\"id\":0,\"bytes\":1,\"later\":" + object + "}\n") == "");
    CHECK(trace_error(header + "{\"kind\":" + list.substr(0, deep)) == "");  // cut short
}

TEST_CASE("what is replaced stays until the new one is whole, and keeps its permissions", "[trace]") {
    namespace fs = std::filesystem;
    const fs::path folder = scratch("replace");
    fs::create_directories(folder);
    REQUIRE(write_file(folder / "file", "old", false));
    CHECK(write_file(folder / "file", "new", false).error().message == (folder / "file").string() + ": File exists");
    fs::permissions(folder / "file", fs::perms(0640));
    REQUIRE(write_file(folder / "file", "new", true));
    CHECK(*read_text(folder / "file") == "new");
    CHECK(fs::status(folder / "file").permissions() == fs::perms(0640));
    rlimit before{}, little{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    little = {1 << 16, before.rlim_max};
    ::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &little);  // as a disk that is full
    CHECK(write_file(folder / "file", std::string(1 << 20, 'x'), true).error().message == (folder / "file").string() + ": File too large");
    CHECK(!write_file(folder / "other", std::string(1 << 20, 'x'), false));
    ::setrlimit(RLIMIT_FSIZE, &before);
    ::signal(SIGXFSZ, SIG_DFL);
    CHECK(*read_text(folder / "file") == "new");
    CHECK(std::distance(fs::directory_iterator(folder), {}) == 1);
    fs::remove_all(folder);
}

TEST_CASE("what is written goes where a link points, and into a pipe", "[trace]") {
    namespace fs = std::filesystem;
    const fs::path folder = scratch("write");
    fs::create_directories(folder / "there");
    for (const char* target : {"there/file", "there/new"}) {
        if (std::string(target) == "there/file") REQUIRE(write_text(folder / target, "old"));
        fs::create_symlink(target, folder / "link");
        fs::create_symlink(folder / "link", folder / "second");
        REQUIRE(write_text(folder / "second", "text"));
        CHECK(fs::is_symlink(folder / "link"));
        CHECK(fs::is_symlink(folder / "second"));
        CHECK(*read_text(folder / target) == "text");
        fs::remove(folder / "link");
        fs::remove(folder / "second");
    }
    const std::string pipe = folder / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
    REQUIRE(write_text(pipe, "text"));
    CHECK(fs::is_fifo(pipe));
    char read[8];
    CHECK(::read(reader, read, sizeof read) == 4);
    ::close(reader);
    CHECK(write_text(folder, "text").error().message == folder.string() + ": Is a directory");
    CHECK(std::distance(fs::directory_iterator(folder), {}) == 2);  // nothing is left beside
    fs::remove_all(folder);
}

TEST_CASE("validate() names buffer or op, field and rule", "[trace]") {
    const Trace good = *parse_trace("F", header + two_buffers + two_ops);
    Trace bad = good;
    bad.buffers[1].id = BufferId(4);
    CHECK(validate(bad).error().message == "buffer 1: id: must be its position, is 4");
    bad = good;
    bad.ops[1].index = OpIndex(0);
    CHECK(validate(bad).error().message == "op 1: index: must be its position, is 0");
    bad = good;
    bad.ops[1].reads = {BufferId(1), BufferId(0)};
    CHECK(validate(bad).error().message == "op 1: reads: not ascending");
    bad = good;
    bad.ops[1].writes = {BufferId(9)};
    CHECK(validate(bad).error().message == "op 1: writes: no such buffer 9");
    bad = good;
    bad.buffers[1].free_op = OpIndex(0);
    CHECK(validate(bad).error().message == "op 1: reads: buffer 1 is not allocated then");
    bad = good;
    bad.buffers[0].bytes = Bytes(-1);
    CHECK(validate(bad).error().message == "buffer 0: bytes: negative, or the sum exceeds 2^62");
    bad = good;
    bad.ops[0].workspace = Bytes((std::int64_t{1} << 62) - 29);
    CHECK(validate(bad).error().message == "op 0: workspace_bytes: negative, or above 2^62 with all buffers");
    bad = good;
    bad.ops[0].duration = Nanoseconds(-1);
    CHECK(validate(bad).error().message == "op 0: duration_ns: negative, or the sum exceeds 2^62");
}

TEST_CASE("a plan is read as it was written", "[plan]") {
    PlanFile file;
    file.plan.policy = "udnn";
    file.trace = "t";
    file.memory = Bytes(1000);
    file.link_in = 15.75e9;
    file.link_out = 1.5e9;
    file.time = Nanoseconds(77);
    file.plan.start_evicted = {BufferId(0)};
    file.plan.actions = {{Do::prefetch, OpIndex(-1), BufferId(0)}, {Do::clean, OpIndex(0), BufferId(1)}, {Do::drop, OpIndex(0), BufferId(1)},
                         {Do::replay, OpIndex(1), {}, {OpIndex(0)}, {BufferId(1)}}, {Do::evict, OpIndex(1), BufferId(0)}};
    const std::string path = scratch("p.jsonl.zst");
    REQUIRE(write_plan(path, file));
    const auto trace = parse_trace("F", header + two_buffers + two_ops);
    const auto again = read_plan(path, &*trace);
    std::filesystem::remove(path);
    REQUIRE(again);
    CHECK(format_plan(*again) == format_plan(file));
    CHECK(again->link_in == 15.75e9);
    CHECK(again->plan.actions[3].buffers == std::vector<BufferId>{BufferId(1)});
}

TEST_CASE("bad plans are answered by line, field and rule", "[plan]") {
    const std::string head = "{\"kind\":\"plan\",\"policy\":\"x\"}\n";
    const auto action = [&](const std::string& fields) { return plan_error(head + "{\"kind\":\"action\"," + fields + "}\n"); };
    CHECK(plan_error("") == "P: line 1: plan: is missing: not a plan");
    CHECK(plan_error("{\"kind\":\"action\"}\n") == "P: line 1: action.kind: the first record must be the plan");
    CHECK(plan_error(header) == "P: is a trace, not a plan: udnnmem plan TRACE --emit PLAN writes one");
    CHECK(plan_error(head + head) == "P: line 2: plan.kind: a file holds one plan, this is the second");
    CHECK(plan_error("{\"kind\":\"plan\",\"link_in\":-1}\n") == "P: line 1: plan.link_in: must be a number of at least 0, is -1");
    CHECK(plan_error("{\"kind\":\"plan\",\"link_out\":1e-9}\n") == "P: line 1: plan.link_out: must be at least 1000000 bytes per second, or 0 where it is not known, is 1e-09");
    CHECK(plan_error("{\"kind\":\"plan\",\"link_out\":0}\n") == "");
    CHECK(plan_error(head + "{\"kind\":\"start_evicted\",\"buffer\":2}\n") == "P: line 2: start_evicted.buffer: the trace has no buffer 2");
    CHECK(plan_error(head + "{\"kind\":\"start_evicted\",\"buffer\":1}\n") ==
          "P: line 2: start_evicted.buffer: buffer 1 is not persistent: it is not there when the iteration starts");
    CHECK(plan_error(head + "{\"kind\":\"start_evicted\",\"buffer\":0}\n{\"kind\":\"start_evicted\",\"buffer\":0}\n") == "P: line 3: start_evicted.buffer: buffer 0 is listed twice");
    CHECK(action("\"after_op\":0") == "P: line 2: action.do: is missing");
    CHECK(action("\"do\":\"jump\"") == "P: line 2: action.do: must be evict, clean, prefetch, drop or replay, is \"jump\"");
    CHECK(action("\"do\":\"evict\",\"buffer\":0") == "P: line 2: action.after_op: is missing");
    CHECK(action("\"do\":\"evict\",\"after_op\":2,\"buffer\":0") == "P: line 2: action.after_op: must be between 0 and 1, is 2");
    CHECK(action("\"do\":\"evict\",\"after_op\":-1,\"buffer\":0") == "P: line 2: action.after_op: must be between 0 and 1, is -1");
    CHECK(action("\"do\":\"prefetch\",\"after_op\":-1,\"buffer\":0") == "");
    CHECK(action("\"do\":\"evict\",\"after_op\":1,\"buffer\":7") == "P: line 2: action.buffer: the trace has no buffer 7");
    CHECK(action("\"do\":\"replay\",\"before_op\":1,\"ops\":[],\"buffers\":[1]") == "P: line 2: action.ops: must name an op");
    CHECK(action("\"do\":\"replay\",\"before_op\":1,\"ops\":[1],\"buffers\":[1]") == "P: line 2: action.ops: op 1 has not run yet before op 1");
    CHECK(action("\"do\":\"replay\",\"before_op\":1,\"ops\":[0],\"buffers\":[]") == "P: line 2: action.buffers: must name a buffer");
    CHECK(action("\"do\":\"replay\",\"before_op\":1,\"ops\":[0],\"buffers\":[5]") == "P: line 2: action.buffers: must hold numbers between 0 and 1, holds 5");
}
