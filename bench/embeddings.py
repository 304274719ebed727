"""Texts to embed: tokens per second, beside transformers.

    python bench/embeddings.py --like qwen3-0.6b --dtype bfloat16 --threads 2 [--json F]
    python bench/embeddings.py --quantization q8 --without-transformers

In each of `--repeats` rounds all sides run in turn, every other round in reverse. `last` and `mean`
are the engine with each pooling, and `prompts` is the same engine answering the texts with one
token each, which needs logits (not of models that only embed). transformers computes a padded batch
without a head and takes the last rows. All texts of a row have the same length, so no side pads.
Figures are medians with the smallest and the largest value; a ratio is `last` over the side.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
import transformers
from common import add_model_arguments, describe_model, engine_config, model_folder, random_prompts
from sides import Row, Side, measure, report

from mlc_native import MLCEngine, inspect_model
from mlc_native.protocol.debug_protocol import DebugConfig

ROWS = ((1, 16), (1, 128), (1, 512), (16, 16), (64, 16), (16, 128), (64, 128))  # texts, tokens each


class Embedder:
    """The engine with one way of pooling."""

    def __init__(self, engine: MLCEngine, pooling: Any) -> None:
        self.name = str(pooling)
        self._engine = engine
        self._pooling = pooling

    def generate(self, prompts: list[list[int]], max_tokens: int) -> None:
        del max_tokens
        self._engine.embeddings.create(
            input=prompts, pooling=self._pooling, encoding_format="base64"
        )


class Answering:
    """The engine with an answer of one token for each text."""

    name = "prompts"

    def __init__(self, engine: MLCEngine) -> None:
        self._engine = engine

    def generate(self, prompts: list[list[int]], max_tokens: int) -> None:
        self._engine.completions.create(
            prompt=prompts,
            max_tokens=max_tokens,
            temperature=0,
            extra_body={"debug_config": DebugConfig(ignore_eos=True)},
        )


class TorchEmbedder:
    """The decoder of transformers."""

    def __init__(self, path: str, dtype: str, threads: int) -> None:
        self.name = f"transformers {dtype}"
        torch.set_num_threads(threads)
        self._model = transformers.AutoModel.from_pretrained(path, dtype=getattr(torch, dtype))
        self._model.eval()

    @torch.inference_mode()
    def generate(self, prompts: list[list[int]], max_tokens: int) -> None:
        del max_tokens
        ids = torch.tensor(prompts)
        states = self._model(ids, use_cache=False).last_hidden_state[:, -1].float()
        torch.nn.functional.normalize(states, dim=-1).tolist()


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_model_arguments(parser, like="qwen3-0.6b")
    parser.add_argument("--without-transformers", action="store_true")
    parser.add_argument("--rows", help='such as "1x16,64x128" (texts x tokens)')
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write every round's figures here")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Measures row by row and prints the table."""
    args = parse_args(argv)
    sizes = ROWS
    if args.rows:
        sizes = tuple(tuple(map(int, each.split("x"))) for each in args.rows.split(","))
    rows = [Row(f"{batch} of {length}", batch, length, 1) for batch, length in sizes]
    results: dict[str, Any] = {}
    with model_folder(args) as path:
        device, library = args.device, args.model_lib
        settings = transformers.AutoConfig.from_pretrained(path)
        decoder = inspect_model(path)["decoder"]
        embeds_only = "attends_in_both_directions" in decoder
        longest = max(row.prompt_len for row in rows) + (0 if embeds_only else 16)
        config = engine_config(
            args,
            max_num_sequence=64,
            max_total_sequence_length=64 * (longest + 16),
            max_single_sequence_length=longest,
            prefill_chunk_size=2048,
            prefix_cache_mode="disable",
        )
        with MLCEngine(path, device=device, model_lib=library, engine_config=config) as engine:
            sides: list[Side] = [Embedder(engine, "last"), Embedder(engine, "mean")]
            if not embeds_only:
                sides.append(Answering(engine))
            if not args.without_transformers:
                sides.append(TorchEmbedder(path, args.dtype, args.threads))
            for row in rows:
                prompts = random_prompts(row.batch, row.prompt_len, settings.vocab_size, args.seed)
                results[row.label] = measure(sides, row, prompts, args.repeats)
    title = f"{describe_model(args)}, median of {args.repeats} (smallest .. largest)"
    report(title, sides, results, args.json)


if __name__ == "__main__":
    main()
