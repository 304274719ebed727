"""``response_format`` restricts the form of an answer.

========================  ==========================================================================
``type``                  further fields
========================  ==========================================================================
``text``                  none; allows any answer
``json_object``           none; any JSON object. Or MLC-LLM's ``schema``, as in ``json_schema``
``json_schema``           OpenAI's ``json_schema``: an object with ``name``, ``schema``, ``strict``
``regex``                 ``regex``, which the whole answer must match
``grammar`` (``ebnf``)    ``grammar`` (``ebnf``), in the EBNF of llama.cpp and XGrammar
``choice``                ``choice``, a list of texts; the answer is one of them
``structural_tag``        XGrammar's ``format``, or its older ``structures`` and ``triggers``
========================  ==========================================================================

A schema may be an object or its JSON text. A ``response_format`` may also be a type that pydantic
knows (a model, a dataclass, a TypedDict, ``list[int]``): the answer is then the JSON of a value.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StrictBool, model_validator

from mlc_native import _core
from mlc_native.errors import invalid_request
from mlc_native.protocol.json_schema import enforceable
from mlc_native.protocol.typed_answers import format_of_type, is_type

Schema = dict[str, Any] | StrictBool | str

# The fields of each type, in order of preference. One of them is required, and fields of other
# types are not allowed.
_FIELDS: dict[str, tuple[str, ...]] = {
    "text": (),
    "json_object": (),
    "json_schema": ("json_schema",),
    "regex": ("regex",),
    "grammar": ("grammar",),
    "ebnf": ("grammar",),
    "choice": ("choice",),
    "structural_tag": ("format", "structures"),
}
_OPTIONAL: dict[str, tuple[str, ...]] = {
    "json_object": ("schema_",),
    "structural_tag": ("triggers",),
}


class JsonSchemaFormat(BaseModel):
    """OpenAI's ``json_schema``.

    With ``strict``, objects and arrays have no members that the schema does not list. It is True by
    default, because a model that may add members rarely finds an end.
    """

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    name: str | None = None
    description: str | None = None
    schema_: Schema = Field(alias="schema")
    strict: bool | None = None


class RequestResponseFormat(BaseModel):
    """The form of an answer. The module's description lists the types and their fields."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    type: Literal[
        "text",
        "json_object",
        "json_schema",
        "regex",
        "grammar",
        "ebnf",
        "choice",
        "structural_tag",
    ] = "text"
    schema_: Schema | None = Field(default=None, alias="schema")
    json_schema: JsonSchemaFormat | None = None
    regex: str | None = None
    grammar: Annotated[str | None, Field(validation_alias=AliasChoices("grammar", "ebnf"))] = None
    choice: list[str] | None = None
    format: dict[str, Any] | None = None
    structures: list[dict[str, Any]] | None = None
    triggers: list[str] | None = None

    @model_validator(mode="before")
    @classmethod
    def of_type(cls, value: Any) -> Any:
        """A type stands for the JSON schema of its values."""
        return format_of_type(value) if is_type(value) else value

    @model_validator(mode="after")
    def check_fields(self) -> RequestResponseFormat:
        """Checks that exactly the fields of the type are given."""
        needed = _FIELDS[self.type]
        allowed = (*needed, *_OPTIONAL.get(self.type, ()))
        given = [
            name
            for name in type(self).model_fields
            if name != "type" and getattr(self, name) is not None
        ]
        for name in given:
            if name not in allowed:
                where = '; it belongs into "json_schema"' if self.type == "json_schema" else ""
                raise ValueError(f'type "{self.type}" takes no "{name.rstrip("_")}"{where}')
        if needed and not any(name in given for name in needed):
            raise ValueError(f'type "{self.type}" needs "{" or ".join(needed)}"')
        return self

    def core(self) -> _core.ResponseFormat:
        """Returns the same for the engine.

        Raises:
            InvalidRequest: a text is not valid Unicode, or JSON cannot represent a value.
        """
        try:
            return self._core()
        except (TypeError, ValueError, RecursionError) as error:
            raise invalid_request(
                "response_format", f'response_format of type "{self.type}": {error}'
            ) from None

    def _core(self) -> _core.ResponseFormat:
        if self.type == "json_object" and self.schema_ is not None:
            return _made("json_schema", _json_text(self.schema_))
        if self.json_schema is not None:
            strict = self.json_schema.strict is not False
            return _made("json_schema", _json_text(self.json_schema.schema_), strict=strict)
        if self.type == "structural_tag":
            fields = ("type", "format", "structures", "triggers")
            tag = {name: getattr(self, name) for name in fields if getattr(self, name) is not None}
            return _made("structural_tag", _json_text(tag))
        kind = "grammar" if self.type == "ebnf" else self.type
        return _made(kind, self.regex or self.grammar or "", choices=self.choice or [])


def _made(
    kind: str, text: str, *, strict: bool = True, choices: Sequence[str] = ()
) -> _core.ResponseFormat:
    """The form for the engine. Raises ValueError for a text that is not valid Unicode."""
    try:
        for each in (text, *choices):
            each.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the text is not valid Unicode: {error}") from None
    return _core.ResponseFormat(kind, text=text, choices=choices, strict=strict)


def _json_text(value: Schema) -> str:
    text = value if isinstance(value, str) else json.dumps(value, allow_nan=False)
    return enforceable(text)
