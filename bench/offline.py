"""Tokens per second of a random checkpoint of a real shape, beside `transformers` in the same run.

    python bench/offline.py --like qwen3-0.6b --dtype bfloat16 --threads 2

For each row both sides run in turn, `--repeats` times; figures are medians. `prefill` counts prompt
tokens per second of a call that generates one token. `decode` counts the tokens after the first:
what a call with `--new-tokens` takes longer than one that generates a single token. Weights,
prompts and the order of runs are fixed by the seed.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers

from mlc_native import SyncMLCEngine
from mlc_native.protocol.debug_protocol import DebugConfig
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.serve.config import EngineConfig

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from make_random_checkpoint import make_checkpoint

PROMPT_LEN = 8  # tokens before a decode row
PREFILL_LEN = 512  # tokens of the prefill row


def random_prompts(batch: int, length: int, vocab_size: int, seed: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, vocab_size - 3, (batch, length), generator=generator).tolist()


class Ours:
    name = "mlc_native"

    def __init__(self, path: str, dtype: str, threads: int) -> None:
        config = EngineConfig(
            dtype=dtype,
            num_threads=threads,
            max_num_sequence=16,
            max_total_sequence_length=16384,
            max_single_sequence_length=1024,
            prefill_chunk_size=PREFILL_LEN,
            verbose=False,
        )
        self.engine = SyncMLCEngine(path, device="cpu", engine_config=config)

    def generate(self, prompts: list[list[int]], max_tokens: int) -> None:
        config = GenerationConfig(
            temperature=0.0, max_tokens=max_tokens, debug_config=DebugConfig(ignore_eos=True)
        )
        self.engine.generate(prompts, config)


class Transformers:
    name = "transformers"

    def __init__(self, path: str, dtype: str, threads: int) -> None:
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


def seconds(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compare(
    sides: list[Ours | Transformers], prompts: list[list[int]], max_tokens: int, repeats: int
) -> list[float]:
    """Median seconds of each side, runs interleaved, after one warm-up of one token each."""
    times: list[list[float]] = [[] for _ in sides]
    for side in sides:
        side.generate(prompts, 1)
    for _ in range(repeats):
        for side, taken in zip(sides, times, strict=True):
            taken.append(seconds(lambda: side.generate(prompts, max_tokens)))  # noqa: B023
    return [statistics.median(taken) for taken in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--like", default="qwen3-0.6b", help="shape of the random checkpoint")
    parser.add_argument("--model", help="an existing checkpoint folder instead of --like")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 16])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        path = args.model or str(Path(folder) / "model")
        if args.model is None:
            make_checkpoint(args.like, path, dtype=args.dtype, seed=args.seed)
        sides: list[Ours | Transformers] = [
            Ours(path, args.dtype, args.threads),
            Transformers(path, args.dtype, args.threads),
        ]
        vocab_size = transformers.AutoConfig.from_pretrained(path).vocab_size
        print(
            f"{args.model or args.like} {args.dtype}, {args.threads} threads, "
            f"{platform.processor() or platform.machine()}, torch {torch.__version__}, "
            f"transformers {transformers.__version__}, median of {args.repeats}"
        )
        print(f"{'row':<16}{'mlc_native':>14}{'transformers':>14}{'ratio':>8}   tokens/s")
        rows = [(f"decode batch {b}", b, PROMPT_LEN, args.new_tokens) for b in args.batches]
        rows.append((f"prefill {PREFILL_LEN}", 1, PREFILL_LEN, 1))
        for label, batch, prompt_len, new_tokens in rows:
            prompts = random_prompts(batch, prompt_len, vocab_size, args.seed)
            taken = compare(sides, prompts, 1, args.repeats)
            counted = batch * prompt_len
            if new_tokens > 1:
                whole = compare(sides, prompts, new_tokens, args.repeats)
                taken = [w - first for w, first in zip(whole, taken, strict=True)]
                counted = batch * (new_tokens - 1)
            ours, theirs = taken
            print(
                f"{label:<16}{counted / ours:>14.1f}{counted / theirs:>14.1f}{theirs / ours:>8.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
