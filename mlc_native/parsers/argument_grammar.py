"""The grammar of arguments that are written one by one, from the JSON schema of a function.

The grammar library has one of its own for tagged arguments, which allows white space around values
that the values then consist of. This one allows what the formats read back as a valid value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlc_native.parsers.tool_format import Format, const, either, optional, regex, sequence

# Fields of an object's schema that are followed here, or that say nothing about its values.
_OBJECT_FIELDS = {
    *("type", "properties", "required", "additionalProperties", "$defs", "definitions"),
    *("title", "description", "$schema", "default", "examples"),
}
_STRING_FIELDS = {
    *("type", "enum", "const", "pattern", "minLength", "maxLength"),
    *("title", "description", "default", "examples"),
}
# One class for each length in UTF-8, because the grammar library lets a class of several lengths
# have bytes that are no UTF-8.
ABOVE_ASCII = (
    r"[\u0080-\u07FF]|[\u0800-\u0FFF]|[\u1000-\uCFFF]|[\uD000-\uD7FF]|[\uE000-\uFFFF]|"
    r"[\u{10000}-\u{3FFFF}]|[\u{40000}-\u{FFFFF}]|[\u{100000}-\u{10FFFF}]"
)
# Any character except "<", which ends values.
_CHARACTER = rf"([\n -;=-~]|{ABOVE_ASCII})"
_DEFINITIONS = ("$defs", "definitions")
_MAX_BEGINNINGS = 8  # arguments of which any may be the first


def is_string(schema: object) -> bool:
    """Whether all values of a schema are strings, which are then written as they are."""
    if not isinstance(schema, Mapping):
        return False
    if "type" in schema:
        return bool(schema["type"] == "string")
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return bool(values) and all(isinstance(value, str) for value in values)


@dataclass(frozen=True)
class Argument:
    """An argument of a function, with the grammar of its value."""

    name: str
    value: Format
    required: bool


def arguments_of_schema(
    schema: Mapping[str, Any], string: Callable[[Mapping[str, Any]], Format | None] | None = None
) -> list[Argument] | None:
    """The arguments of one call, in the order of the schema.

    Args:
        string: makes the grammar of a value that is a string; None where such a value is JSON, as
            all others are.

    Returns:
        None if the schema is not one of an object with properties that can be written one by one.
    """
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    if not _OBJECT_FIELDS.issuperset(schema) or schema.get("type", "object") != "object":
        return None
    if not isinstance(properties, Mapping) or not set(required) <= set(properties):
        return None
    arguments = []
    for name, of_value in properties.items():
        is_text = string is not None and is_string(of_value)
        value = string(of_value) if string is not None and is_text else _json(of_value, schema)
        if value is None:
            return None
        arguments.append(Argument(name, value, name in required))
    return arguments


def elements_grammar(elements: Sequence[tuple[Format, bool]]) -> Format:
    """Elements one after the other; those that are not required may be missing."""
    parts = [element if required else optional(element) for element, required in elements]
    return sequence(*parts) if parts else const("")


def separated_grammar(elements: Sequence[tuple[Format, bool]], separator: str) -> Format:
    """Elements with a separator between them; those that are not required may be missing.

    If many may be missing and none is required, the separator follows each of them instead, which
    the languages of calls allow behind the last one.
    """
    if not elements:
        return const("")
    mark = const(separator)
    first = next((i for i, (_, required) in enumerate(elements) if required), None)
    if first is None:
        if len(elements) > _MAX_BEGINNINGS:
            return sequence(*(optional(sequence(element, mark)) for element, _ in elements))
        beginnings = [
            _with_rest(elements[i][0], elements[i + 1 :], mark) for i in range(len(elements))
        ]
        return optional(either(beginnings))
    front = [optional(sequence(element, mark)) for element, _ in elements[:first]]
    return sequence(*front, _with_rest(elements[first][0], elements[first + 1 :], mark))


def _with_rest(begin: Format, rest: Sequence[tuple[Format, bool]], mark: Format) -> Format:
    return sequence(begin, elements_grammar([(sequence(mark, each), must) for each, must in rest]))


def _json(schema: object, root: Mapping[str, Any]) -> Format | None:
    if not isinstance(schema, Mapping):
        return {"type": "json_schema", "json_schema": schema}
    definitions = {name: root[name] for name in _DEFINITIONS if name in root}
    return {"type": "json_schema", "json_schema": {**definitions, **schema}}


def string_grammar(schema: Mapping[str, Any], end: str) -> Format | None:
    """A string as it is, without the text that ends it. None if the schema asks for more."""
    if not _STRING_FIELDS.issuperset(schema):
        return None
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    limits = [name for name in ("minLength", "maxLength") if name in schema]
    if values is not None:
        texts = [value for value in values if isinstance(value, str) and end not in value]
        return either([const(text) for text in texts]) if texts and not limits else None
    if "pattern" in schema:
        return None if limits else regex(schema["pattern"])
    if limits:
        bounds = f"{schema.get('minLength', 0)},{schema.get('maxLength', '')}"
        return regex(f"{_CHARACTER}{{{bounds}}}")
    return {"type": "any_text", "excludes": [end]}
