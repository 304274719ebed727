"""Preparations: the requests that are being prepared, so that others can give them up.

A request whose answer is constrained may take seconds to prepare, while its grammar compiles. Until
it is handed to the engine, which has ids for aborts, it is found here. Owned by an engine; any
thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mlc_native._core import Cancellation


class Preparations:
    """Request ids, and the Cancellation of the call that prepares each of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: set[tuple[str, Cancellation]] = set()

    @contextmanager
    def entry(self, request_id: str, cancellation: Cancellation) -> Iterator[None]:
        """While the block runs, ``abort`` reaches it. An exception, as of Ctrl-C, gives it up."""
        entry = (request_id, cancellation)
        with self._lock:
            self._entries.add(entry)
        try:
            yield
        except BaseException:
            cancellation.cancel()
            raise
        finally:
            with self._lock:
                self._entries.discard(entry)

    def __len__(self) -> int:
        """The number of requests that are being prepared."""
        with self._lock:
            return len(self._entries)

    def abort(self, request_id: str) -> None:
        """Gives up the requests with this id."""
        self._cancel(request_id)

    def abort_all(self) -> None:
        """Gives up all requests."""
        self._cancel(None)

    def _cancel(self, request_id: str | None) -> None:
        with self._lock:
            found = [each for id_, each in self._entries if request_id in (None, id_)]
        for cancellation in found:
            cancellation.cancel()
