// What PTX says of its kernels: what they may write, and why they must not be run again.
#include <catch2/catch.hpp>

#include <array>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "interpose/kernel_code.hpp"

using namespace udnnmem::interpose;

namespace {

KernelCode code_of(const std::string& ptx, const char* kernel) {
    const KernelCodes all = read_code(ptx.c_str(), ptx.size() + 1);
    const auto found = all.find(kernel);
    REQUIRE(found != all.end());
    return found->second;
}

std::string entry(const char* name, const std::string& body, const char* parameters = ".param .u64 a, .param .u64 b, .param .align 8 .b8 s[24], .param .u32 n") {
    return "\n.visible .entry " + std::string(name) + "(" + parameters + ")\n{\n" + body + "\nret;\n}\n";
}
const std::string head = ".version 8.0\n.target sm_75\n.address_size 64\n";
using Words = std::set<std::uint32_t>;

}  // namespace

TEST_CASE("a kernel may write what its stores' addresses come from") {
    const KernelCode c = code_of(head + entry("k",
        ".reg .b64 %rd<9>; .reg .f32 %f<3>; .reg .pred %p<2>;\n"
        "ld.param.u64 %rd1, [a];\nld.param.u64 %rd2, [b]; // where to\ncvta.to.global.u64 %rd3, %rd2;\n"
        "ld.global.f32 %f1, [%rd1];\nadd.s64 %rd4, %rd3, 16;\n@%p1 st.global.f32 [%rd4+4], %f1;"), "k");
    CHECK(c.writes_known);
    CHECK(c.writes == Words{8});
    CHECK_FALSE(c.hazard);
}

TEST_CASE("words of a struct are told apart, vectors are not") {
    const std::string loads = ".reg .b64 %rd<9>;\nld.param.u64 %rd1, [s];\nld.param.u64 %rd2, [s+8];\n";
    CHECK(code_of(head + entry("k", loads + "st.global.u32 [%rd2], 1;"), "k").writes == Words{24});
    CHECK(code_of(head + entry("k", ".reg .b64 %rd<9>;\nld.param.v2.u64 {%rd1, %rd2}, [s+8];\nst.global.u32 [%rd2], 1;"), "k").writes.count(32));
}

TEST_CASE("words of a struct of all that a launch can be given, and none behind it") {
    const auto code = [](const std::string& offsets) {
        return code_of(head + entry("k", "ld.param.u64 %rd1, [s+" + offsets + "];\nst.global.u32 [%rd1], 1;\nld.param.v2.u64 {%rd2, %rd3}, [s+504];\nst.global.u32 [%rd3], %rd2;", ".param .align 8 .b8 s[32760]"), "k");
    };
    for (const std::uint32_t at : {0u, 496u, 504u, 520u, 4088u, 32752u}) {
        INFO(at);
        CHECK(code(std::to_string(at)).writes == Words{at, 512});
        CHECK(code(std::to_string(at)).writes_known);
    }
    CHECK_FALSE(code("32768").writes_known);
    CHECK_FALSE(code("0xfffffffffffffff8").writes_known);
}

