"""OpenAI's interface of MLCEngine and AsyncMLCEngine, on the fake model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from facades import OPENAI_FACADES, USER, Engines, MakeModel

from mlc_native import MLCEngine
from mlc_native.errors import EngineRequestError, InvalidRequest

pytestmark = pytest.mark.both_step_kinds


@pytest.fixture(params=OPENAI_FACADES)
def openai_engine(
    request: pytest.FixtureRequest, make_model: MakeModel, fake_lib: str
) -> Iterator[Engines]:
    engines = Engines(OPENAI_FACADES[request.param], make_model, fake_lib)
    yield engines
    engines.end()


def test_chat_completion(openai_engine: Engines) -> None:
    response = openai_engine(answer="Hi there").chat(messages=USER, n=2, request_id="r1")
    assert response.id == "r1"
    assert response.object == "chat.completion"
    assert [c.index for c in response.choices] == [0, 1]
    for choice in response.choices:
        assert (choice.message.role, choice.message.content) == ("assistant", "Hi there")
        assert choice.finish_reason == "stop"
        assert choice.logprobs is None
    assert response.usage.prompt_tokens == len("user: hi\nassistant: ")
    assert response.usage.completion_tokens == 2 * (len("Hi there") + 1)
    assert response.usage.total_tokens == (
        response.usage.prompt_tokens + response.usage.completion_tokens
    )


def test_logprobs_of_an_answer_without_a_token(openai_engine: Engines) -> None:
    engine = openai_engine(answer="Hi")
    fields: dict[str, Any] = {"max_tokens": 0, "n": 2}
    for choice in engine.chat(messages=USER, logprobs=True, **fields).choices:
        assert choice.logprobs.content == []
    for choice in engine.complete(prompt="x", logprobs=0, **fields).choices:
        assert (choice.logprobs.tokens, choice.logprobs.text_offset) == ([], [])
    assert engine.chat(messages=USER, **fields).choices[0].logprobs is None
    assert engine.complete(prompt="x", **fields).choices[0].logprobs is None


def test_chat_stream(openai_engine: Engines) -> None:
    engine = openai_engine(answer="Hi there")
    chunks = engine.chat(messages=USER, stream=True, stream_options={"include_usage": True})
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].id.startswith("chatcmpl-")
    *deltas, last = chunks
    assert all(c.delta.role == "assistant" for chunk in deltas for c in chunk.choices)
    assert "".join(c.delta.content for chunk in deltas for c in chunk.choices) == "Hi there"
    reasons = [c.finish_reason for chunk in deltas for c in chunk.choices]
    assert reasons[-1] == "stop"
    assert set(reasons[:-1]) <= {None}
    assert last.choices == []
    assert last.usage.completion_tokens == len("Hi there") + 1
    assert all(chunk.usage is None for chunk in deltas)


def test_stream_without_usage(openai_engine: Engines) -> None:
    chunks = openai_engine(answer="Hi").chat(messages=USER, stream=True)
    assert all(chunk.choices for chunk in chunks)


def test_chat_logprobs(openai_engine: Engines) -> None:
    engine = openai_engine(answer="Hé")
    response = engine.chat(messages=USER, logprobs=True, top_logprobs=2)
    content = response.choices[0].logprobs.content
    assert [c.bytes for c in content][:3] == [[b] for b in "Hé".encode()]
    assert all(len(c.top_logprobs) == 2 for c in content)
    chunks = engine.chat(messages=USER, logprobs=True, top_logprobs=2, stream=True)
    streamed = [c for ch in chunks if (lp := ch.choices[0].logprobs) for c in lp.content]
    assert streamed == content


def test_a_suffix_is_refused(openai_engine: Engines) -> None:
    engine = openai_engine(answer="world")
    with pytest.raises(InvalidRequest, match='"suffix" is not supported') as error:
        engine.complete(prompt="hello ", suffix="!")
    assert error.value.field == "suffix"
    assert engine.complete(prompt="hello ", suffix=None).choices[0].text == "world"


def test_completion_echo_logprobs(openai_engine: Engines) -> None:
    engine = openai_engine(answer="world")
    arguments: dict[str, Any] = {"prompt": "hello ", "echo": True, "logprobs": 2}
    response = engine.complete(**arguments)
    choice = response.choices[0]
    assert choice.text == "hello world"
    assert choice.logprobs.tokens[:11] == list("hello world")
    assert choice.logprobs.text_offset[:11] == [*range(11)]
    assert all(len(top) <= 3 for top in choice.logprobs.top_logprobs[1:])
    assert len(choice.logprobs.token_logprobs) == len(choice.logprobs.tokens)
    chunks = engine.complete(**arguments, stream=True)
    assert "".join(c.text for chunk in chunks for c in chunk.choices) == "hello world"
    tokens = [t for ch in chunks if (lp := ch.choices[0].logprobs) for t in lp.tokens]
    assert tokens == choice.logprobs.tokens


def test_completion_offsets_count_characters(openai_engine: Engines) -> None:
    """Tokens of one byte: a character belongs to the one with its first byte."""
    engine = openai_engine(answer="a€é!")
    arguments: dict[str, Any] = {"prompt": "€ ", "echo": True, "logprobs": 1}
    choice = engine.complete(**arguments).choices[0]
    assert choice.text == "€ a€é!"
    assert choice.logprobs.text_offset == [0, 1, 1, 1, 2, 3, 4, 4, 4, 5, 5]
    chunks = engine.complete(**arguments, stream=True)
    parts = [lp for chunk in chunks if (lp := chunk.choices[0].logprobs)]
    assert [offset for lp in parts for offset in lp.text_offset] == choice.logprobs.text_offset


def test_completion_echo_of_token_ids(openai_engine: Engines) -> None:
    response = openai_engine(answer="c").complete(prompt=[97, 98], echo=True)
    assert response.choices[0].text == "abc"
    assert response.id.startswith("cmpl-")


@pytest.mark.parametrize("token", [-1, 1 << 40])
@pytest.mark.parametrize("echo", [False, True])
def test_a_prompt_of_no_token_is_refused_by_its_name(
    openai_engine: Engines, token: int, echo: bool
) -> None:
    with pytest.raises(InvalidRequest, match=rf"\[0, 2\^31\), got {token}") as error:
        openai_engine(answer="c").complete(prompt=[97, token], echo=echo)
    assert error.value.field == "prompt"


def test_extra_body(openai_engine: Engines) -> None:
    engine = openai_engine(answer="abc")
    response = engine.chat(
        messages=USER, extra_body={"ignore_eos": True, "max_completion_tokens": 6, "top_k": 1}
    )
    assert response.choices[0].finish_reason == "length"
    assert response.usage.completion_tokens == 6
    debug = {"debug_config": {"ignore_eos": True}}
    response = engine.complete(prompt="x", max_tokens=5, extra_body=debug)
    assert response.usage.completion_tokens == 5


def test_query_engine_metrics(openai_engine: Engines) -> None:
    engine = openai_engine()
    engine.complete(prompt="abc", max_tokens=4)
    (chunk,) = engine.chat(
        messages=USER,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"debug_config": {"special_request": "query_engine_metrics"}},
    )
    assert chunk.usage.extra["completion_tokens_sum"] == 4


def test_tools_reach_the_template(openai_engine: Engines) -> None:
    template = "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}"
    template += (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments.x }}"
    )
    template += "{% endfor %}{% endfor %}|"
    engine = openai_engine(chat_template=template, answer="ok")
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 12}'}}
    messages = [*USER, {"role": "assistant", "tool_calls": [call]}]
    messages += [{"role": "tool", "tool_call_id": "1", "content": "3"}]
    tools = [{"type": "function", "function": {"name": "f"}}]
    response = engine.chat(messages=messages, tools=tools)
    assert response.usage.prompt_tokens == len("f12|")
    assert response.choices[0].message.content == "ok"


def test_text_parts_of_a_message(openai_engine: Engines) -> None:
    engine = openai_engine(chat_template="{{ messages[0].content }}", answer="ok")
    parts = [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]
    response = engine.chat(messages=[{"role": "user", "content": parts}])
    assert response.usage.prompt_tokens == 3


def test_an_error_comes_after_the_chunks_before_it(openai_engine: Engines) -> None:
    engine = openai_engine(answer="abcB", poison_token=ord("B"))
    with pytest.raises(EngineRequestError):
        engine.chat(messages=USER)
    with pytest.raises(EngineRequestError):
        engine.complete(prompt="x", stream=True)
    assert engine.complete(prompt="x", max_tokens=2).choices[0].text == "ab"


def test_reset_ends_requests_and_clears_metrics(openai_engine: Engines) -> None:
    engine = openai_engine()
    engine.complete(prompt="abc", max_tokens=4)
    engine.engine.reset()
    assert engine.metrics()["completion_tokens_sum"] == 0
    assert engine.complete(prompt="abc", max_tokens=4).usage.completion_tokens == 4


def test_tracing(make_model: MakeModel, fake_lib: str) -> None:
    with MLCEngine(make_model(), model_lib=fake_lib, enable_tracing=True) as engine:
        engine.completions.create(prompt="abc", max_tokens=4, request_id="traced")
        assert engine.state.trace_recorder is not None
        events = json.loads(engine.state.trace_recorder.dump_json())
    mine = [e for e in events if e["tid"] == "traced"]
    assert any("tokenization" in e["name"] for e in mine)
    assert sum(e["ph"] == "B" for e in mine) == sum(e["ph"] == "E" for e in mine) > 0
