#!/usr/bin/env python3
"""What is seen in machine code: ptxas assembles kernels with one instruction each, for each generation of cards, and modules with
variables of each kind; the library says what it has against each (build/tests/interpose/code_of).
"""
import pathlib, re, subprocess, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, ROOT, Suite

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
FLOAT, SWAP, CLOCK, TEXTURE, OTHERS, OUTSIDE, VARIABLE, NOTHING = "adds floating-point", "swaps by comparison", "reads a clock", "reads textures", "others may be writing", "code outside", "variables of its module", ""
# What a kernel does, what is said of it, and from which architecture on it is there.
KERNELS = {
    "store": ("st.global.u32 [%rd1], %r1;", NOTHING, 75),
    "load": ("ld.global.u32 %r2, [%rd1]; st.global.u32 [%rd1+8], %r2;", NOTHING, 75),
    "load_once": ("ld.global.nc.L1::no_allocate.u64 %rd2, [%rd1]; st.global.u64 [%rd3], %rd2;", NOTHING, 75),
    "load_streaming": ("ld.global.cs.u8 %r2, [%rd1]; st.global.u32 [%rd1+8], %r2;", NOTHING, 75),
    "load_any": ("ld.u32 %r2, [%rd1]; st.u32 [%rd1+8], %r2;", NOTHING, 75),
    "load_uncached": ("ld.global.cg.u32 %r2, [%rd1]; st.global.u32 [%rd1+8], %r2;", NOTHING, 75),   # the same instruction as ld.relaxed.gpu
    "vector": ("ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1]; st.global.v4.u32 [%rd1+16], {%r5, %r4, %r3, %r2};", NOTHING, 75),
    "zero": ("mov.u64 %rd2, 0; st.global.v2.u64 [%rd1], {%rd2, %rd2};", NOTHING, 75),
    "threads": ("mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.y; mov.u32 %r4, %laneid; mov.u32 %r5, %lanemask_lt; add.u32 %r2, %r2, %r3; add.u32 %r4, %r4, %r5; add.u32 %r2, %r2, %r4; st.global.u32 [%rd1], %r2;", NOTHING, 75),
    "warps": ("shfl.sync.bfly.b32 %r2, %r1, 1, 31, 0xffffffff; vote.sync.ballot.b32 %r3, %p1, 0xffffffff; bar.sync 0; st.global.v2.u32 [%rd1], {%r2, %r3};", NOTHING, 75),
    "cache": ("cp.async.ca.shared.global [%r1], [%rd1], 16; cp.async.wait_all; ld.shared.u32 %r2, [%r1]; st.global.u32 [%rd1], %r2;", NOTHING, 80),
    "bulk": ("cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 16;", NOTHING, 90),
    "count": ("red.global.add.u32 [%rd1], %r1;", NOTHING, 75),
    "count_64": ("red.global.add.u64 [%rd1], %rd3;", NOTHING, 75),
    "largest": ("atom.global.max.s32 %r2, [%rd1], %r1; st.global.u32 [%rd1+8], %r2;", NOTHING, 75),
    "largest_64": ("red.global.max.s64 [%rd1], %rd3;", NOTHING, 75),
    "flags": ("red.or.b32 [%rd1], %r1;", NOTHING, 75),
    "exchange": ("atom.global.exch.b32 %r2, [%rd1], %r1; st.global.u32 [%rd1+8], %r2;", NOTHING, 75),
    "count_shared": ("red.shared.add.u32 [%r1], %r2;", NOTHING, 75),
    "bulk_count": ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r1], 16;", NOTHING, 90),
    "sum": ("red.global.add.f32 [%rd1], %f1;", FLOAT, 75),
    "sum_double": ("red.global.add.f64 [%rd1], %d1;", FLOAT, 75),
    "sum_half": ("red.global.add.noftz.f16x2 [%rd1], %r1;", FLOAT, 75),
    "sum_bfloat": ("red.global.add.noftz.bf16x2 [%rd1], %r1;", FLOAT, 90),
    "sum_vector": ("red.global.add.v4.f32 [%rd1], {%f1, %f1, %f1, %f1};", FLOAT, 90),
    "sum_before": ("atom.global.add.f32 %f2, [%rd1], %f1; st.global.f32 [%rd1+8], %f2;", FLOAT, 75),
    "sum_any": ("atom.add.f32 %f2, [%rd1], %f1; st.f32 [%rd1+8], %f2;", FLOAT, 75),
    "sum_guarded": ("setp.eq.u32 %p1, %r1, 3; @%p1 red.global.add.f32 [%rd1], %f1;", FLOAT, 75),
    "sum_bulk": ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [%r1], 16;", FLOAT, 90),
    "sum_tensor": ("cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group [%rd1, {%r1}], [%r1];", FLOAT, 90),
    "sum_one_half": ("red.global.add.noftz.f16 [%rd1], %h1;", SWAP, 75),
    "sum_shared": ("red.shared.add.f32 [%r1], %f1;", SWAP, 75),
    "swap": ("atom.global.cas.b32 %r2, [%rd1], %r1, 7; st.global.u32 [%rd1+8], %r2;", SWAP, 75),
    "swap_any": ("atom.cas.b32 %r2, [%rd1], %r1, 7; st.global.u32 [%rd1+8], %r2;", SWAP, 75),
    "swap_shared": ("atom.shared.cas.b32 %r2, [%r1], %r1, 5; st.global.u32 [%rd1], %r2;", SWAP, 75),
    "clock": ("mov.u32 %r2, %clock; st.global.u32 [%rd1], %r2;", CLOCK, 75),
    "clock_64": ("mov.u64 %rd2, %clock64; st.global.u64 [%rd1], %rd2;", CLOCK, 75),
    "timer": ("mov.u64 %rd2, %globaltimer; st.global.u64 [%rd1], %rd2;", CLOCK, 75),
    "counter": ("mov.u32 %r2, %pm3; st.global.u32 [%rd1], %r2;", CLOCK, 75),
    "multiprocessor": ("mov.u32 %r2, %smid; st.global.u32 [%rd1], %r2;", CLOCK, 75),
    "warp": ("mov.u32 %r2, %warpid; st.global.u32 [%rd1], %r2;", CLOCK, 75),
    "texture": ("tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f5, %f5}]; st.global.f32 [%rd1], %f2;", TEXTURE, 75),
    "texture_line": ("tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1}]; st.global.f32 [%rd1], %f1;", TEXTURE, 75),
    "texture_four": ("tld4.r.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f5, %f5}]; st.global.f32 [%rd1], %f2;", TEXTURE, 75),
    "texture_slope": ("tex.grad.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f5, %f5}], {%f5, %f5}, {%f5, %f5}; st.global.f32 [%rd1], %f2;", TEXTURE, 75),
    "surface_formatted": ("sust.p.2d.b32.trap [%rd1, {%r1, %r1}], %r1;", TEXTURE, 75),
    "surface_sum": ("sured.b.add.1d.u32.trap [%rd1, {%r1}], %r1;", TEXTURE, 75),
    "surface": ("suld.b.1d.b32.trap %r2, [%rd1, {%r1}]; st.global.u32 [%rd1], %r2;", TEXTURE, 75),
    "surface_store": ("sust.b.1d.b32.trap [%rd1, {%r1}], %r1;", TEXTURE, 75),
    "waits": ("ld.volatile.global.u32 %r2, [%rd1]; st.global.u32 [%rd1+8], %r2;", OTHERS, 75),
    "waits_any": ("ld.volatile.u64 %rd2, [%rd1]; st.u64 [%rd1+8], %rd2;", OTHERS, 75),
    "waits_relaxed": ("ld.relaxed.sys.u32 %r2, [%rd1]; st.global.u32 [%rd1+8], %r2;", OTHERS, 75),
    "waits_acquire": ("ld.acquire.sys.global.u64 %rd2, [%rd1]; st.global.u64 [%rd1+8], %rd2;", OTHERS, 75),
    "sum_of_all": ("multimem.ld_reduce.relaxed.sys.global.add.f32 %f2, [%rd1]; st.global.f32 [%rd1], %f2;", OTHERS, 90),
}
# What is outside of the module, and kernels that call it; below, a kernel whose function cannot be inlined.
DECLARED = """
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 p);
.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.global .align 1 .b8 $str[4] = {104, 105, 10, 0};
"""
CALLING = {
    "plain": ("st.global.u32 [%rd1], %r1;", NOTHING),
    "prints": ("{ .param .b64 f; .param .b64 p; .param .b32 r; mov.u64 %rd2, $str; st.param.b64 [f], %rd2; st.param.b64 [p], 0; call (r), vprintf, (f, p); }", OUTSIDE),
    "allocates": ("{ .param .b64 z; .param .b64 r; st.param.b64 [z], 64; call (r), malloc, (z); ld.param.b64 %rd2, [r]; } st.global.u64 [%rd1], %rd2;", OUTSIDE),
    "asserts": ("@%p1 bra L; { .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 z; .param .b64 s; mov.u64 %rd2, $str; st.param.b64 [m], %rd2; st.param.b64 [f], %rd2; "
                "st.param.b32 [l], 1; st.param.b64 [z], %rd2; st.param.b64 [s], 1; call __assertfail, (m, f, l, z, s); } L: st.global.u32 [%rd1], %r1;", NOTHING),
}
RECURSES = """.func f(.param .b64 a, .param .b32 n) {
.reg .b64 %rd<3>; .reg .b32 %r<3>; .reg .f32 %f<2>; .reg .pred %p<2>;
ld.param.b64 %rd1, [a]; ld.param.b32 %r1, [n]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; cvt.rn.f32.u32 %f1, %r1; red.global.add.f32 [%rd1], %f1; sub.u32 %r2, %r1, 1;
{ .param .b64 q; .param .b32 m; st.param.b64 [q], %rd1; st.param.b32 [m], %r2; call f, (q, m); } { .param .b64 q; .param .b32 m; st.param.b64 [q], %rd1; st.param.b32 [m], %r2; call f, (q, m); }
L: ret; }
"""
INTERNAL = "_INTERNAL_1234abcd_4_x_cu_5678ef01_9"
STATIC = f"_ZN{len(INTERNAL)}{INTERNAL}"
# A variable, and whether kernels of its module are refused for it.
VARIABLES = {
    ".global .align 1 .b8 $str$2[5] = {102, 97, 105, 108};": False,
    ".global .align 1 .b8 __unnamed_1[6] = {118, 111, 105, 100};": False,
    ".global .align 4 .b8 precalc_xorwow_matrix[64] = {1};": False,
    ".const .align 8 .b8 __cr_lgamma_table[72] = {1};": False,
    ".global .align 1 .b8 " + STATIC + "4cuda3std3__48in_placeE[1];": False,
    ".global .align 1 .b8 " + STATIC + "6thrust12placeholders2_1E[1];": False,
    ".global .align 1 .b8 _ZN4cute1_E[1];": False,
    ".global .align 4 .u32 counter;": True,
    ".global .align 1 .b8 flag[1];": True,
    ".const .align 4 .u32 factor = 3;": True,
    ".global .align 4 .b8 " + STATIC + "4cuda3std5stateE[4];": True,   # that holds something
    ".global .align 1 .b8 " + STATIC + "4mine4flagE[1];": True,
    ".global .align 1 .b8 _ZN4mine4cuda4flagE[1];": True,
}
PTXAS = pathlib.Path(re.search(r"^CUDA_HOME := (.*)$", (ROOT / "build/config.mk").read_text(), re.M)[1], "bin/ptxas")
REGISTERS = ".reg .b64 %rd<5>; .reg .f32 %f<6>; .reg .f64 %d<3>; .reg .b32 %r<7>; .reg .b16 %h<3>; .reg .pred %p<3>;"


