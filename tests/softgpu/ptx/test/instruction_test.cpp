// Instructions that frameworks' own code generators write and nvcc seldom does: each line is run by one
// thread with its operands in registers, and its result compared.
#include <chrono>
#include <cmath>

#include "tests/catch.hpp"
#include "tests/softgpu/ptx/test/device.hpp"

using namespace softgpu::ptx;
using namespace softgpu::ptx::test;

namespace {
const std::string head = ".version 8.6\n.target sm_90\n.address_size 64\n";

std::uint32_t word(float f) {
    std::uint32_t u;
    std::memcpy(&u, &f, 4);
    return u;
}

// Runs `body` with %r1..%r4 = a..d (also as %f1.. and %d1.. and %h1..), in `threads` threads; returns %o of each.
std::vector<std::uint64_t> run(const std::string& body, std::vector<std::uint64_t> in, unsigned threads = 1) {
    Device device;
    in.resize(4);
    std::string text = head +
                       ".global .align 8 .u64 cell[4] = {100, 200, 300, 400};\n.visible .entry k(.param .u64 k_in, .param .u64 k_out) {\n"
                       ".reg .pred %p<9>; .reg .b16 %h<20>; .reg .b32 %r<20>; .reg .b64 %d<20>; .reg .f32 %f<20>; .reg .f64 %g<20>; .reg .b64 %o, %in, %out, %x;\n"
                       ".reg .b32 %t; .shared .align 16 .b8 sh[256];\nld.param.u64 %in, [k_in]; ld.param.u64 %out, [k_out]; mov.u32 %t, %tid.x;\n";
    for (int i = 1; i <= 4; ++i) {
        const std::string n = std::to_string(i);
        text += "ld.global.u64 %d" + n + ", [%in+" + std::to_string(8 * (i - 1)) + "]; cvt.u32.u64 %r" + n + ", %d" + n + "; cvt.u16.u64 %h" + n + ", %d" + n +
                "; mov.b32 %f" + n + ", %r" + n + "; mov.b64 %g" + n + ", %d" + n + ";\n";
    }
    text += "mov.u64 %o, 0;\n" + body + "\nmad.wide.u32 %x, %t, 8, %out; st.global.u64 [%x], %o; ret; }\n";
    Program program(device, {text});
    const auto out = device.upload(std::vector<std::uint64_t>(threads));
    program.launch("k", dims(1, threads), device.upload(in), out);
    return device.download<std::uint64_t>(out, threads);
}
std::uint64_t w32(const std::string& instruction, std::vector<std::uint64_t> in) { return run(instruction + " cvt.u64.u32 %o, %r9;", std::move(in))[0]; }
std::uint64_t f32(const std::string& instruction, std::vector<std::uint64_t> in) { return run(instruction + " mov.b32 %r9, %f9; cvt.u64.u32 %o, %r9;", std::move(in))[0]; }
std::uint64_t h16(const std::string& instruction, std::vector<std::uint64_t> in) { return run(instruction + " cvt.u64.u16 %o, %h9;", std::move(in))[0]; }
std::uint64_t w64(const std::string& instruction, std::vector<std::uint64_t> in) { return run(instruction, std::move(in))[0]; }
}  // namespace

