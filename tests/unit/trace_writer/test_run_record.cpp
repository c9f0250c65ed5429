// What read_run() makes of files that nobody, or a newer version, wrote.
#include <string>
#include <vector>

#include "profiler/trace/run_record.hpp"
#include "profiler/trace/writer/run_lines.hpp"
#include "tests/catch.hpp"

using namespace udnnmem;
using namespace udnnmem::profiler;

namespace {
const std::string header = "{\"kind\":\"header\",\"schema\":1,\"name\":\"x\"}\n";

std::string error_of(const std::string& text) {
    const auto run = parse_run("f", text);
    return run ? "(no error)" : run.error().message;
}
}  // namespace

TEST_CASE("wrong records are named by line, field and rule") {
    CHECK(error_of("") == "f: line 1: header: is missing: not a trace, or cut short before its first line was whole");
    CHECK(error_of("{\"kind\":\"config\"}\n") == "f: line 1: config.kind: the first record must be the header");
    CHECK(error_of("{\"kind\":\"header\",\"schema\":2}\n") == "f: line 1: header.schema: must be 1, is 2: written by a newer version");
    CHECK(error_of(header + header) == "f: line 2: header.kind: a trace has one header, this is the second");
    CHECK(error_of(header + "{\"kind\":\"event\"}\n") == "f: line 2: event.event: is missing");
    CHECK(error_of(header + "{\"kind\":\"event\",\"event\":\"fetch\",\"bytes\":-1}\n").find("f: line 2: event.bytes: must be between 0") == 0);
    CHECK(error_of(header + "{\"kind\":\"event\",\"event\":\"fetch\",\"start_ns\":5,\"end_ns\":4}\n").find("f: line 2: event.end_ns: must be between 5") == 0);
    CHECK(error_of(header + "{\"kind\":\"summary\",\"bytes_in\":\"much\"}\n") == "f: line 2: summary.bytes_in: must be a whole number, is \"much\"");
    CHECK(error_of(header + "{\"kind\":\"config\",\"device\":-1}\n").find("f: line 2: config.device:") == 0);
    CHECK(error_of(header + "{\"kind\":\"op\",\"index\":7,\"duration_ns\":1}\n").find("f: line 2: op.index:") == 0);
}

TEST_CASE("kinds and events of a newer version are passed over") {
    const auto run = parse_run("f", header + "{\"kind\":\"weather\"}\n{\"kind\":\"event\",\"event\":\"teleport\",\"bytes\":3}\n{\"kind\":\"summary\",\"ops\":4,\"moods\":1}\n");
    REQUIRE(run);
    CHECK(run->summary.ops == 4);
    CHECK(run->buffers.empty());
}

TEST_CASE("what is copied ahead of need has been moved out") {
    const auto run = parse_run("f", header + "{\"kind\":\"event\",\"event\":\"clean\",\"buffer\":2,\"bytes\":30}\n{\"kind\":\"event\",\"event\":\"evict_clean\",\"buffer\":2,\"bytes\":30}\n");
    REQUIRE(run);
    REQUIRE(run->buffers.size() == 1);
    CHECK(run->buffers[0].out == Bytes(30));
}

TEST_CASE("sums of absurd sizes saturate") {
    std::string text = header;
    for (int i = 0; i < 4; ++i) text += "{\"kind\":\"event\",\"event\":\"fetch\",\"buffer\":0,\"bytes\":4611686018427387904}\n";
    const auto run = parse_run("f", text);
    REQUIRE(run);
    CHECK(run->buffers[0].in == Bytes(std::int64_t{1} << 62));
}

TEST_CASE("configs are kept by device, the last of each") {
    const auto run = parse_run("f", header + "{\"kind\":\"config\",\"device\":1,\"budget_bytes\":5}\n{\"kind\":\"config\",\"device\":0,\"budget_bytes\":6}\n"
                                             "{\"kind\":\"config\",\"device\":1,\"budget_bytes\":7}\n");
    REQUIRE(run);
    REQUIRE(run->configs.size() == 2);
    CHECK(run->configs[0].budget == Bytes(6));
    CHECK(run->configs[1].budget == Bytes(7));
}

