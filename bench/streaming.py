"""Measures the tokens per second that reach Python through AsyncMLCEngine, and their CPU time.

    python bench/streaming.py [--streams 64] [--tokens 2000] [--api completions|generate]

The fake model of the tests takes no time, so this measures everything else: the engine's step,
detokenization, the stream bridge, the event loop and the OpenAI objects. The CPU share of each
thread during the run (1.00 is one core) comes from /proc/self/task.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python"))
from fake_model import find_fake_model_lib, write_model
from machine import cpu_name

from mlc_native import AsyncMLCEngine, EngineConfig
from mlc_native.protocol.debug_protocol import DebugConfig
from mlc_native.protocol.generation_config import GenerationConfig

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def thread_cpu_s(native_id: int) -> float:
    """User and system time of a thread, in seconds."""
    stat = Path(f"/proc/self/task/{native_id}/stat").read_text()
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def all_threads() -> dict[str, int]:
    """Name and native id of the threads known to Python."""
    return {thread.name: thread.native_id or 0 for thread in threading.enumerate()}


async def consume_completion(engine: AsyncMLCEngine, prompt: str, num_tokens: int) -> int:
    """One stream of the OpenAI interface; returns its number of chunks."""
    stream = await engine.completions.create(
        prompt=prompt, max_tokens=num_tokens, stream=True, extra_body={"ignore_eos": True}
    )
    num_chunks = 0
    async for _ in stream:
        num_chunks += 1
    return num_chunks


async def consume_outputs(engine: AsyncMLCEngine, prompt: str, num_tokens: int) -> int:
    """One stream of raw outputs; returns the number of outputs."""
    config = GenerationConfig(max_tokens=num_tokens, debug_config=DebugConfig(ignore_eos=True))
    num_outputs = 0
    async for _ in engine._generate(prompt, config, prompt):
        num_outputs += 1
    return num_outputs


async def run_once(engine: AsyncMLCEngine, args: argparse.Namespace, run: int) -> dict[str, Any]:
    """All streams at once; figures of this run."""
    consume = consume_completion if args.api == "completions" else consume_outputs
    cpu_before = {name: thread_cpu_s(native_id) for name, native_id in all_threads().items()}
    start = time.perf_counter()
    num_chunks = await asyncio.gather(
        *(consume(engine, f"run {run}, stream {i}", args.tokens) for i in range(args.streams))
    )
    seconds = time.perf_counter() - start
    shares = {
        name: (thread_cpu_s(native_id) - cpu_before[name]) / seconds
        for name, native_id in all_threads().items()
        if name in cpu_before
    }
    num_tokens = args.streams * args.tokens
    return {
        "tokens_per_s": num_tokens / seconds,
        "tokens_per_chunk": num_tokens / sum(num_chunks),
        "engine": shares["mlc-native-background"],
        "stream-back": shares["mlc-native-stream-back"],
        "event loop": shares["MainThread"],
    }


async def run_all(args: argparse.Namespace, model: str) -> list[dict[str, Any]]:
    """The runs, after one that is not counted."""
    config = EngineConfig(
        max_num_sequence=args.streams,
        max_total_sequence_length=args.streams * (args.tokens + 64),
        max_single_sequence_length=args.tokens + 64,
        verbose=False,
    )
    engine = AsyncMLCEngine(
        model, model_lib=find_fake_model_lib(), mode="server", engine_config=config
    )
    async with engine:
        return [await run_once(engine, args, run) for run in range(args.repeats + 1)][1:]


def main() -> None:
    """Prints the medians of all runs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=2000, help="per stream")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--api", choices=["completions", "generate"], default="completions")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(
            Path(folder) / "model",
            context_window_size=args.tokens + 64,
            max_batch_size=args.streams,
            kv_bytes_per_token=4,
            history_window=1,
        )
        runs = asyncio.run(run_all(args, model))
    print(f"{args.streams} streams x {args.tokens} tokens, {args.api}, median of {len(runs)} runs")
    print(f"{cpu_name()}, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
    for name in runs[0]:
        values = [run[name] for run in runs]
        unit = "  (CPU share of the thread)" if "token" not in name else ""
        median = statistics.median(values)
        print(f"{name:18} {median:12.2f}   {min(values):12.2f} .. {max(values):.2f}{unit}")


if __name__ == "__main__":
    main()
