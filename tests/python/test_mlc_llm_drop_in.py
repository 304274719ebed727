"""Programs for MLC-LLM: its module names, its templates, its engine for JSON, its mock engine."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import sys
import urllib.request
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fake_model import write_model

from mlc_native import AsyncMLCEngine, MLCEngine
from mlc_native.conversation_template import Conversation, ConvTemplateRegistry
from mlc_native.errors import InvalidConfig, InvalidRequest
from mlc_native.interface.chat import ChatState
from mlc_native.json_ffi import JSONFFIEngine
from mlc_native.protocol.conversation_protocol import MessagePlaceholders
from mlc_native.protocol.error_protocol import BadRequestError
from mlc_native.protocol.openai_api_protocol import (
    ChatCompletionRequest,
    CompletionRequest,
    ListResponse,
    ModelResponse,
    openai_api_get_unsupported_fields,
)
from mlc_native.serve import EngineConfig, PopenServer
from mlc_native.serve.echo_settings import MOCK_ECHO
from mlc_native.serve.sync_engine import SyncMLCEngine

LONG = 500_000  # tokens, one per step: seconds in which an abort arrives
HELLO = [{"role": "user", "content": "hello"}]
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("f", "g")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model folder without weights; its tokens are bytes."""
    return write_model(tmp_path_factory.mktemp("drop_in") / "echo")


@pytest.fixture(scope="module")
def echo(folder: str) -> Iterator[MLCEngine]:
    with MLCEngine(folder, model_lib=MOCK_ECHO) as engine:
        yield engine


@pytest.fixture(scope="module")
def json_engine(folder: str) -> Iterator[JSONFFIEngine]:
    engine = JSONFFIEngine(folder, "cpu", model_lib=MOCK_ECHO)
    yield engine
    engine.terminate()


# ---- conversation templates ----


@pytest.mark.parametrize("name", ConvTemplateRegistry.names())
def test_templates_render_and_survive_json(name: str) -> None:
    conversation = ConvTemplateRegistry.get_conv_template(name)
    assert conversation is not None
    assert conversation.name == name
    assert "" not in conversation.stop_str  # the engine refuses an empty one
    assert Conversation.from_json_dict(conversation.to_json_dict()) == conversation
    conversation.messages = [("user", "q1"), ("assistant", "a1"), ("user", "q2")]
    [closed] = conversation.as_prompt()
    conversation.messages.append(("assistant", None))
    [prompt] = conversation.as_prompt()
    assert prompt == closed + conversation.roles["assistant"] + conversation.role_empty_sep
    assert 0 <= prompt.index("q1") < prompt.index("a1") < prompt.index("q2")
    assert not any(each.value in prompt for each in MessagePlaceholders)


def test_a_prompt_of_llama_3() -> None:
    conversation = ConvTemplateRegistry.get_conv_template("llama-3")
    assert conversation is not None
    conversation.system_message = "Be brief."
    conversation.messages += [("user", "Hi"), ("assistant", "Hello"), ("user", "Bye")]
    conversation.messages.append(("assistant", None))
    head = "<|start_header_id|>{}<|end_header_id|>\n\n"
    assert conversation.as_prompt() == [
        f"{head.format('system')}Be brief.<|eot_id|>{head.format('user')}Hi<|eot_id|>"
        f"{head.format('assistant')}Hello<|eot_id|>{head.format('user')}Bye<|eot_id|>"
        f"{head.format('assistant')}"
    ]


def test_functions_are_shown_at_the_last_place() -> None:
    conversation = ConvTemplateRegistry.get_conv_template("gorilla")
    assert conversation is not None
    request = ChatCompletionRequest.model_validate({"messages": HELLO, "tools": TOOLS})
    request.check_function_call_usage(conversation)
    conversation.messages = [("user", "one"), ("assistant", "a"), ("user", "two")]
    [prompt] = conversation.as_prompt()
    assert conversation.use_function_calling
    assert "<<question>> one <<function>> \n" in prompt
    assert [f["name"] for f in json.loads(prompt.split("<<function>> ")[-1])] == ["f", "g"]
    choice = {"type": "function", "function": {"name": "g"}}
    chosen = request.model_copy(update={"tool_choice": choice})
    chosen.check_function_call_usage(conversation)
    assert json.loads(conversation.function_string)["name"] == "g"
    described = {"name": "f", "description": "d", "parameters": {}}
    tools = [{"type": "function", "function": described}]
    request = ChatCompletionRequest.model_validate({"messages": HELLO, "tools": tools})
    request.check_function_call_usage(conversation)
    [shown] = json.loads(conversation.function_string)
    assert list(shown) == ["description", "name", "parameters"]
    request.model_copy(update={"tool_choice": "none"}).check_function_call_usage(conversation)
    assert not conversation.use_function_calling


