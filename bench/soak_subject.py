"""The process that bench/soak.py watches: an AsyncMLCEngine and its HTTP server.

It reads commands from its standard input, one JSON object per line, and answers each with one line:
"reload", "audit", "rest" (an audit of an idle engine, and its memory), "objects" (of Python, by
type), "metrics", "generate" (a round of requests within the process, some of them aborted) and
"stop". The first line that it writes holds the URL and the process id.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import json
import os
import random
import re
import sys
import tempfile
from collections import Counter
from typing import Any

from http_throughput import server

from mlc_native import AsyncMLCEngine, EngineConfig
from mlc_native.errors import EngineRequestError

KEPT: list[bytes] = []  # the planted leak
IDLE_S = 60
END_REASONS = {"stop", "length", "abort", "error", "timeout", "tool_calls"}


def settings(args: argparse.Namespace) -> EngineConfig:
    """Room for few long sequences, so that memory runs out all the time."""
    return EngineConfig(
        max_num_sequence=12,
        max_total_sequence_length=640,
        max_single_sequence_length=384,
        prefill_chunk_size=256,
        max_queue_length=48,
        grammar_cache_bytes=1 << 20,
        suffix_cache_bytes=1 << 20,
        speculative_mode=args.speculative_mode,
        verbose=False,
    )


class MallInfo(ctypes.Structure):
    """struct mallinfo2 of glibc."""

    _fields_ = (
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks")),
        ("keepcost", ctypes.c_size_t),
    )


LIBC = ctypes.CDLL(None)
LIBC.mallinfo2.restype = MallInfo


def python_memory() -> dict[str, int]:
    """What Python's allocator for small objects has from the system and in use.

    It writes its state to stderr, which is a file meanwhile.
    """
    with tempfile.TemporaryFile("w+") as told:
        stderr = os.dup(2)
        os.dup2(told.fileno(), 2)
        try:
            sys._debugmallocstats()
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        told.seek(0)
        text = told.read()
    arenas = re.search(r"(\d+) arenas \* (\d+) bytes/arena", text)
    used = re.search(r"# bytes in allocated blocks += +([\d,]+)", text)
    assert arenas is not None
    assert used is not None
    return {
        "python_arenas": int(arenas[1]) * int(arenas[2]),
        "python_used": int(used[1].replace(",", "")),
        "python_blocks": sys.getallocatedblocks(),
    }


class Subject:
    """The engine and what the commands do with it."""

    def __init__(self, engine: AsyncMLCEngine, args: argparse.Namespace) -> None:
        self._engine = engine
        self._args = args
        self._random = random.Random(args.seed)

    async def reload(self) -> dict[str, Any]:
        await self._engine.reload(self._args.model, settings(self._args), mode="server")
        return {}

    async def audit(self) -> dict[str, Any]:
        """Checks pages, ids and queues."""
        return {"pages": json.loads(self._engine._debug_call_func_on_all_worker("audit_pages"))}

    async def rest(self) -> dict[str, Any]:
        """The memory that is held when no request is in flight any more."""
        await asyncio.wait_for(self._idle(), IDLE_S)
        await self.audit()
        for _ in range(2):  # finalizers make garbage, too
            gc.collect()
        LIBC.malloc_trim(0)
        heap = LIBC.mallinfo2()
        return {
            "malloc_used": heap.uordblks + heap.hblkhd,
            "malloc_free": heap.fordblks,
            **python_memory(),
        }

    async def objects(self) -> dict[str, Any]:
        """How many objects of each type there are, of those that may be in cycles."""
        gc.collect()
        types = map(type, gc.get_objects())
        return {"objects": Counter(f"{each.__module__}.{each.__qualname__}" for each in types)}

    async def _idle(self) -> None:
        """Waits until requests whose clients have left are gone."""
        while True:
            metrics = (await self._engine.metrics()).metrics
            if metrics["num_running_requests"] + metrics["num_waiting_requests"] == 0:
                return
            await asyncio.sleep(0.05)

    async def metrics(self) -> dict[str, Any]:
        return {"metrics": (await self._engine.metrics()).metrics}

    async def generate(self) -> dict[str, Any]:
        """Eight streams at once; a third are closed early, a third are aborted by their id."""
        results = await asyncio.gather(*(self._one(i % 3) for i in range(8)))
        return {"ended": sum(results), "asked": len(results)}

    async def _one(self, fate: int) -> int:
        """1 if the stream ended as it must."""
        request_id = f"own-{self._random.getrandbits(48):x}"
        leave_after = self._random.randint(0, 20)
        finals = seen = 0
        try:
            stream = await self._engine.completions.create(
                prompt="".join(self._random.choices("abcdefgh ", k=self._random.randint(1, 200))),
                max_tokens=self._random.randint(1, 120),
                temperature=self._random.choice([0, 1]),
                seed=1,
                stream=True,
                request_id=request_id,
            )
            async with contextlib.aclosing(stream):
                async for chunk in stream:
                    seen += 1
                    finals += sum(c.finish_reason in END_REASONS for c in chunk.choices)
                    if seen > leave_after and fate == 1:
                        return 1 if finals <= 1 else 0
                    if seen > leave_after and fate == 2:
                        await self._engine.abort(request_id)
        except EngineRequestError:
            return 1 if finals == 0 else 0
        return 1 if finals == 1 else 0


async def commands(subject: Subject) -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        name = json.loads(line)["do"]
        if name == "stop":
            return
        try:
            answer = await getattr(subject, name)()
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


def plant_leak(engine: AsyncMLCEngine, num_bytes: int) -> None:
    """Keeps so many bytes for each request: the negative control."""
    create = engine._create_request

    def leaking(*args: Any, **kwargs: Any) -> Any:
        KEPT.append(os.urandom(num_bytes))
        return create(*args, **kwargs)

    engine._create_request = leaking  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--speculative-mode", default="ngram")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--leak", type=int, default=0)
    args = parser.parse_args()
    with AsyncMLCEngine(args.model, engine_config=settings(args), mode="server") as engine:
        if args.leak:
            plant_leak(engine, args.leak)
        with server(engine) as url:
            print(json.dumps({"url": url, "pid": os.getpid()}), flush=True)
            asyncio.run(commands(Subject(engine, args)))


if __name__ == "__main__":
    main()
