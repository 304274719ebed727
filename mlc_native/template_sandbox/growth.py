"""How large the result of one operation of a template can be, before it runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from mlc_native.template_sandbox.limits import Weight, refuse

MAX_ARGUMENT = 100_000  # an integer given to a function or filter: widths, counts, range()
MAX_BITS = 4096  # of an integer: a division of longer ones takes long
_BYTES_PER_ITEM = 100  # of a list of texts, each of which is short
_WIDE = re.compile(r"\d{5,}")
_STAR = re.compile(r"%[-#0 +.\d]*\*")  # a width that is an argument
_NUMBERS = re.compile(r"\d+")
_FIELDS = {"%": re.compile(r"%(s|%)"), "format": re.compile(r"\{(\d*)\}|\{\{|\}\}")}
_ALL_FIELDS = {"%": re.compile(r"%"), "format": re.compile(r"[{}]")}
_LISTS = {"batch", "groupby", "list", "rsplit", "slice", "sort", "split", "splitlines", "unique"}


def check_format(name: str, form: Any) -> None:
    """Refuses a format whose fields are far too wide."""
    text = str(form)
    if _WIDE.search(text) or (name == "%" and _STAR.search(text)):
        refuse("a format asks for too wide a field")


def largest_result(
    name: str, value: Any, weight: Weight, args: Sequence[Any], whole: Weight
) -> int:
    """About the most bytes that ``name`` can make of a value and arguments.

    ``weight`` is that of the value, and ``whole`` that of the value and the arguments.
    """
    number = max((abs(arg) for arg in args if type(arg) is int), default=0)
    chars = max(0, whole.chars - weight.chars)
    if name in ("center", "ljust", "rjust", "zfill"):
        return weight.chars + number
    if name == "indent":
        return weight.chars + (_count(value, "\n") + 1) * (number + chars)
    if name == "expandtabs":
        return weight.chars + _count(value, "\t") * (number or 8)
    if name == "tojson":
        between = chars + number + 2 if args else 2
        return 6 * weight.chars + weight.values * between * max(1, weight.depth)
    if name in ("translate", "wordwrap", "join", "replace"):
        return (weight.chars + weight.values) * (2 + chars)
    if name in ("%", "format", "format_map"):
        text = str(value)
        widths = sum(map(int, _NUMBERS.findall(text)))
        fields = text.count("%" if name == "%" else "{")
        return weight.chars + widths + fields * (10 * whole.chars + number)
    if name in _LISTS:
        size = weight.chars if isinstance(value, (str, bytes)) else weight.values
        return _BYTES_PER_ITEM * size + 8 * number
    return 8 * weight.chars + chars


def _count(value: Any, char: str) -> int:
    return str.count(value, char) if isinstance(value, str) else 1


def format_pieces(name: str, form: str, args: Any) -> list[str] | None:
    """What a format of whole values consists of, in order; None if it has other fields.

    ``name`` is "%" or "format", the operator or the method.
    """
    values = list(args) if isinstance(args, tuple) else [args]
    if type(form) is not str or isinstance(args, dict):
        return None
    if not all(type(value) is int or isinstance(value, str) for value in values):
        return None
    pieces: list[str] = []
    at = index = 0
    for field in _FIELDS[name].finditer(form):
        between = form[at : field.start()]
        if _ALL_FIELDS[name].search(between):
            return None
        pieces.append(between)
        at = field.end()
        if field[0] in ("%%", "{{", "}}"):
            pieces.append(field[0][0])
            continue
        chosen = int(field[1]) if name == "format" and field[1] else index
        index += 1
        if chosen >= len(values):
            return None
        value = values[chosen]
        pieces.append(value if isinstance(value, str) else str(value))
    rest = form[at:]
    if _ALL_FIELDS[name].search(rest) or (name == "%" and index != len(values)):
        return None
    return [*pieces, rest]
