"""Calls of tools and reasoning, from the request through the engine to the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from facades import OPENAI_FACADES
from fake_model import EOS, write_model

from mlc_native import EngineConfig, MLCEngine
from mlc_native.errors import InvalidConfig, InvalidRequest

ASK = [{"role": "user", "content": "What is the weather in Paris?"}]
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Paris", 'a "quoted" place', "Zürich"]},
        "days": {"type": "integer", "minimum": 0, "maximum": 12},
        "hourly": {"type": "boolean"},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}


def tool(name: str, parameters: Any = None, **fields: Any) -> dict[str, Any]:
    function = {"name": name, "parameters": PARAMETERS if parameters is None else parameters}
    return {"type": "function", "function": {**function, **fields}}


TOOLS = [tool("weather"), tool("time", {}), tool("ns.look-up", {"properties": {"a": {"const": 1}}})]
SCHEMAS: dict[str, Any] = {
    "weather": PARAMETERS,
    "time": {"type": "object", "maxProperties": 0},
    "ns.look-up": {"type": "object", "properties": {"a": {"const": 1}}},
}
# What a chat template of each family has, as far as the choice of its formats goes.
TEMPLATES = {
    "hermes": '<tool_call>\\n{"name": ...}\\n</tool_call>',
    "qwen3": '<tool_call>\\n{"name": ...}\\n</tool_call> <think>',
    "qwen3_coder": "<tool_call>\\n<function=x>\\n<parameter=y>",
    "glm45": "<tool_call>x<arg_key>y</arg_key><arg_value>z</arg_value></tool_call> <think>",
    "minimax_m2": "<minimax:tool_call><invoke>",
    "llama3_json": "<|python_tag|>",
    "mistral": "[TOOL_CALLS]",
    "mistral_v11": "[TOOL_CALLS] [ARGS] [THINK]",
    "granite": "<|tool_call|>",
    "phi4_mini_json": "<|tool_call|> <|/tool_call|>",
    "kimi_k2": "<|tool_calls_section_begin|>",
    "deepseek_v3": "<｜tool▁calls▁begin｜> ```json",
    "deepseek_v31": "<｜tool▁calls▁begin｜>",
    "pythonic": "<|python_start|>",
    "olmo3": "<function_calls>",
    "lfm2": "<|tool_call_start|>",
    "gemma4": "<|tool_call>call:x{<tool_call|> <|channel>thought<channel|>",
    "harmony": "<|start|>assistant<|channel|>x<|message|><|end|>",
    "none": "",
}


def template(shape: str, opening: str = "") -> str:
    """A chat template that shows tools if they have a format, and opens the answer."""
    shown = f"{{% if tools %}}Use: {shape}{{% endif %}}"
    messages = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    return f"{shown}{messages}assistant: {opening}"


def joined(chunks: list[Any]) -> tuple[Any, Any]:
    """The message and finish reason of a stream, joined as clients do it."""
    message: dict[str, Any] = {"content": None, "reasoning_content": None, "tool_calls": None}
    reason = None
    for chunk in chunks:
        for choice in chunk.choices:
            assert reason is None, "a chunk behind the finish reason"
            reason = choice.finish_reason
            delta = choice.delta
            for name in ("content", "reasoning_content"):
                if getattr(delta, name) is not None:
                    message[name] = (message[name] or "") + getattr(delta, name)
            for call in delta.tool_calls or []:
                add_call(message, call)
    return message, reason


def add_call(message: dict[str, Any], call: Any) -> None:
    calls = message["tool_calls"] = message["tool_calls"] or []
    if call.index == len(calls):
        assert call.id
        assert call.type == "function"
        assert call.function.name
        calls.append({"name": call.function.name, "arguments": ""})
    else:
        assert call.id is None
        assert call.type is None
        assert call.function.name is None
    assert call.index == len(calls) - 1
    calls[call.index]["arguments"] += call.function.arguments


def plain(message: Any) -> dict[str, Any]:
    calls = [
        {"name": call.function.name, "arguments": call.function.arguments}
        for call in message.tool_calls or []
    ]
    return {
        "content": message.content or None,
        "reasoning_content": message.reasoning_content,
        "tool_calls": calls or None,
    }


# ------------------------------------------------------------------------------- scripted answers

Speak = Callable[..., Any]


@pytest.fixture(params=OPENAI_FACADES)
def speak(
    request: pytest.FixtureRequest, make_model: Callable[..., str], fake_lib: str
) -> Iterator[Speak]:
    """speak(shape, answer, **arguments) asks a model that gives this answer, in both ways."""
    engines = []

    def ask(shape: str, answer: str, opening: str = "", **arguments: Any) -> tuple[Any, Any]:
        config = arguments.pop("engine_config", None)
        model = make_model(answer=answer, chat_template=template(shape, opening))
        facade = OPENAI_FACADES[request.param](model, model_lib=fake_lib, engine_config=config)
        engines.append(facade)
        whole = facade.chat(messages=ASK, **arguments)
        message, reason = joined(facade.chat(messages=ASK, stream=True, **arguments))
        choice = whole.choices[0]
        assert (plain(choice.message), choice.finish_reason) == (
            {**message, "content": message["content"] or None},
            reason,
        )
        return choice.message, choice.finish_reason

    yield ask
    for engine in engines:
        engine.terminate()


CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris", "days": 1}}\n</tool_call>'
ARGUMENTS = '{"city": "Paris", "days": 1}'


def test_a_call_is_read(speak: Speak) -> None:
    message, reason = speak(TEMPLATES["hermes"], CALL, tools=TOOLS)
    (call,) = message.tool_calls
    assert (call.type, call.function.name, call.function.arguments) == (
        *("function", "weather"),
        ARGUMENTS,
    )
    assert call.id.startswith("call_")
    assert message.content is None
    assert message.reasoning_content is None
    assert reason == "tool_calls"


@pytest.mark.parametrize(
    ("arguments", "is_read"),
    [
        ({"tools": TOOLS, "tool_choice": "auto"}, True),
        ({"tools": TOOLS, "tool_choice": "none"}, False),
        ({}, False),
        ({"tools": []}, False),
    ],
)
def test_calls_are_read_if_tools_are_offered(
    speak: Speak, arguments: dict[str, Any], is_read: bool
) -> None:
    message, reason = speak(TEMPLATES["hermes"], CALL, **arguments)
    assert bool(message.tool_calls) == is_read
    assert (message.content, reason) == ((None, "tool_calls") if is_read else (CALL, "stop"))


def test_reasoning_content_and_calls(speak: Speak) -> None:
    message, reason = speak(
        TEMPLATES["qwen3"],
        f"<think>\nParis?\n</think>\n\nI look.\n{CALL}\n{CALL}",
        tools=TOOLS,
    )
    assert message.reasoning_content == "Paris?"
    assert message.content == "I look.\n"
    assert [call.function.arguments for call in message.tool_calls] == [ARGUMENTS] * 2
    assert reason == "tool_calls"


def test_reasoning_that_the_template_opens(speak: Speak) -> None:
    message, reason = speak("", "So.</think>\n\nYes.", "<think>\n")
    assert (message.reasoning_content, message.content, reason) == ("So.", "Yes.", "stop")


def test_one_call_without_parallel_calls(speak: Speak) -> None:
    message, _ = speak(TEMPLATES["hermes"], CALL * 3, tools=TOOLS, parallel_tool_calls=False)
    assert len(message.tool_calls) == 1
    assert message.content is None


def test_a_cut_call_ends_with_length(speak: Speak) -> None:
    message, reason = speak(TEMPLATES["hermes"], CALL, tools=TOOLS, max_tokens=40)
    assert (message.content, message.tool_calls, reason) == (CALL[:40], None, "length")
    # A complete call in front of the cut stays one.
    message, reason = speak(TEMPLATES["hermes"], f"{CALL}\nand", tools=TOOLS, max_tokens=len(CALL))
    assert len(message.tool_calls) == 1
    assert reason == "length"


def test_malformed_calls_are_content(speak: Speak) -> None:
    text = '<tool_call>{"name": "weather", "arguments": {city}}</tool_call>'
    message, reason = speak(TEMPLATES["hermes"], text, tools=TOOLS)
    assert (message.content, message.tool_calls, reason) == (text, None, "stop")


@pytest.mark.parametrize(
    ("config", "content", "num_calls", "reasoning"),
    [
        ({}, None, 1, "So."),
        ({"tool_call_parser": "auto", "reasoning_parser": "auto"}, None, 1, "So."),
        ({"tool_call_parser": "none"}, CALL, 0, "So."),
        ({"reasoning_parser": "none"}, "<think>So.</think>", 1, None),
        ({"tool_call_parser": "mistral"}, CALL, 0, "So."),
        ({"reasoning_parser": "mistral"}, "<think>So.</think>", 1, None),
    ],
)
def test_formats_are_settings_of_the_engine(
    speak: Speak, config: dict[str, str], content: str | None, num_calls: int, reasoning: str | None
) -> None:
    message, _ = speak(
        TEMPLATES["qwen3"],
        f"<think>So.</think>{CALL}",
        tools=TOOLS,
        engine_config=EngineConfig(**config),
    )
    assert (message.content, message.reasoning_content) == (content, reasoning)
    assert len(message.tool_calls or []) == num_calls


def test_the_format_may_be_named_without_a_template(speak: Speak) -> None:
    config = EngineConfig(tool_call_parser="hermes", reasoning_parser="qwen3")
    message, _ = speak("", f"<think>So.</think>{CALL}", tools=TOOLS, engine_config=config)
    assert (message.reasoning_content, len(message.tool_calls)) == ("So.", 1)


@pytest.mark.parametrize("field", ["tool_call_parser", "reasoning_parser"])
def test_unknown_formats_are_refused(
    field: str, make_model: Callable[..., str], fake_lib: str
) -> None:
    config = EngineConfig(**{field: "oracle"})
    with pytest.raises(InvalidConfig, match=r"must be one of auto, none, .*got 'oracle'") as error:
        MLCEngine(make_model(), model_lib=fake_lib, engine_config=config)
    assert error.value.field == field


@pytest.mark.parametrize(
    ("shape", "tools", "reasoning"),
    [
        ("hermes", "hermes", "none"),
        ("qwen3", "hermes", "qwen3"),
        ("mistral_v11", "mistral_v11", "mistral"),
        ("gemma4", "gemma4", "gemma4"),
        ("harmony", "harmony", "harmony"),
        ("none", "none", "none"),
        *((name, name, None) for name in TEMPLATES if name not in ("qwen3", "none")),
    ],
)
def test_the_template_chooses_the_formats(
    shape: str,
    tools: str,
    reasoning: str | None,
    make_model: Callable[..., str],
    fake_lib: str,
) -> None:
    model = make_model(chat_template=template(TEMPLATES[shape]))
    with MLCEngine(model, model_lib=fake_lib) as engine:
        assert engine.engine_config.tool_call_parser == tools
        assert reasoning in (None, engine.engine_config.reasoning_parser)


def test_an_answer_of_several_choices(make_model: Callable[..., str], fake_lib: str) -> None:
    model = make_model(answer=CALL, chat_template=template(TEMPLATES["hermes"]))
    with MLCEngine(model, model_lib=fake_lib) as engine:
        whole = engine.chat.completions.create(messages=ASK, tools=TOOLS, n=3)
        assert [len(choice.message.tool_calls or []) for choice in whole.choices] == [1] * 3
        ids = {choice.message.tool_calls[0].id for choice in whole.choices}  # type: ignore[index]
        assert len(ids) == 3
        chunks = engine.chat.completions.create(messages=ASK, tools=TOOLS, n=3, stream=True)
        seen: dict[int, str] = dict.fromkeys(range(3), "")
        for chunk in chunks:
            for choice in chunk.choices:
                for call in choice.delta.tool_calls or []:
                    seen[choice.index] += call.function.arguments or ""
        assert seen == dict.fromkeys(range(3), ARGUMENTS)


def test_logprobs_cover_all_tokens(make_model: Callable[..., str], fake_lib: str) -> None:
    answer = f"<think>a</think>b{CALL}"
    model = make_model(answer=answer, chat_template=template(TEMPLATES["qwen3"]))
    with MLCEngine(model, model_lib=fake_lib) as engine:
        whole = engine.chat.completions.create(messages=ASK, tools=TOOLS, logprobs=True)
        logprobs = whole.choices[0].logprobs
        assert logprobs is not None
        assert len(logprobs.content) == len(answer)
        chunks = engine.chat.completions.create(
            messages=ASK, tools=TOOLS, logprobs=True, stream=True
        )
        streamed = [
            token
            for chunk in chunks
            for choice in chunk.choices
            if choice.logprobs is not None
            for token in choice.logprobs.content
        ]
        assert streamed == logprobs.content


def test_an_answer_goes_back_as_history(make_model: Callable[..., str], fake_lib: str) -> None:
    model = make_model(
        answer=f"<think>So.</think>{CALL}",
        chat_template=template(TEMPLATES["qwen3"])
        + "{% for m in messages %}{% for c in m.tool_calls or [] %}[{{ m.reasoning_content }}|"
        "{{ c.id }}|{{ c.function.arguments.city }}]{% endfor %}{% endfor %}",
    )
    with MLCEngine(model, model_lib=fake_lib) as engine:
        message = engine.chat.completions.create(messages=ASK, tools=TOOLS).choices[0].message
        prompts = []
        render = engine.conv_template.render  # type: ignore[union-attr]

        def spy(*arguments: Any, **kwargs: Any) -> str:
            prompts.append(render(*arguments, **kwargs))
            return prompts[-1]

        engine.conv_template.render = spy  # type: ignore[union-attr, method-assign]
        assert message.tool_calls is not None
        answer = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}
        for history in (message, message.model_dump(), message.model_dump(exclude_none=True)):
            engine.chat.completions.create(
                messages=[*ASK, history, answer],  # type: ignore[list-item]
                tools=TOOLS,
            )
            assert f"[So.|{message.tool_calls[0].id}|Paris]" in prompts[-1]


# ------------------------------------------------------------------------------ what is forced


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


# ------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("arguments", "field", "text"),
    [
        ({"tool_choice": "required"}, "tool_choice", '"tool_choice": "required" needs "tools"'),
        ({"tool_choice": "required", "tools": []}, "tool_choice", 'needs "tools"'),
        (
            {
                "tools": TOOLS,
                "tool_choice": "required",
                "response_format": {"type": "json_object"},
            },
            "response_format",
            "exclude each other",
        ),
        ({"tools": TOOLS}, "tools", "template of this model does not show tools"),
        ({"tools": [tool("a b")]}, "tools", "got 'a b'"),
        ({"tools": [tool('x"')]}, "tools", "name of a function"),
        ({"tools": [tool("")]}, "tools", "name of a function"),
    ],
)
def test_what_cannot_be_honoured_is_refused(
    make_model: Callable[..., str],
    fake_lib: str,
    arguments: dict[str, Any],
    field: str,
    text: str,
) -> None:
    with MLCEngine(make_model(), model_lib=fake_lib) as engine:
        with pytest.raises(InvalidRequest, match=text) as error:
            engine.chat.completions.create(messages=ASK, **arguments)
        assert error.value.field == field


def test_a_schema_that_cannot_be_enforced_is_about_tools(
    random_model: Callable[..., MLCEngine],
) -> None:
    parameters = {"type": "object", "properties": {"a": {"not": {"const": 1}}}, "required": ["a"]}
    for shape, pointer in (("hermes", "/properties/a/not"), ("qwen3_coder", "/not")):
        text = f'^a schema of tools: "{pointer}" of the JSON schema cannot be enforced'
        with pytest.raises(InvalidRequest, match=text) as error:
            random_model(shape).chat.completions.create(
                messages=ASK, tools=[tool("weather", parameters)], tool_choice="required"
            )
        assert error.value.field == "tools"


@pytest.mark.parametrize(
    ("prefix", "answer", "reasoning", "content"),
    [
        ("<think>So", " be it.</think>\n\nYes.", " be it.", "Yes."),
        ("<think>So.</think>", "<think>Yes.</think>", None, "<think>Yes.</think>"),
        ("Well,", "<think>yes.</think>", None, "<think>yes.</think>"),
    ],
)
def test_a_message_that_is_continued(
    prefix: str,
    answer: str,
    reasoning: str | None,
    content: str,
    make_model: Callable[..., str],
    fake_lib: str,
) -> None:
    """Whether the answer begins within the reasoning depends on the message."""
    model = make_model(answer=answer, chat_template=template(TEMPLATES["qwen3"]))
    with MLCEngine(model, model_lib=fake_lib) as engine:
        message = (
            engine.chat.completions.create(
                messages=[*ASK, {"role": "assistant", "content": prefix}],
                continue_final_message=True,
            )
            .choices[0]
            .message
        )
    assert message.reasoning_content == (reasoning.strip() if reasoning else None)
    assert message.content == content


def test_strict_needs_a_grammar(make_model: Callable[..., str], fake_lib: str) -> None:
    model = make_model(chat_template=template(TEMPLATES["pythonic"]))
    no_keyword = {"properties": {"a-b": {"type": "boolean"}}}
    with (
        MLCEngine(model, model_lib=fake_lib) as engine,
        pytest.raises(InvalidRequest, match=r"tools\[1\].function.strict: True cannot be") as error,
    ):
        engine.chat.completions.create(
            messages=ASK, tools=[tool("weather", no_keyword), tool("time", strict=True)]
        )
    assert error.value.field == "tools"


# ----------------------------------------------------------------------- marks that are special


@pytest.fixture
def special_model(make_model: Callable[..., str]) -> Callable[..., str]:
    """special_model(answer) speaks token ids; 257 is the special token [TOOL_CALLS], 258 <|x|>."""

    def make(answer: list[int]) -> str:
        model = make_model(
            script=[*answer, EOS], vocab_size=259, chat_template=template(TEMPLATES["mistral"])
        )
        path = Path(model) / "tokenizer.json"
        tokenizer = json.loads(path.read_text())
        for token_id, text in ((257, "[TOOL_CALLS]"), (258, "<|x|>")):
            added = dict(tokenizer["added_tokens"][0], id=token_id, content=text)
            tokenizer["added_tokens"].append(added)
        path.write_text(json.dumps(tokenizer))
        return model

    return make


def test_special_tokens_that_mark_calls_are_seen(
    special_model: Callable[..., str], fake_lib: str
) -> None:
    call = '[{"name": "weather", "arguments": {"city": "Paris", "days": 1}}]'
    model = special_model([*b"So", 258, 257, *call.encode()])
    with MLCEngine(model, model_lib=fake_lib) as engine:
        assert engine.engine_config.visible_special_tokens == ["[TOOL_CALLS]"]
        message = engine.chat.completions.create(messages=ASK, tools=TOOLS).choices[0].message
        assert message.content == "So"
        assert [each.function.name for each in message.tool_calls or []] == ["weather"]
        assert engine.chat.completions.create(messages=ASK).choices[0].message.content == (
            f"So[TOOL_CALLS]{call}"
        )


def test_special_tokens_are_a_part_of_the_grammar(
    special_model: Callable[..., str], fake_lib: str
) -> None:
    with MLCEngine(special_model([257]), model_lib=fake_lib) as engine:
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


# ------------------------------------------------------------------------------ the demo model


@pytest.mark.parametrize("facade", OPENAI_FACADES)
def test_the_demo_model_calls_a_tool(facade: str) -> None:
    engine = OPENAI_FACADES[facade]("demo")
    try:
        parameters = {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        }
        answer = engine.chat(
            messages=[{"role": "user", "content": "What is 2 + 3?"}],
            tools=[tool("add", parameters)],
            tool_choice="required",
            parallel_tool_calls=False,
            temperature=0,
        )
        (call,) = answer.choices[0].message.tool_calls
        jsonschema.validate(json.loads(call.function.arguments), parameters)
    finally:
        engine.terminate()
