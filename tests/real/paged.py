"""What the runners of this folder share: the environments of setup.sh, and what must hold of a run in little memory."""
import pathlib, re, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import FULL, ROOT  # noqa: F401  (the runners take them from here)

REAL = ROOT / "build" / "real"
HERE = ROOT / "tests" / "real"
SUMMARY = re.compile(r"^udnnmem: device 0: budget .*, peak \S+ MiB for (\S+) MiB live; moved (\S+) MiB in, (\S+) MiB out.* (\d+) verified moves", re.M)


def live_bytes(done):
    """The peak of live bytes that the library's summary tells; None without one."""
    found = SUMMARY.search(done.error)
    return float(found.group(1)) * 2**20 if found else None


def evicted(done):
    """Whether the library moved anything: small moves show as 0.0 MiB, so with UDNNMEM_VERIFY=1 the verified ones count."""
    found = SUMMARY.search(done.error)
    return bool(found) and (float(found.group(3)) > 0 or int(found.group(4)) > 0)


def verdict(done, expected, memory):
    """What is wrong with a run that must print `expected` within `memory` bytes; empty where nothing is."""
    report = done.report or {"faults": 0, "device_bytes_peak": 0}
    wrong = [] if done.report else ["no report of the device"]
    if done.status != 0:
        wrong.append(f"status {done.status}")
    elif done.output != expected:
        wrong.append("other bits")
    if report["faults"] != 0:
        wrong.append(f"{report['faults']} faults")
    if report["device_bytes_peak"] > memory:
        wrong.append(f"the device held {report['device_bytes_peak']} bytes of {memory}")
    if not evicted(done):
        wrong.append("nothing was evicted")
    return ", ".join(wrong)
