"""Random templates whose operations mostly fit their values, and chats to render them with."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where é", "enum": ["Paris", "Zürich"]},
        "days": {"type": ["integer", "null"], "minimum": 0, "default": 3},
        "options": {
            "type": "object",
            "properties": {
                "a": {"type": "array", "items": {"type": "number"}},
                "b": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            },
            "required": ["a"],
        },
    },
    "required": ["city"],
    "$defs": {"X": {"type": "boolean"}},
    "additionalProperties": False,
}


def _tool(name: str, parameters: dict[str, Any] = PARAMETERS, **fields: Any) -> dict[str, Any]:
    description = f"Does {name}.\nWell <|x|>"
    function = {"name": name, "description": description, "parameters": parameters, **fields}
    return {"type": "function", "function": function}


def _call(name: str, arguments: Any, call_id: str = "call_0001") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _answer(content: str | None, *calls: Any, **fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **fields}
    return {**message, "tool_calls": list(calls)} if calls else message


def _result(content: str, call_id: str = "call_0001") -> dict[str, Any]:
    return {"role": "tool", "content": content, "name": "weather", "tool_call_id": call_id}


_USER = {"role": "user", "content": "What's the weather? <|im_end|>"}
_SYSTEM = {"role": "system", "content": "  Be kind.\nAlways. "}
_OPTIONS = {"city": "Paris", "days": 3, "options": {"a": [1.5, True, None], "b": 'x"y'}}
_PARTS = [{"type": "text", "text": "Look "}, {"type": "image"}, {"type": "text", "text": "here"}]
HISTORIES: dict[str, list[dict[str, Any]]] = {
    "a question": [_USER],
    "a system message": [_SYSTEM, _USER],
    "turns": [_USER, _answer("Fine. "), {"role": "user", "content": "And\n\n now?"}, _answer("")],
    "reasoning": [
        *(_SYSTEM, _USER, _answer("It is.", reasoning_content="Let me\nthink.", thinking="Hm")),
        _USER,
    ],
    "reasoning in the content": [_USER, _answer("<think>\nA b\n</think>\n\nYes."), _USER],
    "a call": [_SYSTEM, _USER, _answer("", _call("weather", _OPTIONS)), _result('{"t": 3.0}')],
    "a call without content": [
        *(_USER, _answer(None, _call("time", {}), reasoning_content="why"), _result("12")),
        *(_answer("Noon"), _USER),
    ],
    "calls": [
        _USER,
        _answer("So", _call("weather", {"city": "é\n"}), _call("look", {"q": 1}, "call_0002")),
        *(_result("sun"), _result('{"a":[1]}', "call_0002"), _USER),
    ],
    "arguments as text": [_USER, _answer("", _call("weather", '{"city": "Paris"}')), _result("1")],
    "parts": [
        {"role": "system", "content": [{"type": "text", "text": "Be kind"}]},
        {"role": "user", "content": _PARTS},
    ],
    "a developer": [{"role": "developer", "content": "Be kind"}, _USER],
    "two questions": [_USER, _USER],
    "an answer first": [_answer("Hi"), _USER],
    "nothing": [],
    "a late system message": [_USER, _answer("Fine."), _SYSTEM, _USER],
    "other alphabets": [
        {"role": "user", "content": "ÀÉ 日本語 😀\u2028\u00a0\t"},
        *(_answer("ok"), {"role": "user", "content": "\u00a0é\u3000"}),
    ],
}
TOOLS = [
    _tool("weather"),
    _tool("time", {"type": "object", "properties": {}}),
    _tool("look", {"type": "object", "properties": {"q": {"type": "string"}}}, strict=True),
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"tools": TOOLS},
    {"tools": TOOLS, "enable_thinking": True, "thinking": True},
    {"enable_thinking": False, "documents": [{"title": "t", "text": "d"}]},
    {"tools": [], "add_generation_prompt": False},
]


def variables(history: str, options: dict[str, Any]) -> dict[str, Any]:
    """What a chat gives to a template."""
    chat = {"messages": HISTORIES[history], "tools": None, "documents": None}
    return {**chat, "add_generation_prompt": True, **options}


_TEXTS = (
    *("'ab'", "'A b-c'", "' x\\n'", "''", "'é1'", "'<|a|>'", "m.content", "m['role']", "s.t"),
    *("{0} ~ {3}", "{0} + {1}", "{0}[1:]", "{0}[:-1]", "{0}[::-1]", "{0} | trim", "{0}.strip('a')"),
    *("{0} | upper", "{0} | title", "{0} | capitalize", "{0}.lower()", "{0} | replace('a', {1})"),
    *("{0}.replace('b', {1}, 1)", "{0} | indent(2)", "{0} | indent(3, true)", "{0} * 2"),
    *("{2} | join(', ')", "{2} | map('string') | join({0})", "{2} | tojson", "{2} | string"),
    *("{0} if {5} else {1}", "({0} | default('d', true))", "'%s-%s' % ({0}, {3})", "{0} or {1}"),
    *("'{{}} {{}}'.format({0}, {3})", "({2} | first) ~ ({2} | last)", "{0}.split('b')[0]"),
    *("{4} | tojson(indent=2)", "{4} | dictsort | string", "{3} | string", "{0} | e", "{0} | safe"),
    *(
        "{0}.title()",
        "{0}.lstrip()",
        "{0}.rstrip('b ')",
        "{4} | string",
        "({0} | list) | join('-')",
    ),
    *("{0}.removeprefix('a')", "{0} | reverse", "{2} | tojson(separators=(',', ':'))", "{5} ~ ''"),
)
_LISTS = (
    *("[]", "[1, 'a']", "['b', 'A', 'a']", "[3, 1, 2]", "('x', 1.5)", "range(4) | list"),
    *("messages | map(attribute='role') | list", "{0}.split()", "{0}.split('a', 1)", "{0} | list"),
    *("{2} + {2}", "{2}[1:]", "{2}[::-1]", "{2} | reverse | list", "{2} | unique | list"),
    *("{2} | map('string') | sort", "{2} | select('string') | list", "[{0}, {3}, {5}]"),
    *("{2} | reject('in', ['a', 1]) | list", "{4} | list", "{4}.items() | list", "{4} | dictsort"),
    *("messages | selectattr('role', 'equalto', 'user') | list", "{0}.splitlines()", "{2} * 2"),
    *("messages | rejectattr('content') | map(attribute='role') | list", "{4}.values() | list"),
    *("[[1, 2], [3]] | sum(start=[])", "{0}.rsplit('b', 1)", "{4} | items | list"),
)
_NUMBERS = (
    *("1", "-2", "0", "7", "1.5", "loop.index", "loop.revindex0", "{0} | length", "{2} | length"),
    *("{3} + {3}", "{3} - 1", "{3} * 2", "{3} // 2", "{3} % 3", "{3} / 4", "-{3}", "{0}.find('b')"),
    *("{0} | int", "'12' | int", "{0}.count('a')", "[{3}, 2] | max", "[{3}, 2] | min", "s.n"),
    *("({3} | abs)", "({3} / 3) | round(2)", "{3} | float", "[1, {3}] | sum", "2 ** 3"),
)
_OBJECTS = (
    *("{{}}", "{{'k': {3}, 'a': {0}}}", "{{1: {0}, 'b': {2}}}", "m", "dict(x={0})", "{{'z': {4}}}"),
)
_TRUTHS = (
    *("true", "false", "{0} == {1}", "{0} in {1}", "{0} in {2}", "{3} < {3}", "{0} < {1}"),
    *("{0} is string", "{2} is iterable", "{4} is mapping", "{3} is number", "m.x is defined"),
    *("not {5}", "{5} and {5}", "{5} or {5}", "{0}.startswith('a')", "{0}.endswith(('b', ' '))"),
    *("{0}", "{2}", "{3}", "{3} is odd", "{2} == {2}", "m.name is none", "{0} is not in {2}"),
    *("1 <= {3} < 5", "{4}.get('k')", "{2} is sequence", "{5} is true", "loop.first", "loop.last"),
)
_KINDS = (_TEXTS, _TEXTS, _LISTS, _NUMBERS, _OBJECTS, _TRUTHS)


class Programs:
    """Writes templates of random statements."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._depth = 0

    def program(self) -> str:
        """A template."""
        self._depth = 0
        body = "".join(self._statement() for _ in range(self._random.randint(2, 5)))
        start = "{% set s = namespace(t='ab', n=3) %}{% set m = messages[0] %}"
        return f"{start}{{% for m in messages %}}{body}{{% else %}}{body}{{% endfor %}}"

    def _value(self, kind: int, depth: int = 0) -> str:
        forms = _KINDS[kind]
        short = [form for form in forms if "{0}" not in form and "{2}" not in form]
        leaves = [form for form in short if "{3}" not in form and "{5}" not in form]
        form = self._random.choice(leaves if depth > 2 else forms)
        parts = [
            f"({self._value(kind, depth + 1)})" if f"{{{kind}}}" in form else ""
            for kind in range(len(_KINDS))
        ]
        return form.format(*parts)

    def _tag(self, text: str) -> str:
        signs = ("", "", "-", "+") if not text.startswith("{") else ("",)
        left, right = self._random.choice(signs), self._random.choice(signs)
        return f"{{%{left} {text} {right}%}}" + self._random.choice(("", "", "\n", " \n  "))

    def _statement(self) -> str:
        self._depth += 1
        kinds: tuple[Callable[[], str], ...] = (
            *(self._output, self._output, self._output, self._assign, self._condition),
            *(self._loop, self._block, self._macro, self._filter),
        )
        text = self._random.choice(kinds if self._depth < 4 else kinds[:4])()
        self._depth -= 1
        return self._random.choice(("", " ", "\n", "t\n  ")) + text

    def _body(self) -> str:
        return "".join(self._statement() for _ in range(self._random.randint(1, 2)))

    def _output(self) -> str:
        left, right = self._random.choice(("", "-")), self._random.choice(("", "-"))
        return f"{{{{{left} {self._value(self._random.randrange(6))} {right}}}}}"

    def _assign(self) -> str:
        if self._random.random() < 0.5:
            return self._tag(f"set s.t = ({self._value(0)})[:40]")
        return self._tag(f"set s.n = {self._value(3)}")

    def _condition(self) -> str:
        other = self._tag("else") + self._body() if self._random.random() < 0.5 else ""
        return self._tag(f"if {self._value(5)}") + self._body() + other + self._tag("endif")

    def _loop(self) -> str:
        condition = f" if {self._value(5)}" if self._random.random() < 0.3 else ""
        head = self._tag(f"for i in {self._value(2)}{condition}")
        shown = self._random.choice(
            ("{{ i }}", "{{ loop.length }}", "{{ loop.nextitem }}", "{{ loop.cycle('a', 1) }}", "")
        )
        leave = self._random.choice(("", self._tag("break"), self._tag("continue")))
        if leave:
            leave = self._tag(f"if {self._value(5)}") + leave + self._tag("endif")
        return head + shown + self._body() + leave + self._tag("endfor")

    def _block(self) -> str:
        name = self._random.choice(("set y", "set y | upper", "set s.t | trim"))
        return self._tag(name) + self._body() + self._tag("endset") + "{{ y }}"

    def _macro(self) -> str:
        call = self._random.choice(("f(m)", "f(m, 1)", "f(m, b='x')"))
        body = self._tag("macro f(m, b='d')") + "{{ b }}" + self._body() + self._tag("endmacro")
        return body + f"{{{{ {call} }}}}"

    def _filter(self) -> str:
        name = self._random.choice(("trim", "upper", "replace('a', 'b') | trim"))
        return self._tag(f"filter {name}") + self._body() + self._tag("endfilter")
