"""The time from the start of ``mlc-native`` to its exit.

    python bench/cli_start.py [--model demo] [--prompt "What is 2 + 2?"] [--repeats 10]

Each command runs as a program of its own, with its output in a pipe; the first run, which fills the
caches of the file system, is not counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

from machine import ROOT, provenance


def seconds(command: list[str]) -> float:
    """The wall time of a program that must succeed."""
    begin = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - begin


def commands(model: str, prompt: str) -> dict[str, list[str]]:
    """What is timed. The first ones are parts of the last one."""
    program = [sys.executable, "-m", "mlc_native"]
    return {
        "python -c pass": [sys.executable, "-c", "pass"],
        "mlc-native --version": [*program, "--version"],
        "import of the chat": [sys.executable, "-c", "import mlc_native.cli.chat"],
        f"mlc-native chat {model} --prompt": [*program, "chat", model, "--prompt", prompt],
    }


def main() -> None:
    """Prints the median of each command, and where the figures come from."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="demo")
    parser.add_argument("--prompt", default="What is 2 + 2?")
    parser.add_argument("--repeats", type=int, default=10)
    args = parser.parse_args()
    print(json.dumps(provenance()))
    for name, command in commands(args.model, args.prompt).items():
        times = [seconds(command) for _ in range(args.repeats + 1)][1:]
        print(
            f"{name:36} {statistics.median(times):6.3f} s  ({min(times):.3f} .. {max(times):.3f})"
        )


if __name__ == "__main__":
    main()
