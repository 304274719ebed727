"""Sends requests at random times to an AsyncMLCEngine of this process and records their latencies.

Arrivals are a Poisson process, so they come in bursts like those of users. A request is sent when
it is due, whether or not earlier ones are done. Arrivals, prompts and lengths are drawn before the
clock starts. The generator is one thread: its event loop sends requests and wakes up once per batch
of outputs. Its share of a core and its delay are reported. Latencies count from the time at which a
request was due, so that a late generator cannot make the engine look fast.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlc_native import AsyncMLCEngine
from mlc_native.errors import EngineRequestError
from mlc_native.protocol.debug_protocol import DebugConfig
from mlc_native.protocol.generation_config import GenerationConfig

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Lengths:
    """Numbers of tokens, uniform in [low, high]."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> Lengths:
        """ "N" or "LOW:HIGH"; raises argparse.ArgumentTypeError."""
        low, separator, high = text.partition(":")
        try:
            lengths = cls(int(low), int(high if separator else low))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is neither N nor LOW:HIGH") from None
        if not 1 <= lengths.low <= lengths.high:
            raise argparse.ArgumentTypeError(f"{text!r}: wanted 1 <= LOW <= HIGH")
        return lengths

    def draw(self, rng: np.random.Generator) -> int:
        return int(rng.integers(self.low, self.high + 1))


@dataclass(frozen=True)
class Workload:
    """The kind of requests, and the end of arrivals after a number of requests or of seconds."""

    prompt: Lengths
    output: Lengths
    num_requests: int | None
    duration_s: float | None


@dataclass(frozen=True)
class Arrival:
    """A request that is due `due_s` seconds after the start."""

    due_s: float
    prompt: list[int]
    max_tokens: int


def draw_arrivals(
    rate: float, workload: Workload, vocab_size: int, seed: Sequence[int]
) -> list[Arrival]:
    """The arrivals of a run at `rate` requests per second (math.inf: all at once)."""
    rng = np.random.default_rng(seed)
    return [
        Arrival(
            due_s,
            rng.integers(3, vocab_size - 3, workload.prompt.draw(rng)).tolist(),
            workload.output.draw(rng),
        )
        for due_s in _due_times(rate, workload, rng)
    ]


def _due_times(rate: float, workload: Workload, rng: np.random.Generator) -> Iterator[float]:
    due_s, count = 0.0, 0
    while workload.num_requests is None or count < workload.num_requests:
        due_s += rng.exponential(1 / rate) if math.isfinite(rate) else 0.0
        if workload.duration_s is not None and due_s > workload.duration_s:
            return
        yield due_s
        count += 1


@dataclass
class Record:
    """The result of a request; times are in seconds after the start.

    Attributes:
        output_s, output_tokens: when each output came, and the tokens that came with it.
        queue_s: from its submission until the engine's first step on it, as the engine says.
        error: why it failed; empty when it did not.
    """

    due_s: float
    sent_s: float = 0.0
    output_s: list[float] = field(default_factory=list)
    output_tokens: list[int] = field(default_factory=list)
    queue_s: float = 0.0
    error: str = ""

    def inter_token_s(self) -> list[float]:
        """The time between two outputs, divided by the number of tokens of the later one."""
        gaps = np.diff(self.output_s)
        counts = self.output_tokens[1:]
        return [gap / count for gap, count in zip(gaps, counts, strict=True) for _ in range(count)]


@dataclass(frozen=True)
class Run:
    """All records of a rate, and the generator's share of a core."""

    rate: float
    records: list[Record]
    cpu_share: float


class LoadGenerator:
    """Sends arrivals from the running event loop and records the outputs."""

    def __init__(self, engine: AsyncMLCEngine, on_done: Callable[[], object]) -> None:
        """`on_done` is called once per finished request."""
        self._engine = engine
        self._on_done = on_done
        self._start = 0.0

    async def run(self, rate: float, arrivals: Sequence[Arrival], name: str) -> Run:
        """Returns when the last request is done; request ids start with `name`."""
        records = []
        self._start, cpu_start = time.perf_counter(), time.thread_time()
        async with asyncio.TaskGroup() as group:
            for i, arrival in enumerate(arrivals):
                await asyncio.sleep(max(0.0, arrival.due_s - self._now()))
                records.append(Record(arrival.due_s))
                group.create_task(self._request(arrival, records[-1], f"{name}-{i}"))
        cpu_share = (time.thread_time() - cpu_start) / self._now()
        return Run(rate, records, cpu_share)

    def _now(self) -> float:
        return time.perf_counter() - self._start

    async def _request(self, arrival: Arrival, record: Record, request_id: str) -> None:
        config = GenerationConfig(
            temperature=0.0,
            max_tokens=arrival.max_tokens,
            debug_config=DebugConfig(ignore_eos=True),
        )
        record.sent_s = self._now()
        try:
            async for (output,) in self._engine._generate(arrival.prompt, config, request_id):
                if output.request_final_usage_json_str is not None:
                    usage = json.loads(output.request_final_usage_json_str)
                    record.queue_s = usage["extra"]["queue_time_s"]
                elif output.delta_token_ids:
                    record.output_s.append(self._now())
                    record.output_tokens.append(len(output.delta_token_ids))
        except EngineRequestError as error:
            record.error = str(error)
        self._on_done()


def summarize(run: Run) -> dict[str, Any]:
    """Throughput and distributions of a run, as JSON has them; times in seconds."""
    served = [r for r in run.records if not r.error and r.output_s]
    first = min((r.due_s for r in run.records), default=0.0)
    seconds = max((r.output_s[-1] for r in served), default=0.0) - first
    tokens = sum(sum(r.output_tokens) for r in served)
    return {
        "rate": run.rate if math.isfinite(run.rate) else "inf",
        "requests": len(run.records),
        "failed": len(run.records) - len(served),
        "seconds": seconds,
        "output_tokens": tokens,
        "requests_per_s": len(served) / seconds if served else 0.0,
        "output_tokens_per_s": tokens / seconds if served else 0.0,
        "ttft_s": distribution([r.output_s[0] - r.due_s for r in served]),
        "inter_token_s": distribution([gap for r in served for gap in r.inter_token_s()]),
        "end_to_end_s": distribution([r.output_s[-1] - r.due_s for r in served]),
        "queue_s": distribution([r.queue_s for r in served]),
        "generator_late_s": distribution([r.sent_s - r.due_s for r in run.records]),
        "generator_cpu_share": run.cpu_share,
    }


def distribution(values: Sequence[float]) -> dict[str, float]:
    """Mean, percentiles and largest value; empty for no values."""
    if not values:
        return {}
    cuts = np.percentile(values, PERCENTILES)
    named = {f"p{p}": float(cut) for p, cut in zip(PERCENTILES, cuts, strict=True)}
    return {"mean": float(np.mean(values)), **named, "max": float(np.max(values))}
