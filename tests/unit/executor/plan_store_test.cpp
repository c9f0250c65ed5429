// Stored plans: what is read is what was written, and nothing else is read.
#include <catch2/catch.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "shim/executor/plan_store.hpp"

using namespace udnnmem;
using executor::Rows;
using executor::Sequence;

namespace {

struct Folder {
    std::string path;
    Folder() {
        char name[] = "/tmp/udnnmem-plan-XXXXXX";
        path = ::mkdtemp(name);
    }
    ~Folder() { std::system(("rm -rf " + path).c_str()); }
};

Sequence sequence() {
    Sequence s;
    for (int i = 0; i < 3; ++i) {
        profiler::TraceBuffer b;
        b.id = BufferId(i);
        b.bytes = Bytes(4096 * (i + 1));
        b.persistent = i == 0;
        b.free_op = OpIndex(i ? 2 : -1);
        s.plan_trace.buffers.push_back(b);
        s.persistent.push_back(nullptr);
    }
    for (int k = 0; k < 4; ++k) {
        profiler::TraceOp op;
        op.index = OpIndex(k);
        op.name = "kernel \"" + std::to_string(k) + "\"";
        op.duration = Nanoseconds(1000 + k);
        op.reads = {BufferId(0), BufferId(k % 3)};
        if (k % 2) op.writes = {BufferId(2)};
        s.plan_trace.ops.push_back(op);
        s.steps.push_back({nullptr, 0xfedcba9876543210u + static_cast<std::uint64_t>(k), static_cast<std::uint32_t>(s.uses.size()), 2});
        s.uses.push_back({0, 0});
        s.uses.push_back({1 + k % 2, 0});
    }
    for (std::size_t k = 0; k < 4; ++k) {
        s.steps[k].name = s.plan_trace.ops[k].name.c_str();
        s.program.steps.push_back({static_cast<std::uint32_t>(s.program.uses.size()), 2, k == 3 ? 1u : 0u});
        for (std::uint32_t i = 0; i < 2; ++i) s.program.uses.push_back(s.uses[s.steps[k].first + i].buffer);
        s.small.reads.emplace_back(), s.small.writes.emplace_back();
    }
    profiler::TraceBuffer small;
    small.id = BufferId(3), small.bytes = Bytes(64), small.persistent = true;
    s.small.buffers.push_back(small);
    s.program.uses.push_back(3);
    s.small.reads[3] = s.small.writes[3] = {BufferId(3)};
    return s;
}

// Op 1 is proven: it reads buffer 0 and works on 2 in place. Op 3 is too, but nobody knows its code.
replay::Known known() {
    replay::Known all;
    all.program = sequence().program;
    all.ops.resize(4);
    for (const std::size_t k : {std::size_t{1}, std::size_t{3}}) {
        replay::KnownOp& op = all.ops[k];
        op.proven = true;
        op.proved_with = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, -1, 127, -128, 16};
        op.varies.assign(20, 0);
        op.varies[17] = 1;
        op.uses = {{0, true, 4096, true, false}, {2, true, 12288, true, true}};
        op.uses[1].made_by = 0, op.uses[0].saved = true;
        op.operands = {{0, 0, 0}, {8, 1, 256}};
        op.code = k == 1 ? 0x123456789abcdef0u : 0;
    }
    return all;
}

Rows rows() {
    Rows r;
    r.entries = {{pager::Order::Kind::evict, 1}, {pager::Order::Kind::fetch, 0}, {pager::Order::Kind::drop, 2, 0}, {pager::Order::Kind::clean, 2}};
    r.replays = {{3, std::make_shared<const replay::Slice>(replay::Slice{{1}, {2}, {}})}, {4, std::make_shared<const replay::Slice>(replay::Slice{{1}, {2}, {}})}};   // the last: a tail's
    r.begin = {0, 0, 2, 3, 4};
    r.promised = Nanoseconds(123456);
    r.memory = Bytes(1 << 20), r.host = Bytes(INT64_MAX), r.peak = Bytes(987654);
    r.lookahead = 5;
    r.start = {Nanoseconds(0), Nanoseconds(1000), Nanoseconds(2500), Nanoseconds(7000)};
    r.link_in = 1.5e9;
    return r;
}