def kernel(name, body):
    return (f".visible .entry {name}(.param .u64 a, .param .u32 n, .param .u64 b) {{\n{REGISTERS}\nld.param.u64 %rd1, [a]; ld.param.u32 %r1, [n]; ld.param.u64 %rd3, [b];\n"
            f"cvt.rn.f32.u32 %f1, %r1; mov.f32 %f5, %f1; cvt.rn.f64.u32 %d1, %r1; cvt.u16.u32 %h1, %r1; mov.u32 %r2, %r1; setp.ne.u32 %p1, %r1, 9;\n{body}\nret;\n}}\n")


def seen(suite, what, architecture, text):
    """{kernel: hazard}, of what ptxas makes of it."""
    with tempfile.TemporaryDirectory() as folder:
        ptx, cubin = pathlib.Path(folder, "x.ptx"), pathlib.Path(folder, "x.cubin")
        ptx.write_text(f".version 8.7\n.target sm_{architecture}\n.address_size 64\n{text}")
        made = subprocess.run([PTXAS, f"-arch=sm_{architecture}", ptx, "-o", cubin], capture_output=True, text=True)
        if not suite.check(made.returncode == 0, f"{what}: is assembled", f"    {made.stderr[:600]}"):
            return {}
        told = subprocess.run([BUILD / "tests/interpose/code_of", cubin], capture_output=True, text=True)
        return dict(line.split(": ", 1) for line in told.stdout.splitlines())


