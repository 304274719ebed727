"""Measures how much of its speed a Python thread keeps while the engine streams.

    python bench/gil.py [--pairs 10] [--streams 16] [--us-per-step 1000]

A thread counts in a loop. Its rate is measured for `--seconds` with the engine idle, and for the
same time with running streams (fake model, which sleeps for 1 ms per step). Each pair gives one
ratio. An event loop on another thread of the same process consumes the streams.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python"))
from fake_model import find_fake_model_lib, write_model
from streaming import thread_cpu_s

from mlc_native import AsyncMLCEngine, EngineConfig


class Counter:
    """A thread that counts as fast as Python can."""

    def __init__(self) -> None:
        self.count = 0
        self._stop = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop:
            self.count += 1

    def rate(self, seconds: float) -> float:
        """Counts per second over the next `seconds`."""
        count, start = self.count, time.perf_counter()
        time.sleep(seconds)
        return (self.count - count) / (time.perf_counter() - start)

    def stop(self) -> None:
        """Ends the thread."""
        self._stop = True
        self._thread.join()


class Streams:
    """Streams that run until they are aborted, and the event loop thread that consumes them."""

    def __init__(self, engine: AsyncMLCEngine, num_streams: int) -> None:
        self._engine = engine
        self._num_streams = num_streams
        self.num_chunks = 0
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="event loop", daemon=True).start()

    async def _consume(self, i: int) -> None:
        stream = await self._engine.completions.create(
            prompt=f"stream {i}", stream=True, extra_body={"ignore_eos": True}
        )
        async for _ in stream:
            self.num_chunks += 1

    async def _start(self) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._consume(i)) for i in range(self._num_streams)]

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def start(self) -> list[asyncio.Task[None]]:
        """Starts all streams."""
        return asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()

    def end(self, tasks: list[asyncio.Task[None]]) -> None:
        """Aborts them."""
        asyncio.run_coroutine_threadsafe(self._end(tasks), self._loop).result()


def measure_pair(
    counter: Counter, streams: Streams, seconds: float
) -> tuple[float, float, dict[str, float]]:
    """Rates with the engine idle and busy, and the CPU shares of the streaming threads."""
    idle = counter.rate(seconds)
    tasks = streams.start()
    time.sleep(0.1)  # prefill is over
    before, start = streaming_cpu_s(), time.perf_counter()
    busy = counter.rate(seconds)
    seconds = time.perf_counter() - start
    after = streaming_cpu_s()
    streams.end(tasks)
    return idle, busy, {name: (after[name] - before[name]) / seconds for name in after}


def streaming_cpu_s() -> dict[str, float]:
    """CPU time of the stream-back thread and the event loop, the threads that take the GIL."""
    threads = {thread.name: thread.native_id or 0 for thread in threading.enumerate()}
    return {name: thread_cpu_s(threads[name]) for name in ("mlc-native-stream-back", "event loop")}


def main() -> None:
    """Prints the ratio of each pair and their median."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--us-per-step", type=int, default=1000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(
            Path(folder) / "model",
            context_window_size=1 << 20,
            max_batch_size=args.streams,
            kv_bytes_per_token=4,
            history_window=1,
            us_per_step=args.us_per_step,
            cost="sleep",
        )
        config = EngineConfig(
            max_num_sequence=args.streams,
            max_total_sequence_length=args.streams << 14,
            max_single_sequence_length=1 << 14,
            verbose=False,
        )
        engine = AsyncMLCEngine(
            model, model_lib=find_fake_model_lib(), mode="server", engine_config=config
        )
        counter, streams = Counter(), Streams(engine, args.streams)
        print(f"{args.streams} streams, {args.us_per_step} us per step, {os.cpu_count()} cores")
        ratios = []
        for i in range(args.pairs):
            steps = engine._query_metrics()["num_steps"]
            idle, busy, shares = measure_pair(counter, streams, args.seconds)
            steps = engine._query_metrics()["num_steps"] - steps
            ratios.append(busy / idle)
            print(
                f"pair {i}: idle {idle / 1e6:.2f} M/s, busy {busy / 1e6:.2f} M/s, "
                f"ratio {ratios[-1]:.3f}, engine steps {steps}, CPU "
                + ", ".join(f"{name} {share:.3f}" for name, share in shares.items()),
                flush=True,
            )
        counter.stop()
        engine.terminate()
    print(f"median ratio {statistics.median(ratios):.3f}, lowest {min(ratios):.3f}")


if __name__ == "__main__":
    main()
