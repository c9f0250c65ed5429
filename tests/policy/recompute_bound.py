#!/usr/bin/env python3
"""A lower bound on the time of every plan, replays included: what LB1 to LB3 cannot say.

    recompute_bound.py TRACE --memory FRACTION --link GBPS [--segments N] [--recompute forward|off]

The iteration is cut into segments, at the starts of some ops and at their ends. A version is what one op left in
a buffer (`last`: what the iteration before left in a persistent one). Fractions, per version v and segment s: x resident
when it begins, h on the host by then, y and o copied in and out within it; z of op u: replayed within it.
  least sum of t;  t_s >= ops of s + sum of replays;  t_s >= bytes in / B;  t_s >= bytes out / B
  what an op of s names of what was there before:  x + y + z >= 1
  y_s <= h_s + o_s;  o_s <= x + z, unless s makes it;  x' <= x + y + z;  h' <= h + o;  z_u <= x + y + z of each input of u (what s itself makes is there)
  bytes of x <= M - what else the op at the cut holds as it starts or ends;  x = 1 for what that op names
  e: what is known of a version, here or there, so that no copy makes two halves of one:  x, h <= e <= x + h;  e' <= e + z;
  e + z stands where x + y + z does
Every plan of policy/README.md yields such numbers (a version that was overwritten, or whose buffer's life has ended, has
no x, h, y, o), so no plan is faster. Buffers that the same ops name in the same way count as one; the smallest are left
out, latencies too: that only lowers it.
Needs cbc. Prints one JSON object: bound_ms, ideal_ms, eta_limit = ideal / bound.
"""
import argparse, collections, json, os, subprocess, sys, tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import simulator


def peak_live(trace):
    held = [0] * (len(trace.ops) + 1)
    for b, (begin, end) in trace.life.items():
        held[begin] += trace.size[b]
        held[end + 1] -= trace.size[b]
    most, now = 0, sum(size for size, persistent in zip(trace.size, trace.persistent) if persistent)
    for k, workspace in enumerate(trace.workspace):
        now += held[k]
        most = max(most, now + workspace)
    return most


def merged(records):
    """The trace with buffers that live and are named alike made one."""
    ops, alike, ids = [dict(r) for r in records if r["kind"] == "op"], {}, {}
    uses = collections.defaultdict(list)
    for op in ops:
        for way in ("reads", "writes"):
            for b in set(op.get(way, [])):
                uses[b].append((op["index"], way))
    for r in records:
        if r["kind"] == "buffer":
            key = (r.get("persistent", False), r.get("alloc_op", -1), r.get("free_op", -1), tuple(uses[r["id"]]))
            alike.setdefault(key, {**r, "id": len(alike), "bytes": 0})["bytes"] += r["bytes"]
            ids[r["id"]] = alike[key]["id"]
    for op in ops:
        for way in ("reads", "writes"):
            op[way] = sorted({ids[b] for b in op.get(way, [])})
    return simulator.Trace(list(alike.values()) + ops)


def cuts_of(trace, segments, speed):
    """[(first op of a segment, the op that starts or has just ended there)]. Chosen are the ops that name most bytes, each the one of a
    stretch of equal time, of compute and of fetching what was named long ago; and the iteration's start, and where nothing can be replayed
    any more."""
    ops, seen, best, weights = len(trace.ops), {}, {}, []
    for k in range(-ops, ops):  # twice round: the first round says when persistent buffers were named last
        far = sum(trace.size[b] for b in trace.named[k] if k - seen.get(b, k) > ops / 10)
        seen.update(dict.fromkeys(trace.named[k], k))
        if k >= 0:
            weights.append(trace.duration[k] + far / speed * 1e9)
    spent = 0
    for k, weight in enumerate(weights):
        stretch = int(spent * segments / max(1, sum(weights)))
        held = sum(trace.size[b] for b in trace.named[k]) + trace.workspace[k]
        best[stretch] = max(best.get(stretch, (-1, 0)), (held, k))
        spent += weight
    last_replayable = max((k for k, yes in enumerate(trace.replayable) if yes), default=0)
    chosen = {0, min(last_replayable + 1, ops - 1)} | {k for _, k in best.values()}
    return sorted(({k + 1: k for k in chosen if k + 1 < ops} | {k: k for k in chosen}).items())


