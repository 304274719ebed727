"""Makes JSON schemas, as pydantic writes them, into some that a grammar can enforce.

What the new schema accepts, the old one accepts, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_CONCERNED = ('"discriminator"', '"uri"')
# Their values are no schemas, and maps of schemas by name.
_VALUES = ("const", "enum", "default", "examples")
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")

_PATH = r"([A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-F]{2})"
# Addresses of at most _MAX_URI_LENGTH characters: scheme, host, port, path, query, fragment.
_URI = (
    rf"^[a-z][a-z0-9+.-]{{0,14}}://[A-Za-z0-9][A-Za-z0-9.-]{{0,62}}(:[0-9]{{1,4}})?"
    rf"(/{_PATH}{{0,120}})?(\?{_PATH}{{0,60}})?(#{_PATH}{{0,40}})?$"
)
_MAX_URI_LENGTH = 15 + 3 + 63 + 5 + 361 + 181 + 121
_MIN_URI_LENGTH = 5


def enforceable(text: str) -> str:
    """The JSON schemas in a JSON text in a form that a grammar can enforce.

    * A ``discriminator`` is required in the branches that it is for. pydantic does not require a
      tag that has a default; an answer without it might match several branches of the ``oneOf``.
    * A ``uri`` with a ``maxLength`` becomes a pattern of shorter ones with a scheme and a host.
    """
    if not any(word in text for word in _CONCERNED):
        return text
    try:
        root = json.loads(text)
    except ValueError:
        return text  # the engine says what is wrong
    pending = [(root, root)]
    while pending:
        node, root_of_node = pending.pop()
        if isinstance(node, list):
            pending += [(value, root_of_node) for value in node]
        elif isinstance(node, dict):
            if "$defs" in node:
                root_of_node = node
            _require_discriminator(node, root_of_node)
            _bound_uri(node)
            pending += [(value, root_of_node) for value in _below(node)]
    return json.dumps(root)


def _below(node: dict[str, Any]) -> Iterator[Any]:
    for name, value in node.items():
        if name in _MAPS and isinstance(value, dict):
            yield from value.values()
        elif name not in _VALUES:
            yield value


def _require_discriminator(node: dict[str, Any], root: Any) -> None:
    discriminator = node.get("discriminator")
    name = discriminator.get("propertyName") if isinstance(discriminator, dict) else None
    branches = node.get("oneOf")
    if not isinstance(name, str) or not isinstance(branches, list):
        return
    for branch in branches:
        schema = _definition(branch, root)
        properties, required = schema.get("properties"), schema.get("required", [])
        if isinstance(properties, dict) and isinstance(required, list) and name in properties:
            schema["required"] = [*required, *({name} - {*map(str, required)})]


def _bound_uri(node: dict[str, Any]) -> None:
    if (node.get("type"), node.get("format")) != ("string", "uri") or "pattern" in node:
        return
    low, high = node.get("minLength", 0), node.get("maxLength")
    if not isinstance(low, int) or not isinstance(high, int):
        return
    if low <= _MIN_URI_LENGTH and high >= _MAX_URI_LENGTH:
        for name in ("format", "minLength", "maxLength"):
            node.pop(name, None)
        node["pattern"] = _URI


def _definition(schema: Any, root: Any) -> dict[str, Any]:
    """The schema that a ``$ref`` to ``#/$defs/...`` names, or the schema itself."""
    if not isinstance(schema, dict):
        return {}
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    definitions = root.get("$defs", {}) if isinstance(root, dict) else {}
    definition = definitions.get(reference.removeprefix("#/$defs/"))
    return definition if isinstance(definition, dict) else {}
