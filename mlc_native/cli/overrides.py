"""``--overrides "k=v;k=v"``: engine settings on the command line."""

from __future__ import annotations

import dataclasses
import json

from mlc_native.errors import invalid_config
from mlc_native.serve.config import EngineConfig


def parse_assignments(text: str) -> dict[str, str]:
    """``"a=1; b=x"`` as a dict. Raises InvalidConfig for a piece without "="."""
    assignments = {}
    for piece in text.split(";"):
        if not piece.strip():
            continue
        name, separator, value = piece.partition("=")
        if not separator or not name.strip():
            raise invalid_config(piece.strip(), f'expected "name=value", got "{piece.strip()}"')
        assignments[name.strip()] = value.strip()
    return assignments


def parse_value(text: str) -> object:
    """A JSON value where it is one (numbers, booleans, null, lists), else the text itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def engine_config_from_overrides(text: str) -> EngineConfig:
    """An EngineConfig with the given fields. Raises InvalidConfig for a name that is none."""
    known = {field.name for field in dataclasses.fields(EngineConfig)}
    values = {}
    for name, value in parse_assignments(text).items():
        if name not in known:
            raise invalid_config(name, f'"{name}" is no engine setting; known: {sorted(known)}')
        values[name] = parse_value(value)
    return EngineConfig(**values)  # type: ignore[arg-type]
