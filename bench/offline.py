"""Measures tokens per second of a checkpoint, and of `transformers` in the same run.

    python bench/offline.py --like qwen3-0.6b --dtype bfloat16 --threads 2
    python bench/offline.py --like qwen3-0.6b --quantization q8 --against float32 --json out.json

In each of `--repeats` rounds all sides run in turn, every other round in reverse. Figures are
medians with the smallest and the largest value; a ratio is the median of the rounds' ratios.
`prefill` is prompt tokens per second of a call that generates one token. `decode` covers the tokens
after the first: its time is that of a call with `--new-tokens` less that of a call that generates
one token. Weights and prompts are fixed by the seed; the prefix cache is off. For the share of the
machine's limit see end_to_end.cc.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import transformers
from common import add_model_arguments, describe_model, model_folder, random_prompts
from sides import Ours, Row, Side, Transformers, measure, report
from transformers.utils import logging as transformers_logging

PROMPT_LEN = 8  # tokens before a decode row
PREFILL_LEN = 512  # tokens of the prefill row


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
        sides: list[Side] = [Ours(path, args, rows)]
        sides += [Transformers(path, dtype, args.threads, args.device) for dtype in args.against]
        vocab_size = transformers.AutoConfig.from_pretrained(path).vocab_size
        for row in rows:
            prompts = random_prompts(row.batch, row.prompt_len, vocab_size, args.seed)
            results[row.label] = measure(sides, row, prompts, args.repeats)
    title = f"{describe_model(args)}, median of {args.repeats} (smallest .. largest)"
    report(title, sides, results, args.json)


if __name__ == "__main__":
    main()