def main():
    suite = Suite()
    for architecture in ARCHITECTURES:
        there = {name: k for name, k in KERNELS.items() if k[2] <= architecture}
        found = seen(suite, f"sm_{architecture}", architecture, "".join(kernel(name, body) for name, (body, _, _) in there.items()))
        for name, (_, expected, _) in there.items():
            hazard = found.get(name)
            suite.check(hazard is not None and (expected in hazard if expected else hazard == ""), f"sm_{architecture}, {name}", f"    expected {expected!r}, it says {hazard!r}")
        found = seen(suite, f"sm_{architecture}, calls", architecture, DECLARED + "".join(kernel(name, body) for name, (body, _) in CALLING.items()))
        for name, (_, expected) in CALLING.items():
            hazard = found.get(name)
            suite.check(hazard is not None and (expected in hazard if expected else hazard == ""), f"sm_{architecture}, {name}", f"    expected {expected!r}, it says {hazard!r}")
        call = "{ .param .b64 q; .param .b32 m; st.param.b64 [q], %rd1; st.param.b32 [m], %r1; call f, (q, m); }"
        found = seen(suite, f"sm_{architecture}, recursion", architecture, RECURSES + kernel("calls", call) + kernel("plain", "st.global.u32 [%rd1], %r1;"))
        suite.check(FLOAT in found.get("calls", "") and found.get("plain") == "", f"sm_{architecture}, a function that adds floating-point numbers", f"    it says {found}")
    for variable, refused in VARIABLES.items():
        text = variable + "\n" + kernel("k", f"mov.u64 %rd2, {variable.split('=')[0].split('[')[0].split()[-1].rstrip(';')}; st.global.u64 [%rd1], %rd2;")
        hazard = seen(suite, variable, 90, text).get("k")
        suite.check(hazard is not None and (VARIABLE in hazard) == refused, f"a module with {variable}", f"    it says {hazard!r}")
    suite.finish()


if __name__ == "__main__":
    main()
