"""What adapters (LoRA) cost: tokens per second without any, with one, and with one each.

    python bench/adapters.py --like qwen3-0.6b --quantization q8 --threads 2 [--rank 16] [--json F]

One engine has all adapters; in each of `--repeats` rounds all sides run in turn, every other round
in reverse. `none` are requests for the model alone, `one` share an adapter, and of `each` every
sequence has another one. Adapters change all seven linears of each layer. Figures are medians with
the smallest and the largest value; a ratio is `none` over the side, as the median of the rounds'
ratios. `prefill` is prompt tokens per second, `decode` covers the tokens after the first.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import transformers
from common import add_model_arguments, describe_model, model_folder, random_prompts
from machine import ROOT
from sides import Ours, Row, Side, measure, report

from mlc_native import SyncMLCEngine
from mlc_native.protocol.debug_protocol import DebugConfig
from mlc_native.protocol.generation_config import GenerationConfig

sys.path.insert(0, str(ROOT / "tools"))
from make_random_adapter import write_adapter

PROMPT_LEN = 64  # tokens before a decode row
PREFILL_LEN = 512  # tokens of the prefill row


class WithAdapters:
    """The engine with these adapters, one after the other; "" is the model alone."""

    def __init__(self, name: str, engine: SyncMLCEngine, adapters: list[str]) -> None:
        self.name = name
        self.engine = engine
        self.adapters = adapters

    def generate(self, prompts: list[list[int]], max_tokens: int) -> None:
        configs = [
            GenerationConfig(
                temperature=0.0,
                max_tokens=max_tokens,
                adapter=self.adapters[i % len(self.adapters)],
                debug_config=DebugConfig(ignore_eos=True),
            )
            for i in range(len(prompts))
        ]
        self.engine.generate(prompts, configs)


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_model_arguments(parser, like="qwen3-0.6b")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 4, 16])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write every round's figures here")
    args = parser.parse_args(argv)
    if args.new_tokens < 2:
        parser.error("--new-tokens must be at least 2")
    return args


def main(argv: list[str] | None = None) -> None:
    """Measures row by row and prints the table."""
    args = parse_args(argv)
    rows = [Row(f"decode batch {b}", b, PROMPT_LEN, args.new_tokens) for b in args.batches]
    rows.append(Row(f"prefill {PREFILL_LEN}", 1, PREFILL_LEN, 1))
    results: dict[str, Any] = {}
    with model_folder(args) as path, tempfile.TemporaryDirectory() as folder:
        engine = Ours(path, args, rows).engine
        names = [f"a{i}" for i in range(max(args.batches))]
        for i, name in enumerate(names):
            adapter = write_adapter(Path(folder) / name, Path(path), seed=i, r=args.rank)
            engine.load_adapter(name, adapter)
        megabytes = sum(info.num_bytes for info in engine.adapters()) / len(names) / 1e6
        sides: list[Side] = [
            WithAdapters("none", engine, [""]),
            WithAdapters("one", engine, names[:1]),
            WithAdapters("each", engine, names),
        ]
        vocab_size = transformers.AutoConfig.from_pretrained(path).vocab_size
        for row in rows:
            prompts = random_prompts(row.batch, row.prompt_len, vocab_size, args.seed)
            results[row.label] = measure(sides, row, prompts, args.repeats)
    title = (
        f"{describe_model(args)}, rank {args.rank}, {megabytes:.1f} MB each, "
        f"median of {args.repeats} (smallest .. largest)"
    )
    report(title, sides, results, args.json)


if __name__ == "__main__":
    main()
