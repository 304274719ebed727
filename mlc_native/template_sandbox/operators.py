"""The operators of templates, each of which pays before it runs, and what keeps texts apart."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any

import jinja2

from mlc_native.template_sandbox.budget import Budget
from mlc_native.template_sandbox.growth import MAX_BITS, check_format, format_pieces, largest_result
from mlc_native.template_sandbox.limits import refuse
from mlc_native.template_sandbox.prompt_text import MixedText, PromptText, joined, plain

SCALARS = (str, int, float, bool, type(None))
SCALAR_TYPES = {*SCALARS, PromptText, MixedText}
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    **{"eq": operator.eq, "ne": operator.ne, "gt": operator.gt, "lt": operator.lt},
    **{"gteq": operator.ge, "lteq": operator.le, "ge": operator.ge, "le": operator.le},
    **{"==": operator.eq, "equalto": operator.eq, "!=": operator.ne, ">": operator.gt},
    **{"greaterthan": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le},
    "lessthan": operator.lt,
}


class BoundedOperators:
    """What code.py calls for an operator. The budget is that of the rendering."""

    _budget: ContextVar[Budget]

    def text(self, value: Any) -> str:
        """The text of a value. What shows a list or an object is not the template's own."""
        kind = type(value)
        if kind is str or kind is PromptText or kind is MixedText:
            same: str = value
            return same
        if kind in SCALAR_TYPES or isinstance(value, jinja2.Undefined):
            return str(value)
        budget = self._budget.get()
        weight = budget.walk(value)
        budget.reserve(10 * weight.chars + 8 * weight.values, "a text of a list or an object")
        made: str = budget.made(PromptText(str(value)))
        return made

    # ---- operators

    def add(self, left: Any, right: Any) -> Any:
        budget = self._budget.get()
        if isinstance(left, str) and isinstance(right, str):
            return budget.made(joined((left, right)))
        if isinstance(left, (list, tuple)):
            budget.reserve(8 * (len(left) + length(right)), "a sum")
        return budget.made(small(left + right))

    def subtract(self, left: Any, right: Any) -> Any:
        return small(left - right)

    def multiply(self, left: Any, right: Any) -> Any:
        budget = self._budget.get()
        for one, times in ((left, right), (right, left)):
            if isinstance(one, (str, bytes, list, tuple)) and isinstance(times, int):
                size = 4 if isinstance(one, (str, bytes)) else 8
                budget.reserve(size * len(one) * max(times, 0), "a product")
        are_int = isinstance(left, int) and isinstance(right, int)
        if are_int and left.bit_length() + right.bit_length() > MAX_BITS:
            refuse("a product would have too many digits")
        product = left * right
        if isinstance(left, PromptText) or isinstance(right, PromptText):
            product = PromptText(product)
        return budget.made(product)

    def power(self, left: Any, right: Any) -> Any:
        if not all(isinstance(x, (int, float)) and abs(x) <= 4096 for x in (left, right)):
            refuse("a power would have too many digits")
        return left**right

    def modulo(self, left: Any, right: Any) -> Any:
        if not isinstance(left, (str, bytes)):
            return left % right
        return self._formatted("%", left, lambda form, args: form % args, right)

    def concatenate(self, *values: Any) -> str:
        budget = self._budget.get()
        texts = [self.text(value) for value in values]
        budget.reserve(sum(map(len, texts)), "a text")
        made: str = budget.made(joined(texts))
        return made

    def compare(self, name: str, left: Any, right: Any) -> Any:
        if type(left) not in SCALAR_TYPES and type(right) not in SCALAR_TYPES:
            budget = self._budget.get()
            budget.walk(left)
            budget.walk(right)
        return COMPARISONS[name](left, right)

    def contains(self, value: Any, container: Any) -> bool:
        budget = self._budget.get()
        if isinstance(container, str):
            budget.pay_chars(len(container))
        elif isinstance(container, Mapping):
            self.key(value)
        elif type(value) not in SCALAR_TYPES:
            budget.walk(value, times=1 + length(container))
            budget.walk(container)
        elif hasattr(container, "__next__"):
            container = budget.counted(container)
        else:
            budget.pay(1 + length(container) // 8)
        return value in container

    def concat(self, pieces: Iterable[str]) -> str:
        """What a macro or a block wrote."""
        budget = self._budget.get()
        pieces = list(pieces)
        budget.reserve(sum(map(len, pieces)), "a text")
        made: str = budget.made(joined(pieces))
        return made

    def scalar(self, value: Any) -> Any:
        """An operand of a chain of comparisons."""
        if type(value) not in SCALAR_TYPES and not isinstance(value, jinja2.Undefined):
            refuse("a chain of comparisons takes numbers and texts only")
        return value

    def key(self, value: Any) -> Any:
        """A key of an object, whose hash visits all of it."""
        if type(value) not in SCALAR_TYPES:
            self._budget.get().walk(value)
        return value

    def cut(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        """``value[start:stop:step]``."""
        return self._budget.get().made(value[start:stop:step])

    def _formatted(
        self, name: str, form: Any, function: Callable[[Any, Any], Any], args: Any
    ) -> Any:
        """A format with its arguments. Texts of a request stay apart where they are whole."""
        budget = self._budget.get()
        weight = budget.walk(args)
        check_format(name, form)
        largest = largest_result(name, form, budget.walk(form), (args,), weight)
        budget.reserve(largest, "a format")
        pieces = format_pieces(name, form, args) if weight.foreign else None
        if pieces is not None:
            return budget.made(joined(pieces))
        result = budget.made(function(plain(form), args))
        return foreign(result) if weight.foreign or type(form) is not str else result


def length(value: Any) -> int:
    return len(value) if hasattr(value, "__len__") else 0


def small(value: Any) -> Any:
    if type(value) is int and value.bit_length() > MAX_BITS:
        refuse("a number would have too many digits")
    return value


def test_of_number(test: Callable[..., bool]) -> Callable[..., bool]:
    def call(value: Any, *args: Any) -> bool:
        if isinstance(value, (str, bytes)):  # for which % is a format
            raise TypeError("a text is no number")
        return test(value, *args)

    return call


def is_foreign(values: Iterable[Any]) -> bool:
    return any(isinstance(value, PromptText) for value in values)


def holds_foreign(args: tuple[Any, ...]) -> bool:
    """Whether a text that is not the template's own is in the arguments of a method of a text."""
    return is_foreign(args) or any(isinstance(each, (list, tuple)) for each in args)


def own(result: Any) -> Any:
    """A result of the template's own values, without jinja2's marks for HTML."""
    return (
        plain(result) if isinstance(result, str) and not isinstance(result, PromptText) else result
    )


def foreign(result: Any) -> Any:
    """A result in which the texts are not the template's own."""
    if isinstance(result, str):
        return result if isinstance(result, PromptText) else PromptText(result)
    if isinstance(result, (list, tuple)):
        members = [foreign(each) for each in result]
        return members if isinstance(result, list) else tuple(members)
    return result
