"""JSON of limited depth: what is nested deeper is an error before anything walks it recursively."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any

MAX_MEMBERS = 1 << 16  # of a container of a class of its own
_SCALARS = {str, int, float, bool, type(None)}
_BUILTIN = {list, tuple, dict}


class TooDeepError(ValueError):
    """A text or value that is nested deeper than allowed."""

    def __init__(self, max_depth: int) -> None:
        super().__init__(f"it is nested deeper than {max_depth} levels")


def loads(text: str, max_depth: int) -> Any:
    """The value of a JSON text. Raises ValueError; TooDeepError is one."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise TooDeepError(max_depth) from None
    if text.count("[") + text.count("{") > max_depth:
        check_depth((value,), max_depth)
    return value


def check_depth(values: Iterable[Any], max_depth: int) -> None:
    """Raises TooDeepError if lists and objects are within each other more than ``max_depth`` times.

    A value that is in another one several times is looked at once per level. Containers of a class
    of their own may have no end: ValueError if there are more than ``MAX_MEMBERS`` members.
    """
    level = _containers(values)
    depth = 0
    while level:
        depth += 1
        if depth > max_depth:
            raise TooDeepError(max_depth)
        members: list[Any] = []
        for container in level.values():
            inner = container.values() if isinstance(container, Mapping) else container
            if type(container) not in _BUILTIN:
                inner = list(itertools.islice(inner, MAX_MEMBERS + 1))
                if len(inner) > MAX_MEMBERS:
                    raise ValueError(f"it has more than {MAX_MEMBERS} members")
            members.extend(inner)
        level = _containers(members)


def _containers(values: Iterable[Any]) -> dict[int, Any]:
    return {
        id(value): value
        for value in values
        if type(value) not in _SCALARS and isinstance(value, (list, tuple, Mapping))
    }