TEST_CASE("bits and integers as code generators write them", "[ptx]") {
    CHECK(w32("brev.b32 %r9, %r1;", {0x12345678}) == 0x1e6a2c48);
    CHECK(w64("brev.b64 %o, %d1;", {1}) == 1ull << 63);
    CHECK(w32("bfind.u32 %r9, %r1;", {0x00801234}) == 23);
    CHECK(w32("bfind.u32 %r9, %r1;", {0}) == 0xffffffff);
    CHECK(w32("bfind.s32 %r9, %r1;", {0xffffff7f}) == 7);
    CHECK(w32("bfind.shiftamt.u32 %r9, %r1;", {0x00801234}) == 8);
    CHECK(w32("bfind.u64 %r9, %d1;", {1ull << 40}) == 40);
    CHECK(w32("popc.b64 %r9, %d1;", {0xf0f0f0f0f0f0f0f0}) == 32);
    CHECK(w32("clz.b64 %r9, %d1;", {1}) == 63);
    CHECK(w32("bfe.s32 %r9, %r1, 4, 8;", {0x00000f80}) == 0xfffffff8);
    CHECK(w32("bfe.u32 %r9, %r1, 28, 8;", {0xf0000000}) == 15);
    CHECK(w32("bfe.s32 %r9, %r1, 28, 8;", {0x80000000}) == 0xfffffff8);
    CHECK(w32("bfi.b32 %r9, %r1, %r2, 8, 8;", {0xab, 0x11223344}) == 0x1122ab44);
    CHECK(w32("prmt.b32 %r9, %r1, %r2, 0x7531;", {0x33221100, 0x77665544}) == 0x77553311);
    CHECK(w32("prmt.b32 %r9, %r1, %r2, 0x000b;", {0x80000000, 0}) == 0xff);
    CHECK(w32("prmt.b32.rc16 %r9, %r1, %r2, 1;", {0x33221100, 0}) == 0x33223322);
    CHECK(w32("prmt.b32.f4e %r9, %r1, %r2, 1;", {0x33221100, 0x77665544}) == 0x44332211);
    CHECK(w32("lop3.b32 %r9, %r1, %r2, %r3, 0x96;", {0xf0f0, 0xff00, 0xaaaa}) == (0xf0f0 ^ 0xff00 ^ 0xaaaa));
    CHECK(w32("shf.l.wrap.b32 %r9, %r1, %r2, 36;", {0x80000000, 1}) == 0x18);
    CHECK(w32("shf.r.clamp.b32 %r9, %r1, %r2, 36;", {0x80000000, 7}) == 7);
    CHECK(w32("shl.b32 %r9, %r1, %r2;", {1, 32}) == 0);
    CHECK(w32("shr.s32 %r9, %r1, %r2;", {0x80000000, 99}) == 0xffffffff);
    CHECK(w32("sad.s32 %r9, %r1, %r2, %r3;", {5, 0xfffffffb, 100}) == 110);
    CHECK(w32("sad.u32 %r9, %r1, %r2, %r3;", {5, 9, 100}) == 104);
    CHECK(w32("add.sat.s32 %r9, %r1, %r2;", {0x7fffffff, 5}) == 0x7fffffff);
    CHECK(w32("sub.sat.s32 %r9, %r1, %r2;", {0x80000000, 5}) == 0x80000000);
    CHECK(w32("mul24.lo.u32 %r9, %r1, %r2;", {0xff000003, 5}) == 15);
    CHECK(w32("mad24.hi.s32 %r9, %r1, %r2, %r3;", {0x400000, 0x400000, 1}) == 0x10000001);
    CHECK(w32("mad.hi.s32 %r9, %r1, %r2, %r3;", {0xffffffff, 2, 10}) == 9);
    CHECK(w32("div.s32 %r9, %r1, %r2;", {0x80000000, 0xffffffff}) == 0x80000000);
    CHECK(w32("rem.u32 %r9, %r1, %r2;", {17, 5}) == 2);
    CHECK(w32("cnot.b32 %r9, %r1;", {0}) == 1);
    CHECK(w32("dp4a.u32.s32 %r9, %r1, %r2, %r3;", {0x02000000, 0xff000000, 10}) == 8);
    CHECK(w32("dp2a.lo.s32.u32 %r9, %r1, %r2, %r3;", {0xffff0002, 0x0305, 1}) == 8);
    CHECK(w32("fns.b32 %r9, %r1, 0, 3;", {0xb0}) == 7);
    CHECK(w32("bmsk.clamp.b32 %r9, %r1, %r2;", {4, 8}) == 0xff0);
    CHECK(w32("szext.wrap.s32 %r9, %r1, %r2;", {0x80, 8}) == 0xffffff80);
    CHECK(w32("slct.u32.s32 %r9, %r1, %r2, %r3;", {1, 2, 0x80000000}) == 2);
    CHECK(w32("slct.u32.f32 %r9, %r1, %r2, %f3;", {1, 2, 0x80000000}) == 1);
    CHECK(w32("set.lt.u32.s32 %r9, %r1, %r2;", {0xffffffff, 0}) == 0xffffffff);
    CHECK(w32("setp.lt.and.u32 %p1|%p2, %r1, %r2, 1; selp.b32 %r9, 1, 0, %p1; @%p2 add.u32 %r9, %r9, 2;", {1, 2}) == 1);
    CHECK(w32("setp.hi.xor.u32 %p1, %r1, %r2, !%p2; selp.b32 %r9, 7, 3, %p1;", {1, 2}) == 7);
    CHECK(w32("min.relu.s32 %r9, %r1, %r2;", {0xffffffff, 2}) == 0);
    CHECK(w32("add.u16x2 %r9, %r1, %r2;", {0x0001ffff, 0x00020001}) == 0x00030000);
    CHECK(w32("max.s16x2 %r9, %r1, %r2;", {0x0001ffff, 0xffff0001}) == 0x00010001);
    CHECK(w32("add.cc.u32 %r5, %r1, %r2; addc.u32 %r9, 0, 0;", {0xffffffff, 1}) == 1);
    CHECK(w32("sub.cc.u32 %r5, %r1, %r2; subc.u32 %r9, 5, 0;", {0, 1}) == 4);
    CHECK(w32("cvt.sat.u8.s32 %r9, %r1;", {0xffffff00}) == 0);
    CHECK(w32("cvt.sat.s8.s32 %r9, %r1;", {1000}) == 127);
    CHECK(w32("cvt.s32.s8 %r9, %r1;", {0x80}) == 0xffffff80);
    CHECK(w64("{ .reg .b32 a, b; mov.b64 {a, b}, %d1; mov.b64 %o, {b, a}; }", {0x1122334455667788}) == 0x5566778811223344);
    CHECK(w32("{ .reg .b16 a, b; mov.b32 {a, b}, %r1; mov.b32 %r9, {b, a}; }", {0x11223344}) == 0x33441122);
    CHECK(w32("mov.u32 %r9, WARP_SZ;", {}) == 32);
    CHECK(w32("{ .reg .u32 %r9x; mov.u32 %r9x, 5; mov.u32 %r9, %r9x; }", {}) == 5);
}

