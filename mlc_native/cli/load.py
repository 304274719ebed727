"""Load for an OpenAI server or an engine: requests, when they are sent, and what was measured.

Everything runs on one event loop. Each request is measured from the moment at which it is sent:
the time to its first text, the times between chunks with text, and its end.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from mlc_native.cli.http_response import (
    DONE,
    ResponseParser,
    ServerUrl,
    event_object,
    model_names,
)
from mlc_native.errors import MLCNativeError, invalid_config
from mlc_native.serve.async_engine import AsyncMLCEngine

Fields = dict[str, Any]
_READ_SIZE = 1 << 16
# Words that most tokenizers have as one token with the space in front of them.
_WORDS = (
    *("the", "of", "and", "to", "in", "is", "was", "for", "on", "that", "with", "as", "it", "by"),
    *("at", "from", "his", "an", "were", "are", "which", "this", "be", "has", "or", "had", "not"),
    *("he", "one", "all", "their", "more", "when", "who", "also", "two", "other", "time", "into"),
)


@dataclass
class Outcome:
    """What became of a request. Times are in seconds from its start."""

    error: str | None = None
    ttft_s: float | None = None
    gaps_s: list[float] = field(default_factory=list)  # between chunks with text
    end_s: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Target(Protocol):
    """What answers requests."""

    def stream(self, fields: Fields) -> AsyncIterator[Fields]:
        """The chunks of an answer as JSON objects. Raises MLCNativeError, OSError."""

    async def close(self) -> None:
        """Gives back what it holds."""


class ServerTarget:
    """An OpenAI server. A connection serves one request after the other.

    Args:
        endpoint: the path behind "/v1".
    """

    def __init__(self, url: str, endpoint: str, key: str | None) -> None:
        self._url = ServerUrl.parse(url)
        self._endpoint = endpoint
        self._key = key
        self._tls = self._url.tls_context()
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def first_model(self) -> str:
        """The name of the server's first model."""
        parser = ResponseParser()
        reader, writer = await self._connect()
        writer.write(self._url.request("GET", "/models", self._key))
        while not parser.done:
            parser.feed(await reader.read(_READ_SIZE))
        writer.close()
        parser.check()
        names = model_names(parser.body())
        if not names:
            raise invalid_config("model", "the server has no model")
        return names[0]

    async def stream(self, fields: Fields) -> AsyncIterator[Fields]:
        """See Target."""
        request = self._url.request("POST", self._endpoint, self._key, fields)
        reader, writer = self._idle.pop() if self._idle else await self._connect()
        parser = ResponseParser()
        try:
            writer.write(request)
            while not parser.done:
                parser.feed(await reader.read(_READ_SIZE))
                if parser.status == 200:
                    parser.check_is_stream()
                    for data in parser.events():
                        if data != DONE:
                            yield event_object(data)
            parser.check()
        except BaseException:
            writer.close()
            raise
        if parser.keeps_connection:
            self._idle.append((reader, writer))
        else:
            writer.close()

    async def close(self) -> None:
        """Closes the connections."""
        for _, writer in self._idle:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        self._idle = []

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await asyncio.open_connection(self._url.host, self._url.port, ssl=self._tls)
        except OSError as error:
            raise self._url.unreachable(error) from error


class EngineTarget:
    """An engine in this process."""

    def __init__(self, engine: AsyncMLCEngine, endpoint: str) -> None:
        self._interface: Any = engine.chat.completions if "chat" in endpoint else engine.completions

    async def stream(self, fields: Fields) -> AsyncIterator[Fields]:
        """See Target."""
        async with await self._interface.create_from(fields) as chunks:
            async for chunk in chunks:
                usage = chunk.usage and {
                    "prompt_tokens": chunk.usage.prompt_tokens,
                    "completion_tokens": chunk.usage.completion_tokens,
                }
                choices = [
                    {"text": getattr(choice, "text", None), "delta": vars(choice.delta)}
                    if hasattr(choice, "delta")
                    else {"text": choice.text}
                    for choice in chunk.choices
                ]
                yield {"choices": choices, "usage": usage}

    async def close(self) -> None:
        """The engine is its owner's."""


# ------------------------------------------------------------------------------------ the requests


def synthetic_prompts(num_tokens: int, seed: int) -> Iterator[str]:
    """Random texts of so many words, most of which are one token; no two begin alike."""
    draw = random.Random(seed)
    while True:
        yield " ".join(draw.choices(_WORDS, k=num_tokens))


def token_prompts(num_tokens: int, vocab_size: int, seed: int) -> Iterator[list[int]]:
    """Random token ids below ``vocab_size``."""
    draw = random.Random(seed)
    while True:
        yield [draw.randrange(vocab_size) for _ in range(num_tokens)]


def dataset_prompts(path: Path) -> Iterator[Any]:
    """The prompts of a file, again and again: texts, or lists of messages.

    A line is a JSON object with "prompt" or "messages", also as the "body" of OpenAI's batch
    format; or the file is ShareGPT's list of conversations, of which the first turn is taken.

    Raises:
        InvalidConfig: the file is something else.
        OSError: it cannot be read.
    """
    data = path.read_bytes()
    try:
        text = data.decode()
        entries = json.loads(text) if text.lstrip().startswith("[") else None
        if entries is None:
            entries = [json.loads(line) for line in text.split("\n") if line.strip()]
        prompts = [_prompt(entry) for entry in entries]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        prompts = []
    if not prompts:
        raise invalid_config(
            "dataset",
            f'{path} is no data set: it must have lines of JSON with "prompt" or "messages", or be '
            "ShareGPT's file",
        )
    while True:
        yield from prompts


