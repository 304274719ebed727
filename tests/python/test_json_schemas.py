"""No JSON schema is accepted and not enforced; what pydantic writes for a model is accepted."""

from __future__ import annotations

import datetime
import enum
import json
import re
import uuid
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from facades import ALL_FACADES
from pydantic import BaseModel, ConfigDict, Field, HttpUrl, TypeAdapter

from mlc_native import EngineConfig, SyncMLCEngine
from mlc_native.errors import InvalidRequest
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.protocol.json_schema import enforceable
from mlc_native.protocol.response_format import RequestResponseFormat

pytest.importorskip("xgrammar")
PROMPT = "<|bos|><|user|>Answer in JSON.<|end|><|assistant|>"
REFUSED: dict[str, Any] = {
    "/allOf/1/pattern": {"allOf": [{"type": "string", "pattern": "a"}, {"pattern": "b"}]},
    "/not/pattern": {"type": "string", "not": {"pattern": "a"}},
    "/uniqueItems": {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True},
    "/multipleOf": {"type": "number", "multipleOf": 0.1},
    "/maxLength": {"type": "string", "format": "uri", "maxLength": 100},
    "/propertyNames": {
        "properties": {"a": {}},
        "propertyNames": {"maxLength": 2},
        "additionalProperties": {"type": "null"},
    },
    "/properties/a/items/contains": {
        "properties": {"a": {"type": "array", "items": {"contains": {"const": 1}, "items": {}}}}
    },
}


def config(schema: Any, **fields: Any) -> GenerationConfig:
    response_format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return GenerationConfig(
        response_format=RequestResponseFormat.model_validate(response_format), **fields
    )


@pytest.mark.parametrize("name", ALL_FACADES)
def test_every_engine_refuses_by_pointer(name: str) -> None:
    facade: Any = ALL_FACADES[name]("demo", device="cpu")
    try:
        for pointer, schema in REFUSED.items():
            with pytest.raises(InvalidRequest) as error:
                facade.generate(PROMPT, config(schema, max_tokens=4))
            assert error.value.field == "response_format"
            assert f'"{pointer}" of the JSON schema cannot be enforced' in str(error.value)
    finally:
        facade.terminate()


# -------------------------------------------------------------------------- what is accepted holds


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=0, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    color: Color


class Circle(BaseModel):
    kind: Literal["circle"] = "circle"
    size: int = Field(ge=0, le=9)


class Square(BaseModel):
    kind: Literal["square"] = "square"
    size: int = Field(ge=0, le=9)


class Node(BaseModel):
    """A tree."""

    leaf: bool
    next: Node | None = None


class Person(BaseModel):
    """With what models usually have."""

    model_config = ConfigDict(extra="forbid", title="A person")

    name: str = Field(description="The full name", min_length=1, max_length=8, examples=["Ann"])
    age: int = Field(gt=0, lt=150)
    height: float | None = None
    nick: str = "none"
    color: Color = Color.RED
    size: Size
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    friends: list[Literal["Bob", "Eve"]] = Field(default_factory=list, max_length=2)
    scores: dict[str, int] = Field(default_factory=dict, max_length=2)
    point: tuple[int, bool]
    day: datetime.date
    id: uuid.UUID
    maybe: bool | Literal[3]


class Inherited(Cat):
    extra: Annotated[str, Field(pattern="^[a-z]{2,4}$")]