TEST_CASE("an iteration is read with the run, and its peak live bytes are the largest sum") {
    const auto run = parse_run("f", header +
                                        "{\"kind\":\"buffer\",\"id\":0,\"bytes\":100,\"persistent\":true}\n"
                                        "{\"kind\":\"buffer\",\"id\":1,\"bytes\":10}\n"
                                        "{\"kind\":\"buffer\",\"id\":2,\"bytes\":20,\"alloc_op\":0,\"free_op\":1}\n"
                                        "{\"kind\":\"buffer\",\"id\":3,\"bytes\":1000}\n"
                                        "{\"kind\":\"op\",\"index\":0,\"duration_ns\":5,\"reads\":[0],\"writes\":[1]}\n"
                                        "{\"kind\":\"op\",\"index\":1,\"duration_ns\":5,\"reads\":[1],\"writes\":[2],\"workspace_bytes\":3}\n"
                                        "{\"kind\":\"op\",\"index\":2,\"duration_ns\":5,\"reads\":[0],\"workspace_bytes\":30}\n");
    REQUIRE(run);
    CHECK(run->iteration.ops.size() == 3);
    CHECK(peak_live(run->iteration) == Bytes(133));
}

TEST_CASE("what an op was not seen to write is read by it and no more") {
    const std::string trace =
        "{\"kind\":\"header\",\"schema\":1,\"name\":\"a\"}\n{\"kind\":\"learned\",\"ops\":2}\n"
        "{\"kind\":\"buffer\",\"id\":0,\"bytes\":8,\"persistent\":true,\"run_id\":7}\n{\"kind\":\"buffer\",\"id\":1,\"bytes\":8,\"persistent\":true}\n"
        "{\"kind\":\"op\",\"index\":0,\"name\":\"k\",\"duration_ns\":1,\"reads\":[0,1],\"writes\":[0,1]}\n"
        "{\"kind\":\"op\",\"index\":1,\"name\":\"k\",\"duration_ns\":1,\"reads\":[1],\"writes\":[0,1]}\n";
    const auto writes = [&](const std::string& more, std::size_t op) {
        const auto run = parse_run("t", trace + more);
        REQUIRE(run);
        std::vector<std::int32_t> ids;
        for (const BufferId id : run->iteration.ops[op].writes) ids.push_back(id.value);
        return ids;
    };
    using Ids = std::vector<std::int32_t>;
    CHECK(writes("", 0) == Ids{0, 1});
    CHECK(writes("{\"kind\":\"unchanged\",\"ops\":2,\"op\":0,\"buffers\":[7,9]}\n", 0) == Ids{1});
    CHECK(writes("{\"kind\":\"unchanged\",\"ops\":2,\"op\":1,\"buffers\":[7]}\n", 1) == Ids{0, 1});   // it overwrites it: nobody else made it
    CHECK(writes("{\"kind\":\"unchanged\",\"ops\":3,\"op\":0,\"buffers\":[7]}\n", 0) == Ids{0, 1});   // of another iteration
    const auto wrong = parse_run("t", trace + "{\"kind\":\"unchanged\",\"ops\":2,\"op\":2,\"buffers\":[7]}\n");
    REQUIRE(wrong);
    CHECK(wrong->damage == "unchanged.op: must be below 2, the number of ops");
    CHECK((wrong->damaged == 7 && wrong->iteration.ops.size() == 2));
}

TEST_CASE("the shortest times of a run stand instead of those that were learned while memory was paged") {
    const std::string trace = "{\"kind\":\"header\",\"schema\":1,\"name\":\"a\"}\n{\"kind\":\"learned\",\"ops\":2,\"first_op\":9,\"ideal_ns\":9}\n"
                              "{\"kind\":\"op\",\"index\":0,\"duration_ns\":5}\n{\"kind\":\"op\",\"index\":1,\"duration_ns\":4}\n";
    const auto times = [&](const RunTimes& t) {
        const auto run = parse_run("t", trace + line_of(t));
        REQUIRE(run);
        CHECK(run->damage.empty());
        CHECK(run->iteration.header.ideal == run->iteration.ops[0].duration + run->iteration.ops[1].duration);
        return std::pair(run->iteration.ops[0].duration.value, run->iteration.ops[1].duration.value);
    };
    using Pair = std::pair<std::int64_t, std::int64_t>;
    CHECK(times({9, {3, 4}}) == Pair(3, 4));
    CHECK(times({8, {3, 4}}) == Pair(5, 4));   // another iteration of as many ops
    CHECK(times({9, {3, 4, 5}}) == Pair(5, 4));
    const auto wrong = parse_run("t", trace + "{\"kind\":\"times\",\"ops\":2,\"first_op\":9,\"duration_ns\":[3]}\n");
    REQUIRE(wrong);
    CHECK(wrong->damage == "times.duration_ns: must be 2 numbers, one for each op, is 1");
}

