"""Schemas, grammars, regular expressions and structural tags that are wrong, huge or ambiguous.

Each is the response_format of a request. The engine answers or refuses, a request that takes too
long ends with the error of its limit, and small requests of others are answered meanwhile.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from hostile.frame import Case, HostileClass

TIMEOUT_S = 2.0
_AMBIGUOUS = 'root ::= root root | "a" | ""'


def _chain(count: int, body: str, last: str) -> str:
    """Rules r0 to r<count>, each of which uses the next one."""
    rules = [f"r{i} ::= " + body.format(f"r{i + 1}") for i in range(count)]
    return "\n".join(["root ::= r0", *rules, f"r{count} ::= {last}"])


# In each of them, root is the start.
_EBNF: dict[str, str | Callable[[], str]] = {
    "no text": "",
    "no root": 'start ::= "a"',
    "root of itself": "root ::= root",
    "an unknown rule": "root ::= nothing",
    "only the empty text": 'root ::= ""',
    "no end": 'root ::= "a" root',
    "itself twice": _AMBIGUOUS,
    "itself three times": 'root ::= root root root | "a" | ""',
    "itself eight times": 'root ::= root root root root root root root root | "a" | ""',
    "nested optional repeats": 'root ::= (("a"? "a"? "a"?)* "a"?)*',
    "stars of stars": 'root ::= (((((("a"*)*)*)*)*)*)*',
    "stars next to each other": "root ::= " + '"a"* ' * 60,
    "left recursion": 'root ::= root ("a" | "aa" | "aaa") | root root | "a"',
    "three rules of each other": (
        'root ::= x y z\nx ::= "a" x | "" | y\ny ::= "a" y | "" | z\nz ::= "a" z | "" | "a" x'
    ),
    "from both sides": 'root ::= s\ns ::= "" | "a" s | s "a" | "a" s "a" | s s',
    "operators": 'root ::= root [ab] root | root "a" root | [ab]',
    "hidden left recursion": 'root ::= e root "a" | "a"\ne ::= "" | e e',
    "palindromes": 'root ::= [a-z] root [a-z] | [a-z] root | ""',
    "a text of 2^40": lambda: _chain(40, "{0} {0}", '"a"'),
    "2^40 alternatives": lambda: _chain(40, "{0} | {0}", '"a"'),
    "2^40 empty texts": lambda: _chain(40, "{0} {0}", '""'),
    "a chain of rules": lambda: _chain(5000, "{0}", '"a"'),
    "a chain of optional rules": lambda: _chain(500, '"a" {0} | {0}', '"a"'),
    "many rules": lambda: "root ::= r0\n" + "\n".join(f'r{i} ::= "{i}"' for i in range(20_000)),
    "many alternatives": lambda: "root ::= " + " | ".join(f'"{i}"' for i in range(20_000)),
    "many equal alternatives": lambda: "root ::= " + " | ".join(['"a"'] * 20_000),
    "a long literal": lambda: f'root ::= "{"a" * 500_000}"',
    "more than the size limit": lambda: f'root ::= "{"a" * 2_000_000}"',
    "deep brackets": lambda: "root ::= " + "(" * 127 + '"a"' + ")" * 127,
    "too deep brackets": lambda: "root ::= " + "(" * 5000 + '"a"' + ")" * 5000,
    "a huge repeat": 'root ::= "a"{1000000}',
    "a huger repeat": 'root ::= "a"{99999999999999999999}',
    "a repeat of a repeat": 'root ::= ((("a"{200}){200}){200}){200}',
    "a repeat backwards": 'root ::= "a"{5,3}',
    "a negative repeat": 'root ::= "a"{-1}',
    "a class backwards": "root ::= [z-a]",
    "an empty class": "root ::= []",
    "an open class": "root ::= [a",
    "an open literal": 'root ::= "a',
    "a big class": lambda: "root ::= [" + "".join(chr(0x4E00 + i) for i in range(9000)) + "]*",
    "all characters": r"root ::= [\u0000-\U0010FFFF]*",
    "surrogates": r"root ::= [\uD800-\uDFFF]*",
    "beyond unicode": r'root ::= "\U00110000"',
    "an unknown escape": r'root ::= "\q"',
    "a zero byte": 'root ::= "\0"',
    "a surrogate": 'root ::= "\ud800"',
    "controls": 'root ::= "\x01\x02" | "\x7f"',
    "rules twice": 'root ::= "a"\nroot ::= "b"',
    "no grammar": "hello world",
    "json": '{"type": "object"}',
    "percent": "%s%n%x" * 100,
}
_REGEX: dict[str, str | Callable[[], str]] = {
    "no text": "",
    "plus of plus": "(a+)+b",
    "star of star": "((a*)*)*b",
    "alternatives of one letter": "(a|a|a|a)*b",
    "overlapping words": "(a|ab|abc|abcd|b|bc|bcd)*",
    "optional letters": "(a?){30}a{30}",
    "a counter": "a{100000}",
    "a counter of counters": "((a{100}){100}){100}",
    "a counter of classes": "[a-z0-9]{1,5000}",
    "a counter of unicode": r"[\u4E00-\u9FFF]{1,1000}",
    "a counter backwards": "a{5,2}",
    "a huge counter": "a{9999999999999999999}",
    "a dot often": ".{0,10000}",
    "a lookahead": "(?=a)a",
    "a negative lookahead": "(?!b)a",
    "a lookbehind": "(?<=a)b",
    "a back reference": r"(a)\1",
    "a named group": "(?P<x>a)(?P=x)",
    "an atomic group": "(?>a+)b",
    "a possessive repeat": "a++b",
    "a recursion": "(a(?R)?b)",
    "flags": "(?i)abc",
    "a word boundary": r"\bword\b",
    "a property": r"\p{L}+",
    "an open group": "(a",
    "a closed group": "a)",
    "an open class": "[a",
    "a class backwards": "[z-a]",
    "nothing to repeat": "*a",
    "a repeat of a repeat": "a**",
    "inner anchors": "a^b$c",
    "a backslash": "\\",
    "a zero byte": "a\0b",
    "a surrogate": "\ud800",
    "deep groups": lambda: "(" * 120 + "a" + ")" * 120,
    "too deep groups": lambda: "(" * 9000 + "a" + ")" * 9000,
    "many alternatives": lambda: "|".join(f"word{i}" for i in range(5000)),
    "many groups": lambda: "(a|b)" * 3000,
    "a long text": lambda: "a" * 300_000,
    "negated classes": "([^a][^b][^c])*",
    "all characters": r"[\s\S]*",
    "nothing": "[^\\s\\S]",
}


def _deep(depth: int, key: str = "properties") -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        nested = {"a": schema} if key == "properties" else schema
        schema = {"type": "object" if key == "properties" else "array", key: nested}
    return schema


def _products(count: int, keyword: str) -> Any:
    """2^count combinations of alternatives."""
    each = {"anyOf": [{"minimum": 1}, {"multipleOf": 2}]}
    return {"type": "integer", keyword: [each] * count}


_WORDS = [f"word {i}" for i in range(5000)]
_SCHEMAS: dict[str, Any | Callable[[], Any]] = {
    "an object in itself": {"$ref": "#"},
    "a reference to a reference": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    "two references in a circle": {
        **{"$ref": "#/$defs/a"},
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
    },
    "a list that holds itself": {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
    "a tree": {"type": "object", "properties": {"l": {"$ref": "#"}, "r": {"$ref": "#"}}},
    "a reference elsewhere": {"$ref": "http://127.0.0.1:1/schema.json"},
    "a reference to a file": {"$ref": "file:///etc/passwd"},
    "a reference to nothing": {"$ref": "#/$defs/nothing"},
    "a dynamic reference": {"$dynamicRef": "#x", "$dynamicAnchor": "x"},
    "deep objects": lambda: _deep(60),
    "too deep objects": lambda: '{"properties": {"a": ' * 3000 + "{}" + "}}" * 3000,
    "deep lists": lambda: _deep(120, "items"),
    "many properties": lambda: {
        "type": "object",
        "properties": {name: {"type": "integer"} for name in _WORDS},
        "required": _WORDS,
    },
    "many optional properties": lambda: {
        "type": "object",
        "properties": {f"p{i}": {"type": "string"} for i in range(2000)},
    },
    "a large enum": lambda: {"enum": _WORDS * 4},
    "a large enum of one letter": lambda: {"enum": ["a" * i for i in range(1000)]},
    "a large const": lambda: {"const": {"a": _WORDS}},
    "products of anyOf": lambda: _products(30, "allOf"),
    "products of oneOf": lambda: {"oneOf": [_products(8, "allOf"), _products(9, "allOf")]},
    "not of products": lambda: {"not": _products(20, "allOf")},
    "not not not": {"not": {"not": {"not": {"type": "string"}}}},
    "nothing": {"not": {}},
    "false": False,
    "two types at once": {"allOf": [{"type": "string"}, {"type": "integer"}]},
    "an impossible number": {"type": "integer", "minimum": 5, "maximum": 3},
    "a huge number": {"type": "integer", "minimum": 10**300},
    "tiny steps": {"type": "number", "multipleOf": 1e-300},
    "huge steps": {"type": "integer", "multipleOf": 10**18, "minimum": 1},
    "a long string": {"type": "string", "minLength": 10**7},
    "lengths": {"type": "string", "minLength": 3000, "maxLength": 100_000},
    "many items": {"type": "array", "items": {"type": "integer"}, "minItems": 100_000},
    "items of items": {
        "type": "array",
        "items": {"type": "array", "items": {"type": "integer"}, "minItems": 300},
        "minItems": 300,
    },
    "unique items": {"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True},
    "contains": {"type": "array", "contains": {"const": 1}, "minContains": 5, "maxContains": 3},
    "an ambiguous pattern": {"type": "string", "pattern": "^((a|aa)+(a?b?)*)*$"},
    "a large pattern": {"type": "string", "pattern": "^(a|b){2000}$"},
    "overlapping patterns": {
        "type": "object",
        "patternProperties": {"^a": {"type": "string"}, "a$": {"type": "integer"}},
    },
    "many patterns": lambda: {
        "type": "object",
        "patternProperties": {f"^p{i}.*$": {"type": "string"} for i in range(500)},
    },
    "conditions in conditions": lambda: _conditions(12),
    "dependencies": lambda: {
        "type": "object",
        "properties": {f"p{i}": {"type": "integer"} for i in range(12)},
        "dependentRequired": {f"p{i}": [f"p{(i + 1) % 12}"] for i in range(12)},
    },
    "names of one letter twice": '{"type": "object", "type": "string"}',
    "half a pair as a property": {
        "type": "object",
        "properties": {"\ud800": {"type": "integer"}},
        "required": ["\ud800"],
    },
    "half a pair as a value": {"enum": ["a", "\udfff\ud800"]},
    "half a pair in a pattern": {"type": "string", "pattern": "^[\\ud800-\\udbff]\\udc00$"},
    "a pair in a pattern": {"type": "string", "pattern": "^\\ud83d\\ude00$"},
    "no json": '{"type": ',
    "a list": [],
    "a number": 7,
    "not a number": '{"minimum": NaN}',
    "a name with quotes": {
        "type": "object",
        "properties": {'"\\\n\u2028\ud7ff': {"const": '"\\'}},
        "required": ['"\\\n\u2028\ud7ff'],
    },
}
_KEYWORDS = (
    *("type", "enum", "const", "properties", "required", "additionalProperties", "items"),
    *("prefixItems", "minItems", "maxLength", "pattern", "minimum", "multipleOf", "allOf", "anyOf"),
    *("oneOf", "not", "if", "$ref", "$defs", "format", "propertyNames", "dependentSchemas"),
    *("unevaluatedProperties", "minProperties", "contains"),
)
_VALUES: dict[str, Any] = {
    **{"null": None, "true": True, "minus one": -1, "a fraction": 0.5, "a text": "\ud7ff[(*"},
    **{"a list": [[], {}, None], "an object": {"": {"type": 7}}, "2^64": 1 << 64},
}
_TAGS: dict[str, Any] = {
    "no format": {},
    "a format of no type": {"format": {}},
    "a format in itself": {"format": {"type": "sequence", "elements": [{"type": "sequence"}]}},
    "two ambiguous grammars": {
        "format": {
            "type": "sequence",
            "elements": [{"type": "grammar", "grammar": _AMBIGUOUS}] * 2,
        }
    },
    "no triggers": {"structures": [], "triggers": []},
    "an empty trigger": {
        "structures": [{"begin": "", "schema": {}, "end": ""}],
        "triggers": [""],
    },
    "a trigger that begins nothing": {
        "structures": [{"begin": "<a>", "schema": {"type": "string"}, "end": "</a>"}],
        "triggers": ["<b>"],
    },
    "many structures": {
        "structures": [
            {"begin": f"<{i}>", "schema": {"type": "integer"}, "end": "</>"} for i in range(300)
        ],
        "triggers": ["<"],
    },
    "a wrong schema": {
        "structures": [{"begin": "<a>", "schema": {"$ref": "#/nothing"}, "end": "</a>"}],
        "triggers": ["<a>"],
    },
}


def _conditions(depth: int) -> Any:
    schema: Any = {"type": "integer"}
    for i in range(depth):
        schema = {"if": {"properties": {f"p{i}": {"const": i}}}, "then": schema, "else": schema}
    return schema


def _formats() -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    def lazily(make: Callable[[Any], dict[str, Any]], value: Any) -> Callable[[], dict[str, Any]]:
        return lambda: make(value() if callable(value) else value)

    def schema(value: Any) -> dict[str, Any]:
        text = value if isinstance(value, str) else json.dumps(value)
        return {"type": "json_object", "schema": text}

    for name, text in _EBNF.items():
        yield (
            f"grammar: {name}",
            lazily(lambda grammar: {"type": "grammar", "grammar": grammar}, text),
        )
    for name, text in _REGEX.items():
        yield f"regex: {name}", lazily(lambda regex: {"type": "regex", "regex": regex}, text)
    for name, value in _SCHEMAS.items():
        yield f"schema: {name}", lazily(schema, value)
    for keyword, (name, value) in product(_KEYWORDS, _VALUES.items()):
        yield f"schema: {keyword} = {name}", lazily(schema, {keyword: value})
    for name, value in _TAGS.items():
        yield f"tag: {name}", lazily(lambda tag: {"type": "structural_tag", **tag}, value)


def hostile_class() -> HostileClass:
    """The class."""
    cases = [Case(name, make) for name, make in _formats()]
    return HostileClass(
        "grammars", cases, _attempt, cpu_s=6, memory_mib=400, sample=40, prepared=_prepared
    )


_engines: list[Any] = []


@contextmanager
def _prepared() -> Iterator[Callable[[], object]]:
    from fake_model import find_fake_model_lib, write_model

    from mlc_native import MLCEngine

    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder) / "model", context_window_size=256)
        engine = MLCEngine(
            model,
            model_lib=find_fake_model_lib(),
            mode="server",
            verbose=False,
            grammar_compile_timeout_s=TIMEOUT_S,
            grammar_time_limit_s=1,
        )
        _engines[:] = [engine]
        yield lambda: engine.completions.create(prompt="abc", max_tokens=2)
        engine.terminate()


def _attempt(make: Callable[[], dict[str, Any]]) -> str:
    from mlc_native.errors import EngineRequestError, InvalidRequest

    (engine,) = _engines
    try:
        engine.completions.create(
            prompt="abc", max_tokens=100, response_format=make(), extra_body={"ignore_eos": True}
        )
    except InvalidRequest as error:
        if not (error.field or "").startswith("response_format"):
            return f"an error about another field: {error}"
        return "refused" if len(str(error)) < 2000 else f"an error of {len(str(error))} characters"
    except EngineRequestError as error:
        return "refused" if "grammar" in str(error) else f"another error: {error}"
    return "served"