std::string lines() {
    profiler::Trace seen = sequence().plan_trace;
    seen.ops[1].writes.clear();
    const replay::Known all = known();
    return executor::plans_line("a device", "udnn", Bytes(4096), true) + executor::course_lines(sequence(), seen, &all, rows()) + executor::course_lines(sequence(), seen, &all, rows());
}

std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("stored plans are read as they were written") {
    Folder folder;
    const std::string path = folder.path + "/plan";
    REQUIRE(executor::write_plans(path, lines()));
    executor::PlanFile is = executor::PlanFile::none;
    const auto read = executor::read_plans(path, is);
    REQUIRE(read);
    CHECK(is == executor::PlanFile::plans);
    CHECK(read->device == "a device");
    CHECK(read->policy == "udnn");
    CHECK(read->granule.value == 4096);
    CHECK(read->node_by_node);
    REQUIRE(read->courses.size() == 2);
    for (const executor::StoredCourse& course : read->courses) {
        const Sequence expected = sequence(), &got = course.sequence;
        REQUIRE(got.steps.size() == 4);
        for (std::size_t k = 0; k < 4; ++k) {
            CHECK(std::string(got.steps[k].name) == expected.steps[k].name);
            CHECK(got.steps[k].shape == expected.steps[k].shape);
            CHECK(got.plan_trace.ops[k].duration == expected.plan_trace.ops[k].duration);
            CHECK(got.plan_trace.ops[k].reads == expected.plan_trace.ops[k].reads);
            CHECK(got.plan_trace.ops[k].writes == expected.plan_trace.ops[k].writes);
        }
        CHECK(got.uses.size() == 8);
        CHECK(got.uses[1].again == 2);
        CHECK(got.lasts(0));
        CHECK(!got.lasts(1));
        CHECK(got.plan_trace.buffers[2].bytes.value == 3 * 4096);
        CHECK(got.plan_trace.buffers[2].free_op.value == 2);
        CHECK(course.rows->begin == rows().begin);
        REQUIRE(course.rows->entries.size() == 4);
        for (std::size_t i = 0; i < 4; ++i)
            CHECK((course.rows->entries[i].kind == rows().entries[i].kind && course.rows->entries[i].buffer == rows().entries[i].buffer && course.rows->entries[i].replay == rows().entries[i].replay));
        REQUIRE(course.rows->replays.size() == 2);
        CHECK(course.rows->replays[0].before == 3);
        CHECK(course.rows->replays[1].before == 4);
        CHECK(course.rows->replays[0].slice->ops == std::vector<std::int32_t>{1});
        CHECK(course.rows->replays[0].slice->buffers == std::vector<std::int32_t>{2});
        CHECK(course.rows->kept == std::vector<bool>{false, true, false, false});
        CHECK(course.rows->host == rows().host);
        CHECK(course.rows->peak == rows().peak);
        CHECK(course.seen.ops[1].writes.empty());
        CHECK(got.small.buffers.size() == 1);
        CHECK(got.small.buffers[0].id.value == 3);
        CHECK(got.small.writes[3] == expected.small.writes[3]);
        CHECK(got.program.uses == expected.program.uses);
        CHECK(got.program.steps[3].small == 1);
        REQUIRE(course.known);
        REQUIRE(course.known->ops.size() == 4);
        const replay::KnownOp &op = course.known->ops[1], was = known().ops[1];
        CHECK(op.proven);
        CHECK(!op.proved);
        CHECK((op.code == was.code && op.proved_with == was.proved_with && op.varies == was.varies));
        REQUIRE(op.uses.size() == 2);
        CHECK((op.uses[0].saved && !op.uses[1].saved && op.uses[1].reads && op.uses[1].writes && op.uses[1].made_by == 0 && op.uses[1].bytes == 12288));
        REQUIRE(op.operands.size() == 2);
        CHECK((op.operands[1].at == 8 && op.operands[1].use == 1 && op.operands[1].delta == 256));
        CHECK(!course.known->ops[3].proven);
        CHECK(course.known->ops[3].refused);
        CHECK(course.rows->promised == rows().promised);
        CHECK(course.rows->memory == rows().memory);
        CHECK(course.rows->lookahead == 5);
        CHECK(course.rows->start == rows().start);
        CHECK(course.rows->link_in == 1.5e9);
    }
}

