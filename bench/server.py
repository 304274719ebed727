"""Measures the HTTP server on the fake model: events per second, CPU per event, first token.

    python bench/server.py [--streams 64] [--tokens 1000] [--us-per-step 2000] [--repeats 3]
    python bench/server.py --slow 200 --streams 16

The server is a process of its own, as `mlc-native serve` starts it; the clients are one loop in
this process, which only counts events. The same requests go in turn to
  server  the HTTP server;
  dummy   the same app in a process of its own, on a generator that has all texts ready: a step is a
          timer of the event loop, so this is what the app and its libraries cost;
  engine  an AsyncMLCEngine of this process (`create(stream=True)`): what HTTP adds is the rest.
An event has all the text that came while the loop was busy, so tokens per event are also printed.
The CPU time is that of the answering process; the clients' is told apart. With --us-per-step 0 the
model costs nothing.

With --slow, the pairs are the streams alone and alongside that many sockets, each of which sends a
request byte by byte; the time between two arrivals of text is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python"))
from fake_model import find_fake_model_lib, write_model
from machine import cpu_name

from mlc_native import AsyncMLCEngine

ROOT = Path(__file__).resolve().parents[1]
DUMMY = ROOT / "bench" / "dummy_server.py"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PATH = "/v1/chat/completions"
SLOW_BYTE_S = 0.05
SLOW_WRITES = 10
NUM_FIRST = 100  # requests, one after the other, for the time to the first token


class Seen:
    """What one stream has shown. Times in seconds."""

    def __init__(self) -> None:
        self.num_events = 0
        self.first_s = 0.0  # from the request to its first text
        self.gaps_s: list[float] = []  # between arrivals of text
        self._last = time.perf_counter()

    def add(self, num_events: int) -> None:
        """Text has arrived in so many events."""
        now = time.perf_counter()
        if self.first_s:
            self.gaps_s.append(now - self._last)
        else:
            self.first_s = now - self._last
        self._last = now
        self.num_events += num_events


Run = Callable[[int], Awaitable[Seen]]  # a stream of so many tokens


def gaps_of(streams: list[Seen]) -> str:
    """Percentiles of the times between arrivals of text."""
    gaps = sorted(gap for seen in streams for gap in seen.gaps_s)
    middle, late = gaps[len(gaps) // 2] * 1e3, gaps[len(gaps) * 99 // 100] * 1e3
    return f"{middle:.2f} ms p50, {late:.2f} ms p99"


@dataclass
class Result:
    """What the streams of one run have done. Times in seconds."""

    seconds: float
    tokens: int
    streams: list[Seen]
    cpu_s: float  # of what answers
    client_cpu_s: float  # of what asks, in another process

    def line(self, name: str) -> str:
        num_events = sum(seen.num_events for seen in self.streams)
        events, tokens = num_events / self.seconds, self.tokens / self.seconds
        rates = f"{events:7.0f} events/s, {tokens:7.0f} tokens/s"
        cpu = f"{1e6 * self.cpu_s / num_events:6.1f} us CPU/event"
        client = f"{1e6 * self.client_cpu_s / num_events:5.1f} us of the clients"
        return f"{name:7} {rates}, {cpu}, {client}, gaps {gaps_of(self.streams)}"


def body(tokens: int) -> dict[str, object]:
    return {
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": tokens,
        "stream": True,
    }


def request_head(length: int) -> bytes:
    """The head of a request with a body of so many bytes."""
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    return (head + f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n").encode()


class Client(asyncio.Protocol):
    """Counts the events of one request over a connection of its own."""

    def __init__(self, tokens: int) -> None:
        data = json.dumps(body(tokens)).encode()
        self._request = request_head(len(data)) + data
        self._seen = Seen()
        self.done: asyncio.Future[Seen] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._seen = Seen()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        num_events = data.count(b"data: ")
        if self._seen.first_s or b'"content":' in data.replace(b'"content":""', b""):
            self._seen.add(num_events)
        else:
            self._seen.num_events += num_events  # the role of the answer

    def connection_lost(self, error: Exception | None) -> None:
        self.done.set_result(self._seen)


async def http_stream(address: tuple[str, int], tokens: int) -> Seen:
    """A request over a connection of its own."""
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(lambda: Client(tokens), *address)
    return await client.done


async def send_slowly(address: tuple[str, int], count: int) -> None:
    """Sockets that send a byte of a request now and then, until this is cancelled."""
    connections = [await asyncio.open_connection(*address) for _ in range(count)]
    data = json.dumps(body(1)).encode()
    request = request_head(len(data)) + data
    try:
        for byte in request[:-1]:
            for i, (_, writer) in enumerate(connections):
                writer.write(bytes([byte]))
                if i % SLOW_WRITES == 0:  # so that the streams of this loop do not wait long
                    await asyncio.sleep(SLOW_BYTE_S * SLOW_WRITES / count)
    finally:
        for _, writer in connections:
            writer.close()


async def compare_slow(args: argparse.Namespace, model: str) -> None:
    with server(*serve_command(model)) as (_, address):
        for _ in range(args.repeats):
            for count in (0, args.slow):
                slow = asyncio.create_task(send_slowly(address, count))
                streams = (http_stream(address, args.tokens) for _ in range(args.streams))
                seen = await asyncio.gather(*streams)
                slow.cancel()
                print(f"{count:4} slow sockets: {gaps_of(seen)}")


async def engine_stream(engine: AsyncMLCEngine, tokens: int) -> Seen:
    """The same with the Python engine."""
    seen = Seen()
    fields = body(tokens)
    stream = await engine.chat.completions.create(**fields)  # type: ignore[arg-type]
    async for _ in stream:
        seen.add(1)
    return seen


def cpu_s(pid: int | str) -> float:
    """User and system time of a process."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


