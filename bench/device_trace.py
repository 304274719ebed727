"""Measures how long a GPU is idle between the kernels of this process, from any library."""

from __future__ import annotations

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

    def idle_share(self) -> float | None:
        """The idle share of the time between the edges; None if there was no device to trace."""
        return idle_share(self.busy_s) if self.busy_s else None


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
    trace.busy_s = device_spans(profiler, torch.autograd.DeviceType.CUDA)


def device_spans(profiler: Any, device_type: Any) -> list[tuple[float, float]]:
    """The intervals, in seconds from the first one, in which devices of a type were busy."""
    events = [
        (event.start_ns(), event.end_ns())
        for event in profiler.profiler.kineto_results.events()
        if event.device_type() == device_type
    ]
    start = min((begin for begin, _ in events), default=0)
    return [((begin - start) * 1e-9, (end - start) * 1e-9) for begin, end in events]
