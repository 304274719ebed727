"""Running: the requests that generate now, and whether more are admitted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from mlc_native.server.errors import RETRY_AFTER_S, HttpError


class Running:
    """Counts requests, refuses those above the limit, and lets a server wait for the last one.

    Belongs to the event loop of the server.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False
        self.num_rejected: Counter[str] = Counter()  # because of the limit, by model

    @property
    def count(self) -> int:
        """The number of requests that generate."""
        return self._count

    @contextmanager
    def admit(self, model_name: str) -> Iterator[None]:
        """Counts a request while it runs. Raises HttpError: 503 while draining, 429 when full."""
        if self.draining:
            raise draining_error()
        if self._limit is not None and self._count >= self._limit:
            self.num_rejected[model_name] += 1
            raise HttpError(
                429,
                f"the server runs {self._count} requests, which is its limit",
                code="too_many_requests",
                headers={"retry-after": str(RETRY_AFTER_S)},
            )
        self._count += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._count -= 1
            if self._count == 0:
                self._idle.set()

    async def wait_until_idle(self) -> None:
        """Returns when no request runs."""
        await self._idle.wait()


def draining_error() -> HttpError:
    """The answer to new requests while the server ends."""
    return HttpError(
        503,
        "the server is shutting down",
        code="shutting_down",
        headers={"connection": "close", "retry-after": str(RETRY_AFTER_S)},
    )