async def measure(run: Run, args: argparse.Namespace, pid: int | None) -> Result:
    """One run of all streams. ``pid``: of the process that answers, unless it is this one."""
    await run(10)
    start, own_start = time.perf_counter(), cpu_s("self")
    cpu_start = own_start if pid is None else cpu_s(pid)
    streams = await asyncio.gather(*(run(args.tokens) for _ in range(args.streams)))
    seconds = time.perf_counter() - start
    own = cpu_s("self") - own_start
    used, client = (own, 0.0) if pid is None else (cpu_s(pid) - cpu_start, own)
    return Result(seconds, args.tokens * args.streams, streams, used, client)


async def first_tokens(*runs: Run) -> list[float]:
    """Milliseconds to the first text, medians of single requests that take turns."""
    times = [[1e3 * (await run(2)).first_s for run in runs] for _ in range(NUM_FIRST)]
    return [statistics.median(each) for each in zip(*times, strict=True)]


@contextmanager
def server(*command: str) -> Iterator[tuple[int, tuple[str, int]]]:
    """The process id and the address of a server that a command of Python starts."""
    process = subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        url = urlsplit(process.stdout.readline())
        for line in process.stderr:
            if line.rstrip().endswith("ready"):
                break
        yield process.pid, (str(url.hostname), int(url.port or 0))
    finally:
        process.terminate()
        process.communicate()


def serve_command(model: str) -> list[str]:
    """The arguments of Python that serve a model."""
    command = ["serve", model, "--model-lib", find_fake_model_lib(), "--port", "0"]
    return ["-m", "mlc_native.cli.main", *command]


async def compare(args: argparse.Namespace, model: str) -> None:
    lib = find_fake_model_lib()
    with (
        server(*serve_command(model)) as (pid, address),
        server(str(DUMMY), model, str(args.us_per_step)) as (dummy_pid, dummy_address),
        AsyncMLCEngine(model, model_lib=lib, mode="server") as engine,
    ):
        over_http = partial(http_stream, address)
        to_dummy = partial(http_stream, dummy_address)
        in_process = partial(engine_stream, engine)
        for _ in range(args.repeats):
            print((await measure(over_http, args, pid)).line("server"))
            print((await measure(to_dummy, args, dummy_pid)).line("dummy"))
            print((await measure(in_process, args, None)).line("engine"))
            first, alone = await first_tokens(over_http, in_process)
            print(f"first token: {first:.2f} ms over HTTP, {alone:.2f} ms in process")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--us-per-step", type=float, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--slow", type=int, default=0, help="sockets that send slowly")
    args = parser.parse_args()
    print(f"{cpu_name()}, {args.streams} streams of {args.tokens} tokens")
    with tempfile.TemporaryDirectory() as folder:
        script = [*b"abcdefghij " * 400]
        model = write_model(
            Path(folder) / "model", script=script, us_per_step=args.us_per_step, cost="sleep"
        )
        uvloop.run(compare_slow(args, model) if args.slow else compare(args, model))


if __name__ == "__main__":
    main()
