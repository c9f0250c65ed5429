"""What a program asks of the device, as a list (tests/softgpu/driver/listing.hpp has its lines), against what a trace holds of it.

Two iterations are the same when their ops have the same names in the same order and their buffers can be renamed into each other:
the same bytes, lives and uses (which op, read or written). `differences` says in words where they are not.
"""
import collections, json


class Op:
    def __init__(self, name, uses, nodes=0):
        self.name, self.nodes = name, nodes
        self.modes, self.changed, self.led = {}, set(), set()     # buffer -> r, w or x; those whose contents were others afterwards; those that it was not given
        for use in uses:
            buffer, mode = use.rstrip("*@").split(":")
            buffer = int(buffer)
            if "@" in use:
                self.led.add(buffer)
            if "*" in use:
                self.changed.add(buffer)
            self.modes[buffer] = mode if self.modes.get(buffer, mode) == mode else "x"

    def named(self, other):
        """Whether `other`, of a trace, is what this one is called."""
        if self.nodes:
            return other == "cuGraphLaunch"
        if self.name in ("HtoD", "DtoH", "DtoD"):
            return self.name in other or ("emcpy" in other and not any(way in other for way in ("HtoD", "DtoH", "DtoD")))
        return (self.name if self.name != "Memset" else "emset") in other


class Program:
    """A list: ops that name buffers, in order; the lives of buffers, as positions of ops. Graphs whose buffers are more than `together`
    bytes are their nodes, others one op."""

    def __init__(self, path, together=1 << 62):
        self.ops, self.bytes, self.born, self.died, self.peak, self.graphs = [], {}, {}, {}, 0, set()
        live, skip = 0, 0
        for line in path.read_text().splitlines():
            what, *words = line.split()
            if what == "a":
                buffer = int(words[0])
                self.bytes[buffer], self.born[buffer] = int(words[1]), len(self.ops)
                live += self.bytes[buffer]
                self.peak = max(self.peak, live)
            elif what == "f":
                self.died[int(words[0])] = len(self.ops)
                live -= self.bytes[int(words[0])]
            elif what == "g":
                graph = Op("", words[1:], nodes=int(words[0]))
                size = sum(self.bytes[b] for b in graph.modes)
                self.graphs.add(size)
                if size <= together:
                    skip = graph.nodes
                    self.add(graph)
            elif skip:
                skip -= 1
            else:
                self.add(Op(words[0], words[1:]))

    def add(self, op):
        if op.modes:     # what names no buffer is nobody's business
            self.ops.append(op)

    def iteration(self, begin, count):
        """Buffers of the ops from `begin` on as the trace has them: (bytes, persistent, alloc_op, free_op, uses). What they make and the
        same op of the next iteration uses too is made only once: it lasts. Where that uses another one, it does not."""
        end, lives = begin + count, {}
        pairs = [(b, b in again.modes) for op, again in zip(self.ops[begin:end], self.ops[end:]) for b in op.modes]
        kept, renewed = {b for b, same in pairs if same}, {b for b, same in pairs if not same}
        for b, born in self.born.items():
            died = self.died.get(b)
            if born >= end or (died is not None and (died <= begin or died == born)):
                continue
            whole = (born <= begin or b in kept) and (died is None or died >= end) and b not in renewed
            lives[b] = (True, 0, count - 1) if whole else (False, max(born - begin, 0), (end if died is None else min(died, end)) - begin - 1)
        uses = collections.defaultdict(list)
        for k, op in enumerate(self.ops[begin:end]):
            for b, mode in op.modes.items():
                uses[b].append((k, mode))
        return {b: (self.bytes[b], *life, tuple(uses[b])) for b, life in lives.items()}


