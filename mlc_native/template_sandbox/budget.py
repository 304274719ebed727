"""Budget: what one rendering of a chat template may use, and what it has used.

An operation of a template pays before it runs, for every value that it is going to visit and for
every byte that it is going to make. No operation can therefore be long or large by itself, however
often a template puts a list into itself. One rendering, one thread.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from jinja2.utils import Namespace

from mlc_native.template_sandbox.limits import Limits, Weight, refuse
from mlc_native.template_sandbox.prompt_text import MixedText, PromptText

MAX_DEPTH = 200  # of lists and objects within each other
_MESSAGE_DEPTH = 2  # of a message in the variables
_STEPS_PER_CHECK = 512  # of the time
_CHARS_PER_STEP = 256
_STEPS_PER_VALUE = 2  # that is weighed: about 0.5 us each
_SCALARS = {bool, type(None), float}
_VIEWS: Any = (type({}.keys()), type({}.values()), type({}.items()))


class _Copy:
    """Copies the input of a rendering and weighs it.

    Attributes:
        weights: gets the weight of each list and object of the copy, by its id.
    """

    def __init__(self, weights: dict[int, Weight]) -> None:
        self.weights = weights
        self.values = self.chars = self.depth = 0

    def value(self, value: Any, depth: int) -> Any:
        """The copy of a value, in which texts are PromptTexts."""
        kind = type(value)
        self.values += 1
        if kind is str:
            self.chars += len(value)
            return PromptText(value)
        if kind in _SCALARS or kind is int:
            return value
        if depth > MAX_DEPTH:
            refuse(f"its input is nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, Mapping):
            return self.mapping(value, depth)
        if isinstance(value, (list, tuple)):
            values, chars = self.values, self.chars
            members = [self.value(member, depth + 1) for member in value]
            made: Any = members if isinstance(value, list) else tuple(members)
            self._weigh(made, values, chars, depth)
            return made
        return PromptText(value) if isinstance(value, str) else value

    def mapping(self, value: Mapping[Any, Any], depth: int) -> dict[Any, Any]:
        """The copy of an object. What is not the request's are the names of the variables."""
        values, chars = self.values, self.chars
        made: dict[Any, Any] = {}
        for key, member in value.items():
            copy = self.value(member, depth + 1)
            if type(key) is str:
                self.chars += len(key)
                if depth == _MESSAGE_DEPTH and key == "role" and str(member).isidentifier():
                    copy = str(member)  # a template may make a control token of a role
                if depth > 0:
                    key = PromptText(key)
            made[key] = copy
        self.values += len(made)
        self._weigh(made, values, chars, depth)
        return made

    def _weigh(self, made: Any, values: int, chars: int, depth: int) -> None:
        self.depth = max(self.depth, depth + 1)
        values, chars = self.values - values + 1, self.chars - chars
        self.weights[id(made)] = Weight(values, chars, self.depth, True)


