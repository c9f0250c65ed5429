#!/usr/bin/env python3
"""Demand paging at half the memory on links of set bandwidths, against the time that the bytes moved must take.

digits on the software GPU: time with enough memory, time at 50 % of peak live, and the larger of bytes in / bandwidth in and
bytes out / bandwidth out, which no paging of these bytes can beat. `paging_eta_bytes` is the larger of that and the ideal time over the time measured.
"""
import json, pathlib, re, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import WORKLOADS, Run, environment

LINK = 1 << 30  # bytes per second, each way
COMMAND = [WORKLOADS / "digits-driver", "--depth", "100", "--width", "32", "--batch", "1024", "--iterations", "5", "--report-peak"]


def main():
    link = dict(SOFTGPU_H2D=f"{LINK}", SOFTGPU_D2H=f"{LINK}")
    plain = Run(COMMAND, environment(SOFTGPU_MEMORY="4GiB", **link))
    plain = Run(COMMAND, environment(SOFTGPU_MEMORY="4GiB", **link))  # the first compiled the kernels
    peak = int(re.search(r"^peak live bytes (\d+)", plain.output, re.M).group(1))
    paged = Run(COMMAND, environment(preload=True, SOFTGPU_MEMORY=peak // 2, **link))
    moved = re.search(r"moved ([\d.]+) MiB in, ([\d.]+) MiB out", paged.error)
    bound = max(float(m) for m in moved.groups()) * (1 << 20) / LINK
    for name, value, unit in (("paging_ideal_s", plain.seconds, "s"), ("paging_demand_s", paged.seconds, "s"),
                              ("paging_bytes_bound_s", bound, "s"), ("paging_eta_ideal", plain.seconds / paged.seconds, ""),
                              ("paging_eta_bytes", max(bound, plain.seconds) / paged.seconds, "")):
        print(json.dumps({"name": name, "value": round(value, 4), "unit": unit, "goal": None}))


if __name__ == "__main__":
    main()
