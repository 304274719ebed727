"""Measures the share of an engine's throughput that is left over HTTP.

    python bench/http_throughput.py MODEL [--requests 16] [--prompt-tokens 128] [--pairs 8]

One engine answers the load of `mlc-native bench` in turns: from `mlc-native bench --url`, a process
of its own, through the HTTP server of this process; and from an event loop of this process, with
the same code. All requests of a run are in flight at once, and no two prompts begin alike. Clients
and server share the cores, so the CPU time of the client's process is printed, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from machine import cpu_name

from mlc_native import AsyncMLCEngine
from mlc_native.cli.load import EngineTarget, Fields, Schedule, run_load, summarize, token_prompts
from mlc_native.server import ServerConfig
from mlc_native.server.http_protocol import HttpLimits
from mlc_native.server.http_server import Address, HttpServer, serve
from mlc_native.server.models import Models
from mlc_native.server.state import ServerState

ROOT = Path(__file__).resolve().parents[1]
MAX_TOKEN_ID = 256  # of prompts; every model has them


@contextmanager
def server(engine: AsyncMLCEngine) -> Iterator[str]:
    """The URL of a server on a thread of this process."""
    address = Address(port=0)
    state = ServerState(Models.of(engine), ServerConfig())
    running = HttpServer(state, address, HttpLimits(), shutdown_timeout_s=30)
    listener = address.bind()
    thread = threading.Thread(target=serve, args=(running, listener))
    thread.start()
    try:
        yield address.url(listener)
    finally:
        running.force_exit = running.should_exit = True
        thread.join()
        listener.close()


class Load:
    """The runs of one benchmark. Each has a seed of its own, so that no prompt is cached."""

    def __init__(self, engine: AsyncMLCEngine, args: argparse.Namespace) -> None:
        self._engine = engine
        self._args = args
        self._seed = 0

    def over_http(self, url: str) -> dict[str, Any]:
        """The figures of `mlc-native bench`, and the CPU time of its process."""
        args, self._seed = self._args, self._seed + 1
        flags = {
            **{"url": url, "num-requests": args.requests, "concurrency": args.requests},
            **{"prompt-tokens": args.prompt_tokens, "output-tokens": args.output_tokens},
            **{"token-ids": MAX_TOKEN_ID, "warmup": 0, "seed": self._seed},
        }
        command = [sys.executable, "-m", "mlc_native.cli.main", "bench", "--json"]
        command += [f"--{name}={value}" for name, value in flags.items()]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        client = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        assert client.stdout is not None
        figures: dict[str, Any] = json.loads(client.stdout.read())
        _, _, used = os.wait4(client.pid, 0)
        return {**figures, "client_cpu_s": used.ru_utime + used.ru_stime}

    def in_process(self) -> dict[str, Any]:
        """The figures of the same load on the engine."""
        self._seed += 1
        schedule = Schedule(self._args.requests, None, None)
        target = EngineTarget(self._engine, "/completions")
        return summarize(*asyncio.run(run_load(target, self._requests(), schedule)))

    def _requests(self) -> Iterator[Fields]:
        args = self._args
        for prompt in token_prompts(args.prompt_tokens, MAX_TOKEN_ID, self._seed):
            yield {
                **{"prompt": prompt, "max_tokens": args.output_tokens, "ignore_eos": True},
                **{"stream": True, "stream_options": {"include_usage": True}},
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--requests", type=int, default=16, help="in flight at once")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=8)
    args = parser.parse_args()
    print(f"{cpu_name()}, {args.requests} requests of {args.prompt_tokens} tokens")
    with AsyncMLCEngine(args.model, mode="server") as engine, server(engine) as url:
        load = Load(engine, args)
        load.in_process()  # touches the memory
        shares = []
        for number in range(args.pairs):
            if number % 2:
                alone, http = load.in_process(), load.over_http(url)
            else:
                http, alone = load.over_http(url), load.in_process()
            assert http["failed"] == alone["failed"] == 0, (http["errors"], alone["errors"])
            rate, own_rate = http["output_tokens_per_s"], alone["output_tokens_per_s"]
            shares.append(rate / own_rate)
            print(
                f"{rate:.2f} tokens/s over HTTP, {own_rate:.2f} in process: {shares[-1]:.3f}; "
                f"the client took {http['client_cpu_s']:.2f} s of CPU in {http['seconds']:.1f} s",
                flush=True,
            )
        print(f"median share {statistics.median(shares):.3f}")


if __name__ == "__main__":
    main()
