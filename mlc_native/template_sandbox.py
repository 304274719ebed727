"""A jinja2 environment for untrusted templates, bounded in time, steps and memory.

jinja2's sandbox keeps a template from reaching Python, but not from running forever. This module
rewrites the parsed template before it is compiled: every loop iteration and macro call costs one
step, and every value that can grow (``+ * ~ %``, calls, filters) costs its size. Each charge also
checks the clock. The result of a single operation that can grow is estimated before it runs.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_ARGUMENT = 100_000  # an integer given to a function or filter: widths, counts, range()
MAX_SINGLE_RESULT = 1 << 26  # characters or items that one operation may produce
# Methods whose result can be as large as the product of the receiver and the arguments.
_MULTIPLYING = {
    *("batch", "center", "expandtabs", "format", "format_map", "indent", "join", "ljust"),
    *("replace", "rjust", "slice", "wordwrap", "zfill"),
}
_WIDE_FORMAT = re.compile(r"\d{5,}")
_STAR_FORMAT = re.compile(r"%[-#0 +.\d]*\*")  # a width that is an argument
_HIDDEN_ARGUMENTS = ("_loop_vars", "_block_vars", "caller")


class TemplateLimitError(Exception):
    """The template ran too long or produced too much."""


@dataclass
class Limits:
    """Limits of one rendering: wall-clock seconds; steps (iterations, calls, created items)."""

    seconds: float = 5.0
    steps: int = 20_000_000
    output_chars: int = 16_000_000


@dataclass
class _Budget:
    limits: Limits
    steps: int = 0
    deadline: float = field(init=False)

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.limits.seconds

    def pay(self, steps: int) -> None:
        self.steps += steps
        if self.steps > self.limits.steps:
            raise TemplateLimitError(f"it took more than {self.limits.steps} steps")
        if time.monotonic() > self.deadline:
            raise TemplateLimitError(f"it ran for more than {self.limits.seconds:g} s")


# ------------------------------------------------------------------------------ how large it gets


def _refuse(reason: str) -> NoReturn:
    raise TemplateLimitError(reason)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (str, bytes, list, tuple, dict, set)) else 1


def _text_size(value: Any, depth: int = 0) -> int:
    """Estimates the characters of a value as text. A list may contain one text many times."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple, set)):
        return 1
    if depth == 16:
        return len(value)
    total = 0
    for item in value:
        total += _text_size(item, depth + 1)
        if total > MAX_SINGLE_RESULT:
            break
    return total


def _check_growth(name: str, receiver: Any, args: Iterable[Any]) -> None:
    """Refuses a call whose result would be far too large, before the call."""
    product = max(1, _text_size(receiver))
    for arg in args:
        if isinstance(arg, int) and abs(arg) > MAX_ARGUMENT:
            _refuse(f"{name}() was called with {arg}")
        if name in _MULTIPLYING:
            product *= max(1, abs(arg) if isinstance(arg, int) else _text_size(arg))
    if product > MAX_SINGLE_RESULT:
        _refuse(f"{name}() would make up to {product} characters")
    if name in ("format", "format_map") and _WIDE_FORMAT.search(str(receiver)):
        _refuse("a format asks for too wide a field")


def _check_times(left: Any, right: Any) -> None:
    for one, other in ((left, right), (right, left)):
        if isinstance(one, (str, bytes, list, tuple)) and isinstance(other, int):
            size = _text_size(one) * other
            if size > MAX_SINGLE_RESULT:
                _refuse(f"a product would have {size} characters")
    both_int = isinstance(left, int) and isinstance(right, int)
    if both_int and left.bit_length() + right.bit_length() > 4096:
        _refuse("a product would have too many digits")


# --------------------------------------------------------------------------------- the rewriting


