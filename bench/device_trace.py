"""Where the time of a GPU goes: by kernel of this process, from any library, and between them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

MIN_GAP_S = 3e-6  # shorter ones are what a launch costs within a graph, not waiting for the host
EDGE = 0.1  # of the time at either end is not counted: prompts, and the end of the batch


class DeviceTrace:
    """The kernels that ran on the device; filled when `device_trace` ends."""

    def __init__(self) -> None:
        self.busy_s: list[tuple[float, float]] | None = None  # [begin, end); None: no device
        self.names: list[str] = []  # of the kernels and copies, in the order of busy_s

    def idle_share(self) -> float | None:
        """The idle share of the time between the edges; None if there was no device to trace."""
        return idle_share(self.busy_s) if self.busy_s else None

    def kernels(self) -> list[dict[str, Any]]:
        """Name, number of runs and seconds by kernel, most seconds first. Seconds overlap where
        kernels do (a dependent launch begins before the one before it ends), so that each
        counts from the end of what began before it."""
        totals: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
        reached = 0.0
        for (begin, end), name in sorted(zip(self.busy_s or [], self.names, strict=True)):
            total = totals[short_name(name)]
            total[0] += 1
            total[1] += max(0.0, end - max(begin, reached))
            reached = max(reached, end)
        ranked = sorted(totals.items(), key=lambda item: -item[1][1])
        return [{"name": name, "runs": runs, "seconds": s} for name, (runs, s) in ranked]

    def span_s(self) -> float:
        """Seconds from the first kernel's begin to the last one's end."""
        return max((end for _, end in self.busy_s or []), default=0.0)


def short_name(kernel: str) -> str:
    """A demangled name without namespaces, its result and its parameters."""
    kernel = re.sub(r"\(anonymous namespace\)::|\b[a-z_]\w*::|^void ", "", kernel)
    depth = 0
    for i, c in enumerate(kernel):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            return kernel[:i]
    return kernel


def idle_share(busy_s: Iterable[tuple[float, float]]) -> float:
    """The share of gaps of at least MIN_GAP_S between intervals, which may overlap."""
    spans = sorted(busy_s)
    begin, end = spans[0][0], max(e for _, e in spans)
    low, high = begin + EDGE * (end - begin), end - EDGE * (end - begin)
    idle, reached = 0.0, low
    for b, e in [*spans, (high, high)]:
        gap = min(b, high) - reached
        idle += gap if gap >= MIN_GAP_S else 0.0
        reached = max(reached, e)
    return idle / (high - low)


@contextmanager
def device_trace() -> Iterator[DeviceTrace]:
    """Traces the GPUs within the context, through the driver, which sees all libraries."""
    trace = DeviceTrace()
    if not torch.cuda.is_available():
        yield trace
        return
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        yield trace
        torch.cuda.synchronize()
    trace.busy_s, trace.names = device_spans(profiler, torch.autograd.DeviceType.CUDA)


def device_spans(profiler: Any, device_type: Any) -> tuple[list[tuple[float, float]], list[str]]:
    """The intervals, in seconds from the first one, in which devices of a type were busy, and the
    names of what ran."""
    events = [
        (event.start_ns(), event.end_ns(), event.name())
        for event in profiler.profiler.kineto_results.events()
        if event.device_type() == device_type
    ]
    start = min((begin for begin, *_ in events), default=0)
    spans = [((begin - start) * 1e-9, (end - start) * 1e-9) for begin, end, _ in events]
    return spans, [name for *_, name in events]
