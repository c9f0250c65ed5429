#!/usr/bin/env python3
"""`udnnmem top`: what running processes say of themselves, several at once, stopped, killed, and without a trace."""
import fcntl, json, os, pathlib, re, signal, struct, subprocess, sys, termios, time
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, PATIENCE, WORKLOADS, Suite, environment
from tests.e2e.surroundings import DRIVER

TOOL = BUILD / "udnnmem"
PROGRAM = [WORKLOADS / "digits-runtime", "--depth", "24", "--width", "32", "--batch", "256", "--iterations", "100000"]


def top(*arguments, limit=30):
    # Without anything of CUDA in reach: the tool asks the processes, not a driver.
    done = subprocess.run([TOOL, "top", *map(str, arguments)], capture_output=True, text=True, timeout=limit * PATIENCE, env={"PATH": "/usr/bin:/bin"})
    return done.returncode, done.stdout, done.stderr


def samples(*arguments):
    status, out, _ = top(*arguments, "--once", "--json")
    return [json.loads(line) for line in out.splitlines()] if status == 0 else []


def on_terminal(columns, *arguments):
    """What a terminal of that width is shown, as lines."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    subprocess.run([TOOL, "top", *map(str, arguments)], stdout=theirs, timeout=30 * PATIENCE)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # all was read
        pass
    os.close(ours)
    return shown.decode().replace("\r", "").splitlines()


def wait_for(condition, *pids):
    """The first samples of which `condition` holds; a crowded machine may let the program wait for a minute. [] if none came."""
    for _ in range(int(600 * PATIENCE)):
        found = samples(*pids)
        if len(found) >= len(pids) and not any("error" in s for s in found) and condition(*found[:len(pids)]):
            return found
        time.sleep(0.1)
    return []


def main():
    suite = Suite()
    status, out, _ = top("--once")
    suite.check(status == 0, "nobody there: no error", out)
    # Others on this machine may run under it: a heading never stands alone, and that there is nobody is said once.
    watching = subprocess.Popen([TOOL, "top", "--interval", "0.05"], stdout=subprocess.PIPE, text=True)
    time.sleep(1)
    watching.kill()
    said = [("heading" if "PROGRAM" in line else "nobody" if line == "no process runs under udnnmem" else "row") for line in watching.communicate()[0].splitlines()]
    twice = [pair for pair in zip(said, said[1:]) if pair in (("heading", "heading"), ("nobody", "nobody"))]
    suite.check(said and not twice, "nobody there: said once, and no bare headings", f"    {said[:6]}")
    running = []
    try:
        for rank in range(2):
            running.append(subprocess.Popen(PROGRAM, env=environment(preload=True, UDNNMEM_BUDGET=f"{3 + rank}MiB", RANK=rank, UDNNMEM_QUIET="1"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        pids = [p.pid for p in running]
        for rank, pid in enumerate(pids):
            found = wait_for(lambda s: s["ops"] > 2000 and s["evictions"] > 0, pid)
            if not suite.check(found, f"rank {rank} answers and pages"):
                continue
            said = found[0]
            suite.check(said["pid"] == pid and said["rank"] == rank and said["state"] in ("learning", "by plan", "on demand"), f"rank {rank} says who it is", f"    {said}")
            device = said["devices"][0]
            suite.check(device["budget_bytes"] == (3 + rank) << 20 and 0 < device["resident_bytes"] <= device["budget_bytes"] and 0 < device["live_bytes"] <= device["peak_live_bytes"] and device["host_bytes"] > 0,
                        f"rank {rank}: who holds what", f"    {device}")
            suite.check(wait_for(lambda s: s["ops"] > said["ops"] and s["wall_ns"] > said["wall_ns"] and s["devices"][0]["bytes_out"] > device["bytes_out"], pid), f"rank {rank}: the figures move on")
            suite.check(samples(pid)[0]["ops"] >= said["ops"], f"rank {rank}: and never back")
        suite.check([s["pid"] for s in samples(*pids)] == pids, "several processes at once")
        suite.check({s["pid"] for s in samples()} >= set(pids), "without a PID, all of them")
        status, out, _ = top(*pids, "--once")
        suite.check(status == 0 and all(re.search(rf"^ *{pid} digits-runtime +{r} +0 +{3 + r}.0 MiB", out, re.M) for r, pid in enumerate(pids)), "as a table", out)
        narrow, wide = (on_terminal(columns, *pids, "--once") for columns in (80, 160))
        suite.check(len(narrow) == 3 and all(len(line) <= 80 for line in narrow) and "RESIDENT" in narrow[0] and "BUDGET" not in narrow[0] and str(pids[1]) in narrow[2], "a terminal of 80 columns: a line a process", "\n".join(narrow))
        suite.check(all(word in wide[0] for word in ("PID", "RANK", "BUDGET", "OPS/s", "STATE")), "a wide one: all columns", "\n".join(wide))
        watching = subprocess.Popen([TOOL, "top", *map(str, pids), "--json", "--interval", "0.1"], stdout=subprocess.PIPE, text=True)
        lines = [json.loads(watching.stdout.readline()) for _ in range(6)]
        suite.check([l["pid"] for l in lines] == pids * 3, "sample after sample", f"    {lines}")

        running[0].send_signal(signal.SIGSTOP)
        os.waitpid(pids[0], os.WUNTRACED)
        said = samples(pids[0])
        suite.check(len(said) == 1 and "does not answer" in said[0].get("error", ""), "a stopped process does not hold it up", f"    {said}")
        running[0].send_signal(signal.SIGCONT)
        suite.check(wait_for(lambda s: s["pid"] == pids[0], pids[0]), "and answers when it goes on")
        # A program that becomes another by exec, which uses the device after a while.
        then = "use(); input(); os.environ['UDNNMEM_POLICY'] = 'demand'; os.execv(sys.executable, [sys.executable, '-S', '-c', os.environ['PROGRAM']])"
        env = environment(preload=True, UDNNMEM_QUIET="1", PROGRAM=DRIVER + "use(); time.sleep(1000)")
        running.append(subprocess.Popen([sys.executable, "-S", "-c", DRIVER + then], env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        pid = running[-1].pid
        suite.check(wait_for(lambda s: s["policy"] == "udnn" and s["allocations"] > 0, pid), "a program before its exec answers")
        beside = subprocess.Popen([TOOL, "top", str(pid), "--json", "--interval", "0.2"], stdout=subprocess.PIPE, text=True)
        beside.stdout.readline()
        running[-1].stdin.write(b"\n")
        running[-1].stdin.close()
        later, until = {}, time.monotonic() + 10 * PATIENCE
        while later.get("policy") != "demand" and time.monotonic() < until:
            later = json.loads(beside.stdout.readline())
        suite.check(later.get("policy") == "demand", "and the one after it, to who has watched before", f"    {later}")

        for process in running:
            process.kill()
            process.wait()
        beside.communicate(timeout=30 * PATIENCE)
        watching.communicate(timeout=30 * PATIENCE)
        suite.check(watching.returncode == 0, "it ends when they have ended", f"    {watching.returncode}")
        status, out, error = top(pids[0], "--once")
        suite.check(status == 2 and error.count("\n") == 1 and f"process {pids[0]}: there is none" in error, "a process that is not there", error)
        status, out, error = top(os.getpid(), "--once")
        suite.check(status == 2 and "does not run under udnnmem" in error, "one that is not ours", error)
        status, out, error = top("x", "--once")
        suite.check(status == 2, "no number", error)
    finally:
        for process in running:
            process.kill()
    suite.finish()


if __name__ == "__main__":
    main()