class Programme:
    def __init__(self, trace, memory, speed, segments):
        self.trace, self.memory, self.speed = trace, memory, speed
        self.cuts, self.at_cut = zip(*cuts_of(trace, segments, speed))
        self.ends = self.cuts[1:] + (len(trace.ops),)
        self.rows, self.columns = [], {}
        self.counted = [size * 4000 >= memory for size in trace.size]
        for s in range(len(self.cuts)):
            self.segment(s)

    def variable(self, kind, name, s):
        """A fraction; `kind` says which of the above."""
        self.columns[f"{kind}{name}_{s}"] = None
        return f"{kind}{name}_{s}"

    def version(self, b, before):
        writer = self.trace.last_writer(b, before)
        return (b, "last" if writer < 0 and self.trace.persistent[b] else writer)

    def current(self, b, cut):
        """The version that is there when op `cut` starts, or None."""
        if not self.counted[b]:
            return None
        if self.trace.persistent[b]:
            return self.version(b, cut)
        alive = b in self.trace.life and self.trace.life[b][0] < cut <= self.trace.life[b][1]
        return self.version(b, cut) if alive and self.trace.last_writer(b, cut) >= 0 else None

    def sources(self, version, s):
        """Terms whose sum says how much of a version segment s can have; None: all of it."""
        b, writer = version
        if not self.counted[b] or (writer != "last" and self.cuts[s] <= writer < self.ends[s]):
            return None
        terms = []
        if self.current(b, self.cuts[s]) == version:
            name = f"{b}v{writer}"
            terms += [self.variable("x", name, s), self.variable("y", name, s)]
            self.moved[s][name] = self.trace.size[b]
        if writer != "last" and writer >= 0 and self.trace.replayable[writer] and not self.trace.persistent[b]:
            terms.append(self.variable("z", writer, s))
            if writer not in self.replayed[s]:
                self.replayed[s].add(writer)
                self.todo.append(writer)
        return terms

    @staticmethod
    def kinds(terms):
        """What is there, as resident or fetched or replayed; and as known at all (e for x and y)."""
        return [terms, ["e" + terms[0][1:], *terms[2:]]] if terms and terms[0][0] == "x" else [terms]

    def segment(self, s):
        trace, cut, end = self.trace, self.cuts[s], self.ends[s]
        if s == 0:
            self.moved, self.replayed = collections.defaultdict(dict), collections.defaultdict(set)
        self.todo = []
        for version in {self.version(b, cut) for k in range(cut, end) for b in trace.named[k]
                        if trace.persistent[b] or (b in trace.life and trace.life[b][0] < cut and trace.last_writer(b, cut) >= 0)}:
            terms = self.sources(version, s)
            if terms is not None:
                self.rows += [" + ".join(of) + " >= 1" for of in self.kinds(terms)]
        held = []
        for b in range(len(trace.size)):  # what lasts until the next segment
            now, then = self.current(b, cut), self.current(b, end) if end < len(trace.ops) else self.current(b, 0)
            if end == len(trace.ops) and then is not None:
                then = (b, self.trace.last_writer(b, end) if self.trace.last_writer(b, end) >= 0 else "last")
            if now is not None:
                held.append(f"{trace.size[b] * 1e-6:.9g} {self.variable('x', f'{b}v{now[1]}', s)}")
                x, h, e = (self.variable(kind, f"{b}v{now[1]}", s) for kind in "xhe")
                self.rows += [f"{e} - {x} - {h} <= 0", f"{x} - {e} <= 0", f"{h} - {e} <= 0"]
            if then is None:
                continue
            name = f"{b}v{then[1]}"
            to = f"{b}vlast_0" if end == len(trace.ops) else f"{name}_{s + 1}"
            fresh = then != now  # made in this segment: resident for nothing
            x, h = f"x{to}", f"h{to}"
            self.columns[x] = self.columns[h] = None
            out = self.variable("o", name, s)
            self.moved[s].setdefault(name, trace.size[b])
            if fresh:
                self.rows.append(f"{h} - {out} <= 0")
                continue
            source = [self.variable("x", name, s), self.variable("y", name, s)]
            writer = then[1]
            if writer != "last" and trace.replayable[writer] and not trace.persistent[b]:
                source += self.sources(then, s)[2:]
            self.rows.append(f"{x} - " + " - ".join(source) + " <= 0")
            self.columns[f"e{to}"] = None
            self.rows.append(" - ".join([f"e{to}", self.variable("e", name, s), *source[2:]]) + " <= 0")
            self.rows.append(f"{h} - {self.variable('h', name, s)} - {out} <= 0")
        while self.todo:
            op = self.todo.pop()
            for b in trace.reads[op]:
                if b in trace.writes[op] and (trace.persistent[b] or len(trace.writes[op]) > 1):
                    continue  # state
                terms = self.sources(self.version(b, op), s)
                if terms is not None:
                    self.rows += [f"z{op}_{s}" + "".join(f" - {term}" for term in of) + " <= 0" for of in self.kinds(terms)]
        for name in self.moved[s]:  # before the links' rows, which count every o
            if f"y{name}_{s}" in self.columns:
                self.rows.append(f"y{name}_{s} - {self.variable('h', name, s)} - {self.variable('o', name, s)} <= 0")
                writer = name.split("v")[1]
                replay = f" - z{writer}_{s}" if writer != "last" and int(writer) in self.replayed[s] else ""
                self.rows.append(f"o{name}_{s} - x{name}_{s}{replay} <= 0")
        here = self.at_cut[s]
        taken = trace.workspace[here] + sum(trace.size[b] for b in trace.named[here] if self.counted[b] and self.current(b, cut) is None)
        if held:
            self.rows.append(" + ".join(held) + f" <= {(self.memory - taken) * 1e-6:.9g}")
        for b in trace.named[here]:
            if self.current(b, cut) is not None:
                self.rows.append(f"x{b}v{self.current(b, cut)[1]}_{s} >= 1")
        time = f"t{s} >= {sum(trace.duration[cut:end]) * 1e-6:.9g}"
        self.rows.append("".join(f"- {trace.duration[op] * 1e-6:.9g} z{op}_{s}\n + " for op in sorted(self.replayed[s])) + time)
        for way in "yo":
            terms = [f"- {size / self.speed * 1e3:.9g} {way}{name}_{s}\n" for name, size in self.moved[s].items() if f"{way}{name}_{s}" in self.columns]
            if terms:
                self.rows.append(f"t{s} " + " ".join(terms) + " >= 0")

    def text(self):
        times = " + ".join(f"t{s}" for s in range(len(self.cuts)))
        bounds = "".join(f" 0 <= {column} <= 1\n" for column in self.columns)
        return f"Minimize\n obj: {times}\nSubject To\n" + "".join(f" {row}\n" for row in self.rows) + f"Bounds\n{bounds}End\n"