TEST_CASE("floats as code generators write them", "[ptx]") {
    CHECK(f32("tanh.approx.f32 %f9, %f1;", {word(0)}) == word(0));
    CHECK(f32("copysign.f32 %f9, %f1, %f2;", {word(-1), word(3)}) == word(-3));
    CHECK(f32("add.ftz.f32 %f9, %f1, %f2;", {1, word(0)}) == 0);
    CHECK(f32("add.f32 %f9, %f1, %f2;", {1, word(0)}) == 1);
    CHECK(f32("mul.sat.f32 %f9, %f1, %f2;", {word(3), word(2)}) == word(1));
    CHECK(f32("fma.rn.ftz.sat.f32 %f9, %f1, %f2, %f3;", {word(0.5f), word(0.5f), word(0.25f)}) == word(0.5f));
    CHECK(f32("min.f32 %f9, %f1, %f2;", {0x7fc00000, word(2)}) == word(2));
    CHECK(f32("min.NaN.f32 %f9, %f1, %f2;", {0x7fc00000, word(2)}) == 0x7fffffff);
    CHECK(f32("min.f32 %f9, %f1, %f2;", {word(0), 0x80000000}) == 0x80000000);
    CHECK(f32("max.f32 %f9, %f1, %f2;", {0x80000000, word(0)}) == 0);
    CHECK(f32("max.f32 %f9, %f1, %f2, %f3;", {word(1), word(5), word(3)}) == word(5));
    CHECK(f32("min.xorsign.abs.f32 %f9, %f1, %f2;", {word(-4), word(3)}) == word(-3));
    CHECK(f32("rcp.approx.ftz.f32 %f9, %f1;", {word(4)}) == word(0.25f));
    CHECK(f32("rsqrt.approx.f32 %f9, %f1;", {word(4)}) == word(0.5f));
    CHECK(f32("sqrt.approx.ftz.f32 %f9, %f1;", {word(9)}) == word(3));
    CHECK(f32("div.full.f32 %f9, %f1, %f2;", {word(9), word(2)}) == word(4.5f));
    CHECK(f32("lg2.approx.f32 %f9, %f1;", {word(8)}) == word(3));
    CHECK(f32("ex2.approx.ftz.f32 %f9, %f1;", {word(-2)}) == word(0.25f));
    CHECK(f32("cvt.rmi.f32.f32 %f9, %f1;", {word(-1.5f)}) == word(-2));
    CHECK(f32("cvt.sat.f32.f32 %f9, %f1;", {word(-1.5f)}) == word(0));
    CHECK(f32("set.gt.f32.f32 %f9, %f1, %f2;", {word(2), word(1)}) == word(1));
    CHECK(w32("testp.subnormal.f32 %p1, %f1; selp.u32 %r9, 1, 0, %p1;", {1}) == 1);
    CHECK(w32("testp.notanumber.f32 %p1, %f1; selp.u32 %r9, 1, 0, %p1;", {0x7fc00000}) == 1);
    CHECK(w32("setp.neu.f32 %p1, %f1, %f1; selp.u32 %r9, 1, 0, %p1;", {0x7fc00000}) == 1);
    CHECK(w32("setp.ne.f32 %p1, %f1, %f1; selp.u32 %r9, 1, 0, %p1;", {0x7fc00000}) == 0);
    CHECK(w32("setp.ltu.f32 %p1, %f1, %f1; selp.u32 %r9, 1, 0, %p1;", {0x7fc00000}) == 1);
    CHECK(w32("setp.equ.f32 %p1, %f1, %f2; selp.u32 %r9, 1, 0, %p1;", {word(1), word(2)}) == 0);
    CHECK(w32("setp.nan.f32 %p1, %f1, %f2; selp.u32 %r9, 1, 0, %p1;", {0x7fc00000, word(2)}) == 1);
    CHECK(h16("add.f16 %h9, %h1, %h2;", {0x3c00, 0x3c00}) == 0x4000);
    CHECK(h16("fma.rn.relu.f16 %h9, %h1, %h2, %h3;", {0xbc00, 0x3c00, 0}) == 0);
    CHECK(h16("fma.rn.bf16 %h9, %h1, %h2, %h3;", {0x3f80, 0x4000, 0x3f80}) == 0x4040);
    CHECK(h16("cvt.rn.bf16.f32 %h9, %f1;", {word(1.00390625f)}) == 0x3f80);
    CHECK(h16("cvt.rz.f16.f32 %h9, %f1;", {word(65519)}) == 0x7bff);
    CHECK(h16("neg.bf16 %h9, %h1;", {0x3f80}) == 0xbf80);
    CHECK(h16("ex2.approx.f16 %h9, %h1;", {0x4000}) == 0x4400);
    CHECK(h16("set.eq.f16.f16 %h9, %h1, %h1;", {0x3c00}) == 0x3c00);
    CHECK(h16("max.NaN.f16 %h9, %h1, %h2;", {0x7e00, 0x3c00}) == 0x7fff);
    CHECK(f32("cvt.f32.bf16 %f9, %h1;", {0x4040}) == word(3));
    CHECK(w32("cvt.rn.bf16x2.f32 %r9, %f1, %f2;", {word(1), word(2)}) == 0x3f804000);
    CHECK(w32("cvt.rn.relu.f16x2.f32 %r9, %f1, %f2;", {word(-1), word(2)}) == 0x00004000);
    CHECK(w32("fma.rn.f16x2 %r9, %r1, %r2, %r3;", {0x3c003c00, 0x40004200, 0x3c000000}) == 0x42004200);
    CHECK(w32("set.lt.u32.f16 %r9, %h1, %h2;", {0x3c00, 0x4000}) == 0xffffffff);
    CHECK(w32("setp.lt.f16x2 %p1|%p2, %r1, %r2; selp.u32 %r9, 1, 0, %p1; @%p2 or.b32 %r9, %r9, 2;", {0x40003c00, 0x3c004000}) == 1);
    CHECK(w32("cvt.rni.s32.f16 %r9, %h1;", {0x4100}) == 2);
    CHECK(h16("cvt.rn.f16.u32 %h9, %r1;", {3}) == 0x4200);
    CHECK(w64("rcp.rn.f64 %g9, %g1; mov.b64 %o, %g9;", {0x4010000000000000}) == 0x3fd0000000000000);
    CHECK(w64("cvt.f64.f32 %g9, %f1; mov.b64 %o, %g9;", {word(1)}) == 0x3ff0000000000000);
    CHECK(w64("cvt.rn.f64.u64 %g9, %d1; mov.b64 %o, %g9;", {1ull << 63}) == 0x43e0000000000000);
}

