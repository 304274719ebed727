"""Keys: typed values of a file, each within its range."""

from __future__ import annotations

import math
from typing import Any

from mlc_native.serve.images.mmproj.file import MmprojFile

_PREFIX = "clip.vision."


class Keys:
    """The values of "clip.vision.<name>". What is wrong is a LoadError that names the key."""

    def __init__(self, file: MmprojFile) -> None:
        self.file = file

    def has(self, name: str) -> bool:
        """Whether the file says it."""
        return _PREFIX + name in self.file.values

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """An integer in [low, high]. Without a default, the file must have it."""
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self._fail(name, f"must be an integer in [{low}, {high}]", value)
        return value

    def number(self, name: str, low: float, high: float) -> float:
        """A number in (low, high]."""
        value = self._value(name, None)
        if not isinstance(value, float) or not low < value <= high:
            self._fail(name, f"must be a number in ({low}, {high}]", value)
        return value

    def colours(self, name: str, low: float) -> list[float]:
        """Three numbers, each more than ``low`` and finite."""
        value = self._value(name, None)
        if (
            not isinstance(value, list)
            or len(value) != 3
            or not all(type(each) in (int, float) and low < each < math.inf for each in value)
        ):
            self._fail(name, f"must be a list of three finite numbers above {low}", value)
        return value

    def flags(self, name: str, count: int) -> list[bool]:
        """As many booleans as there are layers; all false if the file does not say it."""
        value = self._value(name, [False] * count)
        kinds = set(map(type, value)) if isinstance(value, list) else {list}
        if kinds - {bool} or len(value) != count:
            self._fail(name, f"must be a list of {count} booleans", value)
        return value

    def layers(self, name: str, count: int) -> list[int] | None:
        """A list of numbers of layers in [0, count]; None if the file does not say it."""
        if not self.has(name):
            return None
        value = self._value(name, None)
        if not isinstance(value, list) or not all(
            isinstance(each, int) and 0 <= each <= count for each in value
        ):
            self._fail(name, f"must be a list of integers in [0, {count}]", value)
        return value

    def activation(self, neither: str | None, gelu: str, silu: str | None = "silu") -> str:
        """The activation that the file says, by its names in transformers; None: not supported."""
        said = [name for name in ("gelu", "silu") if self._flag(f"clip.use_{name}")]
        if len(said) == 2:
            self.file.fail("clip.use_silu", 'must not be true beside "clip.use_gelu"')
        found = {"gelu": gelu, "silu": silu}[said[0]] if said else neither
        if found is None:
            key = "clip.use_silu" if said else "clip.use_gelu"
            self.file.fail(key, "does not fit the projector type")
        return found

    def rope_base(self) -> float:
        """That of positions in images, which some converters write."""
        key = "clip.rope.freq_base"
        value = self.file.values.get(key, 1e4)
        if not isinstance(value, float) or not 1 < value <= 1e12:
            self.file.fail(key, f"must be a number in (1, 1e12], is {value!r:.40}")
        return value

    def _flag(self, key: str) -> bool:
        value = self.file.values.get(key, False)
        if not isinstance(value, bool):
            self.file.fail(key, f"must be a boolean, is {value!r:.40}")
        return value

    def _value(self, name: str, default: Any) -> Any:
        value = self.file.values.get(_PREFIX + name, default)
        if value is None:
            self.file.fail(_PREFIX + name, "is missing")
        return value

    def _fail(self, name: str, what: str, value: Any) -> None:
        self.file.fail(_PREFIX + name, f"{what}, is {value!r:.80}")
