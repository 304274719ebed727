"""Types as the form of an answer: their JSON schema, and the values that answers spell."""

from __future__ import annotations

import typing
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError


def is_type(value: object) -> bool:
    """Whether a value is a class or an annotation such as ``list[int]`` or ``A | B``."""
    return isinstance(value, type) or typing.get_origin(value) is not None


def format_of_type(kind: Any) -> dict[str, Any]:
    """The ``response_format`` for values of a type.

    Raises:
        ValueError: pydantic does not know the type, or JSON has no such values.
    """
    name = getattr(kind, "__name__", str(kind))
    try:
        schema = TypeAdapter(kind).json_schema()
    except (PydanticUserError, PydanticInvalidForJsonSchema, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"the type {name} has no JSON schema: {reason}") from None
    form = {"name": name, "schema": schema, "strict": True}
    return {"type": "json_schema", "json_schema": form}


def value_of_type(kind: Any, text: str) -> Any:
    """The value that a JSON text spells. Raises pydantic's ValidationError if there is none."""
    return TypeAdapter(kind).validate_json(text)
