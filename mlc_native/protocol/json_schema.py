"""Makes JSON schemas that say the same in a form that a grammar can enforce."""

from __future__ import annotations

import json
from typing import Any


def with_required_discriminators(text: str) -> str:
    """The schemas in a JSON text, with each ``discriminator`` required in the branches it is for.

    pydantic does not require a tag that has a default. An answer without the tag might then match
    several branches of the ``oneOf``; with it, the branches exclude each other.
    """
    if '"discriminator"' not in text:
        return text
    try:
        root = json.loads(text)
    except ValueError:
        return text  # the engine says what is wrong
    pending = [(root, root)]
    while pending:
        node, root_of_node = pending.pop()
        if isinstance(node, dict):
            if "$defs" in node:
                root_of_node = node
            _require_discriminator(node, root_of_node)
            pending += [(value, root_of_node) for value in node.values()]
        elif isinstance(node, list):
            pending += [(value, root_of_node) for value in node]
    return json.dumps(root)


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


def _definition(schema: Any, root: Any) -> dict[str, Any]:
    """The schema that a ``$ref`` to ``#/$defs/...`` names, or the schema itself."""
    if not isinstance(schema, dict):
        return {}
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    definition = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"))
    return definition if isinstance(definition, dict) else {}
