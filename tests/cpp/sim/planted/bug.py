"""What a planted bug is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """A replacement of text that occurs exactly once in a file of csrc."""

    name: str
    file: str
    old: str
    new: str
    test: str = ""  # "PROGRAM FILTER": the test that finds it; "": the simulation
    focus: str = ""  # the features of the simulation that may happen; "": all
