"""Lets Ctrl-C end calls that block in C++."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


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

    def run() -> None:
        try:
            outcome.set_result(function(*args, **kwargs))
        except BaseException as error:  # raised again by result()
            outcome.set_exception(error)

    # Not a daemon: the end of the interpreter would stop such a thread within C++ code.
    thread = threading.Thread(target=run, name="mlc-native-call")
    try:
        thread.start()
        return outcome.result()
    except KeyboardInterrupt:
        if stop is not None:
            stop()
            if thread.ident is not None:  # it was started
                thread.join()
        raise
