// What the translator refuses, and that it says what and where.
#include "tests/catch.hpp"
#include "tests/softgpu/ptx/test/device.hpp"

using namespace softgpu::ptx;
using namespace softgpu::ptx::test;

namespace {
const std::string prologue = ".version 8.0\n.target sm_75\n.address_size 64\n";
std::string kernel(const std::string& body) {
    return prologue + ".visible .entry k(.param .u64 k_p) {\n.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .f32 %f<9>;\n" + body + "\nret; }\n";
}
std::string refusal(const std::string& text) {
    auto m = load(text, {});
    return m ? "" : m.error().message;
}
}  // namespace

TEST_CASE("an unknown instruction is refused at load by kernel, line and name", "[ptx]") {
    const std::string message = refusal(kernel("add.u32 %r1, %r2, %r3;\nfrobnicate.u32 %r1, %r2;"));
    CHECK(message.find("line 7") != std::string::npos);
    CHECK(message.find("kernel k") != std::string::npos);
    CHECK(message.find("frobnicate.u32") != std::string::npos);
    CHECK(refusal(kernel("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f2};")).find("mma.sync") != std::string::npos);
    CHECK(refusal(kernel("add.u32.surprise %r1, %r2, %r3;")).find(".surprise") != std::string::npos);
    CHECK(refusal(kernel("add.u32 %r1, %r2, %r3;")).empty());
}

TEST_CASE("malformed texts are refused", "[ptx]") {
    for (const char* body : {"add.u32 %r1, %r2;", "add.u32 %r1, %r2, %r3, %r4;", "add.u64 %r1, %d1, %d2;", "add.u32 %r99, %r1, %r2;", "bra nowhere;",
                             "@%r1 bra x; x:", "ld.global.u32 %r1, [%r2];", "ld.global.v4.f32 {%f1, %f2}, [%d1];", "mov.u32 %r1, \"text\";", "call missing;",
                             "setp.frob.u32 %p1, %r1, %r2;", "cvt.f32.f16x2 %f1, %r1;", "st.const.u32 [%d1], %r1;", "x: x: bra x;", "add.u32 %r1, %r2, 0xfffffffffffffffff;",
                             "mov.pred %p1, %r1;", "add.u32 %p1, %r1, %r2;", "{ add.u32 %r1, %r1, %r1;", "lop3.b32 %r1, %r2, %r3, %r4, %r5;"}) {
        INFO(body);
        CHECK_FALSE(refusal(kernel(body)).empty());
    }
    for (const char* text : {"", "nonsense", ".version", ".version 8.0\n.target sm_75\n.address_size 32\n", ".version 8.0 .entry", "/* never ends", ".version 8.0 .entry k(.param .u64", "\x01\x02"})
        if (*text) {
            INFO(text);
            CHECK_FALSE(refusal(text).empty());
        }
    CHECK_FALSE(refusal(prologue + ".global .b8 x[99999999999];").empty());
    CHECK_FALSE(refusal(prologue + ".global .u32 x[2] = {1, 2, 3};").empty());
    CHECK_FALSE(refusal(prologue + ".global .u64 x = nobody;").empty());
    std::string deep = kernel("");
    deep.insert(deep.find("ret;"), std::string(100000, '{'));
    CHECK_FALSE(refusal(deep).empty());
}

TEST_CASE("what looks like PTX", "[ptx]") {
    CHECK(looks_like_ptx("//\n// Generated\n\n.version 9.0\n"));
    CHECK(looks_like_ptx("/* c */ .version 3.2"));
    CHECK_FALSE(looks_like_ptx("\x7f""ELF"));
    CHECK_FALSE(looks_like_ptx(""));
    CHECK_FALSE(looks_like_ptx("// .version"));
}

