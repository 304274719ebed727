"""Answer the requests in a file, in OpenAI's batch format.

Each line of FILE is a request: {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions",
"body": {...}}; the url may also be /v1/completions or /v1/embeddings. Each gets a line of the
output as soon as it is answered, with the custom_id and the response. A line that cannot be
answered gets an error there.
The same command goes on where it was stopped or killed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlc_native.cli.batch_file import (
    CHAT,
    COMPLETION,
    EMBEDDINGS,
    AnswerFile,
    BadLine,
    BatchRequest,
    answer_line,
    bad_line,
    numbered_lines,
    parse_request,
    piped_lines,
)
from mlc_native.cli.failure import exit_status, print_error, shown_warnings
from mlc_native.cli.overrides import add_engine_arguments, load_engine
from mlc_native.errors import (
    EngineRequestError,
    InvalidConfig,
    InvalidRequest,
    QueueFull,
    invalid_config,
)
from mlc_native.protocol.embeddings import EmbeddingResponse
from mlc_native.serve.engine import AsyncMLCEngine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``mlc-native generate``."""
    parser.add_argument("file", metavar="FILE", type=Path, help="the requests, one per line")
    parser.add_argument(
        "-o", "--output", type=Path, help="the answers; default: FILE with .out.jsonl as its end"
    )
    parser.add_argument("--model", default="demo", help='model folder or hub id; default "demo"')
    parser.add_argument(
        "--overwrite", action="store_true", help="answer all lines, also those that have an answer"
    )
    add_engine_arguments(parser, mode="server")


def run(args: argparse.Namespace) -> int:
    """Answers the file. Exit status 0, 1 if a request or the whole failed, 2 as ``exit_status``."""
    try:
        with args.file.open("rb") as requests:
            output = args.output or args.file.with_suffix(".out.jsonl")
            if output.exists() and output.samefile(args.file):
                raise invalid_config("output", f"{output} is the file of requests")
            answers = AnswerFile(output, args.overwrite)
            try:
                verbose = sys.stderr.isatty()
                with load_engine(AsyncMLCEngine, args.model, args, verbose) as engine:
                    if args.overwrite:  # not before there is a model
                        answers.empty()
                    batch = Batch(engine, requests, answers)
                    try:
                        with shown_warnings():
                            asyncio.run(batch.run())
                    except ExceptionGroup as group:  # of the tasks: the first one is the cause
                        raise group.exceptions[0] from None
            finally:
                answers.close()
    except (ValueError, RuntimeError, OSError) as error:
        print_error(error)
        return exit_status(error)
    print(f"{batch.counts} in {output}", file=sys.stderr)
    return 1 if batch.counts.failed or batch.counts.failed_before else 0


@dataclass
class Counts:
    """What became of the requests."""

    before: int  # done by an earlier run
    failed_before: int = 0  # of those
    answered: int = 0
    failed: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        before = f", {self.before} before" if self.before else ""
        before += f" ({self.failed_before} of them failed)" if self.failed_before else ""
        speed = self.tokens / self.seconds if self.seconds else 0
        return (
            f"{self.answered} answered, {self.failed} failed{before}; {self.tokens} tokens in "
            f"{self.seconds:.1f} s ({speed:.1f} tokens per second)"
        )


