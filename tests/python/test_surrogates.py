"""Halves of surrogate pairs, which JSON can write and UTF-8 cannot.

A request that has one is refused with an error that can be sent, or is served and its answer is
valid Unicode. A pair of escapes is the character that it stands for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fake_model import write_model
from tool_requests import TEMPLATES, template

from mlc_native import MLCEngine
from mlc_native.errors import InvalidRequest
from mlc_native.protocol.openai_api_protocol import ChatCompletionRequest

LONE = "\ud800"
ESCAPED = '"\\ud800"'
USER = {"role": "user", "content": "hi"}
# Writes all that a request has, once as JSON and once as text.
TEMPLATE = (
    "{% for m in messages %}{{ m | tojson }}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.arguments }}{% endfor %}{% endfor %}"
    "{{ tools | tojson if tools else '' }}{{ extra or '' }}"
)


def called(arguments: str) -> list[dict[str, Any]]:
    function = {"name": "f", "arguments": arguments}
    call = {"id": "c", "type": "function", "function": function}
    return [USER, {"role": "assistant", "content": "", "tool_calls": [call]}, USER]


def tool(**function: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "f", **function}}]}


def schema(value: Any) -> dict[str, Any]:
    text = value if isinstance(value, str) else json.dumps(value)
    return {"response_format": {"type": "json_object", "schema": text}}


def properties(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "integer"}}, "required": [name]}


REFUSED: dict[str, dict[str, Any]] = {
    "content": {"messages": [{"role": "user", "content": LONE}]},
    "a part of the content": {
        "messages": [{"role": "user", "content": [{"type": "text", "text": LONE}]}]
    },
    "a name": {"messages": [{**USER, "name": LONE}]},
    "reasoning": {
        "messages": [USER, {"role": "assistant", "content": "", "reasoning_content": LONE}]
    },
    "arguments of a call": {"messages": called(f'{{"a": {ESCAPED}}}')},
    "a name in arguments": {"messages": called(f"{{{ESCAPED}: 1}}")},
    "arguments that are no JSON": {"messages": called(LONE)},
    "the result of a call": {
        "messages": [*called("{}")[:2], {"role": "tool", "tool_call_id": "c", "content": LONE}]
    },
    "the name of a tool": tool(name=LONE),
    "the description of a tool": tool(description=LONE),
    "an enum of a tool": tool(parameters={"type": "object", "properties": {"a": {"enum": [LONE]}}}),
    "a parameter of a tool": tool(parameters=properties(LONE)),
    "a strict tool": {**tool(parameters=properties(LONE), strict=True), "tool_choice": "required"},
    "a tool that is chosen": {
        **tool(name=LONE),
        "tool_choice": {"type": "function", "function": {"name": LONE}},
    },
    "chat_template_kwargs": {"extra_body": {"chat_template_kwargs": {"extra": LONE}}},
    "stop": {"stop": LONE},
    "request_id": {"request_id": LONE},
    "cache_salt": {"extra_body": {"cache_salt": LONE}},
    "adapter": {"extra_body": {"adapter": LONE}},
    "enum": schema({"enum": ["a", LONE]}),
    "const": schema({"const": {LONE: LONE}}),
    "a property": schema(properties(LONE)),
    "a pattern": schema({"type": "string", "pattern": LONE}),
    "a pattern that escapes it": schema({"type": "string", "pattern": "^\\ud800$"}),
    "a class that escapes it": schema({"type": "string", "pattern": "^[\\ud800-\\udfff]+$"}),
    "a reference": schema({"$ref": "#/$defs/" + LONE, "$defs": {LONE: {"type": "null"}}}),
    "a schema that is no JSON": schema('{"const": "' + LONE + '"}'),
    "a regex": {"response_format": {"type": "regex", "regex": "a" + LONE}},
    "a choice": {"response_format": {"type": "choice", "choice": ["a", LONE]}},
    "a grammar": {"response_format": {"type": "grammar", "grammar": f'root ::= "{LONE}"'}},
    "a structural tag": {
        "response_format": {
            "type": "structural_tag",
            "format": {"type": "const_string", "value": LONE},
        }
    },
}

HARMLESS: dict[str, dict[str, Any]] = {
    "user": {"user": LONE},
    # The grammar library takes its bytes, and the answer shows replacement characters for them.
    "a grammar that escapes it": {
        "response_format": {"type": "grammar", "grammar": 'root ::= "\\ud800"'}
    },
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory, fake_lib: str) -> Iterator[MLCEngine]:
    folder = tmp_path_factory.mktemp("surrogates") / "model"
    model = write_model(folder, chat_template=TEMPLATE, context_window_size=2048)
    with MLCEngine(model, model_lib=fake_lib, verbose=False) as made:
        yield made


def ask(engine: MLCEngine, fields: dict[str, Any]) -> Any:
    return engine.chat.completions.create(
        **{"messages": [USER], "max_tokens": 4, "temperature": 0, **fields}
    )


@pytest.mark.parametrize("name", REFUSED)
def test_a_half_is_refused(engine: MLCEngine, name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        ask(engine, REFUSED[name])
    known = {*ChatCompletionRequest.model_fields, "request_id", "request"}
    assert refused.value.field in known
    assert "argument" not in str(refused.value)  # no text of a binding
    json.dumps(refused.value.to_openai(), ensure_ascii=False).encode()  # can be sent
    assert engine.completions.create(prompt="abc", max_tokens=1).usage.completion_tokens == 1


@pytest.mark.parametrize("name", HARMLESS)
def test_a_half_that_no_model_sees(engine: MLCEngine, name: str) -> None:
    ask(engine, HARMLESS[name]).model_dump_json().encode()


def test_a_pair_is_a_character(engine: MLCEngine) -> None:
    """In arguments of calls and in schemas, which are read as JSON."""
    plain, escaped = "\U0001f600", "\\ud83d\\ude00"
    tokens = [
        engine.chat.completions.create(
            messages=called(f'{{"a": "{text}"}}'), max_tokens=1
        ).usage.prompt_tokens
        for text in (plain, escaped)
    ]
    assert tokens[0] == tokens[1]
    for text in (plain, escaped):
        answer = engine.chat.completions.create(
            messages=[USER], max_tokens=20, **schema(f'{{"const": "{text}"}}')
        )
        assert json.loads(answer.choices[0].message.content) == plain


ANSWER = '<tool_call>\n{"name": "f", "arguments": {"a": "\\ud800 \\ud83d\\ude00"}}\n</tool_call>'


def test_arguments_that_the_model_writes(make_model: Callable[..., str], fake_lib: str) -> None:
    """They are the model's JSON, whose escapes are text."""
    model = make_model(answer=ANSWER, chat_template=template(TEMPLATES["hermes"]))
    with MLCEngine(model, model_lib=fake_lib, verbose=False) as engine:
        answer = engine.chat.completions.create(messages=[USER], **tool(parameters={}))
    (call,) = answer.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"a": LONE + " \U0001f600"}
    answer.model_dump_json().encode()
