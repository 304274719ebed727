"""Measures what prompt_logprobs cost: the prefill, and the longest pause of an event loop.

    python bench/prompt_logprobs.py [--model demo] [--tokens 512] [--chunks 64 256 2048]
    python bench/prompt_logprobs.py --loop-tokens 8192

Prefill: the CPU time of one request for one token, without the prefix cache, by turns with and
without the scores of its prompt; medians. With one thread on an idle machine it is the wall time.
Event loop: a task that only wakes up all the time, while
AsyncMLCEngine answers requests with scored prompts (fake model): its longest pause with and without
them, and the most CPU time that its thread takes between two turns of that task. The latter does
not depend on other programs, the former does.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python"))
from common import add_model_arguments, model_folder
from fake_model import find_fake_model_lib, write_model

from mlc_native import AsyncMLCEngine, EngineConfig, MLCEngine


def seconds_of(engine: MLCEngine, prompt: list[int], num_top: int | None) -> float:
    """The CPU time of a request for one token."""
    extra = {} if num_top is None else {"extra_body": {"prompt_logprobs": num_top}}
    start = time.process_time()
    engine.completions.create(prompt=prompt, max_tokens=1, temperature=0, **extra)
    return time.process_time() - start


def measure_prefill(args: argparse.Namespace, model: str, chunk: int | None) -> None:
    """Prints one row."""
    settings: dict[str, Any] = {"prefill_chunk_size": chunk, "num_threads": args.threads}
    config = EngineConfig(
        **settings,
        max_num_sequence=1,
        max_single_sequence_length=args.tokens + 16,
        max_total_sequence_length=args.tokens + 16,
        prefix_cache_mode="disable",
        verbose=False,
    )
    rng = random.Random(args.seed)
    with MLCEngine(model, args.device, engine_config=config) as engine:
        vocab_size = engine._core.get_request_limits().vocab_size
        size = engine.engine_config.prefill_chunk_size
        times: dict[int | None, list[float]] = {top: [] for top in (None, 0, args.top)}
        for _ in range(args.repeats + 1):  # the first one warms up
            prompt = [rng.randrange(3, vocab_size) for _ in range(args.tokens)]
            for num_top, seconds in times.items():
                seconds.append(seconds_of(engine, prompt, num_top))
    plain, scored, with_top = (statistics.median(seconds[1:]) for seconds in times.values())
    rates = [args.tokens / seconds for seconds in (plain, scored, with_top)]
    print(f"{size:6} {rates[0]:12.0f} {rates[1]:12.0f} {rates[2]:12.0f} {scored / plain:9.2f}x")


async def longest_pause(
    engine: AsyncMLCEngine, arguments: dict[str, Any], repeats: int
) -> tuple[float, float]:
    """The most seconds, of wall and of CPU time, for which the event loop ran nothing else."""
    pauses = [0.0, 0.0]
    done = False

    async def watch() -> None:
        last = time.perf_counter(), time.thread_time()
        while not done:
            await asyncio.sleep(0)
            now = time.perf_counter(), time.thread_time()
            pauses[:] = [max(p, n - b) for p, n, b in zip(pauses, now, last, strict=True)]
            last = now

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    for _ in range(repeats):
        answer: Any = await engine.completions.create(**arguments)
        if arguments["stream"]:
            async for _ in answer:
                pass
    done = True
    await watching
    return pauses[0], pauses[1]


async def measure_loop(args: argparse.Namespace, model: str) -> None:
    """Prints one row per kind of request."""
    length = args.loop_tokens + 16
    config = EngineConfig(
        max_num_sequence=1,
        max_total_sequence_length=length,
        max_single_sequence_length=length,
        prefill_chunk_size=4096,
        verbose=False,
    )
    gc.disable()  # a collection pauses every thread, whatever they do
    async with AsyncMLCEngine(
        model, model_lib=find_fake_model_lib(), engine_config=config
    ) as engine:
        prompt = [ord("a") + i % 26 for i in range(args.loop_tokens)]
        for stream in (False, True):
            for num_top in (None, 0, args.top):
                arguments: dict[str, Any] = {"prompt": prompt, "max_tokens": 1, "stream": stream}
                arguments["extra_body"] = {"prompt_logprobs": num_top}
                wall, cpu = await longest_pause(engine, arguments, args.repeats)
                print(
                    f"stream {stream!s:5}  alternatives {num_top!s:4} "
                    f"{1e3 * wall:8.1f} ms, CPU {1e3 * cpu:6.1f} ms"
                )


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_model_arguments(parser)
    parser.add_argument("--tokens", type=int, default=512, help="of a prompt")
    parser.add_argument("--chunks", type=int, nargs="*", default=[64, 256])
    parser.add_argument("--top", type=int, default=5, help="alternatives")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--loop-tokens", type=int, help="measure the event loop instead")
    args = parser.parse_args()
    if args.loop_tokens is not None:
        with tempfile.TemporaryDirectory() as folder:
            path = write_model(Path(folder) / "model", context_window_size=1 << 16, peak=3)
            asyncio.run(measure_loop(args, str(path)))
        return
    print(f"{'chunk':>6} {'tokens/s':>12} {'scored':>12} {f'top {args.top}':>12} {'time':>10}")
    with model_folder(args) as model:
        for chunk in [*args.chunks, None]:
            measure_prefill(args, model, chunk)


if __name__ == "__main__":
    main()