def read_trace(path):
    """The last iteration of a trace: its `learned` record, its buffers, its ops, and what they were seen not to write: {op: {run_id}}."""
    learned, buffers, ops, unchanged = None, [], [], {}
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if record["kind"] == "learned":
            learned, buffers, ops, unchanged = record, [], [], {}
        elif record["kind"] == "buffer":
            buffers.append(record)
        elif record["kind"] == "op":
            ops.append(record)
        elif record["kind"] == "unchanged" and record["ops"] == len(ops):
            unchanged[record["op"]] = set(record["buffers"])
    return learned, buffers, ops, unchanged


def seen_iteration(buffers, ops):
    """Its buffers, in the form of Program.iteration."""
    uses = collections.defaultdict(list)
    for k, op in enumerate(ops):
        for b in sorted(set(op["reads"]) | set(op["writes"])):
            uses[b].append((k, "x" if b in op["reads"] and b in op["writes"] else "r" if b in op["reads"] else "w"))
    lives = lambda b: (True, 0, len(ops) - 1) if b["persistent"] else (False, b["alloc_op"], b["free_op"])
    return {b["id"]: (b["bytes"], *lives(b), tuple(uses[b["id"]])) for b in buffers}


def differences(program, learned, buffers, ops):
    begin = learned["first_op"]
    if len(program.ops) < begin + len(ops):
        return [f"the program has {len(program.ops)} ops, the iteration would be {begin} to {begin + len(ops)}"]
    wrong = [f"op {k} is {op['name']}, the program's is {mine.name or 'a graph'}" for k, (mine, op) in enumerate(zip(program.ops[begin:], ops)) if not mine.named(op["name"])]
    mine, theirs = collections.Counter(program.iteration(begin, len(ops)).values()), collections.Counter(seen_iteration(buffers, ops).values())
    say = lambda what, b: f"{what}: {b[0]} bytes, {'persistent' if b[1] else f'from op {b[2]} to {b[3]}'}, used {[f'{k}{m}' for k, m in b[4]]}"
    wrong += [say("only in the program", b) for b in (mine - theirs).elements()] + [say("only in the trace", b) for b in (theirs - mine).elements()]
    return wrong


def closest(path, learned, buffers, ops):
    """The list and its differences: where graphs that do not fit were launched node by node, with that bound on them that fits best."""
    tried = []
    for together in (1 << 62, *sorted(Program(path).graphs, reverse=True), 0):
        program = Program(path, together)
        tried.append((program, differences(program, learned, buffers, ops)))
        if not tried[-1][1]:
            break
    return min(tried, key=lambda t: len(t[1]))


def write_differences(program, learned, buffers, ops, unchanged, smallest=32 << 10):
    """Kernels write what they were not seen to leave as it is: what the program's change, in some iteration, at least what they
    change in every one. What tables lead to is not watched: what is written through them counts as written by the next op that names
    it. Of buffers of `smallest` bytes or more (others lie in slabs and count as written), told apart by size."""
    begin, count, wrong = learned["first_op"], len(ops), []
    rounds = [program.ops[at:at + count] for at in range(begin, len(program.ops) - count + 1, count)]
    rounds = [r for r in rounds if all(mine.named(op["name"]) for mine, op in zip(r, ops))]
    through_tables = {b for op in rounds[0] for b in op.led}
    for k, op in enumerate(ops):
        if rounds[0][k].name in ("HtoD", "DtoH", "DtoD", "Memset"):
            continue
        changed = [collections.Counter(program.bytes[b] for b in r[k].changed if program.bytes[b] >= smallest) for r in rounds]
        most, least = changed[0].copy(), changed[0].copy()
        for c in changed:
            most |= c
            least &= c
        seen = collections.Counter(b["bytes"] for b in buffers if b["id"] in op["writes"] and b["bytes"] >= smallest and b.get("run_id", -1) not in unchanged.get(k, ()))
        led = collections.Counter(program.bytes[b] for b in rounds[0][k].modes if b in through_tables and b not in rounds[0][k].changed)
        if seen - most - led or least - seen:
            wrong.append(f"op {k} ({op['name']}) writes {sorted(seen.elements())}, the program's {sorted(most.elements())}")
    return wrong
