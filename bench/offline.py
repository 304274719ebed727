"""Tokens per second of a checkpoint, beside `transformers` in the same run.

    python bench/offline.py --like qwen3-0.6b --dtype bfloat16 --threads 2
    python bench/offline.py --like qwen3-0.6b --quantization q8 --against float32 --json out.json

In each of `--repeats` rounds all sides run in turn, every other round in reverse. Figures are
medians with the smallest and the largest; a ratio is the median of the rounds' ratios. `prefill`
counts prompt tokens per second of a call that generates one token. `decode` counts the tokens after
the first: what a call with `--new-tokens` takes longer than one that generates a single token.
Weights and prompts are fixed by the seed; the prefix cache is off. For the share of the machine's
limit see end_to_end.cc.
"""

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
from common import (
    add_model_arguments,
    describe_model,
    engine_config,
    model_folder,
    random_prompts,
)
from machine import provenance
from rich.console import Console
from rich.table import Table
from tqdm import tqdm
from transformers.utils import logging as transformers_logging

from mlc_native import SyncMLCEngine
from mlc_native.protocol.debug_protocol import DebugConfig
from mlc_native.protocol.generation_config import GenerationConfig

PROMPT_LEN = 8  # tokens before a decode row
PREFILL_LEN = 512  # tokens of the prefill row


class Side(Protocol):
    """Something that generates exactly `max_tokens` greedy tokens per prompt."""

    name: str

    def generate(self, prompts: list[list[int]], max_tokens: int) -> None: ...


class Ours:
    """The engine, stepped by this thread."""

    name = "mlc_native"

    def __init__(self, path: str, args: argparse.Namespace) -> None:
        longest = max(PREFILL_LEN + 16, PROMPT_LEN + args.new_tokens)
        config = engine_config(
            args,
            max_num_sequence=max([1, *args.batches]),
            max_total_sequence_length=max([1, *args.batches]) * (longest + 16),
            max_single_sequence_length=longest,
            prefill_chunk_size=PREFILL_LEN,
            prefix_cache_mode="disable",
        )
        self.engine = SyncMLCEngine(path, device="cpu", engine_config=config)

    def generate(self, prompts: list[list[int]], max_tokens: int) -> None:
        config = GenerationConfig(
            temperature=0.0, max_tokens=max_tokens, debug_config=DebugConfig(ignore_eos=True)
        )
        self.engine.generate(prompts, config)


class Transformers:
    """`generate` of the same checkpoint in `dtype`."""

    def __init__(self, path: str, dtype: str, threads: int) -> None:
        self.name = f"transformers {dtype}"
        torch.set_num_threads(threads)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            path, dtype=getattr(torch, dtype)
        ).eval()

    @torch.inference_mode()
    def generate(self, prompts: list[list[int]], max_tokens: int) -> None:
        ids = torch.tensor(prompts)
        self.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            min_new_tokens=max_tokens,
            max_new_tokens=max_tokens,
        )


@dataclass(frozen=True)
class Row:
    """What is measured: `batch` prompts of random tokens, and the tokens generated for each."""

    label: str
    batch: int
    prompt_len: int
    new_tokens: int

    def tokens_per_s(self, side: Side, prompts: list[list[int]]) -> float:
        """One measurement."""
        first = seconds(side, prompts, 1)
        if self.new_tokens == 1:
            return self.batch * self.prompt_len / first
        whole = seconds(side, prompts, self.new_tokens)
        return self.batch * (self.new_tokens - 1) / (whole - first)


def seconds(side: Side, prompts: list[list[int]], max_tokens: int) -> float:
    start = time.perf_counter()
    side.generate(prompts, max_tokens)
    return time.perf_counter() - start


def measure(
    sides: list[Side], row: Row, prompts: list[list[int]], repeats: int
) -> dict[str, list[float]]:
    """Tokens/s of each round by side, after a warm-up of one token each."""
    rates: dict[str, list[float]] = {side.name: [] for side in sides}
    for side in sides:
        side.generate(prompts, 1)
    for i in tqdm(range(repeats), desc=row.label, leave=False, disable=None):
        for side in sides if i % 2 == 0 else reversed(sides):
            rates[side.name].append(row.tokens_per_s(side, prompts))
    return rates


def cells(rates: dict[str, list[float]]) -> list[str]:
    """Median (smallest .. largest) of each side, and the ratio of ours to it."""
    ours, *_ = rates.values()
    out = []
    for side in rates.values():
        ratio = statistics.median(a / b for a, b in zip(ours, side, strict=True))
        spread = f"{statistics.median(side):.1f} ({min(side):.1f} .. {max(side):.1f})"
        out.append(spread if side is ours else f"{spread}, {ratio:.2f} x")
    return out


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_model_arguments(parser, like="qwen3-0.6b")
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 16])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--against",
        nargs="*",
        default=["bfloat16", "float32"],
        choices=["bfloat16", "float16", "float32"],
        help="what `transformers` computes in; none: only this engine",
    )
    parser.add_argument("--json", type=Path, help="write every round's figures here")
    args = parser.parse_args(argv)
    if args.new_tokens < 2:
        parser.error("--new-tokens must be at least 2")
    return args


def main(argv: list[str] | None = None) -> None:
    """Measures row by row and prints the table."""
    args = parse_args(argv)
    transformers_logging.disable_progress_bar()
    rows = [Row(f"decode batch {b}", b, PROMPT_LEN, args.new_tokens) for b in args.batches]
    rows.append(Row(f"prefill {PREFILL_LEN}", 1, PREFILL_LEN, 1))
    results: dict[str, Any] = {}
    with model_folder(args) as path:
        sides: list[Side] = [Ours(path, args)]
        sides += [Transformers(path, dtype, args.threads) for dtype in args.against]
        vocab_size = transformers.AutoConfig.from_pretrained(path).vocab_size
        for row in rows:
            prompts = random_prompts(row.batch, row.prompt_len, vocab_size, args.seed)
            results[row.label] = measure(sides, row, prompts, args.repeats)
    table = Table(
        "tokens/s", title=f"{describe_model(args)}, median of {args.repeats} (smallest .. largest)"
    )
    for side in sides:
        table.add_column(side.name, justify="right")
    for label, rates in results.items():
        table.add_row(label, *cells(rates))
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    if args.json is not None:
        out = provenance() | {"tokens_per_s": results}
        args.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
