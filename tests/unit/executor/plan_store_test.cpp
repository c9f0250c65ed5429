// Stored plans: what is read is what was written, and nothing else is read.
#include <catch2/catch.hpp>

#include <cstdio>
#include <cstdlib>
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
    for (std::size_t k = 0; k < 4; ++k) s.steps[k].name = s.plan_trace.ops[k].name.c_str();
    return s;
}

Rows rows() {
    Rows r;
    r.entries = {{pager::Order::Kind::evict, 1}, {pager::Order::Kind::fetch, 0}, {pager::Order::Kind::clean, 2}};
    r.begin = {0, 0, 2, 2, 3};
    r.promised = Nanoseconds(123456);
    r.memory = Bytes(1 << 20);
    r.lookahead = 5;
    r.start = {Nanoseconds(0), Nanoseconds(1000), Nanoseconds(2500), Nanoseconds(7000)};
    r.link_in = 1.5e9;
    return r;
}

std::string lines() { return executor::plans_line("a device", "udnn", Bytes(4096)) + executor::course_lines(sequence(), sequence().plan_trace, rows()) + executor::course_lines(sequence(), sequence().plan_trace, rows()); }

std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("stored plans are read as they were written") {
    Folder folder;
    const std::string path = folder.path + "/plan";
    REQUIRE(executor::write_plans(path, lines()));
    bool missing = true;
    const auto read = executor::read_plans(path, missing);
    REQUIRE(read);
    CHECK(!missing);
    CHECK(read->device == "a device");
    CHECK(read->policy == "udnn");
    CHECK(read->granule.value == 4096);
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
        REQUIRE(course.rows->entries.size() == 3);
        for (std::size_t i = 0; i < 3; ++i) CHECK((course.rows->entries[i].kind == rows().entries[i].kind && course.rows->entries[i].buffer == rows().entries[i].buffer));
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
    bool missing = false;
    const auto refused = [&](const std::string& bytes) {
        std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
        return !executor::read_plans(path, missing) && !missing;
    };
    for (std::size_t at = 0; at < good.size(); ++at) {
        CHECK(refused(good.substr(0, at)));
        for (const int change : {1, 0x80, 0xff}) {
            std::string bytes = good;
            bytes[at] = static_cast<char>(bytes[at] ^ change);
            CHECK(refused(bytes));
        }
    }
    CHECK(refused(good + "x"));
    CHECK(!refused(good));
}

TEST_CASE("what a stored plan says must fit together") {
    Folder folder;
    const std::string path = folder.path + "/plan";
    bool missing = false;
    const auto refused = [&](std::string text, const std::string& from, const std::string& to) {
        text.replace(text.find(from), from.size(), to);
        REQUIRE(executor::write_plans(path, text));
        return !executor::read_plans(path, missing);
    };
    CHECK(refused(lines(), "\"used\":[0,1]", "\"used\":[0,3]"));
    CHECK(refused(lines(), "\"after_op\":1", "\"after_op\":4"));
    CHECK(refused(lines(), "\"do\":\"evict\"", "\"do\":\"drop\""));
    CHECK(refused(lines(), "\"bytes\":4096", "\"bytes\":0"));
    CHECK(refused(lines(), "{\"kind\":\"plans\"", "{\"kind\":\"plan\""));
    std::remove(path.c_str());
    CHECK(!executor::read_plans(path, missing));
    CHECK(missing);
}