TEST_CASE("a run is read up to a record that is not as it must be, if there is anything to tell by then") {
    const std::string config = "{\"kind\":\"config\",\"device\":0,\"budget_bytes\":5}\n", fetch = "{\"kind\":\"event\",\"event\":\"fetch\",\"bytes\":1}\n";
    const std::string buffer = "{\"kind\":\"buffer\",\"id\":0,\"bytes\":8}\n", op = "{\"kind\":\"op\",\"index\":0,\"duration_ns\":1}\n";
    const auto read = [&](const std::string& text, std::int64_t damaged, const std::string& damage, std::int64_t fetches, std::size_t ops) {
        const auto run = parse_run("f", header + text);
        INFO(text << (run ? "" : run.error().message));
        REQUIRE(run);
        CHECK(run->damaged == damaged);
        CHECK(run->damage == damage);
        CHECK_FALSE(run->cut_short);
        CHECK(run->events[static_cast<int>(EventKind::fetch)] == fetches);
        CHECK(run->iteration.ops.size() == ops);
    };
    read(config + fetch + "{\"a\":1}\n" + fetch, 4, "kind: is missing", 1, 0);
    read(config + fetch + "{\"kind\":7}\n" + fetch, 4, "kind: must be text, is 7", 1, 0);
    read(config + fetch + header + fetch, 4, "header.kind: a trace has one header, this is the second", 1, 0);
    read(config + fetch + "{\"kind\":\"event\",\"event\":\"fetch\",\"bytes\":true}\n" + fetch, 4, "event.bytes: must be a whole number, is true", 1, 0);
    // Nothing stays of the record itself, and what it would have replaced does.
    const auto half = parse_run("f", header + "{\"kind\":\"config\",\"policy\":\"udnn\"}\n{\"kind\":\"summary\",\"ops\":4}\n" + "{\"kind\":\"summary\",\"ops\":5,\"last\":1}\n");
    CHECK((half && half->summary.ops == 4 && !half->ended && half->damage == "summary.last: must be true or false, is 1"));
    const auto config_twice = parse_run("f", header + "{\"kind\":\"config\",\"policy\":\"udnn\"}\n{\"kind\":\"config\",\"policy\":\"demand\",\"verify\":-1}\n");
    CHECK((config_twice && config_twice->configs[0].policy == "udnn"));
    const auto learned = parse_run("f", header + buffer + op + "{\"kind\":\"learned\",\"ops\":1,\"ideal_ns\":-1}\n");
    CHECK((learned && learned->iteration.ops.size() == 1));
    // The iteration's records are as good as others.
    read(buffer + op + fetch + "\n{\"kind\":\"op\",\"index\":1}\n" + fetch, 6, "op.duration_ns: is missing", 1, 1);
    read(buffer + op + fetch + "{\"kind\":\"op\",\"index\":1}\n" + fetch + "{\"a\":1}\n", 5, "op.duration_ns: is missing", 1, 1);
    read(buffer + op + fetch + "{\"a\":1}\n" + "{\"kind\":\"op\",\"index\":1}\n", 5, "kind: is missing", 1, 1);
    CHECK(error_of(header + buffer + "{\"kind\":\"op\",\"index\":1}\n") == "f: line 3: op.index: ops come in ascending order from 0: must be 0, is 1");
    CHECK(error_of(header + "{\"a\":1}\n" + config) == "f: line 2: kind: is missing");
}
