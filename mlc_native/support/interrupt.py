"""Lets Ctrl-C end calls that block in C++."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_Signal = tuple[int, FrameType | None]
_Handler = Callable[[int, FrameType | None], object]


def call_interruptibly(
    stop: Callable[[], None] | None, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Returns ``function(*args, **kwargs)``, and leaves it at once when Ctrl-C is pressed.

    Python raises KeyboardInterrupt in the main thread, between two of its instructions, so a call
    that blocks in C++ would delay it. In the main thread the function therefore runs on a thread of
    its own, while the main thread waits. Other threads call the function directly.

    Args:
        stop: makes the function return soon; it is called when the wait is interrupted, and then
            the function's end is awaited. None: the function is left to end by itself.
    """
    if threading.current_thread() is not threading.main_thread():
        return function(*args, **kwargs)
    outcome: Future[T] = Future()
    events: SimpleQueue[_Signal | None] = SimpleQueue()  # None: the function has ended

    def run() -> None:
        try:
            outcome.set_result(function(*args, **kwargs))
        except BaseException as error:  # raised again by result()
            outcome.set_exception(error)
        events.put(None)

    # Not a daemon: the end of the interpreter would stop such a thread within C++ code.
    thread = threading.Thread(target=run, name="mlc-native-call")
    try:
        with _interrupts_to(events.put) as handler:
            thread.start()
            for event in iter(events.get, None):
                handler(*event)
        events.put(None)
        for event in iter(events.get, None):  # Ctrl-C was pressed when the function had just ended
            handler(*event)
    except BaseException:
        if stop is not None and thread.ident is not None:  # it was started
            stop()
            thread.join()
        raise
    return outcome.result()


@contextmanager
def _interrupts_to(note: Callable[[_Signal], None]) -> Iterator[_Handler]:
    """Gives each SIGINT to ``note``, and yields the handler that would have been called.

    That handler may raise, between any two instructions of the main thread. Python's own waits are
    written in Python: KeyboardInterrupt within one of them has left its lock in a wrong state
    ("cannot release un-acquired lock"), and the start of a thread is such a wait.
    """
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):  # the process ends, ignores the signal, or handles it outside Python
        yield lambda number, frame: None
        return
    try:
        signal.signal(signal.SIGINT, lambda number, frame: note((number, frame)))
    except ValueError:  # not the main interpreter, which gets no signals
        yield handler
        return
    try:
        yield handler
    finally:
        signal.signal(signal.SIGINT, handler)
