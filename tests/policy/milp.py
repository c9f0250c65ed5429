#!/usr/bin/env python3
"""An oracle for swapping: chains so small that a mixed-integer programme finds their best plan, and `udnnmem plan`
must come near it: 2 % in the mean, 10 % at worst.

Times in ms, sizes in MB. S, E: start and end of an op. Per gap g of a buffer (from op i to op j, copied after op w wrote
it), y: it leaves; o, p: starts of its copies out and in, each `latency + bytes / speed` long.
  least E of the last op;  S of an op >= E of the one before
  o >= E_w;  p >= o + length;  S_j >= p + length, all if y;  on each link one copy after another (a binary says which first)
  away_gk (a binary): all of op k runs without it: E_i <= S_k by order,  o + length <= S_k,  p >= E_k,  y
  at each op k: what lives there less what is away <= memory
A plan that frees and fills the same bytes within one op is beyond it, so ours may be better than its optimum.
Needs cbc; UDNNMEM_TEST_FULL=1 tries ten times as many.
"""
import json, math, os, pathlib, random, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("UDNNMEM_BUILD", ROOT / "build")).resolve()
FULL = bool(os.environ.get("UDNNMEM_TEST_FULL"))
LATENCY, SPEED = 0.01, 10.0  # ms, MB/ms (10 GB/s)


def chain(rng, layers):
    """Sizes (MB) by buffer and ops (ms, reads, writes): activations 0..layers, then their gradients."""
    sizes = [rng.randint(20, 200) for _ in range(layers + 1)] + [rng.randint(10, 60) for _ in range(layers + 1)]
    ops = [(rng.uniform(1, 30), [], [0])]
    ops += [(rng.uniform(1, 30), [i], [i + 1]) for i in range(layers)]
    for i in reversed(range(layers + 1)):
        ops.append((rng.uniform(1, 40), [i] + ([layers + 2 + i] if i < layers else []), [layers + 1 + i]))
    return sizes, [(round(ms, 3), reads, writes) for ms, reads, writes in ops]


def life(ops):
    uses = {}
    for k, (_, reads, writes) in enumerate(ops):
        for b in sorted(set(reads + writes)):
            uses.setdefault(b, []).append(k)
    return uses


def live(sizes, ops):
    return [sum(sizes[b] for b, at in life(ops).items() if at[0] <= k <= at[-1]) for k in range(len(ops))]


def programme(sizes, ops, memory):
    rows, binaries, n, uses = [], [], len(ops), life(ops)
    copy = {b: LATENCY + sizes[b] / SPEED for b in uses}
    late = sum(ms for ms, _, _ in ops) + 2 * sum(copy.values())  # everything one after another
    gaps = [(b, i, j, at[0]) for b, at in uses.items() for i, j in zip(at, at[1:]) if j > i + 1]
    for k in range(1, n):
        rows.append(f"S{k} - S{k - 1} >= {ops[k - 1][0]}")
    for g, (b, i, j, w) in enumerate(gaps):
        binaries.append(f"y{g}")
        rows.append(f"o{g} - S{w} >= {ops[w][0]}")
        rows.append(f"p{g} - o{g} >= {copy[b]:.6f}")
        rows.append(f"S{j} - p{g} - {late:.3f} y{g} >= {copy[b] - late:.6f}")
        for k in range(i + 1, j):
            binaries.append(f"away{g}_{k}")
            rows.append(f"y{g} - away{g}_{k} >= 0")
            rows.append(f"S{k} - o{g} - {late:.3f} away{g}_{k} >= {copy[b] - late:.6f}")
            rows.append(f"p{g} - S{k} - {late:.3f} away{g}_{k} >= {ops[k][0] - late:.6f}")
        for h, (c, _, _, _) in enumerate(gaps[:g]):
            for link in "op":
                first = f"{link}first{h}_{g}"
                binaries.append(first)
                # If both leave: one copy ends before the other starts.
                rows.append(f"{link}{g} - {link}{h} - {late:.3f} {first} - {late:.3f} y{g} - {late:.3f} y{h} >= {copy[c] - 3 * late:.6f}")
                rows.append(f"{link}{h} - {link}{g} + {late:.3f} {first} - {late:.3f} y{g} - {late:.3f} y{h} >= {copy[b] - 2 * late:.6f}")
    for k, held in enumerate(live(sizes, ops)):
        away = [f"{sizes[b]} away{g}_{k}" for g, (b, i, j, _) in enumerate(gaps) if i < k < j]
        if held > memory:
            rows.append(" + ".join(away) + f" >= {held - memory}" if away else f"0 S0 >= {held - memory}")
    return f"Minimize\n obj: S{n - 1}\nSubject To\n" + "".join(f" {row}\n" for row in rows) + "Binaries\n" + "".join(f" {name}\n" for name in binaries) + "End\n"


def optimum(text, folder):
    """ms up to the last op's start; None if the solver finds no plan, or none in time."""
    path, solution = os.path.join(folder, "milp.lp"), os.path.join(folder, "solution")
    pathlib.Path(path).write_text(text)
    subprocess.run(["cbc", path, "sec", "20", "solve", "solution", solution], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    status = open(solution).readline()
    return float(status.split()[-1]) if status.startswith("Optimal") else None


def planned(sizes, ops, memory, folder):
    lines = [{"kind": "header", "schema": 1, "name": "chain"}]
    lines += [{"kind": "buffer", "id": b, "bytes": size * 10**6} for b, size in enumerate(sizes)]
    lines += [{"kind": "op", "index": k, "duration_ns": round(ms * 1e6), "reads": sorted(reads), "writes": writes} for k, (ms, reads, writes) in enumerate(ops)]
    trace = os.path.join(folder, "chain.jsonl")
    pathlib.Path(trace).write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = subprocess.run([str(BUILD / "udnnmem"), "plan", trace, "--memory", str(memory * 10**6), "--link", str(SPEED), "--recompute", "off", "--time", "0.1", "--json"],
                          capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True)
    return json.loads(done.stdout)


def main():
    rng, ratios, slowed, wanted, failed = random.Random(4), [], 0, 200 if FULL else 20, 0
    with tempfile.TemporaryDirectory() as folder:
        while len(ratios) < wanted:
            sizes, ops = chain(rng, rng.randint(4, 9))
            held = live(sizes, ops)
            memory = max(max(held) * rng.randint(30, 80) // 100, max(sum(sizes[b] for b in set(reads + writes)) for _, reads, writes in ops))
            if memory >= max(held):
                continue
            try:
                best = optimum(programme(sizes, ops, memory), folder)
            except FileNotFoundError:
                print("no solver: install coinor-cbc\n0 passed, 0 failed")
                return 0
            if best is None:
                continue
            row = planned(sizes, ops, memory, folder)
            best += ops[-1][0]
            slowed += best > 1.01 * sum(ms for ms, _, _ in ops)
            ratios.append(row["time_ns"] * 1e-6 / best if row["feasible"] else math.inf)
            if ratios[-1] > 1.1 or row["lower_bound_ns"] * 1e-6 > best * 1.0001:
                failed += 1
                print(f"case {len(ratios)}: {len(ops)} ops, {memory} MB: ours {row['time_ns']}, the programme's {best:.3f} ms, bound {row['lower_bound_ns']}")
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"{len(ratios)} chains: ours is {mean:.4f} of the programme's in the geometric mean, {max(ratios):.4f} at worst; {slowed} cannot be as fast as with room for all")
    failed += mean > 1.02
    print(f"{len(ratios) + 1 - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