TEST_CASE("several texts link to one module", "[ptx]") {
    Device device;
    const std::string one = prologue + ".extern .func (.param .b32 r) twice (.param .b32 a);\n.extern .global .u32 shared_word;\n"
                                   ".visible .entry k(.param .u64 k_p) { .reg .b32 %r<9>; .reg .b64 %d<9>; .param .b32 a; .param .b32 r;\n"
                                   "ld.param.u64 %d1, [k_p]; ld.global.u32 %r1, [shared_word]; st.param.b32 [a], %r1; call (r), twice, (a); ld.param.b32 %r2, [r];\n"
                                   "st.global.u32 [%d1], %r2; ret; }\n";
    const std::string two = prologue + ".visible .global .u32 shared_word = 21;\n.visible .func (.param .b32 r) twice (.param .b32 a) { .reg .b32 %r<9>;\n"
                                   "ld.param.b32 %r1, [a]; add.u32 %r2, %r1, %r1; st.param.b32 [r], %r2; ret; }\n";
    Program program(device, {one, two});
    const auto out = device.upload(std::vector<int>(1));
    program.launch("k", dims(1, 1), out);
    CHECK(device.download<int>(out, 1)[0] == 42);
    CHECK(refusal(one).find("twice") != std::string::npos);
}

TEST_CASE("a result that is declared in one text and not defined in the other is undefined, an argument is refused", "[ptx]") {
    Device device;
    auto caller = [](const std::string& declared, const std::string& called) {
        return prologue + ".extern .func " + declared + ";\n.visible .entry k(.param .u64 k_p) { .reg .b32 %r<9>; .reg .b64 %d<9>; .param .b64 a; .param .b32 r;\n"
                      "ld.param.u64 %d1, [k_p]; st.param.b64 [a], %d1; " + called + " ld.param.b32 %r2, [r]; st.global.u32 [%d1+4], %r2; ret; }\n";
    };
    const std::string set = prologue + ".visible .func set (.param .b64 a) { .reg .b32 %r<9>; .reg .b64 %d<9>;\n"
                                   "ld.param.b64 %d1, [a]; mov.u32 %r1, 5; st.global.u32 [%d1], %r1; ret; }\n";
    Program program(device, {caller("(.param .b32 r) set (.param .b64 a)", "call (r), set, (a);"), set});
    const auto out = device.upload(std::vector<int>(2));
    program.launch("k", dims(1, 1), out);
    CHECK(device.download<int>(out, 2) == std::vector<int>{5, 0x7f7f7f7f});
    const std::string more = caller("set (.param .b64 a, .param .b32 r)", "call set, (a, r);");
    const auto refused = link({more, set}, Options{});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message.find("wrong number of arguments") != std::string::npos);
}

TEST_CASE("the address of an array's element", "[ptx]") {
    Device device;
    Program program(device, {prologue + ".visible .entry k(.param .u64 k_p) { .reg .b32 %r<9>; .reg .b64 %d<9>; .shared .align 4 .u32 s[8];\n"
                                    "ld.param.u64 %d1, [k_p]; mov.u64 %d2, s[3]; mov.u64 %d3, s; sub.s64 %d4, %d2, %d3; st.global.u32 [%d1], %d4;\n"
                                    "mov.u32 %r1, 77; st.shared.u32 [s+8], %r1; ld.shared.u32 %r2, [s[2]]; st.global.u32 [%d1+4], %r2; ret; }"});
    const auto out = device.upload(std::vector<int>(2));
    program.launch("k", dims(1, 1), out);
    CHECK(device.download<int>(out, 2) == std::vector<int>{12, 77});
}

TEST_CASE("a deadlock is an error, not a hang", "[ptx]") {
    Device device;
    Program program(device, {kernel("mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; @%p1 bra other; bar.sync 0; ret; other: bar.sync 1;")});
    const auto done = program.try_launch("k", dims(1, 32), std::uint64_t{0});
    REQUIRE_FALSE(done);
    CHECK(done.error().message.find("deadlock") != std::string::npos);
}