TEST_CASE("a stored plan with any byte changed, or cut anywhere, is refused") {
    Folder folder;
    const std::string path = folder.path + "/plan";
    REQUIRE(executor::write_plans(path, lines()));
    const std::string good = contents(path);
    executor::PlanFile is = executor::PlanFile::none;
    const auto refused = [&](const std::string& bytes) {
        std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
        return !executor::read_plans(path, is);
    };
    for (std::size_t at = 0; at < good.size(); ++at) {
        CHECK(refused(good.substr(0, at)));
        CHECK(is == (at == 0 ? executor::PlanFile::none : at < 8 ? executor::PlanFile::other : executor::PlanFile::plans));
        for (const int change : {1, 0x80, 0xff}) {
            std::string bytes = good;
            bytes[at] = static_cast<char>(bytes[at] ^ change);
            CHECK(refused(bytes));
            CHECK(is == (at < 8 ? executor::PlanFile::other : executor::PlanFile::plans));
        }
    }
    CHECK(refused(good + "x"));
    CHECK(!refused(good));
}

TEST_CASE("what a stored plan says must fit together") {
    Folder folder;
    const std::string path = folder.path + "/plan";
    executor::PlanFile is = executor::PlanFile::none;
    const auto refused = [&](std::string text, const std::string& from, const std::string& to) {
        text.replace(text.find(from), from.size(), to);
        REQUIRE(executor::write_plans(path, text));
        return !executor::read_plans(path, is);
    };
    CHECK(refused(lines(), "\"used\":[0,1]", "\"used\":[0,3]"));
    CHECK(refused(lines(), "\"after_op\":1", "\"after_op\":4"));
    CHECK(refused(lines(), "\"do\":\"evict\"", "\"do\":\"drop\""));
    CHECK(refused(lines(), "\"bytes\":4096", "\"bytes\":0"));
    CHECK(refused(lines(), "\"op\":1", "\"op\":4"));
    CHECK(refused(lines(), "\"at\":[0,8]", "\"at\":[0,13]"));
    CHECK(refused(lines(), "\"at\":[0,8]", "\"at\":[0]"));
    CHECK(refused(lines(), "\"use\":[0,1]", "\"use\":[0,2]"));
    CHECK(refused(lines(), "\"made_by\":[-1,0]", "\"made_by\":[-1,2]"));
    CHECK(refused(lines(), "\"ops\":[1]", "\"ops\":[3]"));
    CHECK(refused(lines(), "\"replay\":0", "\"replay\":2"));
    CHECK(refused(lines(), "\"runs\":\"kernel\"", "\"runs\":\"graph\""));
    CHECK(refused(lines(), "\"arguments\":\"00", "\"arguments\":\"0x"));
    CHECK(refused(lines(), "\"small\":false,\"alloc_op\":-1,\"free_op\":2", "\"small\":true,\"alloc_op\":-1,\"free_op\":2"));
    CHECK(refused(lines(), "\"small\":false,\"alloc_op\":-1,\"free_op\":2", "\"small\":false,\"alloc_op\":-1,\"free_op\":200000"));
    CHECK(refused(lines(), "{\"kind\":\"plans\"", "{\"kind\":\"plan\""));
    std::remove(path.c_str());
    CHECK(!executor::read_plans(path, is));
    CHECK(is == executor::PlanFile::none);
}

