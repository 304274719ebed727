"""Calls of tools that a grammar forces are valid, whatever the model would say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest
from fake_model import write_model
from tool_requests import (
    ASK,
    PARAMETERS,
    SCHEMAS,
    TEMPLATES,
    TOOLS,
    joined,
    plain,
    template,
    tool,
    write_special_tokens,
)

from mlc_native import MLCEngine
from mlc_native.errors import InvalidRequest


@pytest.fixture(scope="module")
def random_model(
    tmp_path_factory: pytest.TempPathFactory, fake_lib: str
) -> Iterator[Callable[..., MLCEngine]]:
    """random_model(shape) is an engine whose template has this shape.

    Each allowed token is as likely as the others, except one.
    """
    engines: dict[tuple[str, str], MLCEngine] = {}

    def make(shape: str, opening: str = "") -> MLCEngine:
        if (shape, opening) not in engines:
            folder = tmp_path_factory.mktemp("random") / "model"
            source = template(TEMPLATES[shape], opening)
            model = write_model(folder, chat_template=source, peak=4)
            engines[shape, opening] = MLCEngine(model, model_lib=fake_lib)
        return engines[shape, opening]

    yield make
    for engine in engines.values():
        engine.terminate()


def check_calls(message: Any, names: set[str]) -> None:
    assert message.tool_calls
    assert not message.content
    for call in message.tool_calls:
        assert call.function.name in names
        jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])


@pytest.mark.parametrize("shape", TEMPLATES)
def test_required_calls_are_valid_with_any_weights(
    shape: str, random_model: Callable[..., MLCEngine]
) -> None:
    engine = random_model(shape)
    for seed in range(3):
        arguments: dict[str, Any] = {"messages": ASK, "tools": TOOLS, "seed": seed}
        arguments |= {"tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 400}
        whole = engine.chat.completions.create(**arguments)
        choice = whole.choices[0]
        assert choice.finish_reason == "tool_calls"
        check_calls(choice.message, set(SCHEMAS))
        assert len(choice.message.tool_calls or []) == 1
        message, reason = joined(list(engine.chat.completions.create(stream=True, **arguments)))
        assert ({**message, "content": None}, reason) == (plain(choice.message), "tool_calls")


@pytest.mark.parametrize("shape", TEMPLATES)
def test_named_calls_are_valid_with_any_weights(
    shape: str, random_model: Callable[..., MLCEngine]
) -> None:
    for name in SCHEMAS:
        choice = (
            random_model(shape)
            .chat.completions.create(
                messages=ASK,
                tools=TOOLS,
                tool_choice={"type": "function", "function": {"name": name}},
                seed=1,
                max_tokens=400,
            )
            .choices[0]
        )
        assert choice.finish_reason == "stop"
        check_calls(choice.message, {name})
        assert len(choice.message.tool_calls or []) == 1


WORD = {"type": "string", "maxLength": 12}
POINT = {
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/digit"}, "y": {"type": "boolean"}},
    "required": ["x", "y"],
}
SHAPES: dict[str, dict[str, Any]] = {
    "limits": {"name": WORD, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
    "list": {"l": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 5}},
    "pattern": {"code": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{2}$"}},
    "date": {"day": {"type": "string", "format": "date"}},
    "any": {"x": {"anyOf": [{"type": "boolean"}, {"enum": ["yes", "no"]}, {"type": "null"}]}},
    "refs": {"from": {"$ref": "#/$defs/point"}},
    "unicode": {"größe": {"enum": ["klein", "groß"]}, "市": {"enum": ["東京", "🙂"]}},
    "length": {"s": {"type": "string", "minLength": 3, "maxLength": 8}},
    "long": {"s": {"type": "string", "maxLength": 300}},
    "values": {"e": {"enum": ["red", 3, True, None, ["a"]]}, "k": {"const": {"q": [1, "z"]}}},
    "nested": {"o": {"type": "object", "properties": {"p": WORD}, "required": ["p"]}},
}


@pytest.mark.parametrize("shape", TEMPLATES)
def test_arguments_are_valid_for_many_schemas(
    shape: str, random_model: Callable[..., MLCEngine]
) -> None:
    for properties in SHAPES.values():
        schema = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "$defs": {"point": POINT, "digit": {"type": "integer", "minimum": 0, "maximum": 9}},
        }
        for seed in range(3):
            choice = (
                random_model(shape)
                .chat.completions.create(
                    messages=ASK,
                    tools=[tool("f", schema)],
                    tool_choice="required",
                    parallel_tool_calls=False,
                    seed=seed,
                    max_tokens=700,
                )
                .choices[0]
            )
            assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
            (call,) = choice.message.tool_calls or []
            jsonschema.validate(json.loads(call.function.arguments), schema)


@pytest.mark.parametrize("shape", TEMPLATES)
def test_parallel_calls_are_valid_as_far_as_they_go(
    shape: str, random_model: Callable[..., MLCEngine]
) -> None:
    """Random weights may make calls without end. What is cut is not claimed to be complete."""
    counts = set()
    for seed in range(4):
        choice = (
            random_model(shape)
            .chat.completions.create(
                messages=ASK,
                tools=TOOLS[:2],
                tool_choice="required",
                seed=seed,
                max_tokens=600,
            )
            .choices[0]
        )
        calls = choice.message.tool_calls or []
        counts.add(len(calls))
        complete = calls if choice.finish_reason == "tool_calls" else calls[:-1]
        for call in complete:
            jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])
        assert choice.finish_reason in ("tool_calls", "length")
    # An answer of gpt-oss ends behind a call.
    assert max(counts) == 1 if shape == "harmony" else max(counts) > 1


@pytest.mark.parametrize(
    ("shape", "answer"),
    [
        ("hermes", 'Hm. <tool_call>{"name": "fly", bad}</tool_call> Done.'),
        ("mistral", 'Hm. [TOOL_CALLS] [{"name": "fly", "arguments": 3}]'),
        ("qwen3_coder", "Hm. <tool_call>\n<function=fly>\n<parameter=x>\n</function>"),
        ("llama3_json", '{"name": "fly", "parameters": 3}'),
        ("pythonic", "[weather(3)]"),
        ("lfm2", "Hm. <|tool_call_start|>[fly(3)]"),
        ("gemma4", "Hm. <|tool_call>call:fly{3}<tool_call|>"),
        ("harmony", "Hm. <|channel|>commentary to=functions.fly <|constrain|>json<|message|>3"),
    ],
)
def test_strict_functions_make_calls_valid(
    shape: str, answer: str, make_model: Callable[..., str], fake_lib: str
) -> None:
    """What the model says is no valid call. The grammar lets it begin one and then corrects it."""
    model = make_model(answer=answer, chat_template=template(TEMPLATES[shape]))
    with MLCEngine(model, model_lib=fake_lib) as engine:
        arguments: dict[str, Any] = {"messages": ASK, "max_tokens": 400, "seed": 1}
        free = engine.chat.completions.create(tools=[tool("weather")], **arguments)
        assert (free.choices[0].message.content or "") in (answer, "Hm. ")
        strict = [tool("weather", strict=True)]
        choice = engine.chat.completions.create(
            tools=strict, parallel_tool_calls=False, **arguments
        ).choices[0]
        (call,) = choice.message.tool_calls or []
        jsonschema.validate(json.loads(call.function.arguments), PARAMETERS)
        assert choice.message.content in ("Hm. ", None)


@pytest.mark.parametrize("shape", ["qwen3", "glm45", "mistral_v11"])
def test_reasoning_before_a_forced_call(shape: str, random_model: Callable[..., MLCEngine]) -> None:
    """The template opens the reasoning. It ends in time for the call, with any weights."""
    opening = "[THINK]" if shape == "mistral_v11" else "<think>\n"
    engine = random_model(shape, opening)
    for seed in range(3):
        choice = engine.chat.completions.create(
            messages=ASK,
            tools=TOOLS,
            tool_choice="required",
            parallel_tool_calls=False,
            seed=seed,
            max_tokens=600,
        ).choices[0]
        assert choice.message.reasoning_content
        check_calls(choice.message, set(SCHEMAS))
        assert choice.finish_reason == "tool_calls"


def test_a_response_format_behind_reasoning(random_model: Callable[..., MLCEngine]) -> None:
    engine = random_model("qwen3", "<think>\n")
    forms: list[tuple[dict[str, Any], str]] = [
        ({"type": "choice", "choice": ["yes", "no"]}, "yes|no"),
        ({"type": "regex", "regex": "[ab]{3}"}, "[ab]{3}"),
        ({"type": "grammar", "grammar": 'root ::= "x" | "y"'}, "x|y"),
        ({"type": "json_schema", "json_schema": {"schema": {"type": "boolean"}}}, "true|false"),
        ({"type": "json_object", "schema": '{"const": {"a": 1}}'}, r'\{\s*"a":\s*1\s*\}'),
    ]
    for form, pattern in forms:
        choice = engine.chat.completions.create(
            messages=ASK, response_format=form, seed=0, max_tokens=80
        ).choices[0]
        assert choice.message.reasoning_content
        assert choice.finish_reason == "stop"
        assert re.fullmatch(pattern, choice.message.content or ""), form


def test_json_or_a_call(random_model: Callable[..., MLCEngine]) -> None:
    """With tools and a response_format, an answer is a call or of that format."""
    seen = set()
    for seed in range(12):
        choice = (
            random_model("hermes")
            .chat.completions.create(
                messages=ASK,
                tools=TOOLS[:1],
                response_format={"type": "choice", "choice": ["<yes>", "<no>", "<tools>"]},
                seed=seed,
                parallel_tool_calls=False,
                max_tokens=400,
            )
            .choices[0]
        )
        seen.add(choice.finish_reason)
        if choice.message.tool_calls:
            check_calls(choice.message, {"weather"})
        else:
            assert choice.message.content in ("<yes>", "<no>", "<tools>")
    assert seen == {"stop", "tool_calls"}


def test_a_schema_that_cannot_be_enforced_is_about_tools(
    random_model: Callable[..., MLCEngine],
) -> None:
    parameters = {"type": "object", "properties": {"a": {"contains": {}}}, "required": ["a"]}
    for shape, pointer in (("hermes", "/properties/a/contains"), ("qwen3_coder", "/contains")):
        text = f'^a schema of tools: "{pointer}" of the JSON schema cannot be enforced'
        with pytest.raises(InvalidRequest, match=text) as error:
            random_model(shape).chat.completions.create(
                messages=ASK, tools=[tool("weather", parameters)], tool_choice="required"
            )
        assert error.value.field == "tools"


def test_special_tokens_are_a_part_of_the_grammar(
    make_model: Callable[..., str], fake_lib: str
) -> None:
    with MLCEngine(write_special_tokens(make_model, [257]), model_lib=fake_lib) as engine:
        choice = engine.chat.completions.create(
            messages=ASK,
            tools=TOOLS[:1],
            tool_choice="required",
            parallel_tool_calls=False,
            return_token_ids=True,
            debug_config={"grammar_execution_mode": "constraint"},
        ).choices[0]
        assert choice.token_ids is not None
        assert choice.token_ids[0] == 257
        check_calls(choice.message, {"weather"})