def _prompt(entry: Any) -> Any:
    """Raises KeyError, TypeError, IndexError or ValueError for what is no entry of a data set."""
    if not isinstance(entry, dict):
        raise TypeError
    entry = entry.get("body", entry)
    if "conversations" in entry:
        return str(entry["conversations"][0]["value"])
    if "prompt" in entry:
        prompt = entry["prompt"]
        if not isinstance(prompt, (str, list)) or not prompt:
            raise ValueError
        return prompt
    messages = entry["messages"]
    if not is_messages(messages):
        raise ValueError
    return messages


def is_messages(prompt: Any) -> bool:
    """Whether a prompt of a data set is a chat."""
    return isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], dict)


# ---------------------------------------------------------------------------------------- the load


@dataclass(frozen=True)
class Schedule:
    """When requests are sent.

    Attributes:
        num_requests: of the whole run.
        rate: requests per second, at random times (a Poisson process); None: as soon as allowed.
        concurrency: requests in flight at most; None: any number.
    """

    num_requests: int
    rate: float | None
    concurrency: int | None
    seed: int = 0


async def run_load(
    target: Target, requests: Iterator[Fields], schedule: Schedule
) -> tuple[list[Outcome], float]:
    """Sends all requests and returns their outcomes and the seconds that it took."""
    draw = random.Random(schedule.seed)
    free = asyncio.Semaphore(schedule.concurrency or schedule.num_requests)
    begin = due = time.perf_counter()

    async def answer(fields: Fields) -> Outcome:
        try:
            return await _measure(target, fields)
        finally:
            free.release()

    async with asyncio.TaskGroup() as group:
        tasks = []
        for _ in range(schedule.num_requests):
            if schedule.rate is not None:
                due += draw.expovariate(schedule.rate)
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await free.acquire()
            tasks.append(group.create_task(answer(next(requests))))
    return [task.result() for task in tasks], time.perf_counter() - begin


async def _measure(target: Target, fields: Fields) -> Outcome:
    outcome = Outcome()
    begin = time.perf_counter()
    last = None
    try:
        async with aclosing(target.stream(fields)) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                if chunk.get("error"):
                    outcome.error = str(chunk["error"])
                    break
                if any(_has_text(choice) for choice in chunk.get("choices") or ()):
                    now = time.perf_counter()
                    if last is None:
                        outcome.ttft_s = now - begin
                    else:
                        outcome.gaps_s.append(now - last)
                    last = now
                if usage := chunk.get("usage"):
                    outcome.prompt_tokens = usage.get("prompt_tokens") or 0
                    outcome.completion_tokens = usage.get("completion_tokens") or 0
    except (MLCNativeError, OSError, ValueError) as error:
        outcome.error = str(error) or type(error).__name__
    outcome.end_s = time.perf_counter() - begin
    return outcome


def _has_text(choice: Fields) -> bool:
    delta = choice.get("delta") or {}
    names = ("content", "reasoning_content", "reasoning", "tool_calls")
    return bool(choice.get("text")) or any(delta.get(name) for name in names)


# -------------------------------------------------------------------------------------- the report


def percentiles(values: Sequence[float]) -> dict[str, float] | None:
    """Mean, percentiles and maximum in milliseconds; None without values."""
    if not values:
        return None
    ordered = sorted(1000 * value for value in values)
    found = {"mean": sum(ordered) / len(ordered)}
    for percent in (50, 90, 95, 99):
        rank = -(-len(ordered) * percent // 100)  # the nearest rank, rounded up
        found[f"p{percent}"] = ordered[max(rank, 1) - 1]
    return {**found, "max": ordered[-1]}


def summarize(outcomes: Sequence[Outcome], seconds: float) -> dict[str, Any]:
    """The figures of a run. Requests that failed count in ``failed`` and ``errors`` only."""
    good = [each for each in outcomes if each.error is None]
    prompt_tokens = sum(each.prompt_tokens for each in good)
    completion_tokens = sum(each.completion_tokens for each in good)
    per_token = [
        (each.end_s - each.ttft_s) / (each.completion_tokens - 1)
        for each in good
        if each.ttft_s is not None and each.completion_tokens > 1
    ]
    return {
        "requests": len(outcomes),
        "failed": len(outcomes) - len(good),
        "errors": sorted({each.error for each in outcomes if each.error is not None})[:5],
        "seconds": seconds,
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "requests_per_s": len(good) / seconds,
        "output_tokens_per_s": completion_tokens / seconds,
        "total_tokens_per_s": (prompt_tokens + completion_tokens) / seconds,
        "ttft_ms": percentiles([each.ttft_s for each in good if each.ttft_s is not None]),
        "inter_token_ms": percentiles([gap for each in good for gap in each.gaps_s]),
        "time_per_output_token_ms": percentiles(per_token),
        "end_to_end_ms": percentiles([each.end_s for each in good]),
    }
