#!/usr/bin/env python3
"""A plan that holds leaves the device no idle time for want of data.

Digits where moves have time to spare: each kernel takes 100 us, the link 1 GB/s, so the simulator promises (almost) what an iteration
takes with all memory. In virtual time the software GPU lists when its compute engine was at work; between the ops of an iteration it
may be idle no longer than without the library, where it waits for the program's own copies. The programs free memory as they go,
which waits for their work and must not wait for our copies.
"""
import pathlib, re, statistics, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import FOLLOWED, FULL, WORKLOADS, Run, Suite, environment, settled

ITERATIONS = 24
MEASURED = 8           # iterations by plan, from the tenth on
AS_WITHOUT_US = 2      # device idle an iteration, that the link's latency leaves or takes away
NONE_PROMISED = 1.01   # a plan that promises so much more than all memory takes promises idle time
MODEL = dict(UDNNMEM_RECOMPUTE="off", UDNNMEM_TEST_LOOK_MS=200, SOFTGPU_H2D=1e9, SOFTGPU_D2H=1e9)
PROMISES = re.compile(r"sequence 0 of \d+ ops: (\d+) us promised, (\d+) us with all memory")


def command(program):
    return [WORKLOADS / program, "--depth", "24", "--width", "32", "--batch", "256", "--iterations", ITERATIONS, "--report-peak"]


def idle_us(timeline):
    """Of the compute engine between the kernels of each measured iteration, by its median. An iteration begins with gather_rows."""
    spans = sorted((int(begin), int(end), what) for begin, end, engine, _, what in (line.split("\t") for line in timeline.read_text().splitlines()) if engine == "compute")
    begins = [i for i, span in enumerate(spans) if span[2] == "kernel gather_rows"][10:11 + MEASURED]
    iterations = [spans[a:b] for a, b in zip(begins, begins[1:])]
    return statistics.median(sum(max(0, b[0] - a[1]) for a, b in zip(ops, ops[1:])) / 1e3 for ops in iterations)


def main():
    suite = Suite()
    with tempfile.TemporaryDirectory() as folder:
        timeline, table = pathlib.Path(folder) / "timeline", pathlib.Path(folder) / "table"

        def run(program, memory, **options):
            timeline.unlink(missing_ok=True)
            return Run(command(program), environment(SOFTGPU_MEMORY=memory, SOFTGPU_TIME=f"table:{table}", SOFTGPU_TIMELINE=timeline, **MODEL, **options), limit=300)

        table.write_text("roofline 1e15 3e12\n")
        run("digits-driver", "1GiB")
        kernels = set(re.findall(r"\tkernel (\w+)", timeline.read_text()))
        table.write_text("roofline 1e15 3e12\n" + "".join(f"{name} 100000\n" for name in sorted(kernels)))
        for program in ("digits-driver", "digits-streams", "digits-ptds", "digits-static", "digits-runtime")[:5 if FULL else 2]:
            plain = run(program, "1GiB")
            peak, without = int(plain.output.split("peak live bytes ")[1]), idle_us(timeline)
            for share in (90, 70):
                def by_plan():
                    done = run(program, peak * share // 100, preload=True, UDNNMEM_DEBUG="info")
                    return done, idle_us(timeline)

                done, idle = settled(lambda measured: measured[1] - without <= AS_WITHOUT_US, by_plan)
                what = f"{program} in {share} % of the memory"
                found, promises = FOLLOWED.search(done.error), PROMISES.findall(done.error)
                suite.check(done.status == 0 and done.output.split("peak live")[0] == plain.output.split("peak live")[0], f"{what}: the same bits", done.tail())
                suite.check(found and int(found[2]) >= ITERATIONS // 2 and done.report["bytes_to_device"] > 2 * plain.report["bytes_to_device"] and done.report["faults"] == 0, f"{what}: by plan", done.tail(20))
                suite.check(promises and int(promises[-1][0]) <= NONE_PROMISED * int(promises[-1][1]), f"{what}: no idle time promised", f"    {promises}")
                suite.check(idle - without <= AS_WITHOUT_US, f"{what}: none there", f"    idle {idle} us an iteration by plan, {without} us without the library\n{done.tail(20)}")
                print(f"{what}: idle {idle:.1f} us an iteration by plan, {without:.1f} us without the library")
    suite.finish()


if __name__ == "__main__":
    main()
