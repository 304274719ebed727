"""The server of mlc_native on a generator that has all texts ready, for bench/server.py.

    python bench/dummy_server.py MODEL US_PER_STEP

Requests are read and prepared as for the model in the folder MODEL, and then answered with a letter
per step. A step is a timer of the event loop that all streams share. The address is the first line
of what is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python"))
from fake_model import find_fake_model_lib

from mlc_native import AsyncMLCEngine
from mlc_native.serve.openai_engine import PreparedCall
from mlc_native.serve.streams import AsyncChunkStream
from mlc_native.server import ServerConfig
from mlc_native.server.http_protocol import HttpLimits
from mlc_native.server.http_server import Address, HttpServer, serve
from mlc_native.server.models import Models
from mlc_native.server.state import ServerState


@dataclass
class Output:
    """What a CallbackStreamOutput has."""

    delta_text: str
    request_id: str = ""
    delta_token_ids: list[int] = field(default_factory=list)
    delta_logprob_json_strs: None = None
    finish_reason: str | None = None
    request_final_usage_json_str: str | None = None
    has_scored_prompt: bool = False
    scored_prompt: None = None


class Ticks:
    """A timer that all streams share: one wake-up of the loop per step."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._next: asyncio.Future[None] | None = None
        self.count = 0

    async def next(self) -> None:
        loop = asyncio.get_running_loop()
        if self._next is None:
            self._next = loop.create_future()
            loop.call_later(self._interval_s, self._tick, self._next)
        await self._next

    def _tick(self, waited: asyncio.Future[None]) -> None:
        self.count += 1
        waited.set_result(None)
        self._next = None


class Texts:
    """A stream of outputs: one letter per tick, all that have come since the last output."""

    def __init__(self, ticks: Ticks, num_tokens: int) -> None:
        self._ticks = ticks
        self._taken = ticks.count
        self._left = num_tokens
        self._ended = False

    async def __anext__(self) -> list[Output]:
        if self._ended:
            raise StopAsyncIteration
        if self._left == 0:
            self._ended = True
            return [Output("", request_final_usage_json_str="{}")]
        await self._ticks.next()
        size = min(self._ticks.count - self._taken, self._left)
        self._taken = self._ticks.count
        self._left -= size
        return [Output("x" * size, finish_reason=None if self._left else "length")]

    def close(self) -> None:
        """Nothing is held."""


class DummyEngine(AsyncMLCEngine):
    """Prepares requests like its base, and answers them with letters."""

    ticks: Ticks

    async def _answer(self, call: PreparedCall) -> Any:
        num_tokens = call.requests[0].generation_config.max_tokens
        texts: Any = Texts(self.ticks, num_tokens)
        return AsyncChunkStream(texts, call.responder, self._work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="model folder")
    parser.add_argument("us_per_step", type=float)
    args = parser.parse_args()
    address = Address(port=0)
    with DummyEngine(args.model, model_lib=find_fake_model_lib(), mode="server") as engine:
        engine.ticks = Ticks(args.us_per_step / 1e6)
        state = ServerState(Models.of(engine), ServerConfig())
        server = HttpServer(state, address, HttpLimits(), shutdown_timeout_s=30)
        listener = address.bind()
        print(address.url(listener), flush=True)
        print("ready", file=sys.stderr, flush=True)
        serve(server, listener)


if __name__ == "__main__":
    main()
