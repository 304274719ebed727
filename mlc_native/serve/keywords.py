"""Functions whose keyword arguments are declared elsewhere and arrive as ``**arguments``."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable


def check_keywords(function: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raises TypeError, as Python does, for a keyword argument that a function does not have."""
    for name in given:
        if name not in known:
            similar = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean '{similar[0]}'?" if similar else ""
            raise TypeError(f"{function}() got an unexpected keyword argument '{name}'{hint}")
