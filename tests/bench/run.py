#!/usr/bin/env python3
"""Runs benchmarks one after the other, prints a table and writes the results as one JSON list.

A benchmark is a program or a Python script that prints JSON objects, one a line, with name, value, unit and goal
(null: none; "<= 300" is what a number means; text such as ">= 0.9" says it itself). Other lines are shown and passed
over. A benchmark that fails, or prints no object, is reported and makes the exit status 1; a missed goal does not: it
is in the table, for the machine it was measured on matters.
"""
import argparse, json, os, pathlib, re, subprocess, sys


def meets(value, goal):
    """True or False; None where there is no goal."""
    if goal is None:
        return None
    match = re.fullmatch(r"\s*(<=|>=)\s*([-+.\deE]+)\s*", goal) if isinstance(goal, str) else None
    if match:
        return value <= float(match[2]) if match[1] == "<=" else value >= float(match[2])
    if isinstance(goal, str):
        raise ValueError(f'goal {goal!r}: expected null, a number, or text such as "<= 300"')
    return value <= goal


def parse(line):
    """The result on a line, None if it is no object; ValueError if it is a wrong one."""
    if not line.startswith("{"):
        return None
    result = json.loads(line)
    if not isinstance(result.get("name"), str) or not isinstance(result.get("value"), (int, float)) or isinstance(result["value"], bool):
        raise ValueError("needs a name and a number as value")
    meets(result["value"], result.get("goal"))
    return {"name": result["name"], "value": result["value"], "unit": result.get("unit", ""), "goal": result.get("goal")}


def run(benchmark, env):
    """(results, error): what it printed, and one line that says what was wrong, or None."""
    path = str(pathlib.Path(benchmark).resolve())
    command = [sys.executable, path] if path.endswith(".py") else [path]
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace", env=env)
    except OSError as e:
        return [], str(e)
    results, error = [], None
    for line in process.stdout:
        try:
            result = parse(line)
        except ValueError as e:
            error = error or f"line {line.strip()[:80]!r}: {e}"
            continue
        if result:
            results.append(result)
        else:
            print(line, end="", flush=True)
    status = process.wait()
    if status:
        error = f"exit status {status}"
    return results, error or (None if results else "printed no result")


def table(results):
    words = {True: "met", False: "MISSED", None: ""}
    rows = [("name", "value", "unit", "goal", "")]
    for r in results:
        goal = "" if r["goal"] is None else r["goal"] if isinstance(r["goal"], str) else f"<= {r['goal']:g}"
        rows.append((r["name"], f"{r['value']:,.6g}" if isinstance(r["value"], float) else f"{r['value']:,}", r["unit"], goal, words[meets(r["value"], r["goal"])]))
    width = [max(len(row[i]) for row in rows) for i in range(5)]
    return "\n".join(f"{a:<{width[0]}}  {b:>{width[1]}}  {c:<{width[2]}}  {d:>{width[3]}}  {e}".rstrip() for a, b, c, d, e in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", required=True)
    parser.add_argument("benchmarks", nargs="*")
    options = parser.parse_args()
    output = pathlib.Path(options.output)
    env = dict(os.environ, UDNNMEM_BUILD=str(output.resolve().parent))
    results, errors = [], []
    for benchmark in options.benchmarks:
        print(f"running {benchmark}", flush=True)
        found, error = run(benchmark, env)
        results += found
        if error:
            errors.append(f"{benchmark}: {error}")
    temporary = output.with_name(output.name + ".tmp")
    temporary.write_text(json.dumps(results, indent=1) + "\n")
    temporary.rename(output)
    print(table(results))
    for error in errors:
        print(f"FAILED: {error}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