class Budget:
    """The limits of a rendering and what it has used of them."""

    def __init__(self, limits: Limits) -> None:
        self._inputs: dict[int, Weight] = {}
        self._set(limits)
        self._next_check = sys.maxsize  # what the input costs is counted when it has been taken

    def _set(self, limits: Limits) -> None:
        self.limits = limits
        self._steps = self._memory = 0
        self._next_check = _STEPS_PER_CHECK
        self._deadline = time.thread_time() + limits.seconds

    # ---- the input

    def take(self, names: Mapping[str, Any], *, trusted: bool) -> dict[str, Any]:
        """A copy of what a request brings, whose texts are foreign unless they are trusted.

        The limits grow with it. The copy must live as long as the rendering.
        """
        if trusted:
            taken = dict(names)
            weight = self.weigh(taken)
        else:
            copy = _Copy(self._inputs)
            taken = copy.mapping(names, 0)
            weight = Weight(copy.values, copy.chars, 0, True)
        self._set(self.limits.with_input(weight))
        return taken

    # ---- paying

    def pay(self, steps: int) -> None:
        """Pays for steps that come next."""
        self._steps += steps
        if self._steps >= self._next_check:
            self._check()

    def _check(self) -> None:
        if self._steps > self.limits.steps:
            refuse(f"it took more than {self.limits.steps} steps")
        if time.thread_time() > self._deadline:
            refuse(f"it ran for more than {self.limits.seconds:g} s")
        self._next_check = self._steps + _STEPS_PER_CHECK

    def pay_chars(self, chars: int) -> None:
        """Pays for reading or copying a text once."""
        self.pay(1 + chars // _CHARS_PER_STEP)

    def reserve(self, num_bytes: int, what: str) -> None:
        """Refuses an operation that is going to make more than there is room for."""
        if self._memory + num_bytes > self.limits.memory_bytes:
            refuse(f"{what} would make up to {num_bytes} bytes")

    def made(self, value: Any) -> Any:
        """Pays for a value that was made, and returns it."""
        size = sys.getsizeof(value)
        self._memory += size
        if self._memory > self.limits.memory_bytes:
            refuse(f"it made more than {self.limits.memory_bytes} bytes")
        self.pay(1 + size // (4 * _CHARS_PER_STEP))
        return value

    def counted(self, values: Iterable[Any]) -> Iterator[Any]:
        """The values, each of which is paid for."""
        for value in values:
            self.pay(1)
            yield value

    def walk(self, value: Any, times: int = 1) -> Weight:
        """Pays for an operation that visits a whole value that many times."""
        kind = type(value)
        if kind is str or kind is PromptText or kind is MixedText:
            self.pay((1 + len(value) // _CHARS_PER_STEP) * times)
            return Weight(1, len(value), 0, kind is not str)
        weight = self.weigh(value)
        self.pay((weight.values + weight.chars // _CHARS_PER_STEP) * times)
        return weight

    # ---- weighing

    def weigh(self, value: Any) -> Weight:
        """How large a value is. Pays for what it has to visit, and visits no more than it pays."""
        values = chars = depth = 0
        foreign = False
        level = [value]
        while level:
            values += len(level)
            depth += 1
            if depth > MAX_DEPTH:
                refuse(f"a value is nested deeper than {MAX_DEPTH} levels")
            self.pay(_STEPS_PER_VALUE * len(level))
            deeper: list[Any] = []
            for each in level:
                kind = type(each)
                if kind is str:
                    chars += len(each)
                elif kind is PromptText or kind is MixedText:
                    chars += len(each)
                    foreign = True
                elif kind is int:
                    chars += 2 + each.bit_length() // 3
                elif kind in _SCALARS:
                    chars += 24
                elif (known := self._inputs.get(id(each))) is not None:
                    values += known.values
                    chars += known.chars
                    depth = max(depth, known.depth)
                    foreign = foreign or known.foreign
                else:
                    added, is_foreign = self._members(each, deeper)
                    chars += added
                    foreign = foreign or is_foreign
            level = deeper
        return Weight(values, chars, depth, foreign)

    def _members(self, value: Any, deeper: list[Any]) -> tuple[int, bool]:
        """Adds what a value that is no scalar consists of. Returns its characters, and foreign."""
        if isinstance(value, Mapping):
            deeper += value.keys()
            deeper += value.values()
            return 0, False
        if isinstance(value, (list, tuple, set, frozenset, *_VIEWS)):
            deeper.extend(cast(Iterable[Any], value))
            return 0, False
        if isinstance(value, range):
            self.pay(len(value) // 4)
            return 6 * len(value), False
        if isinstance(value, Namespace):
            deeper.append(object.__getattribute__(value, "_Namespace__attrs"))
            return 0, False
        if isinstance(value, (str, bytes)):
            return len(value), True
        return 100, False  # a function, an iterator, an undefined value
