"""A jinja2 environment for untrusted templates, bounded in time, steps and memory.

jinja2's sandbox keeps a template from reaching Python, but not from running forever. Here every
operation pays before it runs (budget.py): for each value that it visits, which are more than
there are if a list is in itself several times, and for each byte that it makes. The code of a
template (code.py) calls the environment for operators, filters, tests and functions.

The environment also keeps apart what a template wrote and what it was given (prompt_text.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, cast

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.filters import make_attrgetter
from jinja2.lexer import Token, TokenStream
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mlc_native.template_sandbox.budget import Budget
from mlc_native.template_sandbox.code import TemplateCode, count_iterations
from mlc_native.template_sandbox.growth import (
    MAX_ARGUMENT,
    check_format,
    format_pieces,
    largest_result,
)
from mlc_native.template_sandbox.limits import Limits, TemplateLimitError, Weight, refuse
from mlc_native.template_sandbox.operators import (
    COMPARISONS,
    BoundedOperators,
    foreign,
    holds_foreign,
    is_foreign,
    own,
    small,
    test_of_number,
)
from mlc_native.template_sandbox.prompt_text import (
    PromptText,
    joined,
    joined_by,
    plain,
    replaced,
    split,
    stripped,
)

__all__ = ["BoundedEnvironment", "Limits", "TemplateLimitError"]

MAX_TOKENS = 10_000  # of a source. They take 20 to 40 us each; the largest known one has 2,461.
_HIDDEN_ARGUMENTS = ("_loop_vars", "_block_vars", "caller")
_STRIPS = {"strip", "lstrip", "rstrip", "removeprefix", "removesuffix"}
# Filters that visit what they get as their result is taken, and those that visit nothing.
_LAZY = {"first", "map", "reject", "rejectattr", "select", "selectattr"}
_SHALLOW = {
    *("abs", "attr", "count", "d", "default", "float", "int", "items", "last", "length"),
    *("random", "round"),
}
_SORTING = {"dictsort", "groupby", "max", "min", "sort", "sum", "unique"}
# Filters that are much slower than a copy.
_SLOW = {"pprint", "striptags", "title", "urlize", "wordwrap", "wordcount", "xmlattr"}
_MAX_SLOW_CHARS = 1 << 16


class _GenerationTag(Extension):
    """``{% generation %}``, which marks assistant text for training and is only a scope here."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class BoundedEnvironment(BoundedOperators, ImmutableSandboxedEnvironment):
    """The sandbox with budgets. Safe to use from several threads and tasks."""

    code_generator_class = TemplateCode
    # So that nothing is computed while a template is compiled.
    intercepted_binops = frozenset(("+", "-", "*", "**", "%", "/", "//"))

    def __init__(self, **options: Any) -> None:
        super().__init__(
            optimized=False,
            finalize=self.text,
            extensions=["jinja2.ext.loopcontrols", _GenerationTag],
            **options,
        )
        self._budget = ContextVar("budget")
        self.globals.pop("lipsum", None)  # produces text without input
        for name, function in self.filters.items():
            self.filters[name] = self.bounded(name, function)
        self.filters.update(
            {
                **{"string": self.text, "safe": self.text, "join": self._join},
                **{"trim": self._trim, "format": self._format, "replace": self._replace},
            }
        )
        for name in ("lower", "upper"):
            self.tests[name] = self._test_of_text(getattr(str, f"is{name}"))
        for name in ("odd", "even", "divisibleby"):
            self.tests[name] = test_of_number(cast(Callable[..., bool], self.tests[name]))
        for name in COMPARISONS.keys() & self.tests.keys():
            self.tests[name] = self._comparison(name)
        self.tests["in"] = self.contains

    # ---- compiling

    def _tokenize(
        self, source: str, name: str | None, filename: str | None = None, state: str | None = None
    ) -> TokenStream:
        stream = super()._tokenize(source, name, filename, state)

        def counted(tokens: Iterator[Token]) -> Iterator[Token]:
            for number, token in enumerate(tokens):
                if number > MAX_TOKENS:
                    message = f"it has more than {MAX_TOKENS} tokens"
                    raise jinja2.TemplateSyntaxError(message, token.lineno, name, filename)
                yield token

        stream._iter = counted(stream._iter)
        return stream

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return count_iterations(super()._parse(source, name, filename))

    # ---- rendering

    def render(
        self,
        template: jinja2.Template,
        given: Mapping[str, Any],
        limits: Limits,
        own: Mapping[str, Any] | None = None,
        *,
        trusted: bool = False,
    ) -> str:
        """Renders a template, whose variables are what a request has ``given`` and its ``own``.

        The result is a PromptText if something in it was given, unless what is given is trusted.
        Raises TemplateLimitError, or the exception of the template.
        """
        budget = Budget(limits)
        variables = {**budget.take(given, trusted=trusted), **(own or {})}
        token = self._budget.set(budget)
        try:
            pieces: list[str] = []
            num_chars = 0
            for piece in template.generate(variables):
                num_chars += len(piece)
                if num_chars > budget.limits.output_chars:
                    refuse(f"it wrote more than {budget.limits.output_chars} characters")
                budget.pay_chars(len(piece))
                pieces.append(piece)
            return plain(joined(pieces)) if trusted else joined(pieces)
        finally:
            self._budget.reset(token)

    def tick(self) -> bool:
        """Pays for an iteration or a macro call. Returns True, so that a condition can hold it."""
        self._budget.get().pay(1)
        return True

    # ---- filters and tests

    def bounded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter that pays. jinja2's context argument stays the first."""
        pass_arg = getattr(function, "jinja_pass_arg", None)
        num_hidden = 0 if pass_arg is None else 1

        def call(*args: Any, **kwargs: Any) -> Any:
            hidden, values = args[:num_hidden], list(args[num_hidden:])
            if values and hasattr(values[0], "__next__"):
                budget = self._budget.get()
                values[0] = budget.made(list(budget.counted(values[0])))
            return self._paid(
                name,
                tuple(values[:1]),
                (*values[1:], *kwargs.values()),
                lambda: function(*hidden, *values, **kwargs),
            )

        def call_shallow(*args: Any, **kwargs: Any) -> Any:
            hidden, values = args[:num_hidden], list(args[num_hidden:])
            budget = self._budget.get()
            budget.pay(1)
            if values and name in _LAZY and isinstance(values[0], Iterable):
                values[0] = budget.counted(values[0])
            return small(function(*hidden, *values, **kwargs))

        bounded = call_shallow if name in _LAZY | _SHALLOW else call
        if pass_arg is not None:
            bounded.jinja_pass_arg = pass_arg  # type: ignore[attr-defined]
        return bounded

    def _paid(
        self, name: str, receiver: tuple[Any, ...], args: tuple[Any, ...], call: Callable[[], Any]
    ) -> Any:
        """What a filter or a method returns. It visits the receiver, and may make much of it."""
        budget = self._budget.get()
        weights = [budget.walk(each) for each in (*receiver, *args)]
        whole = Weight(
            sum(each.values for each in weights),
            sum(each.chars for each in weights),
            max((each.depth for each in weights), default=0),
            any(each.foreign for each in weights),
        )
        for arg in args:
            if isinstance(arg, int) and abs(arg) > MAX_ARGUMENT:
                refuse(f"{name}() was called with {arg}")
        if name in _SORTING:
            budget.pay(whole.values * whole.values.bit_length() // 4)
        if name in _SLOW and whole.chars + whole.values > _MAX_SLOW_CHARS:
            refuse(f"{name}() takes at most {_MAX_SLOW_CHARS} characters")
        if receiver:
            budget.reserve(largest_result(name, receiver[0], weights[0], args, whole), f"{name}()")
        result = small(call())
        budget.made(result)
        return foreign(result) if whole.foreign else own(result)

    def _join(self, value: Any, d: Any = "", attribute: Any = None) -> str:
        budget = self._budget.get()
        items: Iterable[Any] = budget.counted(value)
        if attribute is not None:
            items = map(make_attrgetter(self, attribute), items)
        texts = [self.text(item) for item in items]
        separator = self.text(d)
        budget.reserve(sum(map(len, texts)) + len(separator) * len(texts), "join()")
        made: str = budget.made(joined_by(separator, texts))
        return made

    def _trim(self, value: Any, chars: Any = None) -> str:
        made: str = self._budget.get().made(stripped(self.text(value), "strip", chars))
        return made

    def _replace(self, s: Any, old: Any, new: Any, count: Any = None) -> str:
        text, old, new = self.text(s), self.text(old), self.text(new)
        budget = self._budget.get()
        budget.pay_chars(len(text))
        budget.reserve(len(text) + (plain(text).count(old) + 1) * (len(new) + 64), "replace()")
        made: str = budget.made(replaced(text, old, new, -1 if count is None else count))
        return made

    def _format(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        return self.modulo(self.text(value), kwargs or args)

    def _comparison(self, name: str) -> Callable[[Any, Any], Any]:
        return lambda left, right: self.compare(name, left, right)

    def _test_of_text(self, test: Callable[[str], bool]) -> Callable[[Any], bool]:
        return lambda value: test(plain(self.text(value)))

    # ---- calls

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function or method with checked arguments. Macros take any arguments."""
        budget = self._budget.get()
        if isinstance(obj, jinja2.runtime.Macro):
            budget.pay(1)
            return super().call(context, obj, *args, **kwargs)
        method = getattr(obj, "__wrapped__", obj)  # str.format is wrapped
        name, receiver = getattr(obj, "__name__", ""), getattr(method, "__self__", None)
        named = {key: kwargs[key] for key in kwargs if key not in _HIDDEN_ARGUMENTS}
        if isinstance(receiver, (str, bytes)):
            made = self._text_method(name, receiver, args, named)
            if made is not None:
                return budget.made(made)
        return self._paid(
            name,
            () if receiver is None or isinstance(receiver, dict) else (receiver,),
            (*args, *named.values()),
            lambda: super(BoundedEnvironment, self).call(context, obj, *args, **kwargs),
        )

    def _text_method(
        self, name: str, receiver: Any, args: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        """What a method of a text returns where texts of a request can be kept apart, else None."""
        if name in ("format", "format_map"):
            check_format(name, receiver)
            if name == "format" and not named and is_foreign(args):
                pieces = format_pieces(name, receiver, args)
                self._budget.get().reserve(sum(map(len, pieces or ())), "a format")
                return None if pieces is None else joined(pieces)
            return None
        if name == "join" and not named and len(args) == 1:
            return self._join(args[0], receiver)
        if not isinstance(receiver, PromptText) and not holds_foreign(args):
            return None
        if name == "encode":
            raise jinja2.exceptions.SecurityError("a text of the request is not encoded")
        if name in _STRIPS:
            return stripped(receiver, name, *args, **named)
        if name == "replace" and len(args) >= 2:
            return self._replace(receiver, *args, **named)
        if name == "split" and not named and args and isinstance(args[0], str) and args[0]:
            num_pieces = 1 + plain(receiver).count(args[0])
            self._budget.get().reserve(100 * num_pieces, "split()")
            return split(receiver, *args)
        return None
