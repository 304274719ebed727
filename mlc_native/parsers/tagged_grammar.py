"""The grammar of arguments that are tagged one by one, from the JSON schema of a function.

The grammar library has one of its own, which allows white space around values that the values then
consist of. This one allows what ``tagged_formats`` reads back as a valid value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
# Any character except "<", which ends values. One class for each length in UTF-8, because the
# grammar library lets a class of several lengths have bytes that are no UTF-8.
_CHARACTER = (
    r"([\n -;=-~]|[\u0080-\u07FF]|[\u0800-\u0FFF]|[\u1000-\uCFFF]|[\uD000-\uD7FF]|[\uE000-\uFFFF]|"
    r"[\u{10000}-\u{3FFFF}]|[\u{40000}-\u{FFFFF}]|[\u{100000}-\u{10FFFF}])"
)
_DEFINITIONS = ("$defs", "definitions")


def is_string(schema: object) -> bool:
    """Whether all values of a schema are strings, which are then written as they are."""
    if not isinstance(schema, Mapping):
        return False
    if "type" in schema:
        return bool(schema["type"] == "string")
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return bool(values) and all(isinstance(value, str) for value in values)


def arguments_grammar(
    schema: Mapping[str, Any], argument: Callable[[str, Format], Format], end: str
) -> Format | None:
    """The arguments of one call, in the order of the schema.

    Args:
        argument: makes the element of an argument from its name and the grammar of its value.
        end: a text that values do not have, as it ends them.

    Returns:
        None if the schema is not one of an object with properties that can be written this way.
    """
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    if not _OBJECT_FIELDS.issuperset(schema) or schema.get("type", "object") != "object":
        return None
    if not isinstance(properties, Mapping) or not set(required) <= set(properties):
        return None
    elements = []
    for name, of_value in properties.items():
        value = _string(of_value, end) if is_string(of_value) else _json(of_value, schema)
        if value is None:
            return None
        element = argument(name, value)
        elements.append(element if name in required else optional(element))
    return sequence(*elements) if elements else const("")


def _json(schema: object, root: Mapping[str, Any]) -> Format | None:
    if not isinstance(schema, Mapping):
        return {"type": "json_schema", "json_schema": schema}
    definitions = {name: root[name] for name in _DEFINITIONS if name in root}
    return {"type": "json_schema", "json_schema": {**definitions, **schema}}


def _string(schema: Mapping[str, Any], end: str) -> Format | None:
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
