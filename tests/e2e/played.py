"""Recorded traces as programs for workloads/player, and the modelled device that they run on.

Everything is scaled down by SCALE: bytes, granule, link, the device's memory. Durations stay, so an iteration takes the time
that it took where the trace was recorded, and what the link carries in it is the same share of the buffers.
"""
import pathlib, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.policy.simulator import Trace, read_lines

SCALE = 1024
GRANULE = 4096
DEVICE = "roofline 1.4e10 3e9"  # of what is not in the trace, an H100's 64-bit arithmetic and memory over SCALE


class Program:
    """`text` for the player; `peak`: bytes of its buffers at most at once, `ideal_ns` of an iteration."""

    def __init__(self, path):
        trace = Trace(read_lines(str(path)))
        words = [max(1, size // SCALE // 4) for size in trace.size]
        order = sorted(range(len(words)), key=lambda b: not trace.persistent[b])
        number = {b: i for i, b in enumerate(order)}
        lines = [f"persistent {sum(trace.persistent)}"]
        sizes = [words[b] for b in order]
        ops, alive = [], sum(w for w, b in zip(sizes, order) if trace.persistent[b])
        self.peak = 0
        for k, duration in enumerate(trace.duration):
            born, dies = [number[b] for b in trace.born[k]], [number[b] for b in trace.dies[k]]
            reads, writes = [number[b] for b in trace.reads[k]], [number[b] for b in trace.writes[k]]
            if trace.workspace[k]:
                sizes.append(max(1, trace.workspace[k] // SCALE // 4))
                for names in (born, writes, dies):
                    names.append(len(sizes) - 1)
            alive += sum(sizes[b] for b in born)
            self.peak = max(self.peak, 4 * alive)
            alive -= sum(sizes[b] for b in dies)
            ops.append(f"op {duration} " + " ; ".join(" ".join(map(str, names)) for names in (born, reads, writes, dies)))
        self.text = "\n".join(lines + [f"buffer {w}" for w in sizes] + ops) + "\n"
        self.ideal_ns = sum(trace.duration)


def device(folder, link):
    """Environment of the modelled device with a link of `link` bytes a second each way, as the trace has it."""
    table = pathlib.Path(folder) / "device.table"
    table.write_text(f"play @0\n{DEVICE}\n")
    rate = link / SCALE
    return dict(SOFTGPU_TIME=f"table:{table}", SOFTGPU_H2D=rate, SOFTGPU_D2H=rate, SOFTGPU_GRANULARITY=GRANULE)