PYDANTIC: dict[str, Any] = {
    "person": Person,
    "tree": Node,
    "inherited": Inherited,
    "union": Cat | Dog,
    "tags with defaults": list[Annotated[Circle | Square, Field(discriminator="kind")]],
    "list": list[Inherited],
    "literal": Literal["a", "b", 3],
    "enum": Color,
    "optional": int | None,
    "mapping": dict[Annotated[str, Field(pattern="^[a-c]{1,3}$")], bool],
    "mapping of names": dict[Literal["a", "propertyNames"], dict[Color, bool]],
}
OTHERS: dict[str, Any] = {
    "typed const": {"const": "a", "type": "string", "minLength": 1},
    "multiples": {"type": "integer", "multipleOf": 7, "minimum": -50, "maximum": 50},
    "patterns": {
        "type": "object",
        "properties": {"id": {"type": "boolean"}},
        "required": ["id"],
        "patternProperties": {"^x-[a-c]$": {"type": "null"}, "^y[a-c]$": {"type": "boolean"}},
        "maxProperties": 4,
    },
    "exclusive": {
        "oneOf": [{"type": "boolean"}, {"const": "a"}, {"enum": [1, 2]}, {"type": "null"}]
    },
    "names": {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "maxProperties": 2},
    "address": TypeAdapter(HttpUrl).json_schema(),
    "one of all": {"allOf": [{"type": "string", "maxLength": 3}], "title": "t"},
    "ignored": {"type": "boolean", "minimum": 3, "format": "x", "x-note": {"not": {}}},
    "merged": {
        "allOf": [{"$ref": "#/$defs/named"}, {"properties": {"title": {"maxLength": 3}}}],
        "properties": {"kind": {"enum": ["a", "b"]}, "size": {"type": "integer", "minimum": 3}},
        "required": ["kind"],
        "if": {"properties": {"kind": {"const": "a"}}},
        "then": {"required": ["size"], "properties": {"size": {"maximum": 5}}},
        "else": {"not": {"required": ["size"]}},
        "$defs": {"named": {"properties": {"title": {"type": "string"}}, "required": ["title"]}},
    },
    "members of any name": {
        "properties": {"a": {"type": "boolean"}, "b": {"type": "null"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        "additionalProperties": {"type": "integer", "maximum": 9},
        "maxProperties": 3,
    },
    "several types": {"type": ["integer", "null", "string"], "minimum": 5, "maxLength": 2},
}
SCHEMAS = {name: TypeAdapter(kind).json_schema() for name, kind in PYDANTIC.items()} | OTHERS


@pytest.fixture(scope="module")
def engine() -> SyncMLCEngine:
    return SyncMLCEngine("demo", "cpu", engine_config=EngineConfig(max_num_sequence=16))


@pytest.mark.parametrize("name", SCHEMAS)
def test_samples_of_accepted_schemas_are_valid(engine: SyncMLCEngine, name: str) -> None:
    """Drawn at a high temperature, so that the model itself avoids nothing."""
    schema = SCHEMAS[name]
    validator = jsonschema.Draft202012Validator(schema)
    texts, _ = engine.generate(
        PROMPT, config(schema, n=16, temperature=3.0, seed=7, max_tokens=400)
    )
    num_complete = 0
    for text in texts[0]:
        value = parsed(text)
        if value is not None:
            validator.validate(value.value)
            num_complete += 1
    assert num_complete > 0
    for value in (v for v in map(parsed, texts[0]) if v is not None):
        if name in PYDANTIC:
            TypeAdapter(PYDANTIC[name]).validate_python(value.value, strict=False)


def test_what_only_looks_like_a_keyword_stays() -> None:
    schema = {
        "type": "object",
        "properties": {"propertyNames": {"enum": ["a"]}, "additionalProperties": {"const": 1}},
        "const": {"propertyNames": {"enum": ["a"]}, "additionalProperties": {"uri": 1}},
    }
    assert json.loads(enforceable(json.dumps(schema))) == schema


def test_addresses_are_addresses() -> None:
    schema = json.loads(enforceable(json.dumps(OTHERS["address"])))
    pattern = re.compile(schema["pattern"])
    for address in ("https://example.com/a%20b?x=1&y=2#top", "ws://localhost:8000", "a://b"):
        assert pattern.fullmatch(address)
    for other in (
        "example.com",
        "http://",
        "http:/a",
        "http://a b",
        "http://a/%zz",
        "http://a#b#c",
    ):
        assert not pattern.fullmatch(other)
    longest = f"{'a' * 15}://{'b' * 63}:1234/{'%20' * 120}?{'%20' * 60}#{'%20' * 40}"
    assert pattern.fullmatch(longest)
    assert not pattern.fullmatch(longest + "a")
    for limit, is_bounded in ((len(longest), True), (len(longest) - 1, False)):
        limited = json.loads(enforceable(json.dumps({**OTHERS["address"], "maxLength": limit})))
        assert ("pattern" in limited) == is_bounded


class Parsed(BaseModel):
    value: Any


def parsed(text: str) -> Parsed | None:
    """None for an answer that max_tokens has cut."""
    try:
        return Parsed(value=json.loads(text))
    except ValueError:
        return None


def test_a_schema_as_text_and_mlc_llm_s_form(engine: SyncMLCEngine) -> None:
    for fields in iter_forms({"contains": {"type": "null"}}):
        wanted = RequestResponseFormat.model_validate(fields)
        with pytest.raises(InvalidRequest, match='"/contains" of the JSON schema'):
            engine.generate(PROMPT, GenerationConfig(response_format=wanted))


def iter_forms(schema: Any) -> Iterator[dict[str, Any]]:
    text = json.dumps(schema)
    yield {"type": "json_object", "schema": text}
    yield {"type": "json_object", "schema": schema}
    yield {"type": "json_schema", "json_schema": {"schema": text, "strict": False}}