def bound_ms(trace, memory, speed, segments):
    """None without a solver."""
    with tempfile.TemporaryDirectory() as folder:
        programme, solution = os.path.join(folder, "bound.lp"), os.path.join(folder, "solution")
        with open(programme, "w") as file:
            file.write(Programme(trace, memory, speed, segments).text())
        try:
            subprocess.run(["cbc", programme, "solve", "solution", solution], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        except FileNotFoundError:
            return None
        status = open(solution).readline().split()
    if status[0] != "Optimal":
        raise RuntimeError(" ".join(status))
    return float(status[-1]) * (1 - 1e-6)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("--memory", type=float, required=True, help="part of peak live")
    parser.add_argument("--link", type=float, required=True, help="GB/s, each way")
    parser.add_argument("--segments", type=int, default=10)
    parser.add_argument("--recompute", choices=["auto", "forward", "off"], default="auto", help="off: of plans without replays; forward: of those that replay ops of the forward pass alone")
    options = parser.parse_args()
    trace = merged(simulator.read_lines(options.trace))
    if options.recompute != "auto":
        trace.replayable = [yes and options.recompute == op.get("phase") for yes, op in zip(trace.replayable, trace.ops)]
    memory = int(options.memory * peak_live(trace))
    bound = bound_ms(trace, memory, options.link * 1e9, options.segments)
    if bound is None:
        print("no solver: install coinor-cbc", file=sys.stderr)
        return 1
    ideal = sum(trace.duration) * 1e-6
    print(json.dumps({"trace": options.trace, "memory_bytes": memory, "bound_ms": round(bound, 3), "ideal_ms": round(ideal, 3), "eta_limit": round(ideal / bound, 4)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
