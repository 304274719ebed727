"""Runs the cases of a class of hostile inputs in child processes that have limits.

A child tries one case after the other and writes a line of JSON about each. The parent ends a child
that says nothing for too long, and starts another one behind the case that ended or hung it.
"""

from __future__ import annotations

import json
import os
import random
import resource
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE = int(os.environ.get("MLC_NATIVE_PATIENCE", "1"))
SILENCE_S = 60  # of a child, until it is ended
_ADDRESS_SPACE = 4 << 30  # beyond what a child has when it is ready
_OUTCOMES = ("served", "refused")


@dataclass(frozen=True)
class Case:
    """A hostile input."""

    name: str
    value: Any


@dataclass(frozen=True)
class HostileClass:
    """A table of hostile inputs and what tries them.

    Attributes:
        cases: the table. A child makes it again, so it must be the same each time.
        attempt: tries the value of a case. Returns "served" or "refused"; anything else, an
            exception above all, is a finding.
        cpu_s: processor time that a case may take.
        memory_mib: memory that a case may take.
        sample: the number of cases that CI tries.
        prepared: what a child holds while it tries cases. It may yield what a neighbour does: the
            longest time that one call of it takes is reported.
    """

    name: str
    cases: Sequence[Case]
    attempt: Callable[[Any], str]
    cpu_s: float = 2
    memory_mib: float = 256
    sample: int = 60
    prepared: Callable[[], AbstractContextManager[Callable[[], object] | None]] = nullcontext


@dataclass(frozen=True)
class Result:
    """What a case did. ``outcome`` is "served", "refused", or what went wrong."""

    name: str
    outcome: str
    cpu_s: float = 0
    memory_mib: float = 0
    neighbour_s: float = 0


@dataclass(frozen=True)
class Report:
    """The results of the cases that were tried."""

    kind: HostileClass
    results: list[Result]

    def findings(self) -> list[str]:
        """What was not contained, one line each."""
        return [
            f"{self.kind.name}: {each.name}: {each.outcome}, {each.cpu_s:.2f} s, "
            f"{each.memory_mib:.0f} MiB"
            for each in self.results
            if each.outcome not in _OUTCOMES
            or each.cpu_s > self.kind.cpu_s * PATIENCE
            or each.memory_mib > self.kind.memory_mib
        ]

    def summary(self) -> str:
        """One line."""
        slowest = max(self.results, key=lambda each: each.cpu_s)
        largest = max(self.results, key=lambda each: each.memory_mib)
        beside = max(self.results, key=lambda each: each.neighbour_s)
        counts = ", ".join(
            f"{sum(each.outcome == outcome for each in self.results)} {outcome}"
            for outcome in _OUTCOMES
        )
        return (
            f"{self.kind.name}: {len(self.results)} of {len(self.kind.cases)} inputs: {counts}, "
            f"{len(self.findings())} findings; slowest {slowest.cpu_s * 1000:.0f} ms "
            f"({slowest.name}), largest {largest.memory_mib:.0f} MiB ({largest.name}), "
            f"a neighbour waited {beside.neighbour_s * 1000:.0f} ms at most ({beside.name})"
        )


def sample(kind: HostileClass, seed: int) -> list[int]:
    """The positions of the cases that CI tries."""
    count = min(kind.sample, len(kind.cases))
    return sorted(random.Random(seed).sample(range(len(kind.cases)), count))


def run(kind: HostileClass, indices: Sequence[int]) -> Report:
    """Tries cases in child processes."""
    results: list[Result] = []
    left = list(indices)
    while left:
        for result in _results_of_child(kind, list(left)):
            results.append(result)
            del left[0]
    return Report(kind, results)


def _results_of_child(kind: HostileClass, indices: list[int]) -> Iterator[Result]:
    """The results of one child: of all cases, or up to the one that ended it."""
    command = [sys.executable, "-c", "from hostile.frame import child; child()"]
    folder = str(Path(__file__).resolve().parents[1])
    paths = [folder, str(Path(folder) / "python"), str(Path(folder).parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps({"class": kind.name, "indices": indices}))
        process.stdin.close()
        for index in indices:
            name = kind.cases[index].name
            if not select.select([process.stdout], [], [], SILENCE_S * PATIENCE)[0]:
                yield Result(name, f"it said nothing for {SILENCE_S * PATIENCE} s")
                return
            line = process.stdout.readline()
            if not line:
                yield Result(name, f"it ended its process with status {process.wait()}")
                return
            yield Result(name, **json.loads(line))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# ------------------------------------------------------------------------------------- the child


def child() -> None:
    """Tries the cases that stdin names, and writes a line of JSON about each."""
    from hostile import hostile_class

    asked = json.load(sys.stdin)
    kind = hostile_class(asked["class"])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a case prints is no result
    with kind.prepared() as tick:
        _limit_memory()
        neighbour = _Neighbour(tick or (lambda: time.sleep(0.001)))
        neighbour.start()
        for index in asked["indices"]:
            out.write(json.dumps(_tried(kind, kind.cases[index], neighbour)) + "\n")
            out.flush()
        neighbour.stop()
    os._exit(0)  # what a case has left behind is not waited for


def _limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + _ADDRESS_SPACE, hard))


class _Neighbour(threading.Thread):
    """Does something small again and again, and keeps the longest time that it took.

    By default it sleeps for a moment: a case that keeps the interpreter for itself delays it.
    """

    def __init__(self, tick: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._tick = tick
        self._begin: float | None = None  # of the call that runs
        self._longest = 0.0
        self.cpu_s = 0.0  # of this thread
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(0.002):
            self._begin = time.perf_counter()
            self._tick()
            self._longest = max(self._longest, time.perf_counter() - self._begin)
            self._begin = None
            self.cpu_s = time.thread_time()

    def take(self) -> float:
        """The longest time since the last call of it."""
        begin = self._begin
        running = 0.0 if begin is None else time.perf_counter() - begin
        longest, self._longest = max(self._longest, running), 0.0
        return longest

    def stop(self) -> None:
        """Ends it."""
        self._stopped.set()
        self.join()


def _tried(kind: HostileClass, case: Case, neighbour: _Neighbour) -> dict[str, Any]:
    neighbour.take()
    before = _reset_peak()
    start = time.process_time() - neighbour.cpu_s
    try:
        outcome = kind.attempt(case.value)
    except BaseException as error:  # such as the panics of libraries
        outcome = f"{type(error).__name__}: {error}"[:500]
    return {
        "outcome": outcome,
        "cpu_s": max(0, time.process_time() - neighbour.cpu_s - start),
        "memory_mib": max(0, _status("VmHWM") - before) / 1024,
        "neighbour_s": neighbour.take(),
    }


def _reset_peak() -> int:
    """Lets the peak of memory begin anew, where that is allowed, and returns it in KiB."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmHWM")


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return 0
