"""Parts that the Python benchmarks share: the model to measure and its settings."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from machine import ROOT

import mlc_native
from mlc_native.serve.config import EngineConfig

sys.path.insert(0, str(ROOT / "tools"))
from make_random_checkpoint import make_checkpoint
from model_shapes import SHAPES
from random_weights import DTYPES

DEMO = Path(mlc_native.__file__).parent / "demo_model"


def add_model_arguments(parser: argparse.ArgumentParser, like: str | None = None) -> None:
    """Adds --model, --like (with `like` as the default shape) and the settings of the engine."""
    parser.add_argument("--model", help='checkpoint folder, or "demo" for the packaged model')
    parser.add_argument(
        "--like",
        default=like,
        choices=list(SHAPES),
        help="instead of --model: the shape of a checkpoint with random weights",
    )
    parser.add_argument("--dtype", default="auto", choices=["auto", *DTYPES])
    parser.add_argument("--quantization", choices=["q8", "q4"])
    parser.add_argument(
        "--kv-cache-dtype", default="auto", choices=["auto", *DTYPES, "int8", "float8"]
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="cpu", help="auto, cpu or cuda[:i]")
    parser.add_argument("--model-lib", help="plug-in library that creates the model")
    parser.add_argument("--seed", type=int, default=0)


@contextmanager
def model_folder(args: argparse.Namespace) -> Iterator[str]:
    """The checkpoint to measure. One with random weights exists only within the context."""
    if args.model is not None or args.like is None:
        yield str(DEMO) if args.model in (None, "demo") else args.model
        return
    with tempfile.TemporaryDirectory() as folder:
        stored = "bfloat16" if args.dtype == "auto" else args.dtype
        yield str(
            make_checkpoint(
                args.like,
                Path(folder) / "model",
                dtype=stored,
                seed=args.seed,
                device=torch_device(args),
            )
        )


def torch_device(args: argparse.Namespace) -> str:
    """The torch device that corresponds to --device; the CPU if torch has no such device."""
    return args.device if args.device != "auto" and torch.cuda.is_available() else "cpu"


def engine_config(args: argparse.Namespace, **settings: Any) -> EngineConfig:
    """The settings of the command line together with those of the benchmark."""
    return EngineConfig(
        dtype=args.dtype,
        quantization=args.quantization,
        kv_cache_dtype=args.kv_cache_dtype,
        num_threads=args.threads,
        verbose=False,
        **settings,
    )


def describe_model(args: argparse.Namespace) -> str:
    """One line with the model, its precision and the device."""
    model = args.model or args.like or "demo"
    weights = args.quantization or args.dtype
    where = f"{args.threads} threads" if args.device == "cpu" else args.device
    return f"{model}, {weights}, KV cache {args.kv_cache_dtype}, {where}"


def random_prompts(count: int, length: int, vocab_size: int, seed: int) -> list[list[int]]:
    """Prompts of `length` token ids, none of them among the first and the last three."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, vocab_size - 3, (count, length), generator=generator).tolist()