class Batch:
    """The requests of a file on an engine: as many at once as it can use, in any number."""

    def __init__(self, engine: AsyncMLCEngine, requests: Any, answers: AnswerFile) -> None:
        self._engine = engine
        self._requests = requests
        self._answers = answers
        self.counts = Counts(answers.done.count, answers.done.num_failed)
        self._num_open = 0  # requests in the engine
        self._num_begun = 0
        self._refused: deque[asyncio.Future[None]] = deque()  # they wait for the end of another

    async def run(self) -> None:
        """Answers what has no answer yet."""
        free = asyncio.Semaphore(self._num_at_once())
        begin = time.monotonic()
        with self._progress_bar() as bar:
            async with asyncio.TaskGroup() as tasks:
                async for line, text in self._open_lines():
                    await free.acquire()
                    task = tasks.create_task(self._answer(line, text))
                    task.add_done_callback(lambda _: free.release())
                    task.add_done_callback(lambda _: bar.update())
                    bar.set_postfix_str(self._speed(begin), refresh=False)
        self.counts.seconds = time.monotonic() - begin

    def _num_at_once(self) -> int:
        """Running sequences, and as many that wait, so that a place is never empty."""
        config = self._engine.engine_config
        running, limit = config.max_num_sequence, config.max_queue_length
        assert running is not None
        return running + (running if limit is None or limit < 0 else min(limit, running))

    async def _open_lines(self) -> AsyncIterator[tuple[int, bytes]]:
        """The lines without an answer. Raises InvalidConfig if the answers are of another file."""
        if not self._requests.seekable():
            async for line, text in piped_lines(self._requests):
                if self._is_open(line, text):
                    yield line, text
            return
        for line, text in numbered_lines(self._requests):
            if self._is_open(line, text):
                yield line, text

    def _is_open(self, line: int, text: bytes) -> bool:
        done = self._answers.done
        if line not in done:
            return True
        try:
            custom_id: str | None = parse_request(line, text).custom_id
        except BadLine as error:
            custom_id = error.custom_id
        if not done.agrees(line, custom_id):
            raise invalid_config(
                "output",
                f"the output has an answer to line {line} with another custom_id than "
                f"{custom_id!r}: is it of another file? --overwrite replaces it",
            )
        return False

    async def _answer(self, line: int, text: bytes) -> None:
        try:
            request = parse_request(line, text)
        except BadLine as error:
            self._answers.write(bad_line(line, error))
            self.counts.failed += 1
            return
        self._answers.write(await self._respond(request))

    async def _respond(self, request: BatchRequest) -> dict[str, Any]:
        try:
            response = await self._create(request)
        except (InvalidRequest, InvalidConfig, EngineRequestError) as error:
            self.counts.failed += 1
            return answer_line(request, error.status, None, error.to_openai())
        self.counts.answered += 1
        if response.usage is not None:
            embeds = isinstance(response, EmbeddingResponse)
            counted = response.usage.total_tokens if embeds else response.usage.completion_tokens
            self.counts.tokens += counted
        request_id = getattr(response, "id", None)  # embeddings have none
        return answer_line(request, 200, request_id, response.model_dump(mode="json"))

    async def _create(self, request: BatchRequest) -> Any:
        """The response. What a full queue refuses is tried again when another request has ended.

        Raises:
            QueueFull: a queue has no room for it, although no other request is there.
        """
        apis: dict[str, Any] = {
            CHAT: self._engine.chat.completions,
            COMPLETION: self._engine.completions,
            EMBEDDINGS: self._engine.embeddings,
        }
        api = apis[request.url]
        while True:
            self._num_open += 1
            self._num_begun += 1
            is_first, num_begun = self._num_open == 1, self._num_begun
            has_ended = True
            try:
                return await api.create_from(request.body)
            except QueueFull:
                has_ended = is_first and num_begun == self._num_begun
                if has_ended:
                    raise
            finally:
                self._num_open -= 1
                if has_ended:
                    self._wake_one()
            if self._num_open > 0:
                turn = asyncio.get_running_loop().create_future()
                self._refused.append(turn)
                await turn
            # It is answered behind the end of the prompts of a list that was refused as a whole.
            await self._engine.metrics()

    def _wake_one(self) -> None:
        while self._refused:
            turn = self._refused.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _speed(self, begin: float) -> str:
        seconds = max(time.monotonic() - begin, 1e-9)
        return f"{self.counts.tokens / seconds:.1f} tokens/s, {self.counts.failed} failed"

    def _progress_bar(self) -> Any:
        from tqdm import tqdm

        shown = sys.stderr.isatty() and self._requests.seekable()
        total = None
        if shown:
            total = sum(1 for _ in numbered_lines(self._requests)) - self.counts.before
            self._requests.seek(0)
        return tqdm(total=total, unit="request", leave=False, disable=not shown)