TEST_CASE("memory, atomics and hints as code generators write them", "[ptx]") {
    CHECK(w32("mov.u64 %d9, cell; ld.global.cs.u32 %r9, [%d9+8];", {}) == 200);
    CHECK(w32("mov.u64 %d9, cell; ldu.global.v2.u32 {%r9, %r8}, [%d9+16];", {}) == 300);
    CHECK(w32("mov.u64 %d9, cell; ld.global.nc.L1::evict_last.L2::128B.u32 %r9, [%d9];", {}) == 100);
    CHECK(w32("mov.u64 %d9, cell; ld.acquire.gpu.global.u32 %r9, [%d9]; st.release.sys.global.u32 [%d9], 7;", {}) == 100);
    CHECK(w32("mov.u64 %d9, cell; st.global.wt.v2.u32 [%d9], {%r1, %r2}; ld.relaxed.gpu.u32 %r9, [%d9+4];", {5, 6}) == 6);
    CHECK(w64("ld.global.u64 %o, cell[%r1];", {2}) == 300);
    CHECK(w64("st.global.u64 cell[%d1], %d2; ld.global.u64 %o, [cell+8];", {1, 9}) == 9);
    CHECK(w64("mov.u64 %d9, cell; atom.relaxed.gpu.global.add.u64 %o, [%d9], 5;", {}) == 100);
    CHECK(w64("mov.u64 %d9, cell; atom.exch.b64 %d8, [%d9], %d1; ld.u64 %o, [%d9];", {77}) == 77);
    CHECK(w32("mov.u64 %d9, cell; atom.acquire.sys.global.cas.b32 %r8, [%d9], 100, 9; ld.global.u32 %r9, [%d9];", {}) == 9);
}

