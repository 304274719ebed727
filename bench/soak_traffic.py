"""The requests of bench/soak.py over HTTP, and the judgement of what became of each.

Each kind of request is a coroutine that returns one of the names in OUTCOMES. Every request opens a
connection of its own, which some leave early. Nothing is kept per request, so that a run may take
any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

Body = dict[str, Any]

# ended: exactly one final output per choice. refused: an error with a status. failed: an error
# event after the first output. left: the client closed the connection. The rest are faults.
GOOD = ("ended", "refused", "failed", "left")
FAULTS = ("lost", "twice", "wrong_answer", "wrong_status", "hung")
PATIENCE_S = 120

WORDS = ("the", "red", "of", "lake", "stone", "river", "who", "what", "is", "where", "city", "bird")


class Fault(Exception):
    """A request that broke a promise: one of FAULTS, and after a colon what it was."""


class Connection:
    """One request on a connection of its own, and its answer as it comes."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition("/")[0].rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)

    async def __aenter__(self) -> Connection:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def post(self, path: str, body: Body | bytes) -> int:
        """Sends a request and returns the status of its answer."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: soak\r\nContent-Type: application/json\r\n"
            f"Connection: close\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        self._writer.write(head.encode() + content)
        await self._writer.drain()
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self._chunked = any(line.lower() == "transfer-encoding: chunked" for line in lines)
        return int(lines[0].split()[1])

    async def read(self) -> bytes:
        """The next part of the answer; nothing at its end."""
        if not self._chunked:
            return await self._reader.read(1 << 16)
        size = int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16)
        return (await self._reader.readexactly(size + 2))[:-2]

    async def read_all(self) -> bytes:
        parts = []
        while part := await self.read():
            parts.append(part)
        return b"".join(parts)


def finals_of(events: bytes) -> tuple[dict[int, int], bool, bool]:
    """How often each choice was final, whether an error came, and whether the stream was closed."""
    finals: dict[int, int] = {}
    failed = closed = False
    for line in events.split(b"\n"):
        if not line.startswith(b"data: "):
            continue
        if line == b"data: [DONE]":
            closed = True
            continue
        event = json.loads(line[6:])
        failed = failed or "error" in event
        for choice in event.get("choices", []):
            if choice.get("finish_reason") is not None:
                finals[choice["index"]] = finals.get(choice["index"], 0) + 1
    return finals, failed, closed


class Traffic:
    """The kinds of requests, drawn from a generator with a seed."""

    def __init__(self, url: str, seed: int) -> None:
        self._url = url
        self._random = random.Random(seed)
        self._expected: dict[int, Body] = {}
        self._embeddings: dict[int, Body] = {}

    # ------------------------------------------------------------------------------ the kinds

    async def stream(self) -> str:
        n = self._random.choice((1, 1, 1, 2, 3))
        body = self._chat() | {"stream": True, "n": n}
        if self._random.random() < 0.3:
            body |= {"logprobs": True, "top_logprobs": self._random.randint(0, 5)}
        return await self._streamed(body, n)

    async def deadline(self) -> str:
        return await self._streamed(
            self._chat() | {"stream": True, "timeout_s": self._random.uniform(0.001, 0.3)}, 1
        )

    async def grammar(self) -> str:
        name = f"field{self._random.randint(0, 5000)}"
        schema = {
            "type": "object",
            "properties": {name: {"type": "string", "maxLength": 12}, "n": {"type": "integer"}},
            "required": [name, "n"],
            "additionalProperties": False,
        }
        asked = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        return await self._streamed(self._chat() | {"stream": True, "response_format": asked}, 1)

    async def heavy_grammar(self) -> str:
        """A grammar that takes long or much, so that its helper is ended."""
        text = " | ".join(f'"{i:x}" r{i + 1}' for i in range(3000))
        rules = "\n".join(f"r{i} ::= [a-z]{{1,400}} | r{i + 1}" for i in range(1, 40))
        asked = {"type": "grammar", "grammar": f"root ::= {text}\n{rules}"}
        return await self._streamed(self._chat() | {"stream": True, "response_format": asked}, 1)

    async def disconnect(self) -> str:
        """Leaves after a few bytes, or before the first."""
        async with Connection(self._url) as connection:
            asked = connection.post("/v1/chat/completions", self._chat() | {"stream": True})
            try:
                await asyncio.wait_for(asked, self._random.choice((0.001, 0.01, PATIENCE_S)))
            except TimeoutError:
                return "left"
            for _ in range(self._random.randint(0, 6)):
                if not await connection.read():
                    break
        return "left"

    async def slow_reader(self) -> str:
        async with Connection(self._url) as connection:
            status = await connection.post("/v1/chat/completions", self._chat() | {"stream": True})
            events = b""
            while part := await connection.read():
                events += part
                await asyncio.sleep(self._random.uniform(0, 0.05))
        return self._judge(status, events, 1)

    async def invalid(self) -> str:
        """What must be refused with a status of 4xx."""
        message = [{"role": "user", "content": "x"}]
        bodies: list[Body | bytes] = [
            b"{" * self._random.randint(1, 100_000),
            b'{"messages": "\xff"}',
            {"messages": []},
            {"messages": message, "max_tokens": -2},
            {"messages": message, "temperature": "hot"},
            {"messages": message, "response_format": {"type": "grammar", "grammar": "x ::="}},
            {"messages": [{"role": "user", "content": "word " * 20_000}]},
            {"messages": message, "logit_bias": {"99999999": 1}},
        ]
        number = self._random.randrange(len(bodies))
        async with Connection(self._url) as connection:
            status = await connection.post("/v1/chat/completions", bodies[number])
            await connection.read_all()
        if not 400 <= status < 500 and status not in (503, 504):
            raise Fault(f"wrong_status: {status} for body {number}")
        return "refused"

    async def canary(self) -> str:
        """A request whose answer is known, alone and without any other."""
        number = self._random.choice(list(self._expected))
        answer = await self.ask_canary(number)
        if answer is None:
            return "refused"
        if answer != self._expected[number]:
            raise Fault("wrong_answer")
        return "ended"

    async def embeddings(self) -> str:
        """Texts whose embeddings are known, alone and without any other."""
        number = self._random.choice(list(self._embeddings))
        answer = await self._ask_embeddings(number)
        if answer is None:
            return "refused"
        if answer != self._embeddings[number]:
            raise Fault("wrong_answer: an embedding")
        return "ended"

    # ------------------------------------------------------------------------------- the parts

    async def learn_canaries(self, count: int) -> None:
        """Asks each canary while nothing else runs; its answer is what must come from now on."""
        for number in range(count):
            answer = await self.ask_canary(number)
            assert answer is not None
            self._expected[number] = answer
            embeddings = await self._ask_embeddings(number)
            assert embeddings is not None
            self._embeddings[number] = embeddings

    def expected(self, number: int) -> Body:
        return self._expected[number]

    async def ask_canary(self, number: int) -> Body | None:
        """The choices and the usage of a canary's answer; nothing if it was refused or aborted."""
        own = random.Random(number)
        body: Body = {
            "messages": [{"role": "user", "content": " ".join(own.choices(WORDS, k=12))}],
            "max_tokens": 48,
            "temperature": number % 2,
            "seed": number,
            "logprobs": True,
            "n": 1 + number % 3 // 2,
        }
        if number % 4 == 3:
            body["response_format"] = {"type": "json_object"}
        async with Connection(self._url) as connection:
            status = await connection.post("/v1/chat/completions", body)
            answer = json.loads(await connection.read_all())
        if status in (429, 500, 503, 504) and "error" in answer:
            return None
        if status != 200:
            raise Fault(f"wrong_status: {status}")
        if any(choice["finish_reason"] == "abort" for choice in answer["choices"]):
            return None
        usage = answer["usage"]
        return {
            "choices": answer["choices"],
            "usage": [usage["prompt_tokens"], usage["completion_tokens"]],
        }

    async def _ask_embeddings(self, number: int) -> Body | None:
        """Embeddings and usage of a few texts; nothing if they were refused or aborted."""
        own = random.Random(number)
        texts = [" ".join(own.choices(WORDS, k=own.choice((1, 20, 90)))) for _ in range(3)]
        body = {
            "input": texts,
            "encoding_format": "base64",
            "pooling": ("last", "mean")[number % 2],
        }
        async with Connection(self._url) as connection:
            status = await connection.post("/v1/embeddings", body)
            answer = json.loads(await connection.read_all())
        if status in (429, 500, 503, 504) and "error" in answer:
            return None
        if status != 200:
            raise Fault(f"wrong_status: {status}")
        return {"data": answer["data"], "usage": answer["usage"]}

    def _chat(self) -> Body:
        """A question of random length, now and then one that was asked before."""
        words = self._random.choices(WORDS, k=self._random.choice((3, 10, 40, 150)))
        return {
            "messages": [{"role": "user", "content": " ".join(words)}],
            "max_tokens": self._random.choice((1, 8, 32, 128, 300)),
            "ignore_eos": self._random.random() < 0.6,
            "temperature": self._random.choice((0, 1)),
        }

    async def _streamed(self, body: Body, num_choices: int) -> str:
        async with Connection(self._url) as connection:
            status = await connection.post("/v1/chat/completions", body)
            events = await connection.read_all()
        return self._judge(status, events, num_choices)

    @staticmethod
    def _judge(status: int, events: bytes, num_choices: int) -> str:
        if status != 200:
            if status not in (400, 429, 500, 503, 504):
                raise Fault(f"wrong_status: {status}")
            return "refused"
        finals, failed, closed = finals_of(events)
        if any(count > 1 for count in finals.values()):
            raise Fault("twice")
        if failed:
            return "failed"
        if len(finals) != num_choices or not closed:
            raise Fault("lost")
        return "ended"


Kind = Callable[[Traffic], Awaitable[str]]
WEIGHTS: dict[Kind, float] = {
    Traffic.stream: 40,
    Traffic.canary: 15,
    Traffic.disconnect: 15,
    Traffic.deadline: 8,
    Traffic.grammar: 8,
    Traffic.invalid: 8,
    Traffic.slow_reader: 5,
    Traffic.embeddings: 8,
    Traffic.heavy_grammar: 0.2,
}


async def run_one(traffic: Traffic, kind: Kind) -> str:
    """The outcome of one request of this kind: one of GOOD or of FAULTS, then details."""
    try:
        return await asyncio.wait_for(kind(traffic), PATIENCE_S)
    except Fault as fault:
        return str(fault)
    except TimeoutError:
        return "hung"
    except (OSError, asyncio.IncompleteReadError, ValueError) as error:
        return f"lost: {type(error).__name__}: {error}"
