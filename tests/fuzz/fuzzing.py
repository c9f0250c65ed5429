"""Builds a libFuzzer target with clang and runs it over its corpus, as a suite that ends with a line `N passed, N failed`.

A target NAME is NAME_fuzz.cpp with the sources that it tests, NAME.dict and NAME_corpus/ where there are any. UDNNMEM_TEST_FULL=1:
ten minutes of search; else the same inputs in every run, so that a pass means the same everywhere.
"""
import os, pathlib, re, shutil, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("UDNNMEM_BUILD", ROOT / "build"))
CLANG = shutil.which("clang++") or shutil.which("clang++-14")
FULL = os.environ.get("UDNNMEM_TEST_FULL") == "1"
# A short search is over sooner than what makes it fast is compiled.
FLAGS = ["-std=c++20", "-O1" if FULL else "-O0", "-g1", "-pthread", f"-I{ROOT}", "-DFMT_HEADER_ONLY", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=undefined"]
EMPTY = '#include <cstddef>\n#include <cstdint>\nextern "C" int LLVMFuzzerTestOneInput(const std::uint8_t*, std::size_t) { return 0; }'


def ended(passed, failed, why, skipped=0):
    print(f"{why}\n{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


def built(name, sources, flags, libraries):
    """The target, made anew where a file beside one of its sources is newer; None if it cannot be."""
    folder = BUILD / "fuzz" / (f"{name}-long" if FULL else name)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}_fuzz"
    near = {source.parent for source in sources}
    newest = max(f.stat().st_mtime for place in near for f in place.iterdir() if f.suffix in (".cpp", ".hpp", ".inc"))
    if target.exists() and target.stat().st_mtime > newest:
        return target
    # As one, as make does it: each alone would take longer to read the headers that they share.
    in_one = "".join(f'#include "{source.relative_to(ROOT)}"\n' for source in sources)
    made = subprocess.run([CLANG, *FLAGS, *flags, "-x", "c++", "-", "-x", "none", "-o", target, *libraries], input=in_one, text=True)
    return target if made.returncode == 0 else None


def fuzz(name, sources, *, runs, max_len, seeds=(), flags=(), libraries=(), options=()):
    """`runs`: inputs where not at full length; `seeds`: files to begin with beside the corpus. Returns the exit status."""
    if not CLANG:
        return ended(0, 0, "clang++ is not installed: not fuzzed", skipped=1)
    with tempfile.TemporaryDirectory() as work:
        if subprocess.run([CLANG, *FLAGS, "-x", "c++", "-", "-o", f"{work}/probe"], text=True, capture_output=True, input=EMPTY).returncode:
            return ended(0, 0, "clang++ has no libFuzzer here: not fuzzed", skipped=1)
    here = ROOT / "tests" / "fuzz"
    target = built(name, [ROOT / s for s in sources] + [here / f"{name}_fuzz.cpp"], list(flags), list(libraries))
    if not target:
        return ended(0, 1, "the fuzz target does not build")
    effort = ["-max_total_time=600"] if FULL else ["-seed=1", f"-runs={runs}", "-max_total_time=60"]
    dictionary = [f"-dict={here / name}.dict"] if (here / f"{name}.dict").exists() else []
    corpus = [here / f"{name}_corpus"] if (here / f"{name}_corpus").is_dir() else []
    with tempfile.TemporaryDirectory() as work:
        for seed in seeds:
            shutil.copy(seed, work)
        run = subprocess.run([target, *effort, "-timeout=20", "-rss_limit_mb=3000", f"-max_len={max_len}", "-print_final_stats=1", *options, *dictionary,
                              f"-artifact_prefix={BUILD}/fuzz/found-{name}-", work, *corpus], capture_output=True, text=True, errors="replace")
    if run.returncode:
        return ended(0, 1, run.stderr[-6000:])
    return ended(1, 0, "\n".join(re.findall(r"^stat::number_of.*", run.stderr, re.M)))
