"""From the start of a process to the first byte of an answer: a program in C beside Python.

    python bench/cold_start.py [--model DIR] [--repeats 7] [--drop-caches]

The program in C is examples/c/chat.c, built on the package; the one in Python uses MLCEngine. Both
get the same question, take turns, and run once uncounted. The time contains the start of the
process, imports, loading and the prompt; the memory is the peak of what is resident. With
--drop-caches, as root, the page cache is emptied before each run: all files come from the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import ROOT, provenance

QUESTION = "What is 2 + 2?"
IN_PYTHON = f"""
import sys
from mlc_native import MLCEngine
chat = {{"messages": [{{"role": "user", "content": {QUESTION!r}}}], "max_tokens": 64}}
with MLCEngine(sys.argv[1], verbose=False) as engine:
    for chunk in engine.chat.completions.create(**chat, stream=True):
        for choice in chunk.choices:
            print(choice.delta.content or "", end="", flush=True)
"""


def build(folder: Path) -> Path:
    """Builds the program in C on the package of this tree."""
    package = ROOT / "mlc_native"
    program, library = folder / "chat", package / "lib"
    source = ROOT / "examples" / "c" / "chat.c"
    command = ["cc", "-O2", source, f"-I{package / 'include'}", f"-L{library}", "-lmlc_native_c"]
    subprocess.run([*command, f"-Wl,-rpath,{library}", "-o", program], check=True)
    return program


def run(command: list[str | Path]) -> tuple[float, float]:
    """Milliseconds until the first byte of the answer, and MiB resident at most."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(QUESTION.encode() + b"\n")
    process.stdin.close()
    answered = 0.0
    if os.read(process.stdout.fileno(), 1).strip():
        answered = time.perf_counter() - began
    process.stdout.read()
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0 or not answered:
        raise SystemExit(f"{command[0]}: exit status {process.returncode}, no answer")
    return answered * 1e3, usage.ru_maxrss / 1024


def drop_caches() -> None:
    """Empties the page cache. Needs root."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


def main(argv: list[str] | None = None) -> None:
    """Prints the median and the range of each side."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default=str(ROOT / "mlc_native" / "demo_model"))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--drop-caches", action="store_true")
    args = parser.parse_args(argv)
    print(json.dumps(provenance()))
    with tempfile.TemporaryDirectory() as folder:
        sides: dict[str, list[str | Path]] = {
            "C": [build(Path(folder)), args.model],
            "Python": [sys.executable, "-c", IN_PYTHON, args.model],
        }
        measured: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        for _ in range(args.repeats + 1):
            for name, command in sides.items():
                if args.drop_caches:
                    drop_caches()
                measured[name].append(run(command))
    for name, runs in measured.items():
        for unit, values in zip(("ms", "MiB"), zip(*runs[1:], strict=True), strict=True):
            print(f"{name:8} {statistics.median(values):7.1f} {unit:4}"
                  f"({min(values):.1f} .. {max(values):.1f})")  # fmt: skip


if __name__ == "__main__":
    main()