TEST_CASE("generic addresses find their space", "[ptx]") {
    CHECK(w32("mov.u64 %d9, sh; cvta.shared.u64 %d9, %d9; st.u32 [%d9+4], 55; ld.shared.u32 %r9, [sh+4];", {}) == 55);
    CHECK(w32("mov.u64 %d9, sh; cvta.shared.u64 %d9, %d9; add.u64 %d9, %d9, 12; cvta.to.shared.u64 %d8, %d9; cvt.u32.u64 %r9, %d8;", {}) == 12);
    CHECK(w32("mov.u64 %d9, sh; cvta.shared.u64 %d9, %d9; isspacep.shared %p1, %d9; isspacep.global %p2, %d9; selp.u32 %r9, 1, 0, %p1; @%p2 add.u32 %r9, %r9, 2;", {}) == 1);
    CHECK(w32("isspacep.shared %p1, %in; isspacep.global %p2, %in; isspacep.local %p3, %in; selp.u32 %r9, 1, 0, %p1; @%p2 add.u32 %r9, %r9, 2; @%p3 add.u32 %r9, %r9, 4;", {}) == 2);
    CHECK(w32("{ .local .align 4 .b8 l[16]; mov.u64 %d9, l; cvta.local.u64 %d9, %d9; st.u32 [%d9+8], 3; ld.local.u32 %r9, [l+8]; isspacep.local %p1, %d9; @%p1 add.u32 %r9, %r9, 10; }", {}) == 13);
    CHECK(w32("cp.async.ca.shared.global [sh], [%in], 8; cp.async.commit_group; cp.async.wait_group 0; ld.shared.u32 %r9, [sh];", {321}) == 321);
}

