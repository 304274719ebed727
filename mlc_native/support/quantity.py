"""quantity: numbers as people read them."""

from __future__ import annotations


def quantity(number: float, unit: str) -> str:
    """A number with three digits and a decimal prefix: ``"3.28 MB"``, ``"3.28 M parameters"``."""
    prefixes = ["", "k", "M", "G", "T"]
    while abs(number) >= 999.5 and len(prefixes) > 1:
        number /= 1000
        del prefixes[0]
    prefix = prefixes[0]
    digits = f"{number:.3g}" if abs(number) < 100 else f"{number:.0f}"
    separator = "" if len(unit) == 1 or not prefix else " "
    return f"{digits} {prefix}{separator}{unit}"
