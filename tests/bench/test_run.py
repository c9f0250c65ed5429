#!/usr/bin/env python3
"""run.py from outside: its table, its file, its exit status."""
import json, pathlib, subprocess, sys, tempfile

RUN = pathlib.Path(__file__).with_name("run.py")
passed = failed = 0


def check(holds, what):
    global passed, failed
    if holds:
        passed += 1
    else:
        failed += 1
        print(f"FAILED: {what}")


def bench(*scripts):
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for i, text in enumerate(scripts):
            path = pathlib.Path(folder, f"b{i}")
            path.write_text("#!/bin/sh\n" + text)
            path.chmod(0o755)
            paths.append(str(path))
        output = pathlib.Path(folder, "bench.json")
        done = subprocess.run([sys.executable, str(RUN), "--output", str(output), *paths], capture_output=True, text=True)
        return done, json.loads(output.read_text())


done, results = bench("""echo '{"name":"a","value":250.5,"unit":"ns","goal":300}'; echo hello""",
                      """echo '{"name":"b","value":400,"unit":"ns","goal":300}'; echo '{"name":"c","value":0.95,"unit":"","goal":">= 0.9"}'; echo '{"name":"d","value":1}'""")
check(done.returncode == 0, "a missed goal is no failure")
check([r["name"] for r in results] == ["a", "b", "c", "d"], "all results, in order")
check(results[0] == {"name": "a", "value": 250.5, "unit": "ns", "goal": 300}, "a result is written as it was printed")
check(results[3] == {"name": "d", "value": 1, "unit": "", "goal": None}, "unit and goal may be left out")
lines = {l.split()[0]: l.split()[-1] for l in done.stdout.splitlines() if l and l[0] in "abcd" and l[1] == " "}
check(lines["a"] == "met" and lines["b"] == "MISSED" and lines["c"] == "met" and lines["d"] == "1", f"verdicts in the table: {lines}")
check("hello" in done.stdout, "other lines are shown")
for script, why in (("exit 3", "exit status 3"), ("true", "printed no result"), ("""echo '{"name":"a"}'""", "needs a name"), ("echo '{rubbish'", "line"),
                    ("""echo '{"name":"a","value":1,"goal":"fast"}'""", "goal 'fast'")):
    done, results = bench("""echo '{"name":"good","value":1}'""", script)
    check(done.returncode == 1 and why in done.stderr, f"{script}: is an error that says {why}: {done.stderr}")
    check([r["name"] for r in results] == ["good"], f"{script}: the others' results are kept")
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
