"""Negative controls of the frame: what a hostile input could do, done on purpose."""

from __future__ import annotations

import os
import signal
import time

from hostile.frame import PATIENCE, Case, HostileClass

_KINDS = ("refused", "exits", "crashes", "hangs", "raises", "eats", "works", "panics")


class _Panic(BaseException):
    pass


def hostile_class() -> HostileClass:
    """The class."""
    cases = [
        case for kind in _KINDS for case in (Case(kind, kind), Case(f"after {kind}", "refused"))
    ]
    return HostileClass("planted", cases, _attempt, cpu_s=1, memory_mib=50)


def _attempt(kind: str) -> str:
    if kind == "exits":
        os._exit(3)
    if kind == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "hangs":
        time.sleep(1000)
    if kind == "raises":
        raise ValueError("not an error of the family")
    if kind == "panics":
        raise _Panic
    if kind == "eats":
        assert bytearray(100 << 20)
    if kind == "works":
        end = time.process_time() + 1.5 * PATIENCE
        while time.process_time() < end:
            pass
    return "refused"
