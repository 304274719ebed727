"""Calls of tools and reasoning, from the request through the engine to the answer.

The model gives a written answer; what grammars make of any model is in test_forced_tool_calls.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest
from facades import OPENAI_FACADES
from tool_requests import (
    ASK,
    TEMPLATES,
    TOOLS,
    joined,
    plain,
    template,
    tool,
    write_special_tokens,
)

from mlc_native import EngineConfig, MLCEngine
from mlc_native.errors import InvalidConfig, InvalidRequest

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


@pytest.mark.parametrize("in_parts", [False, True])
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
    in_parts: bool,
    make_model: Callable[..., str],
    fake_lib: str,
) -> None:
    """Whether the answer begins within the reasoning depends on the message."""
    parts = [{"type": "text", "text": text} for text in (prefix[:3], prefix[3:])]
    model = make_model(answer=answer, chat_template=template(TEMPLATES["qwen3"]))
    with MLCEngine(model, model_lib=fake_lib) as engine:
        message = (
            engine.chat.completions.create(
                messages=[*ASK, {"role": "assistant", "content": parts if in_parts else prefix}],
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


def test_special_tokens_that_mark_calls_are_seen(
    make_model: Callable[..., str], fake_lib: str
) -> None:
    call = '[{"name": "weather", "arguments": {"city": "Paris", "days": 1}}]'
    model = write_special_tokens(make_model, [*b"So", 258, 257, *call.encode()])
    with MLCEngine(model, model_lib=fake_lib) as engine:
        assert engine.engine_config.visible_special_tokens == ["[TOOL_CALLS]"]
        message = engine.chat.completions.create(messages=ASK, tools=TOOLS).choices[0].message
        assert message.content == "So"
        assert [each.function.name for each in message.tool_calls or []] == ["weather"]
        assert engine.chat.completions.create(messages=ASK).choices[0].message.content == (
            f"So[TOOL_CALLS]{call}"
        )


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