def test_a_registry_gives_copies_and_takes_new_templates() -> None:
    first = ConvTemplateRegistry.get_conv_template("chatml")
    assert first is not None
    first.messages.append(("user", "x"))
    second = ConvTemplateRegistry.get_conv_template("chatml")
    assert second is not None
    assert second.messages == []
    assert ConvTemplateRegistry.get_conv_template("no such template") is None
    with pytest.raises(InvalidConfig, match="in use"):
        ConvTemplateRegistry.register_conv_template(first)
    ConvTemplateRegistry.register_conv_template(second, override=True)
    with pytest.raises(InvalidConfig, match="needs a name"):
        ConvTemplateRegistry.register_conv_template(Conversation(roles={}, seps=[""]))


@pytest.mark.parametrize(
    ("messages", "match"),
    [
        ([("user", None)], "may be None"),
        ([("user", [{"type": "image_url", "image_url": "x"}])], "Unsupported content type"),
        ([("judge", "x")], "no role judge"),
    ],
)
def test_histories_that_are_refused(messages: list[Any], match: str) -> None:
    conversation = ConvTemplateRegistry.get_conv_template("chatml")
    assert conversation is not None
    conversation.messages = messages
    with pytest.raises(InvalidRequest, match=match):
        conversation.as_prompt()


# ---- the protocol ----


def test_checks_of_requests() -> None:
    late = [*HELLO, {"role": "system", "content": "x"}]
    request = ChatCompletionRequest.model_validate({"messages": late})
    with pytest.raises(BadRequestError, match="System prompt at position 1 in the message list"):
        request.check_message_validity()
    ChatCompletionRequest.model_validate({"messages": HELLO}).check_message_validity()
    best = CompletionRequest.model_validate({"prompt": "x", "best_of": 2})
    assert openai_api_get_unsupported_fields(best) == ["best_of"]
    assert openai_api_get_unsupported_fields(request) == []
    models = ListResponse(data=[ModelResponse(id="m")]).model_dump()
    assert models["data"][0]["object"] == "model"
    assert models["data"][0]["owned_by"] == "MLC-LLM"


# ---- the mock engine ----


def test_an_echo_is_the_prompt(echo: MLCEngine) -> None:
    text = "Grüße, 世界 🤔"
    response = echo.completions.create(prompt=text, n=2)
    assert [choice.text for choice in response.choices] == [text, text]
    assert [choice.finish_reason for choice in response.choices] == ["stop", "stop"]
    assert response.usage is not None
    num_tokens = len(text.encode())
    assert response.usage.prompt_tokens == num_tokens
    assert response.usage.completion_tokens == 2 * num_tokens
    cut = echo.completions.create(prompt="abcdef", max_tokens=4)
    assert (cut.choices[0].text, cut.choices[0].finish_reason) == ("abcd", "length")
    assert echo.metrics()["finished_requests"]["stop"] >= 1


def test_an_echo_reports_the_settings(echo: MLCEngine) -> None:
    settings = {"top_p": 0.6, "temperature": 0.9, "presence_penalty": 0.1, "n": 2, "seed": 3}
    response = echo.chat.completions.create(messages=HELLO, stop=["x"], **settings)  # type: ignore[arg-type]
    assert response.usage is not None
    extra = response.usage.extra or {}
    assert settings.items() <= extra.items()
    assert extra["stop_strs"] == ["x"]
    assert response.choices[0].message.content == "user: hello\nassistant: "


