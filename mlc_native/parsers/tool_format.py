"""ToolFormat: how a family of models writes calls of tools, and what is shared by all formats.

A format is data: an instance of one of the kinds in ``json_formats``, ``tagged_formats``,
``python_formats``, ``mistral``, ``gemma`` and ``harmony``. It reads calls out of an answer, and it
writes the grammar of calls.
"""

from __future__ import annotations

import secrets
import string
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from mlc_native.parsers.reader import Reader, Steps

# A part of a structural tag of the grammar library.
Format = dict[str, Any]


@dataclass(frozen=True)
class Tool:
    """A function that the model may call. ``schema`` is the JSON schema of its arguments."""

    name: str
    schema: Mapping[str, Any] = field(default_factory=dict)

    def arguments_schema(self) -> dict[str, Any]:
        """The schema of an object, also for a function that takes no arguments."""
        if not self.schema:
            return {"type": "object", "properties": {}, "additionalProperties": False}
        if any(name in self.schema for name in ("type", "$ref", "anyOf", "allOf", "oneOf")):
            return dict(self.schema)
        return {"type": "object", **self.schema}


class Calls(Protocol):
    """Where a format puts the calls that it reads: ``begin``, pieces of ``arguments``, ``end``."""

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools of the request by name."""

    def begin(self, name: str, call_id: str | None = None) -> None:
        """A call of this function follows."""

    def arguments(self, text: str) -> None:
        """The next piece of the arguments, which are a JSON object."""

    def end(self) -> None:
        """The call is complete, and what was taken for it is settled."""


@dataclass(frozen=True)
class ToolFormat(ABC):
    """How calls are written.

    Attributes:
        name: the name in ``tool_call_parser``.
        begins: the texts that begin one or more calls.
        bare: an answer that begins with one of these characters may be a call without a marker, if
            it names a tool of the request.
        id_length: the length of the ids that the template wants; 0 if it takes any.
    """

    name: str
    begins: tuple[str, ...] = ()
    bare: str = ""
    id_length: int = 0

    @abstractmethod
    def read(self, reader: Reader, calls: Calls, begin: str) -> Steps[None]:
        """Reads the calls behind ``begin``, which is empty for calls without a marker.

        Raises NotACall where the text is no call. Calls that have ended are kept.
        """

    def grammar(self, tools: Sequence[Tool], many: bool) -> tuple[str, Format] | None:
        """The text that begins calls and the grammar of what follows; None if there is none.

        With ``many`` there may be several calls behind that text, if the format has such lists.
        """
        return None

    def other_grammars(self, tools: Sequence[Tool]) -> list[tuple[str, Format]]:
        """The same of other ways in which a model begins calls."""
        return []

    # Several calls are written one after the other, each with its own beginning.
    repeats: bool = False

    @property
    def texts(self) -> list[str]:
        """All texts that a call is written with."""
        return texts_of(self)

    def new_id(self) -> str:
        """A fresh id of a call."""
        if self.id_length == 0:
            return f"call_{secrets.token_hex(12)}"
        letters = string.ascii_letters + string.digits
        return "".join(secrets.choice(letters) for _ in range(self.id_length))


def texts_of(form: Any) -> list[str]:
    """The texts among the fields of a format, except its name."""
    values = [getattr(form, field.name) for field in fields(form) if field.name != "name"]
    lists = [value if isinstance(value, tuple) else (value,) for value in values]
    return [text for texts in lists for text in texts if isinstance(text, str)]


# ------------------------------------------------------------------------- parts of structural tags


def const(text: str) -> Format:
    """Exactly this text."""
    return {"type": "const_string", "value": text}


def regex(pattern: str) -> Format:
    """A text that the pattern matches."""
    return {"type": "regex", "pattern": pattern}


def sequence(*elements: Format) -> Format:
    """One after the other."""
    return {"type": "sequence", "elements": list(elements)}


def either(elements: Sequence[Format]) -> Format:
    """One of them."""
    return elements[0] if len(elements) == 1 else {"type": "or", "elements": list(elements)}


def plus(content: Format) -> Format:
    """Once or more often."""
    return {"type": "plus", "content": content}


def star(content: Format) -> Format:
    """Any number of times."""
    return {"type": "star", "content": content}


def optional(content: Format) -> Format:
    """Once or not at all."""
    return {"type": "optional", "content": content}


def arguments_of(tool: Tool) -> Format:
    """The arguments of a call as JSON."""
    return {"type": "json_schema", "json_schema": tool.arguments_schema()}
