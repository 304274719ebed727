"""The processes that compile grammars, as tests see them, and a grammar that keeps one at work."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WORKER = "mlc_native_gram"  # the name of the process, which the kernel cuts
PATIENCE_S = 200  # the limit of a test ends it before


def slow_grammar() -> dict[str, Any]:
    """Alternatives that all share their first half."""
    rules = ["root ::= r0"]
    for i in range(4000):
        rules.append(f'r{i} ::= [a-z]* r{(i * 7 + 1) % 4000} | [a-y]* r{(i * 5 + 3) % 4000} | ""')
    return {"type": "grammar", "grammar": "\n".join(rules)}


def await_that(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class GrammarWorkers:
    """The processes that have begun to compile grammars for this one since the object was made."""

    def __init__(self) -> None:
        self._before: set[int] = set()  # idle ones of other engines
        self._before = set(self.pids())

    def pids(self) -> list[int]:
        """Those that run."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                name, _, fields = stat.read_text().partition("(")[2].rpartition(")")
            except OSError:  # it has ended
                continue
            state, parent = fields.split()[:2]
            if name == WORKER and int(parent) == os.getpid() and state != "Z":
                found.append(int(stat.parent.name))
        return [pid for pid in found if pid not in self._before]

    def await_some(self) -> None:
        """Waits until one runs."""
        await_that(lambda: len(self.pids()) > 0)

    def await_none(self) -> None:
        """Waits until all have ended."""
        await_that(lambda: not self.pids())
