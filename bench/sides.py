"""The two sides that benchmarks compare, this engine and `transformers`, and their timing."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import transformers
from common import engine_config
from machine import provenance
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from mlc_native import SyncMLCEngine
from mlc_native.protocol.debug_protocol import DebugConfig
from mlc_native.protocol.generation_config import GenerationConfig


class Side(Protocol):
    """Something that generates exactly `max_tokens` greedy tokens per prompt."""

    name: str

    def generate(self, prompts: list[list[int]], max_tokens: int) -> None: ...


@dataclass(frozen=True)
class Row:
    """A measurement: `batch` prompts of random tokens, and the tokens generated for each."""

    label: str
    batch: int
    prompt_len: int
    new_tokens: int

    def tokens_per_s(self, side: Side, prompts: list[list[int]]) -> float:
        """Measures the tokens after the first, or the prompts if only one token is generated."""
        first = seconds(side, prompts, 1)
        if self.new_tokens == 1:
            return self.batch * self.prompt_len / first
        whole = seconds(side, prompts, self.new_tokens)
        return self.batch * (self.new_tokens - 1) / (whole - first)


class Ours:
    """The engine, stepped by this thread, with room for the largest of `rows`."""

    def __init__(
        self,
        path: str,
        args: argparse.Namespace,
        rows: list[Row],
        name: str = "mlc_native",
    ) -> None:
        self.name = name
        batch = max(row.batch for row in rows)
        longest = max(row.prompt_len + row.new_tokens for row in rows) + 16
        config = engine_config(
            args,
            max_num_sequence=batch,
            max_total_sequence_length=batch * (longest + 16),
            max_single_sequence_length=longest,
            prefill_chunk_size=max(row.prompt_len for row in rows),
            prefix_cache_mode="disable",
        )
        self.engine = SyncMLCEngine(
            path, device=args.device, model_lib=args.model_lib, engine_config=config
        )

    def generate(self, prompts: list[list[int]], max_tokens: int) -> None:
        config = GenerationConfig(
            temperature=0.0, max_tokens=max_tokens, debug_config=DebugConfig(ignore_eos=True)
        )
        self.engine.generate(prompts, config)

    def debug(self, name: str) -> dict[str, Any]:
        """The result of a debug call."""
        answer: dict[str, Any] = json.loads(self.engine._core.debug_call(name))
        return answer


class Transformers:
    """`generate` of the same checkpoint in `dtype`."""

    def __init__(self, path: str, dtype: str, threads: int, device: str = "cpu") -> None:
        self.name = f"transformers {dtype}"
        torch.set_num_threads(threads)
        model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype))
        self.model = model.to(device).eval()

    @torch.inference_mode()
    def generate(self, prompts: list[list[int]], max_tokens: int) -> None:
        ids = torch.tensor(prompts, device=self.model.device)
        self.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            min_new_tokens=max_tokens,
            max_new_tokens=max_tokens,
        ).cpu()


def seconds(side: Side, prompts: list[list[int]], max_tokens: int) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    side.generate(prompts, max_tokens)
    return time.perf_counter() - start


def measure(
    sides: list[Side], row: Row, prompts: list[list[int]], repeats: int
) -> dict[str, list[float]]:
    """Tokens/s of each round by side, after a warm-up; every other round runs in reverse."""
    rates: dict[str, list[float]] = {side.name: [] for side in sides}
    for side in sides:
        side.generate(prompts, min(row.new_tokens, 2))
    for i in tqdm(range(repeats), desc=row.label, leave=False, disable=None):
        for side in sides if i % 2 == 0 else reversed(sides):
            rates[side.name].append(row.tokens_per_s(side, prompts))
    return rates


def cells(rates: dict[str, list[float]]) -> list[str]:
    """Median (smallest .. largest) of each side, and the ratio of the first side to it."""
    ours, *_ = rates.values()
    out = []
    for side in rates.values():
        ratio = statistics.median(a / b for a, b in zip(ours, side, strict=True))
        spread = f"{statistics.median(side):.1f} ({min(side):.1f} .. {max(side):.1f})"
        out.append(spread if side is ours else f"{spread}, {ratio:.2f} x")
    return out


def report(
    title: str, sides: list[Side], results: dict[str, dict[str, list[float]]], out: Path | None
) -> None:
    """Prints the table of all rows, and writes every round's figures to `out`."""
    table = Table("tokens/s", title=title)
    for side in sides:
        table.add_column(side.name, justify="right")
    for label, rates in results.items():
        table.add_row(label, *cells(rates))
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    if out is not None:
        out.write_text(json.dumps(provenance() | {"tokens_per_s": results}, indent=1) + "\n")
