#!/usr/bin/env python3
"""A second simulator of plans: written from the machine model in policy/README.md alone, as simply as
it can be, to check the one of the product. Slow, and proud of it.

    simulator.py TRACE PLAN --memory BYTES --link GBPS[,GBPS] [--host BYTES] [--latency NS]
                 [--lookahead OPS] [--turnaround NS] [--map NS] [--hash BYTES_PER_SECOND]

prints one JSON object: valid, error, time_ns, ideal_ns, stall_ns, recompute_ns, peak_bytes,
peak_host_bytes, bytes_in, bytes_out, demand_fetches. With --batch it reads one JSON object a line from
standard input ({"trace","plan","memory","link_in","link_out","host","latency","lookahead","turnaround","map","hash"})
and answers each.
"""
import argparse, json, subprocess, sys
from collections import deque


class Invalid(Exception):
    pass


def read_lines(path):
    if path.endswith(".zst"):
        text = subprocess.run(["zstd", "-dcq", path], check=True, stdout=subprocess.PIPE).stdout.decode()
    else:
        text = open(path).read()
    return [json.loads(line) for line in text.splitlines() if line.strip()]


class Trace:
    def __init__(self, records):
        self.buffers = [r for r in records if r["kind"] == "buffer"]
        self.ops = [r for r in records if r["kind"] == "op"]
        n = len(self.ops)
        self.size = [b["bytes"] for b in self.buffers]
        self.persistent = [b.get("persistent", False) for b in self.buffers]
        self.reads = [sorted(set(o.get("reads", []))) for o in self.ops]
        self.writes = [sorted(set(o.get("writes", []))) for o in self.ops]
        self.named = [sorted(set(r) | set(w)) for r, w in zip(self.reads, self.writes)]
        self.workspace = [o.get("workspace_bytes", 0) for o in self.ops]
        self.duration = [o["duration_ns"] for o in self.ops]
        self.replayable = [o.get("replayable", False) for o in self.ops]
        first, last = {}, {}
        for k, named in enumerate(self.named):
            for b in named:
                first.setdefault(b, k)
                last[b] = k
        self.born = [[] for _ in range(n)]
        self.dies = [[] for _ in range(n)]
        self.life = {}
        for b, record in enumerate(self.buffers):
            if self.persistent[b]:
                continue
            begin = record.get("alloc_op", -1)
            begin = begin if begin >= 0 else first.get(b, -1)
            if begin < 0 or begin >= n:
                continue
            end = record.get("free_op", -1)
            end = min(end, n - 1) if end >= 0 else last.get(b, n - 1)
            self.born[begin].append(b)
            self.dies[end].append(b)
            self.life[b] = (begin, end)
        self.writers = {}
        for k, written in enumerate(self.writes):
            for b in written:
                self.writers.setdefault(b, []).append(k)

    def last_writer(self, b, before):
        return max((k for k in self.writers.get(b, []) if k < before), default=-1)