TEST_CASE("warps and barriers as code generators write them", "[ptx]") {
    const auto lanes = [](const std::string& body, unsigned threads = 32) { return run(body, {}, threads); };
    auto got = lanes("bar.red.popc.u32 %r9, 0, %p1; cvt.u64.u32 %o, %t; setp.lt.u32 %p2, %t, 40; bar.red.popc.u32 %r9, 0, %p2; cvt.u64.u32 %o, %r9;", 64);
    CHECK(got == std::vector<std::uint64_t>(64, 40));
    got = lanes("setp.lt.u32 %p2, %t, 40; barrier.sync.aligned 3; bar.red.and.pred %p3, 1, 64, %p2; bar.red.or.pred %p4, 2, 64, %p2; selp.u64 %o, 1, 0, %p3; @%p4 add.u64 %o, %o, 2;", 64);
    CHECK(got == std::vector<std::uint64_t>(64, 2));
    got = lanes("redux.sync.add.u32 %r9, %t, -1; redux.sync.max.s32 %r8, %t, -1; add.u32 %r9, %r9, %r8; cvt.u64.u32 %o, %r9;");
    CHECK(got == std::vector<std::uint64_t>(32, 496 + 31));
    got = lanes("elect.sync %r9|%p1, -1; selp.u64 %o, 1, 0, %p1;");
    CHECK(got[0] == 1);
    CHECK(got[1] == 0);
    got = lanes("shr.u32 %r8, %t, 4; match.any.sync.b32 %r9, %r8, -1; cvt.u64.u32 %o, %r9;");
    CHECK(got[0] == 0xffff);
    CHECK(got[31] == 0xffff0000);
    got = lanes("mov.u32 %r8, %laneid; mov.u32 %r9, %lanemask_lt; popc.b32 %r9, %r9; sub.u32 %r9, %r9, %r8; cvt.u64.u32 %o, %r9;");
    CHECK(got == std::vector<std::uint64_t>(32, 0));
    // A producer that only arrives, and consumers that wait for it.
    got = lanes("setp.lt.u32 %p1, %t, 32; @%p1 bra producer; bar.sync 1, 64; ld.shared.u32 %r9, [sh]; bra done;\n"
                "producer: st.shared.u32 [sh], 9; bar.arrive 1, 64; mov.u32 %r9, 1; done: cvt.u64.u32 %o, %r9;", 64);
    for (int t = 0; t < 64; ++t) CHECK(got[t] == (t < 32 ? 1u : 9u));
    // Registers of every type live across a stop.
    got = lanes("cvt.rn.f32.u32 %f9, %t; cvt.rn.f64.u32 %g9, %t; setp.lt.u32 %p5, %t, 7; cvt.u16.u32 %h9, %t; bar.sync 0; cvt.rzi.u32.f32 %r8, %f9; cvt.rzi.u32.f64 %r9, %g9;\n"
                "add.u32 %r9, %r9, %r8; cvt.u32.u16 %r8, %h9; add.u32 %r9, %r9, %r8; @%p5 add.u32 %r9, %r9, 1000; cvt.u64.u32 %o, %r9;");
    for (unsigned t = 0; t < 32; ++t) CHECK(got[t] == 3 * t + (t < 7 ? 1000 : 0));
}

TEST_CASE("a thread ends within functions: called, called through a pointer, with barriers around", "[ptx]") {
    Device device;
    const std::string functions = ".func inner(.param .b32 i) { .reg .pred %p<2>; .reg .b32 %r<2>; ld.param.u32 %r1, [i]; setp.eq.u32 %p1, %r1, 2; @%p1 exit; ret; }\n"
                                  ".func outer(.param .b32 i) { .reg .b32 %r<2>; .param .b32 a; ld.param.u32 %r1, [i]; st.param.b32 [a], %r1; call inner, (a); ret; }\n";
    for (const char* barrier : {"", "bar.sync 0;"})
        for (const char* callee : {"outer", "%d3, proto"}) {
            const bool pointer = callee != std::string("outer");
            Program program(device, {head + functions + ".visible .entry k(.param .u64 k_p) { .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %p<3>; .param .b32 a;\n"
                                     "ld.param.u64 %d1, [k_p]; mov.u32 %r1, %tid.x; mad.wide.u32 %d2, %r1, 4, %d1; st.global.u32 [%d2], %r1;\n" + (pointer ? "mov.u64 %d3, outer;\n proto: .callprototype ()_ (.param .b32 _);\n" : "") +
                                     barrier + " st.param.b32 [a], %r1; call " + (pointer ? "%d3, (a), proto;" : "outer, (a);") + barrier + "\nadd.u32 %r1, %r1, 100; st.global.u32 [%d2], %r1; ret; }"});
            const auto out = device.upload(std::vector<int>(5));
            program.launch("k", dims(1, 5), out);
            CHECK(device.download<int>(out, 5) == std::vector<int>{100, 101, 2, 103, 104});
        }
}

TEST_CASE("variables that are declared by number", "[ptx]") {
    Device device;
    Program program(device, {head + ".func (.param .b32 o) add(.param .b32 i, .param .b32 k) { .reg .b32 %r<3>; ld.param.u32 %r1, [i]; ld.param.u32 %r2, [k]; add.u32 %r1, %r1, %r2; st.param.b32 [o], %r1; ret; }\n"
                             ".visible .entry k(.param .u64 k_p) { .reg .b32 %r<9>; .reg .b64 %d<9>; .param .u32 %P<2>; .param .u32 o;\nld.param.u64 %d1, [k_p]; mov.u32 %r1, %tid.x;\n"
                             "st.param.u32 [%P0], %r1; st.param.u32 [%P1], 100; call (o), add, (%P0, %P1); ld.param.u32 %r2, [o]; mad.wide.u32 %d2, %r1, 4, %d1; st.global.u32 [%d2], %r2; ret; }"});
    const auto out = device.upload(std::vector<int>(5));
    program.launch("k", dims(1, 5), out);
    CHECK(device.download<int>(out, 5) == std::vector<int>{100, 101, 102, 103, 104});
}