def test_an_echo_ends_at_a_stop_string(echo: MLCEngine) -> None:
    def answers(text: str, **settings: Any) -> set[tuple[str, str | None]]:
        answer = echo.completions.create(prompt=text, **settings)
        chunks = list(echo.completions.create(prompt=text, stream=True, **settings))
        streamed = "".join(choice.text for chunk in chunks for choice in chunk.choices)
        return {
            (answer.choices[0].text, answer.choices[0].finish_reason),
            (streamed, chunks[-1].choices[0].finish_reason),
        }

    assert answers("one, two, 🤔 three", stop=["three", "🤔"]) == {("one, two, ", "stop")}
    assert answers("aababc", stop=["abc", "never"]) == {("aab", "stop")}
    assert answers("aabab", stop="abc") == {("aabab", "stop")}
    assert answers("aababc", stop="abc", max_tokens=5) == {("aabab", "length")}
    kept = answers("one, two", stop=",", include_stop_str_in_output=True)
    assert kept == {("one,", "stop")}


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("logprobs", {"logprobs": True}),
        ("logprobs", {"logprobs": True, "top_logprobs": 2}),
        ("prompt_logprobs", {"prompt_logprobs": 1}),
        ("response_format", {"response_format": {"type": "regex", "regex": "a+"}}),
        ("bad_words", {"bad_words": ["hell"]}),
        ("allowed_token_ids", {"allowed_token_ids": [1]}),
    ],
    ids=str,
)
def test_an_echo_refuses_what_it_cannot_do(echo: MLCEngine, field: str, settings: Any) -> None:
    with pytest.raises(InvalidRequest, match="mock://echo samples nothing") as refused:
        echo.chat.completions.create(messages=HELLO, **settings)
    assert refused.value.field == field


def test_an_echo_refuses_what_the_engine_refuses(echo: MLCEngine, folder: str) -> None:
    with pytest.raises(InvalidRequest, match="should be non-negative"):
        echo.chat.completions.create(messages=HELLO, temperature=-1)
    with pytest.raises(InvalidRequest, match="no prefix cache"):
        echo.pin_prefix("x")
    with pytest.raises(InvalidRequest, match="larger than"):
        echo.completions.create(prompt="x" * 5000)
    with pytest.raises(InvalidConfig, match="only a new engine"):
        echo.reload(folder, model_lib=None)
    with pytest.raises(InvalidConfig, match="not step by step"):
        SyncMLCEngine(folder, model_lib=MOCK_ECHO)


def test_many_echoes_at_once_and_an_abort(folder: str) -> None:
    async def run() -> None:
        config = EngineConfig(max_num_sequence=2, max_single_sequence_length=LONG + 1)
        with AsyncMLCEngine(folder, model_lib=MOCK_ECHO, engine_config=config) as engine:
            prompts = [f"prompt {i}" * 9 for i in range(10)]
            answers = await asyncio.gather(
                *(engine.completions.create(prompt=prompt) for prompt in prompts)
            )
            assert [answer.choices[0].text for answer in answers] == prompts
            prompt_ids = [65] * LONG
            stream = await engine.completions.create(
                prompt=prompt_ids, stream=True, request_id="long"
            )
            await engine.abort("long")
            reasons = [c.choices[0].finish_reason async for c in stream if c.choices]
            assert reasons[-1] == "abort"

    asyncio.run(run())


def test_an_echo_ends_with_its_engine(folder: str) -> None:
    engine = MLCEngine(folder, model_lib=MOCK_ECHO, max_single_sequence_length=LONG + 1)
    stream = engine.completions.create(prompt=[65] * LONG, stream=True)
    engine.terminate()
    reasons = [choice.finish_reason for chunk in stream for choice in chunk.choices]
    assert reasons[-1] == "abort"


# ---- the engine for JSON ----


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"temperature": -1}, "should be non-negative"),
        ({"top_p": 100}, "in range [0, 1]"),
        ({"frequency_penalty": 100}, "frequency_penalty"),
        ({"messages": []}, "must not be empty"),
        ({"no_such_field": 1}, "no_such_field"),
    ],
)
def test_errors_are_chunks(
    json_engine: JSONFFIEngine, fields: dict[str, Any], expected: str
) -> None:
    body = json.dumps({"messages": HELLO, **fields})
    chunks = list(json_engine._raw_chat_completion(body, include_usage=True, request_id="1"))
    assert chunks[0].choices[0].finish_reason == "error"
    assert expected in (chunks[0].choices[0].delta.content or "")
    assert chunks[-1].usage is not None
    assert len(chunks) == 2


