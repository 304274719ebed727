"""Types of pyx/stream_bridge.pyx; tests/python/test_stub.py compares the names."""

from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Any, Literal

FinishReason = Literal["stop", "length", "abort", "error", "timeout"]

class CallbackStreamOutput:
    """The new output of one sequence of a request or, in the last one of a request, its usage."""

    @property
    def request_id(self) -> str: ...
    @property
    def delta_text(self) -> str: ...
    @property
    def delta_token_ids(self) -> list[int]: ...
    @property
    def delta_logprob_json_strs(self) -> list[str] | None: ...
    @property
    def finish_reason(self) -> FinishReason | None: ...
    @property
    def request_final_usage_json_str(self) -> str | None: ...
    @property
    def embedding(self) -> bytes | None: ...
    @property
    def has_scored_prompt(self) -> bool: ...
    @property
    def scored_prompt(self) -> list[str] | None: ...

class Channel:
    """The outputs of one or several requests on their way to their consumer."""

    @property
    def request_id(self) -> str: ...
    @property
    def finished(self) -> bool: ...
    @property
    def open_ids(self) -> list[str]: ...

class SyncChannel(Channel):
    """A channel whose consumer is a thread."""

    def interrupt(self) -> None:
        """Makes ``next`` return None from now on, on whatever thread it waits."""

    def next(self) -> list[CallbackStreamOutput] | None:
        """Returns the next outputs of a request; None after the last. Waits without the GIL."""

class AsyncChannel(Channel):
    """A channel whose consumer is a task of the event loop it was opened on."""

    @property
    def loop(self) -> AbstractEventLoop: ...
    @property
    def has_waiter(self) -> bool: ...
    async def next(self) -> list[CallbackStreamOutput] | None:
        """Returns the next outputs of a request; None after the last."""

class StreamBridge:
    """The engine's stream callback."""

    def __init__(self, abort: Callable[[str], Any] | None = None) -> None: ...
    def open_sync(self, request_id: str) -> SyncChannel:
        """Opens a channel for a thread. Raises ValueError if the id is in use."""

    def open_async(self, request_id: str, loop: AbstractEventLoop) -> AsyncChannel:
        """Opens a channel for a task of ``loop``. Raises ValueError if the id is in use."""

    def join(self, channel: Channel, request_id: str) -> None:
        """Adds a request to a channel. Raises ValueError if the id is in use."""

    def discard(self, channel: Channel, request_id: str | None = None) -> list[str]:
        """Closes a channel whose consumer gave up, or one request that the engine refused."""

    def give_up(self, channel: Channel) -> None:
        """Closes a channel that nobody reads any more, and aborts its requests."""

    def close(self, reason: str) -> None:
        """Ends every open channel with EngineTerminatedError. No output may follow."""

    def __len__(self) -> int: ...
    def __call__(self, outputs: list[Any]) -> None:
        """The engine's callback. ``outputs`` is a batch of RequestStreamOutput."""
