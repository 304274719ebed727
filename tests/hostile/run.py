"""Tries hostile inputs: ``python tests/hostile/run.py [CLASS...] [--sample SEED] [--show]``.

Prints a summary line for each class, and every finding. The exit status is 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def main() -> int:
    """The command."""
    sys.path[:0] = [str(TESTS), str(TESTS / "python"), str(TESTS.parent)]
    from hostile import CLASSES, hostile_class
    from hostile.frame import run, sample

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("classes", nargs="*", help="all of them by default")
    parser.add_argument("--sample", type=int, metavar="SEED", help="a part of each class, as in CI")
    parser.add_argument("--show", action="store_true", help="a line for each input")
    arguments = parser.parse_args()
    status = 0
    for name in arguments.classes or CLASSES:
        kind = hostile_class(name)
        is_whole = arguments.sample is None
        report = run(kind, range(len(kind.cases)) if is_whole else sample(kind, arguments.sample))
        for each in report.results if arguments.show else ():
            figures = f"{each.cpu_s * 1000:.0f} ms, {each.memory_mib:.0f} MiB"
            figures += f", a neighbour {each.neighbour_s * 1000:.0f} ms"
            print(f"  {each.name}: {each.outcome}, {figures}")
        for finding in report.findings():
            print("  FINDING " + finding)
            status = 1
        print(report.summary(), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
