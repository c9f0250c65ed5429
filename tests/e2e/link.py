#!/usr/bin/env python3
"""The link is measured before anything has moved: each way, both at once, by size, in less than 200 ms; once for a device, as
long as it is what it was. On the modelled device, whose link is known exactly.
"""
import json, os, pathlib, re, shutil, subprocess, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, WORKLOADS, Run, Suite, environment, settled
from tests.e2e.surroundings import DRIVER

TOOK = re.compile(r"the link carries .* found out in ([0-9.]+) ms")
PROGRAM = [WORKLOADS / "digits-driver", "--depth", "12", "--width", "32", "--batch", "256", "--iterations", "3"]


def main():
    suite = Suite()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cache = folder / "cache"
        plain = Run(PROGRAM, environment(SOFTGPU_MEMORY="1GiB"))

        def run(what, rate_in=12e9, rate_out=6e9, budget="512MiB", cached=True, program=PROGRAM, **options):
            trace = folder / f"{what.replace(' ', '-')}.jsonl"
            # Whatever else this machine does, it looks to the end; how long that takes is asked by itself.
            options = {"UDNNMEM_TEST_LINK_MS": 600_000, **options}
            done = Run(program, environment(preload=True, SOFTGPU_TIME="model", SOFTGPU_CARD="one", SOFTGPU_MEMORY="1GiB", SOFTGPU_H2D=rate_in, SOFTGPU_D2H=rate_out, UDNNMEM_BUDGET=budget, UDNNMEM_TRACE=trace,
                                            UDNNMEM_DEBUG="info", XDG_CACHE_HOME=cache if cached else "/proc/none", **options))
            took = TOOK.search(done.error)
            suite.check(done.status == 0 and (program is not PROGRAM or done.output == plain.output), f"{what}: the same output", done.tail())
            report = json.loads(subprocess.run([BUILD / "udnnmem", "report", trace, "--format", "json"], capture_output=True, text=True, check=True).stdout)
            return (report["link"] or [{}])[0], float(took[1]) if took else None, report, done

        link, took, report, done = run("first")
        within = lambda rate, of: rate and abs(rate / of - 1) < 0.05
        suite.check(within(link["in_bytes_per_second"], 12e9) and within(link["out_bytes_per_second"], 6e9), "each way, within 5 %", f"    {link}")
        suite.check(within(link["both_in_bytes_per_second"], 12e9) and within(link["both_out_bytes_per_second"], 6e9), "both at once: one a direction do not disturb each other there", f"    {link}")
        sizes = [s["bytes"] for s in link["by_size"]]
        suite.check(len(sizes) == 3 and sizes == sorted(sizes) and sizes[-1] == 16 << 20 and all(s["in_bytes_per_second"] > 0 and s["out_bytes_per_second"] > 0 for s in link["by_size"]), "by size", f"    {link['by_size']}")
        suite.check(report["peak_resident_bytes"] < 24 << 20, "what it took is no part of the run's peak", f"    {report['peak_resident_bytes']}")
        (kept,) = (cache / "udnnmem").iterdir()

        # What is kept is believed while the link is as it was.
        lines = kept.read_text().splitlines()
        first = lines[1].split()
        lines[1] = " ".join([first[0], first[1], "7e9", "5e9"])
        kept.write_text("\n".join(lines) + "\n")
        link, again, _, _ = run("again")
        suite.check(link["both_in_bytes_per_second"] == 7e9 and link["both_out_bytes_per_second"] == 5e9 and len(link["by_size"]) == 3, "again: what was kept", f"    {link}")
        # A program whose locale has a comma for the point.
        if shutil.which("localedef"):
            subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", folder / "de_DE.UTF-8"], capture_output=True)
        if (folder / "de_DE.UTF-8").exists():
            lines[1] = " ".join([first[0], first[1], "7000000000.5", "5000000000.5"])
            kept.write_text("\n".join(lines) + "\n")
            comma = "import locale; locale.setlocale(locale.LC_ALL, 'de_DE.UTF-8'); assert locale.localeconv()['decimal_point'] == ','"
            link, _, _, _ = run("comma", program=[sys.executable, "-S", "-c", f"{DRIVER}cuda.cuInit(0)\n{comma}\nuse()"], LOCPATH=folder)
            suite.check(link.get("both_in_bytes_per_second") == 7000000000.5, "in another locale: what was kept", f"    {link}")
        link, _, _, _ = run("another link", rate_in=3e9)
        suite.check(within(link["in_bytes_per_second"], 3e9) and within(link["both_in_bytes_per_second"], 3e9), "another link: measured anew", f"    {link}")
        for what, text in (("empty", ""), ("no numbers", "udnnmem link 1\na b c d\n"), ("not finite", f"udnnmem link 1\n{first[0]} {first[1]} nan inf\n"), ("below zero", f"udnnmem link 1\n{first[0]} {first[1]} -1 -1\n"), ("cut", "udnnmem link 1\n1e9 1e9 1e9 1e9\n4096 1e"), ("another version", "udnnmem link 9\n1 2 3 4\n")):
            kept.write_text(text)
            link, _, _, _ = run(what)
            suite.check(within(link["in_bytes_per_second"], 12e9) and within(link["both_in_bytes_per_second"], 12e9), f"a file that is {what} is not believed", f"    {link}")
        kept.unlink()
        link, _, _, _ = run("hurried", UDNNMEM_TEST_LINK_MS=0)
        suite.check(link["in_bytes_per_second"] > 0 and len(link["by_size"]) == 1 and not kept.exists(), "what was found in a hurry is not kept", f"    {link}")
        quick = settled(lambda ms: ms < 200, lambda: run("as it comes", cached=False, UDNNMEM_TEST_LINK_MS=120)[1] or 1e9, tries=10)
        suite.check(quick < 200, "in less than 200 ms, where the machine lets it", f"    {quick} ms")
        kept.mkdir()
        link, _, _, _ = run("a folder in its place")
        suite.check(within(link["in_bytes_per_second"], 12e9), "a folder in its place: measured", f"    {link}")
        link, _, _, _ = run("no place", cached=False)
        suite.check(within(link["in_bytes_per_second"], 12e9), "no place to keep it: measured", f"    {link}")

        # Cards of a cloud come and go: of very many the newest are remembered.
        kept.rmdir()
        for i in range(70):
            (cache / "udnnmem" / f"link-old-{i}").write_text("old")
            os.utime(cache / "udnnmem" / f"link-old-{i}", (i, i))
        run("very many cards")
        left = [p.name for p in (cache / "udnnmem").iterdir()]
        suite.check(len(left) == 64 and kept.name in left and "link-old-69" in left and "link-old-6" not in left, "very many cards: the newest are kept", f"    {sorted(left)}")

        # However slow the link, it takes no longer; however small the budget, nothing breaks.
        link, took, _, _ = run("slow", rate_in=2e8, rate_out=1e8, cached=False)
        suite.check(within(link["in_bytes_per_second"], 2e8) and within(link["out_bytes_per_second"], 1e8), "a slow link", f"    {link}")
        for budget in ("300KiB", "900KiB", "2MiB"):
            run(f"budget {budget}", budget=budget, cached=False)
    suite.finish()


if __name__ == "__main__":
    main()