TEST_CASE("a long kernel with many parameters, each of which reaches the value that it stores") {
    std::string parameters, body = "mov.f32 %f0, 0;\n";
    const int many = 200;
    for (int i = 0; i < many; ++i) {
        const std::string n = std::to_string(i), d = "%d" + n;
        parameters += (i ? ", .param .u64 p" : ".param .u64 p") + n;
        body += "ld.param.u64 " + d + ", [p" + n + "];\nld.global.f32 %g" + n + ", [" + d + "];\nadd.f32 %f" + std::to_string(i + 1) + ", %f" + n + ", %g" + n + ";\n";
    }
    for (int i = many; i < 20'000; ++i) body += "fma.rn.f32 %f" + std::to_string(i + 1) + ", %f" + std::to_string(i) + ", %f" + std::to_string(i) + ", %f" + std::to_string(i - 1) + ";\n";
    // What is added up decides which way it goes, and whether one store is come by.
    body += "setp.gt.f32 %p1, %f20000, 0f00000000;\n@%p1 bra SKIP;\nst.global.f32 [%d7], %f20000;\nSKIP: st.global.f32 [%d8], %f20000;";
    const KernelCode code = code_of(head + entry("k", body, parameters.c_str()), "k");
    Words all;
    for (std::uint32_t i = 0; i < many; ++i) all.insert(i * 8);
    CHECK(code.writes == Words{56, 64});
    CHECK(code.steers == all);
    CHECK(code.scattered == Words{56});
}

TEST_CASE("an address may go through registers in any order, selections and local memory") {
    CHECK(code_of(head + entry("k", "ld.param.u64 %rd1, [a];\nL1: st.global.u32 [%rd3], 1;\nmov.u64 %rd3, %rd2;\nmov.u64 %rd2, %rd1;\nbra L1;"), "k").writes == Words{0});
    CHECK(code_of(head + entry("k", "ld.param.u64 %rd1, [a];\nld.param.u64 %rd2, [b];\nselp.b64 %rd3, %rd1, %rd2, %p1;\natom.global.add.u32 %r1, [%rd3], 1;"), "k").writes == Words{0, 8});
    CHECK(code_of(head + entry("k", "ld.param.u64 %rd1, [b];\nst.local.u64 [%rd9], %rd1;\nld.local.u64 %rd2, [%rd9+8];\nred.global.add.u32 [%rd2], 1;"), "k").writes == Words{8});
}

TEST_CASE("memory steers a kernel that makes addresses or decisions of what it holds") {
    const std::string loads = ".reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<3>;\nld.param.u64 %rd1, [a];\nld.param.u64 %rd2, [b];\n";
    const auto steers = [&](const std::string& body) { return code_of(head + entry("k", loads + body), "k").steers; };
    const std::string index = "mul.wide.u32 %rd3, %r1, 4;\nadd.s64 %rd4, %rd2, %rd3;\nst.global.u32 [%rd4], %r2;";
    CHECK(steers("ld.global.u32 %r1, [%rd1];\nadd.u32 %r1, %r1, 1;\nst.global.u32 [%rd2], %r1;").empty());
    CHECK(steers("ld.global.u32 %r1, [%rd1];\n" + index) == Words{0});
    CHECK(steers("atom.global.add.u32 %r1, [%rd1], 1;\n" + index) == Words{0});
    CHECK(steers("ld.global.u32 %r1, [%rd1];\nst.shared.u32 [%r7], %r1;\nld.shared.u32 %r1, [%r7+4];\n" + index) == Words{0});
    CHECK(steers("cp.async.ca.shared.global [%r7], [%rd1], 16;\nld.shared.u32 %r1, [%r7+4];\n" + index) == Words{0});
    CHECK(steers("cp.async.ca.shared.global [%r7], [%rd1], 16;\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r7];\n" + index) == Words{0});
    CHECK(steers("ld.global.u32 %r3, [%rd1];\nst.global.u32 [%rd2], %r3;\nld.global.u32 %r1, [%rd2];\n" + index) == Words{0, 8});
    CHECK(steers("L1: atom.global.cas.b32 %r1, [%rd2], 0, 1;\nsetp.ne.s32 %p1, %r1, 0;\n@%p1 bra L1;") == Words{8});
    CHECK(steers("ld.global.u32 %r1, [%rd2];\nsetp.ne.s32 %p1, %r1, 0;\n@!%p1 bra.uni L1;\nL1: ret;") == Words{8});
    CHECK(steers("ld.global.u32 %r1, [%rd2];\nbrx.idx %r1, targets;\nL1: ret;") == Words{8});
    CHECK(steers("ld.global.u32 %r1, [%rd2];\nsetp.ne.s32 %p1, %r1, 0;\n@%p1 ret;") == Words{8});
    CHECK(steers("ld.global.u32 %r1, [%rd2];\nsetp.ne.s32 %p1, %r1, 0;\n@%p1 st.global.u32 [%rd1], %r1;").empty());
}

TEST_CASE("what is written to where memory says, or when, may be left out in part") {
    const std::string loads = ".reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<3>;\nld.param.u64 %rd1, [a];\nld.param.u64 %rd2, [b];\nld.param.u32 %r3, [n];\n";
    const auto scattered = [&](const std::string& body) { return code_of(head + entry("k", loads + body), "k").scattered; };
    const std::string store = "mul.wide.u32 %rd3, %r1, 4;\nadd.s64 %rd4, %rd2, %rd3;\nst.global.u32 [%rd4], %r2;";
    CHECK(scattered("ld.global.u32 %r1, [%rd1];\n" + store) == Words{8});
    CHECK(scattered("atom.global.add.u32 %r1, [%rd1], 1;\n" + store) == Words{8});
    CHECK(scattered("ld.global.u32 %r1, [%rd1];\nsetp.ne.s32 %p1, %r1, 0;\n@%p1 st.global.u32 [%rd2], %r1;") == Words{8});
    CHECK(scattered("ld.global.u32 %r1, [%rd1];\nsetp.lt.u32 %p1, %r4, %r3;\n@%p1 st.global.u32 [%rd2], %r1;").empty());
    const std::string flag = "ld.global.u32 %r1, [%rd1];\nsetp.ne.s32 %p1, %r1, 0;\n";
    CHECK(scattered(flag + "@%p1 bra L1;\nst.global.u32 [%rd2], 1;\nL1: ret;") == Words{8});
    CHECK(scattered(flag + "@%p1 ret;\nst.global.u32 [%rd2], 1;") == Words{8});
    CHECK(scattered(flag + "@%p1 bra L1;\nst.global.u32 [%rd2], 1;\nbra.uni L2;\nL1: st.global.u32 [%rd2], 2;\nL2: ret;") == Words{8});
    CHECK(scattered("L1: " + flag + "st.global.u32 [%rd2], 1;\n@%p1 bra L1;") == Words{8});   // once at least, but to how many places
    CHECK(scattered("L1: " + flag + "@%p1 bra L2;\nst.global.u32 [%rd2], 1;\nbra L1;\nL2: ret;") == Words{8});
    CHECK(scattered(flag + "brx.idx %r1, targets;\nL1: st.global.u32 [%rd2], 1;\nL2: ret;") == Words{8});
    CHECK(scattered(flag + "@%p1 mov.u32 %r4, 7;\nsetp.ne.s32 %p2, %r4, 0;\n@%p2 st.global.u32 [%rd2], 1;") == Words{8});
    // Both ways lead to it, as where a function has two formulas.
    CHECK(scattered(flag + "@%p1 bra L1;\nmov.u32 %r2, 1;\nbra.uni L2;\nL1: mov.u32 %r2, 2;\nL2: st.global.u32 [%rd2], %r2;").empty());
    CHECK(scattered("setp.lt.u32 %p1, %r4, %r3;\n@%p1 bra L1;\nst.global.u32 [%rd2], 1;\nL1: ret;").empty());
    CHECK(scattered("st.global.u32 [%rd2], 1;\n" + flag + "@%p1 bra L1;\nmov.u32 %r2, 1;\nL1: ret;").empty());
    CHECK(scattered("mov.u32 %r1, %tid.x;\nld.global.u32 %r2, [%rd1];\n" + store).empty());
}

TEST_CASE("a store may be left out where a branch on memory leads to it on one way and to the end on another, by every way there is") {
    std::mt19937 random(7);
    for (int i = 0; i < 500; ++i) {
        struct Line {
            enum { store, branch, plain_branch, jump, leave, other } kind;
            std::size_t to;        // of a branch: the line; of a store: the word
        };
        const std::size_t n = 2 + random() % 12;
        std::vector<Line> lines;
        std::string text = ".reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<3>;\nld.param.u64 %rd1, [a];\nld.param.u64 %rd2, [b];\nld.param.u64 %rd3, [s];\nld.param.u64 %rd4, [s+8];\nld.global.u32 %r1, [%rd1];\nsetp.ne.s32 %p1, %r1, 0;\n";
        for (std::size_t k = 0; k < n; ++k) {
            const Line line{static_cast<decltype(Line::kind)>(random() % 6), random() % (k % 2 ? n : 3)};
            const std::string to = std::to_string(std::min(line.to, n - 1));
            text += "L" + std::to_string(k) + ": ";
            switch (line.kind) {
                case Line::store: text += "st.global.u32 [%rd" + std::to_string(2 + line.to % 3) + "], 1;\n"; break;
                case Line::branch: text += "@%p1 bra L" + to + ";\n"; break;
                case Line::plain_branch: text += "@!%p2 bra.uni L" + to + ";\n"; break;
                case Line::jump: text += "bra L" + to + ";\n"; break;
                case Line::leave: text += "@%p1 ret;\n"; break;
                default: text += "mov.u32 %r2, 1;\n";
            }
            lines.push_back({line.kind, line.kind == Line::store ? line.to % 3 : std::min(line.to, n - 1)});
        }
        const auto after = [&](std::size_t k) {
            std::vector<std::size_t> all;
            if (lines[k].kind != Line::jump) all.push_back(k + 1);
            if (lines[k].kind == Line::branch || lines[k].kind == Line::plain_branch || lines[k].kind == Line::jump) all.push_back(lines[k].to);
            if (lines[k].kind == Line::leave) all.push_back(n);
            return all;
        };
        // What is come by from there; not on through `barred`.
        const auto from = [&](std::size_t k, std::size_t barred) {
            std::set<std::size_t> seen;
            for (std::vector<std::size_t> open{k}; !open.empty();) {
                const std::size_t at = open.back();
                open.pop_back();
                for (const std::size_t next : after(at))
                    if (seen.insert(next).second && next != barred && next != n) open.push_back(next);
            }
            return seen;
        };
        Words expected;
        for (std::size_t k = 0; k < n; ++k)
            for (std::size_t store = 0; store < n && (lines[k].kind == Line::branch || lines[k].kind == Line::leave); ++store)
                if (lines[store].kind == Line::store && from(k, store).count(store) && from(k, store).count(n)) expected.insert(std::array<std::uint32_t, 3>{8, 16, 24}[lines[store].to]);
        INFO(text);
        CHECK(code_of(head + entry("k", text), "k").scattered == expected);
    }
}

TEST_CASE("a kernel may go by addresses that it finds in variables which kernels write") {
    const auto follows = [](const std::string& body, const std::string& variable = ".visible .global .align 8 .u64 v[4];\n") {
        return code_of(head + variable + entry("k", body), "k").follows_variables;
    };
    const std::string load = "ld.global.u64 %rd1, [v+16];\n", use = "st.global.u32 [%rd1+4], %r1;";
    CHECK(follows(load + use));
    CHECK(follows(load + use, ".global .align 16 .b8 v[32] = {1, 2};\n"));
    CHECK(follows("mov.u64 %rd2, v;\ncvta.global.u64 %rd3, %rd2;\nadd.s64 %rd4, %rd3, %rd9;\nld.v2.u64 {%rd5, %rd1}, [%rd4];\n" + use));
    CHECK(follows("L1: st.global.u32 [%rd1], %r1;\nmov.u64 %rd1, %rd2;\nmov.u64 %rd2, %rd3;\n ld.global.u64 %rd3, [v];\nbra L1;"));
    CHECK(follows(load + "st.local.u64 [%rd9], %rd1;\nld.local.u64 %rd2, [%rd9];\nld.global.f32 %f1, [%rd2];"));
    CHECK(follows("cp.async.ca.shared.global [%r7], [v], 16;\nld.shared.u64 %rd1, [%r7];\n" + use));
    CHECK(follows("atom.global.exch.b64 %rd1, [v], %rd2;\n" + use));
    CHECK(follows("call.uni f, (p);", ".global .u64 v;\n.func f(.param .u64 x) { ld.global.u64 %rd1, [v]; ret; }\n"));
    CHECK(follows("mov.b64 %rd1, s;\nld.u64 %rd2, [%rd1];\nld.global.u64 %rd3, [v];"));   // not all of it is understood
    CHECK_FALSE(follows(load + "st.global.u64 [%rd2], %rd1;"));
    CHECK_FALSE(follows("ld.param.u64 %rd1, [a];\n" + use));
    CHECK_FALSE(follows("ld.param.u64 %rd1, [a];\nst.global.u64 [v], %rd1;"));   // who writes it needs not follow it
    CHECK_FALSE(follows("ld.global.u32 %r2, [v];\nmul.wide.u32 %rd1, %r2, 4;\n" + use));
    CHECK_FALSE(follows("ld.const.u64 %rd1, [v];\n" + use, ".const .align 8 .u64 v[4];\n"));   // no kernel writes it
    CHECK_FALSE(follows(load + use, ".global .align 4 .u32 v[4];\n"));
    CHECK_FALSE(follows("call.uni f, (p);", ".global .align 1 .b8 v[4];\n.func f(.param .u64 x) { mov.u64 %rd1, v; ret; }\n"));
}

TEST_CASE("what cannot be followed is not known") {
    CHECK_FALSE(code_of(head + entry("k", "mov.b64 %rd1, s;\nld.u64 %rd2, [%rd1];\nst.u32 [%rd2], 1;"), "k").writes_known);
    CHECK_FALSE(code_of(head + ".func f(.param .u64 x) { ret; }" + entry("k", "call.uni f, (p);"), "k").writes_known);
    CHECK(code_of(head + entry("k", "st.shared.u32 [%r1], 1; st.local.u32 [%r2], 1;"), "k").writes.empty());
}

TEST_CASE("kernels that must not be run again") {
    const auto hazard = [](const std::string& body, const std::string& before = "") {
        const char* why = code_of(head + before + entry("k", body), "k").hazard;
        return std::string(why ? why : "");
    };
    CHECK_THAT(hazard("mov.u64 %rd1, %clock64;"), Catch::Contains("clock"));
    CHECK_THAT(hazard("mov.u32 %r1, %smid;"), Catch::Contains("clock"));
    CHECK_THAT(hazard("@%p1 atom.global.add.f32 %f1, [%rd1], %f2;"), Catch::Contains("floating"));
    CHECK_THAT(hazard("red.shared.add.f64 [%r1], %fd1;"), Catch::Contains("floating"));
    CHECK(hazard("atom.global.add.u32 %r1, [%rd1], 1;").empty());
    CHECK_THAT(hazard("ld.volatile.global.u32 %r1, [%rd1];"), Catch::Contains("others"));
    CHECK(hazard("ld.volatile.shared.u32 %r1, [%r2];").empty());
    CHECK_THAT(hazard("ld.global.u32 %r1, [counter];", ".visible .global .align 4 .u32 counter;\n"), Catch::Contains("variables"));
    CHECK_THAT(hazard("ld.const.u32 %r1, [t+4];", ".const .align 4 .b8 t[16] = {1, 2};\n"), Catch::Contains("variables"));
    CHECK(hazard("ld.global.u32 %r1, [__cudart_i2opi_f];", ".global .align 4 .b8 __cudart_i2opi_f[24] = {1};\n").empty());
    CHECK_THAT(hazard("call.uni (r), vprintf, (p);", ".extern .func (.param .b32 r) vprintf (.param .b64 a)\n;\n"), Catch::Contains("outside"));
    const std::string pointer = ".func (.param .b32 r) f(.param .b32 a) { ret; }\n";
    CHECK_THAT(hazard("prototype_0 : .callprototype (.param .b32 _) _ (.param .b32 _);\ncall (r), %rd4, (p), prototype_0;", pointer), Catch::Contains("outside"));
    CHECK_THAT(hazard("call.uni %rd4, (p), prototype_0;", pointer), Catch::Contains("outside"));
    CHECK(hazard("call.uni (r), f, (%rd4);", pointer).empty());
    CHECK_THAT(hazard("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [%r1], 16;"), Catch::Contains("floating"));
    CHECK_THAT(hazard("cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group [%rd1, {%r1}], [%r2];"), Catch::Contains("floating"));
    CHECK(hazard("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r1], 16;").empty());
    CHECK_THAT(hazard("tex.2d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1, %r2}];"), Catch::Contains("textures"));
    // Others have to do something first.
    CHECK_THAT(hazard("ld.acquire.gpu.global.u32 %r1, [%rd1];"), Catch::Contains("others"));
    CHECK_THAT(hazard("ld.relaxed.sys.u32 %r1, [%rd1];"), Catch::Contains("others"));
    CHECK(hazard("ld.acquire.cta.shared.u32 %r1, [%r2];").empty());
    CHECK_THAT(hazard("L1: atom.global.cas.b32 %r1, [%rd2], 0, 1;\nsetp.ne.s32 %p1, %r1, 0;\n@%p1 bra L1;"), Catch::Contains("others"));
    CHECK(hazard("L1: atom.global.inc.u32 %r1, [%rd2], 9;\nsetp.ne.s32 %p1, %r1, 9;\n@%p1 bra L2;\nmov.u32 %r2, 1;\nL2: ret;").empty());
    // Whose turn it was.
    CHECK_THAT(hazard("atom.global.add.u32 %r1, [%rd1], 1;\nmul.wide.u32 %rd3, %r1, 4;\nst.global.u32 [%rd3], 1;"), Catch::Contains("order"));
    CHECK_THAT(hazard("atom.shared.add.u32 %r1, [%r9], 1;\nst.shared.u32 [%r8], %r1;\nld.shared.u32 %r2, [%r8];\nst.global.u32 [%rd3], %r2;"), Catch::Contains("order"));
    CHECK(hazard("atom.global.add.u32 %r1, [%rd1], 1;\nst.global.u32 [%rd3], 1;").empty());
    // What stands behind a place in the source.
    CHECK_THAT(hazard(".loc 1 12 5\natom.global.add.f32 %f1, [%rd1], %f2;"), Catch::Contains("floating"));
    CHECK_THAT(hazard(".loc 1 12 5, function_name $L__info_string0, inlined_at 1 3 4\nst.global.u32 [%rd1], 1;\n.loc 1 13 5\n{ mov.u32 %r1, 1; }\nmov.u64 %rd1, %clock64;"), Catch::Contains("clock"));
    CHECK(code_of(head + entry("k", "ld.param.u64 %rd1, [b];\n.loc 1 12 5\nst.global.u32 [%rd1], 1;"), "k").writes == Words{8});
    // By way of a function that it calls, which may come first or last.
    const std::string inner = ".func inner() { mov.u64 %rd1, %globaltimer; ret; }\n";
    CHECK_THAT(hazard("call.uni inner;", inner), Catch::Contains("clock"));
}

TEST_CASE("text that is cut or garbled is read without harm") {
    const std::string good = head + ".global .u32 g;\n.func f() { ret; }" + entry("k", "ld.param.v2.u64 {%rd1, %rd2}, [s+8];\nst.global.u32 [%rd2], 1;\ncall.uni f;");
    for (std::size_t n = 0; n < good.size(); ++n) read_code(good.substr(0, n).c_str(), n + 1);
    std::mt19937 random(1);
    for (int i = 0; i < 2000; ++i) {
        std::string bad = good;
        for (int k = 0; k < 4; ++k) bad[random() % bad.size()] = "{}()[];,.%@ +=\"/*"[random() % 17];
        read_code(bad.c_str(), bad.size() + 1);
    }
}