@pytest.mark.parametrize("text", ["malformed", "[]", "[" * 100_000, ""])
def test_texts_that_are_no_requests(json_engine: JSONFFIEngine, text: str) -> None:
    [chunk] = json_engine._raw_chat_completion(text, include_usage=False, request_id="1")
    assert chunk.choices[0].finish_reason == "error"


def test_json_engine_streams_and_reloads(json_engine: JSONFFIEngine) -> None:
    def ask(**arguments: Any) -> list[Any]:
        return list(json_engine.chat.completions.create(messages=HELLO, **arguments))

    chunks = ask(n=3, stream_options={"include_usage": True})
    assert {choice.index for chunk in chunks for choice in chunk.choices} == {0, 1, 2}
    assert chunks[-1].usage.extra["n"] == 3
    json_engine._test_reload()
    json_engine._test_reset()
    assert all(chunk.usage is None for chunk in ask())
    json_engine._test_unload()
    assert ask()[0].choices[0].finish_reason == "error"
    json_engine._test_reload()
    assert json_engine.metrics()["completion_tokens_sum"] == 0
    with pytest.raises(InvalidRequest, match="must be True"):
        json_engine.chat.completions.create(messages=HELLO, stream=False)
    with pytest.raises(TypeError, match="temprature"):
        json_engine.chat.completions.create(messages=HELLO, temprature=1)


# ---- a server as a process ----


def test_a_server_process(folder: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = EngineConfig(max_num_sequence=3)
    server = PopenServer(folder, model_lib=MOCK_ECHO, engine_config=config, port=port)
    assert "max_num_sequence=3" in server.command()
    with server:
        with urllib.request.urlopen(f"{server.openai_v1_base_url}/models", timeout=60) as answer:
            assert [model["id"] for model in json.load(answer)["data"]] == [folder]
        body = json.dumps({"messages": HELLO, "max_tokens": 2}).encode()
        request = urllib.request.Request(
            f"{server.openai_v1_base_url}/chat/completions",
            body,
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["choices"][0]["message"]["content"] == "us"
        with urllib.request.urlopen(f"{server.base_url}/metrics", timeout=60) as answer:
            assert b"vllm:generation_tokens_total" in answer.read()
    server.terminate()


def test_a_server_on_a_port_that_is_in_use(folder: str) -> None:
    """The other server answers there, too."""
    with PopenServer(folder, model_lib=MOCK_ECHO, port=0) as first:
        assert first.base_url != "http://127.0.0.1:0"
        process = first._process
        first.start()  # again
        assert first._process is process
        port = int(first.base_url.rpartition(":")[2])
        with pytest.raises(RuntimeError, match="ended with status 1"):
            PopenServer(folder, model_lib=MOCK_ECHO, port=port).start()


def test_a_server_process_that_cannot_start(folder: str) -> None:
    server = PopenServer(folder + "/none", model_lib=MOCK_ECHO, port=0)
    with pytest.raises(RuntimeError, match="ended with status"):
        server.start()


# ---- a chat ----


def test_a_chat_state(
    echo: MLCEngine, json_engine: JSONFFIEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    for engine in (echo, json_engine):
        state = ChatState(engine)
        state.stats()
        state.generate("hi")
        assert capsys.readouterr() == ("user: hi\nassistant: \n", "no answer yet\n")
        assert [message["role"] for message in state.history] == ["user", "assistant"]
        assert state.last_finished_request_usage.prompt_tokens == 20
        state.metrics()
        assert "completion_tokens_sum" in capsys.readouterr().err
        state.reset()
        assert state.history == []


def test_a_chat_state_reads_turns_and_commands(
    echo: MLCEngine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("/set max_tokens=2\nhello\n/exit\nnever\n"))
    state = ChatState(echo)
    state.chat()
    assert capsys.readouterr().out == "us\n"
    assert state.overrides == {"max_tokens": 2}
    no_metrics = ChatState(SimpleNamespace(chat=echo.chat))
    with pytest.raises(InvalidRequest, match="no metrics"):
        no_metrics.metrics()