TEST_CASE("names of stored ops outlive the plans that they were read from") {
    Folder folder;
    const std::string path = folder.path + "/plan";
    REQUIRE(executor::write_plans(path, lines()));
    executor::PlanFile is = executor::PlanFile::none;
    const auto name = [&] { return executor::read_plans(path, is)->courses[0].sequence.steps[1].name; };
    const char* const first = name();
    CHECK(first == name());
    CHECK(std::string(first) == sequence().steps[1].name);
}

TEST_CASE("processes that share a folder and have one number write plans side by side") {
    Folder folder;
    const std::string path = folder.path + "/plan";
    REQUIRE(::mkdir((path + "." + std::to_string(::getpid()) + ".tmp").c_str(), 0755) == 0);   // the other one's
    CHECK(executor::write_plans(path, lines()));
    executor::PlanFile is = executor::PlanFile::none;
    CHECK(executor::read_plans(path, is));
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 2);   // and leave nothing behind
}

TEST_CASE("what is no plan is neither read nor written over") {
    Folder folder;
    const std::string path = folder.path + "/notes", beside = folder.path + "/other";
    executor::PlanFile is = executor::PlanFile::none;
    const auto left_alone = [&](const std::string& expected) {
        const auto read = executor::read_plans(path, is);
        const auto written = executor::write_plans(path, lines());
        CHECK(is == executor::PlanFile::other);
        REQUIRE((!read && !written));
        CHECK(read.error().message == path + ": " + expected);
        CHECK(written.error().message == path + ": " + expected);
    };
    const std::string notes = "what I wanted to say\n" + std::string(100, 'x');
    std::ofstream(path) << notes;
    left_alone("is no plan of udnnmem: left alone; name another file");
    CHECK(contents(path) == notes);
    REQUIRE(::rename(path.c_str(), beside.c_str()) == 0);
    REQUIRE(::symlink("other", path.c_str()) == 0);
    left_alone("is no plan of udnnmem: left alone; name another file");
    CHECK(contents(beside) == notes);
    std::remove(path.c_str());
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    left_alone("is no regular file: name a file");
    std::remove(path.c_str());
    REQUIRE(::symlink("/dev/null", path.c_str()) == 0);
    left_alone("is no regular file: name a file");
    std::remove(path.c_str());
    REQUIRE(::mkdir(path.c_str(), 0700) == 0);
    left_alone("is a directory: name a file");
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 2);
}

TEST_CASE("a plan is written where a symbolic link leads, with the permissions of the plan before it") {
    Folder folder;
    const std::string path = folder.path + "/plan", target = folder.path + "/there/plan";
    executor::PlanFile is = executor::PlanFile::other;
    REQUIRE(::mkdir((folder.path + "/there").c_str(), 0700) == 0);
    REQUIRE(::symlink("there/first", path.c_str()) == 0);
    REQUIRE(::symlink("plan", (folder.path + "/there/first").c_str()) == 0);
    CHECK(!executor::read_plans(path, is));
    CHECK(is == executor::PlanFile::none);
    for (const mode_t mode : {0640, 0604}) {
        REQUIRE(executor::write_plans(path, lines()));
        CHECK(executor::read_plans(target, is));
        struct stat found {};
        REQUIRE(::stat(target.c_str(), &found) == 0);
        if (mode == 0604) CHECK((found.st_mode & 07777) == 0640);
        REQUIRE(::chmod(target.c_str(), mode) == 0);
        std::ofstream(target, std::ios::app) << "damaged";
    }
    CHECK(std::filesystem::is_symlink(path));
    CHECK(executor::write_plans(path, lines()));
    CHECK(executor::read_plans(path, is));
    std::ofstream(target, std::ios::trunc).close();   // as mktemp leaves it
    CHECK(executor::write_plans(path, lines()));
    CHECK(executor::read_plans(path, is));
}
