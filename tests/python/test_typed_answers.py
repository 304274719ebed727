"""Types as response_format, and ``parse``."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

import pytest
from facades import OPENAI_FACADES
from fake_model import write_model
from pydantic import BaseModel, Field, field_validator
from typing_extensions import TypedDict

from mlc_native import AnswerParseError, InvalidRequest, LengthFinishReasonError
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.protocol.response_format import RequestResponseFormat

ASK = [{"role": "user", "content": "Who?"}]


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Place(BaseModel):
    x: int = Field(ge=0, le=9)
    y: bool


class Person(BaseModel):
    name: Literal["Ada", "Zoë"]
    size: Size
    places: Annotated[list[Place], Field(min_length=1, max_length=2)]
    nickname: Literal["A"] | None = None


@dataclasses.dataclass
class Point:
    x: Literal[1, 2]
    y: bool = False


class Options(TypedDict):
    fast: bool
    level: Literal[1, 2, 3]


class Odd(BaseModel):
    """The schema does not show that only one value is allowed."""

    number: Literal["one", "two"]

    @field_validator("number")
    @classmethod
    def check(cls, number: str) -> str:
        if number == "one":
            raise ValueError("one is too few")
        return number


TYPES: list[Any] = [Person, Point, Options, list[bool], Place, Literal["a", "b"]]


class Parser:
    """``parse`` of a façade whose model draws each allowed token with the same probability."""

    def __init__(self, facade: Any) -> None:
        self.facade = facade

    def __call__(self, **arguments: Any) -> Any:
        result = self.facade.engine.chat.completions.parse(messages=ASK, **arguments)
        return self.facade.run(result) if hasattr(self.facade, "run") else result


@pytest.fixture(scope="module", params=OPENAI_FACADES)
def parse(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, fake_lib: str
) -> Iterator[Parser]:
    model = write_model(tmp_path_factory.mktemp("typed") / "model", peak=4)
    facade = OPENAI_FACADES[request.param](model, model_lib=fake_lib)
    yield Parser(facade)
    facade.terminate()


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_parse_gives_a_value_of_the_type(parse: Parser, kind: Any) -> None:
    for seed in range(4):
        response = parse(response_format=kind, seed=seed, max_tokens=600, n=2)
        for choice in response.choices:
            message = choice.message
            value = message.parsed
            assert choice.finish_reason == "stop"
            assert message.refusal is None
            if kind is Person:
                assert isinstance(value, Person)
                assert message.content
                assert Person.model_validate_json(message.content) == value
            elif kind is Point:
                assert isinstance(value, Point)
            elif kind is Options:
                assert set(value) == {"fast", "level"}
            elif kind == list[bool]:
                assert all(isinstance(each, bool) for each in value)
    assert response.usage.completion_tokens > 0
    assert (
        response.model_dump()["choices"][0]["message"]["content"]
        == response.choices[0].message.content
    )


def test_create_takes_a_type(make_model: Callable[..., str], fake_lib: str) -> None:
    facade = OPENAI_FACADES["sync"](make_model(peak=4), model_lib=fake_lib)
    try:
        answer = facade.chat(messages=ASK, response_format=Place, seed=0)
        Place.model_validate_json(answer.choices[0].message.content)
    finally:
        facade.terminate()


def test_every_config_takes_a_type() -> None:
    for form in (
        GenerationConfig(response_format=Place).response_format,  # type: ignore[arg-type]
        RequestResponseFormat.model_validate(Place),
    ):
        assert form is not None
        assert form.json_schema is not None
        assert form.json_schema.schema_ == Place.model_json_schema()
        assert (form.type, form.json_schema.name) == ("json_schema", "Place")


def test_a_cut_answer_is_an_error_with_the_completion(parse: Parser) -> None:
    with pytest.raises(LengthFinishReasonError, match="answer 0 is not complete") as error:
        parse(response_format=Person, max_tokens=3)
    assert (error.value.field, error.value.index) == ("response_format", 0)
    assert error.value.completion.choices[0].finish_reason == "length"


def test_a_validator_may_refuse_an_answer(parse: Parser) -> None:
    def outcome(seed: int) -> Any:
        try:
            return parse(response_format=Odd, seed=seed).choices[0].message.parsed.number
        except AnswerParseError as error:
            return error

    outcomes = [outcome(seed) for seed in range(20)]
    errors = [each for each in outcomes if isinstance(each, AnswerParseError)]
    assert errors
    for error in errors:
        assert not isinstance(error, LengthFinishReasonError)
        assert "one is too few" in str(error)
        assert error.completion.choices[0].message.content == '{"number": "one"}'
    assert {each for each in outcomes if isinstance(each, str)} == {"two"}


@pytest.mark.parametrize(
    ("arguments", "field", "text"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format", "must be a type"),
        ({"response_format": Person, "stream": True}, "stream", "must be False"),
        ({"response_format": Callable[[int], int]}, "response_format", "has no JSON schema"),
        ({"response_format": Parser}, "response_format", "the type Parser has no JSON schema"),
        ({"response_format": Person, "temperature": -1}, "temperature", "temperature"),
    ],
)
def test_what_parse_refuses(
    parse: Parser, arguments: dict[str, Any], field: str, text: str
) -> None:
    with pytest.raises(InvalidRequest, match=text) as error:
        parse(**arguments)
    assert error.value.field == field
