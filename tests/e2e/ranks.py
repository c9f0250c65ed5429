#!/usr/bin/env python3
"""Several ranks on a machine, started as torchrun does (RANK, LOCAL_RANK, LOCAL_WORLD_SIZE): those that share a card share its
`auto` budget, those that do not have a card each; their traces make one report; a rank that dies gives its share back.

The software GPU's memory is each process' own; processes with one SOFTGPU_CARD see one UUID, which is what the library goes by.
"""
import json, pathlib, re, subprocess, sys, tempfile, time
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, WORKLOADS, PATIENCE, Run, Suite, environment, settled

PROGRAM = [WORKLOADS / "vadd", "65536", "64"]  # 16 MiB of buffers
BANNER = re.compile(r"^udnnmem: .* manages device (\d+)(?: with (\d+) others?)?: budget (\S+) MiB", re.M)
MEMORY = 12  # MiB of each device


class Rank:
    def __init__(self, error, seconds, status, output):
        self.error, self.seconds, self.status, self.output = error, seconds, status, output
        found = BANNER.search(error)
        self.device, self.others, self.budget = (int(found[1]), int(found[2] or 0), float(found[3])) if found else (-1, -1, 0.0)


def launch(count, each, **options):
    """`count` ranks at once; `each(rank)` gives a rank's own variables. As torchrun: all have this process as parent."""
    processes = []
    for rank in range(count):
        env = environment(preload=True, **{"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "SOFTGPU_MEMORY": f"{MEMORY}MiB", "UDNNMEM_VERIFY": 1, **options, **each(rank)})
        processes.append((time.monotonic(), subprocess.Popen(PROGRAM, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)))
    ranks = []
    for start, process in processes:
        output, error = process.communicate(timeout=30 * PATIENCE)
        ranks.append(Rank(error, time.monotonic() - start, process.returncode, output))
    return ranks


def main():
    suite = Suite()
    plain = Run(PROGRAM, environment(SOFTGPU_MEMORY="64MiB"))
    card = f"ranks-{pathlib.Path('/proc/self').resolve().name}"
    alone, = launch(1, lambda rank: {"SOFTGPU_CARD": card})
    suite.check(alone.status == 0 and alone.output == plain.output and alone.others == 0 and 0.9 * MEMORY < alone.budget < MEMORY, "one rank has the card", alone.error)

    with tempfile.TemporaryDirectory() as folder:
        pattern = f"{folder}/%q{{RANK}}.%p.jsonl.zst"
        # They wait 3 s for each other: a crowded machine may not have begun one by then.
        ranks = settled(lambda ranks: all(r.others == 2 for r in ranks), lambda: launch(3, lambda rank: {"SOFTGPU_CARD": card}, UDNNMEM_TRACE=pattern))
        for i, r in enumerate(ranks):
            suite.check(r.status == 0 and r.output == plain.output, f"3 ranks on a card: rank {i} has the same bits", r.error)
            suite.check(r.others == 2 and abs(r.budget - alone.budget / 3) < 0.5, f"3 ranks on a card: rank {i} has a third of it", f"    {r.budget} MiB with {r.others} others, {alone.budget} MiB alone")
        traces = sorted(sorted(pathlib.Path(folder).iterdir(), key=lambda p: p.stat().st_mtime_ns)[-3:])
        told = subprocess.run([BUILD / "udnnmem", "report", *reversed(traces)], capture_output=True, text=True)
        columns = told.stdout.splitlines()[0].split()
        suite.check(columns == ["rank", "0", "rank", "1", "rank", "2"], "one report has a column for each rank, in order", told.stdout + told.stderr)
        lines = subprocess.run([BUILD / "udnnmem", "report", "--format", "json", *traces], capture_output=True, text=True).stdout.splitlines()
        objects = [json.loads(line) for line in lines]
        suite.check([(o["rank"], o["local_rank"], o["world_size"]) for o in objects] == [(i, i, 3) for i in range(3)], "and so has its JSON")

    for what, each, options in (("2 ranks on devices of their own", lambda rank: {}, {"SOFTGPU_CARD": card, "SOFTGPU_DEVICES": 2}),
                                ("2 ranks that see one device each, not the same", lambda rank: {"SOFTGPU_CARD": f"{card}-{rank}"}, {})):
        ranks = settled(lambda ranks: all(r.seconds < 2.5 + 2 * plain.seconds for r in ranks), lambda: launch(2, each, **options))
        for i, r in enumerate(ranks):
            suite.check(r.status == 0 and r.output == plain.output and r.others == 0 and abs(r.budget - alone.budget) < 0.5, f"{what}: rank {i} has its card", f"    {r.budget} MiB with {r.others} others\n{r.error}")
            suite.check(r.device == (i if "own" in what else 0), f"{what}: rank {i} is on its device")
            suite.check(r.seconds < 2.5 + 2 * plain.seconds, f"{what}: nobody waits long for others", f"    {r.seconds:.1f} s")

    # The launcher promises two ranks, one never comes: the other goes on alone, after a while.
    lonely = launch(1, lambda rank: {"SOFTGPU_CARD": card, "LOCAL_WORLD_SIZE": 2})[0]
    suite.check(lonely.status == 0 and lonely.others == 0 and abs(lonely.budget - alone.budget) < 0.5, "a rank that never comes is waited for no longer than 3 s", lonely.error)

    # A budget that the user sets is each rank's own.
    for r in launch(2, lambda rank: {"SOFTGPU_CARD": card}, UDNNMEM_BUDGET="8MiB"):
        suite.check(r.status == 0 and r.budget == 8.0, "a budget that is set is not divided", r.error)

    # Without a place for files a rank is told to divide by hand. /dev/shm is read-only for this one.
    if subprocess.run(["unshare", "-rm", "true"], stderr=subprocess.DEVNULL).returncode == 0:
        jail = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o ro none /dev/shm && exec "$@"', "sh"]
        for size, said in ((2, 1), (1, 0)):
            blind = Run(jail + PROGRAM, environment(preload=True, SOFTGPU_MEMORY=f"{MEMORY}MiB", SOFTGPU_CARD=card, LOCAL_WORLD_SIZE=size))
            suite.check(blind.status == 0 and blind.error.count("cannot find each other") == said, f"no files in /dev/shm, {size} expected: said {said} times", blind.error)

    # One that was killed counts no more.
    env = environment(preload=True, SOFTGPU_MEMORY=f"{MEMORY}MiB", SOFTGPU_CARD=card)
    killed = subprocess.Popen([WORKLOADS / "digits-driver", "--depth", "12", "--width", "32", "--batch", "256", "--iterations", "100000"], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    killed.stdout.readline()
    beside, = launch(1, lambda rank: {"SOFTGPU_CARD": card})
    killed.kill()
    killed.communicate()
    after, = launch(1, lambda rank: {"SOFTGPU_CARD": card})
    suite.check(beside.others == 1 and abs(beside.budget - alone.budget / 2) < 0.5, "a process beside one that is there takes half", f"    {beside.budget} MiB with {beside.others} others")
    suite.check(after.others == 0 and abs(after.budget - alone.budget) < 0.5, "one that was killed is not counted", f"    {after.budget} MiB with {after.others} others")
    suite.finish()


if __name__ == "__main__":
    main()