TEST_CASE("parameters in registers, jump tables, indirect calls with a barrier refused", "[ptx]") {
    Device device;
    const std::string functions = ".func (.reg .u32 o) triple(.reg .u32 i) { mul.lo.u32 o, i, 3; ret; }\n";
    Program program(device, {head + functions +
                             ".visible .entry k(.param .u64 k_p) { .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %p<3>;\nld.param.u64 %d1, [k_p]; mov.u32 %r1, %tid.x;\n"
                             "call (%r2), triple, (%r1); setp.eq.u32 %p1, %r1, 2; @%p1 call (%r2), triple, (%r2);\n"
                             "and.b32 %r3, %r1, 3; brx.idx %r3, table; table: .branchtargets a, b, c, a;\n"
                             "a: add.u32 %r2, %r2, 100; bra.uni end; b: add.u32 %r2, %r2, 200; bra.uni end; c: add.u32 %r2, %r2, 300;\n"
                             "end: mad.wide.u32 %d2, %r1, 4, %d1; st.global.u32 [%d2], %r2; ret; }"});
    const auto out = device.upload(std::vector<int>(5));
    program.launch("k", dims(1, 5), out);
    CHECK(device.download<int>(out, 5) == std::vector<int>{100, 203, 318, 109, 112});
}

TEST_CASE("vector registers, as GCC writes them", "[ptx]") {
    const std::string pair = ".reg .v2 .u32 %v, %w; .reg .v2 .u64 %q; .reg .v4 .f32 %z;\n";
    CHECK(run(pair + "mov.v2.u32 %v, { %r1, 7 }; mov.v2.u32 %w, %v; mov.u32 %w.x, %w.y; mov.b64 %o, { %w.x, %v.x };", {5})[0] == (5ull << 32 | 7));
    CHECK(run(pair + "mov.v2.u32 %v, { %r1, %r2 }; mov.v2.u32 %v, { %v.y, %v.x }; mov.b64 %o, %v;", {5, 6})[0] == (5ull << 32 | 6));
    CHECK(run(pair + "mov.v2.u64 %q, { %d1, %d2 }; st.shared.v2.u64 [sh], %q; ld.shared.u64 %o, [sh+8];", {5, 1ull << 40})[0] == 1ull << 40);
    CHECK(run(pair + "mov.v4.f32 %z, { %f1, %f2, %f3, %f4 }; mov.b32 %r9, %z.w; cvt.u64.u32 %o, %r9;", {1, 2, 3, 4})[0] == 4);
    CHECK_THROWS(run(".reg .v2 .u32 %v; mov.u32 %v.z, 1;", {}));
    CHECK_THROWS(run(".reg .v2 .u32 %v; mov.v2.u32 %v, %r1;", {}));
    CHECK_THROWS(run(".reg .v2 .u32 %v<3>;", {}));
    CHECK_THROWS(run(".reg .v2 .u32 %v; shfl.sync.idx.b32 %r1|%v, %r2, 0, 31, -1;", {}));
    CHECK_THROWS(run(".reg .v2 .u32 %v; shfl.sync.idx.b32 %v|%p1, %r2, 0, 31, -1;", {}));
}

TEST_CASE("nanosleep takes the time that it is told, at most a millisecond, and a clock shows it", "[ptx]") {
    const auto slept = [](std::uint64_t ns) {
        const auto begin = std::chrono::steady_clock::now();
        const auto shown = w64("mov.u64 %d9, %globaltimer; nanosleep.u32 %r1; mov.u64 %o, %globaltimer; sub.u64 %o, %o, %d9;", {ns});
        return std::pair{shown, std::chrono::steady_clock::now() - begin};
    };
    CHECK(slept(0).first < 10);
    CHECK(slept(500).first == slept(0).first + 500);
    CHECK(slept(900'000).first >= 900'000);
    CHECK(slept(900'000).second >= std::chrono::microseconds(900));
    CHECK(slept(2'000'000'000).first < 1'001'000);
}