class Simulator:
    def __init__(self, trace, plan, memory, link_in, link_out, host=None, latency=10000, lookahead=0, turnaround=0, map=0, hash=0):
        self.trace, self.memory, self.latency = trace, memory, latency
        self.lookahead, self.turnaround, self.map, self.hash = lookahead, turnaround, map, hash
        self.speed = {"in": link_in, "out": link_out}
        self.host = float("inf") if host is None else host
        self.after = {}    # op -> actions, in order
        self.before = {}   # op -> replays
        self.start_evicted = set()
        for record in plan:
            if record["kind"] == "start_evicted":
                self.start_evicted.add(record["buffer"])
            elif record["kind"] == "action":
                if record["do"] == "replay":
                    self.before.setdefault(record["before_op"], []).append(record)
                else:
                    self.after.setdefault(record["after_op"], []).append(record)
        n = len(trace.buffers)
        self.resident = [False] * n   # has frames with valid contents
        self.leaving = [False] * n    # eviction queued or running
        self.coming = [False] * n     # fetch queued or running
        self.host_valid = [False] * n
        self.charged = [False] * n
        self.version = [0] * n        # how often it was written
        self.used = self.peak = self.host_used = self.host_peak = 0
        self.queue = {"in": deque(), "out": deque()}
        self.running = {"in": None, "out": None}  # (end, buffer, kind, version)
        self.dead_copies = set()      # transfers whose buffer died under them: frames go at their end
        self.now = 0
        self.op_end = None
        self.held = []                # (time, bytes): free again only then, for a card's costs
        self.upcoming = []            # items that have taken their frames, and the one after them
        self.ahead = 0                # how many of those have
        self.fetches = self.bytes_in = self.bytes_out = self.recomputed = 0
        for b in range(n):
            if trace.persistent[b]:
                if b in self.start_evicted:
                    self.host_valid[b] = True
                    self.charge(b)
                else:
                    self.resident[b] = True
                    self.take(trace.size[b])
        if self.used > memory:
            raise Invalid("the weights and optimiser state that start the iteration on the device exceed its memory")
        if self.host_used > self.host:
            raise Invalid("the start_evicted buffers exceed the host budget")

    # ---- memory
    def take(self, size):
        self.used += size
        self.peak = max(self.peak, self.used)

    def give(self, size, extra=0):
        """Frames that an op's end, a drop or an eviction without a copy frees."""
        if self.turnaround + extra == 0:
            self.used -= size
        elif size:
            self.held.append((self.now + self.turnaround + extra, size))

    def release(self):
        for due in [h for h in self.held if h[0] <= self.now]:
            self.held.remove(due)
            self.used -= due[1]

    def hash_time(self, size):
        return int(size * 1_000_000_000 / self.hash) if self.hash else 0

    def map_time(self, b):
        """Extents of 64 MiB, the rest as powers of two of 2 MiB."""
        granules = -(-self.trace.size[b] // (2 << 20))
        return self.map * (granules // 32 + bin(granules % 32).count("1"))

    def charge(self, b):
        if not self.charged[b]:
            self.charged[b] = True
            self.host_used += self.trace.size[b]
            self.host_peak = max(self.host_peak, self.host_used)

    def stale(self, b):
        self.host_valid[b] = False
        if self.charged[b]:
            self.charged[b] = False
            self.host_used -= self.trace.size[b]

    def written(self, b):
        self.version[b] += 1
        self.stale(b)

    def die(self, b):
        """A transient buffer's life ends, wherever it is."""
        self.queue["in"] = deque(e for e in self.queue["in"] if e[0] != b)
        self.queue["out"] = deque(e for e in self.queue["out"] if e[0] != b)
        in_flight = [d for d in ("in", "out") if self.running[d] and self.running[d][1] == b]
        if in_flight:
            self.dead_copies.add(b)
        elif self.resident[b]:
            self.give(self.trace.size[b])
        self.resident[b] = self.leaving[b] = self.coming[b] = False
        self.written(b)

    # ---- links
    def fetch(self, b):
        self.coming[b] = True
        self.queue["in"].append((b, "fetch", 0))

    def transfer(self, way, b, kind, version):
        size = self.trace.size[b]
        time = self.latency + int(size * 1_000_000_000 / self.speed[way])
        if kind != "clean":
            time += self.map_time(b)
        if kind == "evict":
            time += self.hash_time(size)
        self.running[way] = (self.now + time, b, kind, version)
        if way == "in":
            self.bytes_in += size
        else:
            self.bytes_out += size

    def start_transfers(self):
        """True if anything happened."""
        moved = False
        while self.running["out"] is None and self.queue["out"]:
            b, kind, version = self.queue["out"][0]
            if self.host_valid[b]:  # a `clean` before it has done the work
                self.queue["out"].popleft()
                if kind == "evict":
                    self.free_evicted(b)
                moved = True
                continue
            if not self.charged[b] and self.host_used + self.trace.size[b] > self.host:
                break
            self.queue["out"].popleft()
            if version == self.version[b]:
                self.charge(b)
            self.transfer("out", b, kind, version)
            moved = True
        if self.running["in"] is None and self.queue["in"]:
            b, kind, version = self.queue["in"][0]
            if not self.leaving[b] and not self.resident[b] and self.used + self.trace.size[b] <= self.memory:
                if not self.host_valid[b]:
                    raise Invalid(f"buffer {b} is fetched, but there is no copy of it on the host")
                self.queue["in"].popleft()
                self.take(self.trace.size[b])
                self.transfer("in", b, kind, version)
                moved = True
        return moved

    def free_evicted(self, b):
        self.resident[b] = self.leaving[b] = False
        self.used -= self.trace.size[b]

    def end_transfer(self, way):
        _, b, kind, version = self.running[way]
        self.running[way] = None
        if b in self.dead_copies:
            self.dead_copies.discard(b)
            self.used -= self.trace.size[b]
            return
        if kind == "fetch":
            self.coming[b] = False
            self.resident[b] = True
            return
        if version == self.version[b]:
            self.host_valid[b] = True
        if kind == "evict":
            self.free_evicted(b)

    # ---- actions
    def uses(self, item):
        return set(item["needs"]) if item["replay"] else set(self.trace.named[item["op"]])

    def act(self, record, op):
        b, what = record["buffer"], record["do"]
        if what == "prefetch":
            if self.coming[b] or (self.resident[b] and not self.leaving[b]):
                return
            if not self.leaving[b] and not self.host_valid[b]:
                raise Invalid(f"after op {op}: prefetch of buffer {b}, which has no copy on the host")
            self.fetch(b)
            return
        if not self.resident[b]:
            raise Invalid(f"after op {op}: {what} of buffer {b}, which is not resident")
        if self.leaving[b]:
            raise Invalid(f"after op {op}: {what} of buffer {b}, which is on its way out")
        if what == "evict":
            if any(b in self.uses(item) for item in self.upcoming) or self.taken_ahead(b):
                raise Invalid(f"after op {op}: evict of buffer {b}, which the next op uses")
            if self.host_valid[b]:
                self.resident[b] = False
                self.give(self.trace.size[b], self.hash_time(self.trace.size[b]))
            else:
                self.leaving[b] = True
                self.queue["out"].append((b, "evict", self.version[b]))
        elif what == "clean":
            if not self.host_valid[b]:
                self.queue["out"].append((b, "clean", self.version[b]))
        elif what == "drop":
            if (self.running["out"] and self.running["out"][1] == b) or any(e[0] == b for e in self.queue["out"]):
                raise Invalid(f"after op {op}: drop of buffer {b}, which is on its way out")
            if self.taken_ahead(b):
                raise Invalid(f"after op {op}: drop of buffer {b}, which the next op holds")
            self.resident[b] = False
            self.give(self.trace.size[b], self.hash_time(self.trace.size[b]))
        else:
            raise Invalid(f"after op {op}: what is {what}?")

    def taken_ahead(self, b):
        return any(b in self.uses(item) or b in item.get("targets", []) for item in self.upcoming[:self.ahead])

    # ---- compute
    def items(self):
        """What one iteration runs, in order: ops, and steps of replays."""
        for k in range(len(self.trace.ops)):
            for replay in self.before.get(k, []):
                yield from self.replay_steps(k, replay)
            yield {"op": k, "k": k, "needs": [b for b in self.trace.named[k] if b not in self.trace.born[k]],
                   "takes": sum(self.trace.size[b] for b in self.trace.born[k]), "workspace": self.trace.workspace[k], "replay": None,
                   "time": self.trace.duration[k] + (0 if self.lookahead else sum(self.map_time(b) for b in self.trace.born[k]))}

    def replay_steps(self, k, replay):
        trace = self.trace
        where = f"replay before op {k}"
        wanted, chain = set(replay["buffers"]), replay["ops"]
        for b in wanted:
            if trace.persistent[b]:
                raise Invalid(f"{where}: buffer {b} is persistent")
            if b not in trace.life or not trace.life[b][0] < k <= trace.life[b][1]:
                raise Invalid(f"{where}: buffer {b} is not alive then")
            if b not in {w for j in chain for w in trace.writes[j]}:
                raise Invalid(f"{where}: no op of it writes buffer {b}")
        made = {}  # buffer -> the op of the chain that wrote it last
        for i, j in enumerate(chain):
            if not trace.replayable[j]:
                raise Invalid(f"{where}: op {j} is not replayable")
            if j >= k:
                raise Invalid(f"{where}: op {j} has not run yet")
            needs, state = [], set()
            for b in trace.reads[j]:
                if b in made:
                    if made[b] != trace.last_writer(b, j):
                        raise Invalid(f"{where}: op {j} reads another version of buffer {b} than it did")
                    continue
                if b in trace.writes[j]:
                    if b in wanted:
                        raise Invalid(f"{where}: op {j} updates buffer {b} in place, and no earlier op of the chain makes it")
                    state.add(b)
                if not (b in state and trace.persistent[b]) and trace.last_writer(b, j) != trace.last_writer(b, k):
                    raise Invalid(f"{where}: op {j} reads buffer {b}, which was written since")
                needs.append(b)
            outputs = [b for b in trace.writes[j] if b not in state]
            fresh = [b for b in outputs if b not in made]
            for b in outputs:
                made[b] = j
            named_later = {b for l in chain[i + 1:] for b in trace.named[l]}
            last = self.hash_time(sum(trace.size[b] for b in wanted)) if i + 1 == len(chain) else 0
            step = {"op": j, "k": k, "time": trace.duration[j] + last, "needs": needs, "takes": sum(trace.size[b] for b in fresh), "workspace": trace.workspace[j], "replay": where,
                    "targets": [b for b in fresh if b in wanted],
                    "releases": sum(trace.size[b] for b in set(trace.named[j]) & set(made) if b not in wanted and b not in named_later)}
            yield step
        for b in wanted:
            if made[b] != trace.last_writer(b, k):
                raise Invalid(f"{where}: makes buffer {b} as of op {made[b]}, but op {trace.last_writer(b, k)} has written it since")

    def try_admit(self, item):
        """Gives the item its frames if it can; else asks for what it lacks (once)."""
        name = f"op {item['op']}" if not item["replay"] else f"{item['replay']}, op {item['op']}"
        for b in item.get("targets", []):
            if self.coming[b] or (self.resident[b] and not self.leaving[b]):
                raise Invalid(f"{name}: buffer {b} is there already")
        missing = [b for b in item["needs"] if not self.resident[b] or self.leaving[b]]
        if not item.get("asked"):
            item["asked"] = True
            for b in missing:
                if self.coming[b]:
                    continue
                if not self.leaving[b] and not self.host_valid[b]:
                    raise Invalid(f"{name}: needs buffer {b}, which is neither on the device nor on the host")
                self.fetches += 1
                self.fetch(b)
        if missing or any(self.leaving[b] for b in item.get("targets", [])):
            return False
        if self.used + item["takes"] + item["workspace"] > self.memory:
            return False
        self.take(item["takes"] + item["workspace"])
        for b in item["targets"] if item["replay"] else self.trace.born[item["op"]]:
            self.resident[b] = True
        return True

    def start(self, item):
        for b in item["targets"] if item["replay"] else self.trace.writes[item["op"]]:
            self.written(b)
        if item["replay"]:
            self.recomputed += item["time"]
        self.op_end = self.now + item["time"]

    def end_item(self, item):
        self.op_end = None
        self.give(item["workspace"])
        if item["replay"]:
            self.give(item["releases"])
        else:
            for b in self.trace.dies[item["op"]]:
                self.die(b)

    def iteration(self):
        items = list(self.items())
        admitted = 0

        def look_ahead(done):
            """What may not be evicted once `done` items have ended."""
            self.ahead = admitted - done
            self.upcoming = items[done:admitted + 1] if done < len(items) else items[:1]

        look_ahead(0)
        for record in self.after.get(-1, []):
            self.act(record, -1)
        for i, item in enumerate(items):
            started = False
            while True:
                # One instant: ends, (actions, below), the next op, the queues.
                for way in ("in", "out"):
                    if self.running[way] and self.running[way][0] == self.now:
                        self.end_transfer(way)
                self.release()
                if started and self.op_end == self.now:
                    self.end_item(item)
                    break
                if not started:
                    target = min(i + self.lookahead, len(items) - 1)
                    while admitted <= target and self.try_admit(items[admitted]):
                        admitted += 1
                    started = admitted > target
                    if started:
                        self.start(item)
                        if self.op_end == self.now:
                            continue
                before = self.used
                while self.start_transfers():
                    pass
                if not started and self.used < before:
                    continue  # evictions that a `clean` has made free
                ends = [self.running[way][0] for way in ("in", "out") if self.running[way]] + [h[0] for h in self.held] + ([self.op_end] if started else [])
                if not ends:
                    item = items[admitted]
                    name = f"op {item['op']}" if not item["replay"] else f"{item['replay']}, op {item['op']}"
                    raise Invalid(f"{name}: waits for frames that nothing will free")
                self.now = min(ends)
            look_ahead(i + 1)
            if not item["replay"]:
                for record in self.after.get(item["op"], []):
                    self.act(record, item["op"])
        for b in range(len(self.trace.buffers)):
            if self.trace.persistent[b]:
                there = self.coming[b] or (self.resident[b] and not self.leaving[b])
                if there == (b in self.start_evicted):
                    raise Invalid(f"at the iteration's end buffer {b} is {'on' if there else 'off'} the device, unlike at its start")

    def state(self):
        runs = tuple((r[0] - self.now,) + r[1:3] if r else None for r in self.running.values())
        queues = tuple(tuple(e[:2] for e in q) for q in self.queue.values())
        return runs, queues, tuple(self.resident), tuple(self.host_valid), self.used, self.host_used, tuple(sorted((until - self.now, size) for until, size in self.held))

    def run(self):
        starts, states, counts = [0], [self.state()], []
        for _ in range(8):
            before = (self.fetches, self.bytes_in, self.bytes_out, self.recomputed)
            self.iteration()
            counts.append(tuple(a - b for a, b in zip((self.fetches, self.bytes_in, self.bytes_out, self.recomputed), before)))
            starts.append(self.now)
            states.append(self.state())
            if states[-1] == states[-2]:
                time = starts[-1] - starts[-2]
                break
        else:
            time = (starts[8] - starts[3]) // 5
        fetches, bytes_in, bytes_out, recomputed = counts[-1]
        ideal = sum(self.trace.duration)
        return {"valid": True, "error": "", "time_ns": time, "ideal_ns": ideal, "stall_ns": time - ideal - recomputed, "recompute_ns": recomputed,
                "peak_bytes": self.peak, "peak_host_bytes": self.host_peak, "bytes_in": bytes_in, "bytes_out": bytes_out, "demand_fetches": fetches}


COSTS = ("host", "latency", "lookahead", "turnaround", "map", "hash")


def simulate(trace, plan, memory, link_in, link_out, **costs):
    try:
        return Simulator(trace, plan, memory, link_in, link_out, **costs).run()
    except Invalid as error:
        return {"valid": False, "error": str(error)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", action="store_true")
    parser.add_argument("trace", nargs="?")
    parser.add_argument("plan", nargs="?")
    parser.add_argument("--memory", type=int)
    parser.add_argument("--link")
    parser.add_argument("--host", type=int)
    parser.add_argument("--latency", type=int, default=10000)
    for cost in ("lookahead", "turnaround", "map", "hash"):
        parser.add_argument(f"--{cost}", type=int, default=0)
    options = parser.parse_args()
    if options.batch:
        traces = {}
        for line in sys.stdin:
            job = json.loads(line)
            if job["trace"] not in traces:
                traces[job["trace"]] = Trace(read_lines(job["trace"]))
            result = simulate(traces[job["trace"]], read_lines(job["plan"]), job["memory"], job["link_in"], job["link_out"], **{cost: job[cost] for cost in COSTS if cost in job})
            print(json.dumps(result), flush=True)
        return 0
    link = [float(x) * 1e9 for x in options.link.split(",")]
    result = simulate(Trace(read_lines(options.trace)), read_lines(options.plan), options.memory, link[0], link[-1], **{cost: getattr(options, cost) for cost in COSTS})
    print(json.dumps(result))
    return 0 if result["valid"] else 1


if __name__ == "__main__":
    sys.exit(main())
