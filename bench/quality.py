"""Measures the quality of each precision against float32 under `transformers`, as Markdown tables.

    python bench/quality.py                                  # the demo model and random checkpoints
    python bench/quality.py --random --json quality.json     # only the demo model; figures as JSON
    python bench/quality.py --random qwen3-0.6b:28 --no-demo

The demo model is measured on held-out text (its generator with a seed that training never draws; it
asks about the same facts, so this is recall) and on the questions of the tests. Random
checkpoints have a shape and a depth, NAME:LAYERS, float32 weights and one text of random tokens.
They have no redundancy and are the worst case: see bench/results/quality.md. Everything is seeded.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from common import DEMO, make_checkpoint
from fidelity import (
    PRECISIONS,
    Agreement,
    Fidelity,
    Precision,
    Reference,
    Text,
    agree,
    compare,
    greedy_answers,
    held_out_texts,
    logits,
    question_prompts,
    random_texts,
)
from machine import provenance
from tqdm import tqdm
from transformers.utils import logging as transformers_logging

RANDOM = ("tiny-llama", "tiny-gemma2", "qwen3-0.6b:2", "qwen3-0.6b:8", "qwen3-0.6b:28",
          "llama-3.2-1b:2")  # fmt: skip
RANDOM_VOCAB = 4096  # of the real shapes: the logits' error does not depend on it


def add_text_arguments(parser: argparse.ArgumentParser) -> None:
    """What texts are computed, and where the figures go."""
    parser.add_argument("--documents", type=int, default=200, help="held-out texts")
    parser.add_argument("--tokens", type=int, default=256, help="of the random text")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seed", type=int, default=0, help="of random weights and tokens")
    parser.add_argument("--json", type=Path, help="write all figures here")


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--random", nargs="*", default=RANDOM, metavar="NAME[:LAYERS]")
    parser.add_argument("--no-demo", action="store_true")
    parser.add_argument("--precisions", nargs="+", choices=[p.name for p in PRECISIONS])
    add_text_arguments(parser)
    return parser.parse_args(argv)


@contextmanager
def random_checkpoint(name: str, seed: int) -> Iterator[Path]:
    """A checkpoint of NAME[:LAYERS], which exists within the context."""
    like, _, layers = name.partition(":")
    overrides: dict[str, Any] = {"num_hidden_layers": int(layers)} if layers else {}
    if not like.startswith("tiny-"):
        overrides["vocab_size"] = RANDOM_VOCAB
    with tempfile.TemporaryDirectory() as folder:
        yield make_checkpoint(like, Path(folder) / "model", seed=seed, overrides=overrides)


def measure(
    path: Path, precisions: Sequence[Precision], texts: Sequence[Text], args: argparse.Namespace
) -> dict[str, Fidelity]:
    """Figures by precision."""
    reference = Reference(path)
    expected = [reference.logits(text) for text in texts]
    figures = {}
    for precision in tqdm(precisions, desc=path.name, leave=False, disable=None):
        model = precision.model(path, args.threads)
        figures[precision.name] = compare((logits(model, text) for text in texts), expected, texts)
    return figures


def measure_answers(
    precisions: Sequence[Precision], args: argparse.Namespace
) -> dict[str, Agreement]:
    """Greedy answers to the demo model's questions, compared with the reference, by precision."""
    reference, prompts = Reference(DEMO), question_prompts()
    expected = [reference.greedy(prompt) for prompt in prompts]
    return {
        p.name: agree(greedy_answers(p.engine(DEMO, args.threads), prompts), expected)
        for p in precisions
    }


def demo_table(figures: dict[str, Fidelity], answers: dict[str, Agreement]) -> str:
    lines = [
        "| demo model | logits error, 2-norm | largest | same first choice | divergence, nats "
        "| perplexity | equal answers | tokens before a difference |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, f in figures.items():
        a = answers[name]
        lines.append(
            f"| {name} | {f.error:.2%} | {f.max_error:.2%} | {f.top1:.2%} | {f.divergence:.5f} "
            f"| {f.perplexity:.4f} | {a.equal} of {a.answers} | {a.tokens_before} of {a.tokens} |"
        )
    return "\n".join(lines)


def random_table(figures: dict[str, dict[str, Fidelity]]) -> str:
    names = list(next(iter(figures.values())))
    lines = [
        "| random weights, logits error | " + " | ".join(names) + " |",
        "|---|" + "--:|" * len(names),
    ]
    for checkpoint, row in figures.items():
        cells = (f"{f.error:.2%}" for f in row.values())
        lines.append(f"| {checkpoint.replace(':', ', layers: ')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    """Measures, prints tables, writes JSON."""
    args = parse_args(argv)
    transformers_logging.disable_progress_bar()
    precisions = [p for p in PRECISIONS if args.precisions is None or p.name in args.precisions]
    out: dict[str, Any] = provenance()
    if not args.no_demo:
        figures = measure(DEMO, precisions, held_out_texts(args.documents), args)
        answers = measure_answers(precisions, args)
        print(demo_table(figures, answers) + "\n", flush=True)
        out["demo"] = {name: asdict(f) | asdict(answers[name]) for name, f in figures.items()}
    of_random = {}
    for name in args.random:
        with random_checkpoint(name, args.seed) as path:
            texts = random_texts(path, args.tokens, args.seed)
            of_random[name] = measure(path, precisions, texts, args)
    if of_random:
        print(random_table(of_random))
        out["random"] = {
            name: {precision: asdict(f) for precision, f in row.items()}
            for name, row in of_random.items()
        }
    if args.json is not None:
        args.json.write_text(json.dumps(out, indent=1) + "\n")
        print(f"figures: {args.json}", file=sys.stderr)


if __name__ == "__main__":
    main()