class _Instrument(NodeTransformer):
    """Adds the charges to a parsed template."""

    def _call(self, method: str, node: nodes.Node, *args: nodes.Expr) -> nodes.Call:
        function = nodes.EnvironmentAttribute(method, lineno=node.lineno)
        return nodes.Call(function, list(args), [], None, None, lineno=node.lineno)

    def _tick_first(self, body: list[nodes.Node], node: nodes.Node) -> None:
        body.insert(0, nodes.ExprStmt(self._call("tick", node), lineno=node.lineno))

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        self._tick_first(node.body, node)
        if node.test is not None:  # items that the test rejects never reach the body
            node.test = nodes.And(self._call("tick", node), node.test, lineno=node.lineno)
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        self.generic_visit(node)
        self._tick_first(node.body, node)
        return node

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        # The call itself must stay a plain call: only its arguments are rewritten.
        self.generic_visit(node.call)
        node.defaults = [self.visit(child) for child in node.defaults]
        node.body = [self.visit(child) for child in node.body]
        self._tick_first(node.body, node)
        return node

    def _visit_block_filter(self, node: Any) -> nodes.Node:
        # The same for the filter of {% filter %} and of {% set %}...{% endset %}.
        if node.filter is not None:
            self.generic_visit(node.filter)
        node.body = [self.visit(child) for child in node.body]
        return node

    def _visit_grower(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        return self._call("charge", node, node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        node.nodes = [self._call("charge_text", node, child) for child in node.nodes]
        return node

    visit_FilterBlock = visit_AssignBlock = _visit_block_filter
    visit_Call = visit_Filter = visit_Add = visit_Mul = visit_Mod = _visit_grower


class _GenerationTag(Extension):
    """``{% generation %}``, which marks assistant text for training and is only its body here."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


# ------------------------------------------------------------------------------- the environment


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox with charges. Safe to use from several threads and tasks."""

    intercepted_binops = frozenset(("*", "**", "%"))

    def __init__(self, **options: Any) -> None:
        # Constant folding would run expressions without a budget.
        super().__init__(optimized=False, finalize=self.charge_text, **options)
        self._budget: ContextVar[_Budget] = ContextVar("budget")
        self.globals.pop("lipsum", None)  # produces text without input
        for name, function in self.filters.items():
            self.filters[name] = self._bounded(name, function)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Instrument().visit(super()._parse(source, name, filename))
        return tree

    def _bounded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a filter with checks and charges. jinja2's context argument stays the first."""
        pass_arg = getattr(function, "jinja_pass_arg", None)

        def bounded(*args: Any, **kwargs: Any) -> Any:
            rest = args if pass_arg is None else args[1:]
            _check_growth(name, rest[0] if rest else None, (*rest[1:], *kwargs.values()))
            return self.charge(function(*args, **kwargs))

        if pass_arg is not None:
            bounded.jinja_pass_arg = pass_arg  # type: ignore[attr-defined]
        return bounded

    def tick(self) -> bool:
        """Charges one iteration or macro call. Returns True, so that a condition can contain it."""
        self._budget.get().pay(1)
        return True

    def charge(self, value: Any) -> Any:
        """Charges the size of a value and returns the value."""
        self._budget.get().pay(_size(value))
        return value

    def charge_text(self, value: Any) -> Any:
        """Charges a value that is about to be written and returns it."""
        size = _text_size(value)
        if size > MAX_SINGLE_RESULT:
            _refuse(f"a text would have more than {MAX_SINGLE_RESULT} characters")
        self._budget.get().pay(size)
        return value

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function or method with checked arguments. Macros take any arguments."""
        if getattr(obj, "__self__", None) is self:
            return obj(*args)
        if not isinstance(obj, jinja2.runtime.Macro):
            receiver = getattr(getattr(obj, "__wrapped__", obj), "__self__", None)
            given = [kwargs[key] for key in kwargs if key not in _HIDDEN_ARGUMENTS]
            _check_growth(getattr(obj, "__name__", ""), receiver, (*args, *given))
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Computes ``*``, ``**`` or ``%``, the operators whose result can grow in one operation."""
        if operator == "*":
            _check_times(left, right)
        elif operator == "**":
            if not all(isinstance(x, (int, float)) and abs(x) <= 4096 for x in (left, right)):
                _refuse("a power would have too many digits")
        elif isinstance(left, str) and (_STAR_FORMAT.search(left) or _WIDE_FORMAT.search(left)):
            _refuse("a format asks for too wide a field")
        return super().call_binop(context, operator, left, right)

    def render(self, template: jinja2.Template, variables: dict[str, Any], limits: Limits) -> str:
        """Renders ``template``. Raises TemplateLimitError, or the exception of the template."""
        budget = _Budget(limits)
        token = self._budget.set(budget)
        try:
            pieces: list[str] = []
            num_chars = 0
            for piece in template.generate(variables):
                num_chars += len(piece)
                if num_chars > limits.output_chars:
                    _refuse(f"it wrote more than {limits.output_chars} characters")
                budget.pay(1)
                pieces.append(piece)
            return "".join(pieces)
        finally:
            self._budget.reset(token)


# ------------------------------------------------------------------------- what templates may use


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.exceptions.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON, since jinja2's own filter escapes for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def chat_environment() -> BoundedEnvironment:
    """Makes the environment that Hugging Face chat templates are written for."""
    environment = BoundedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _GenerationTag],
    )
    environment.filters["tojson"] = environment._bounded("tojson", _to_json)
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment
