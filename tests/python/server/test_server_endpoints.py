"""What each endpoint answers."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_model import EOS
from live_server import CHAT, COMPLETIONS, USER, WAIT_S, LiveServer, error_of
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

import mlc_native
from mlc_native import AsyncMLCEngine
from mlc_native.errors import EngineTerminatedError
from mlc_native.server import ServerConfig, create_app
from mlc_native.server.app import app_of

ANSWER = 'Héllo "wörld" \\ 🤔\n\t\x7f\u2028</script>'


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_chat(serve: Any, prefix: str) -> None:
    server = serve(answer=ANSWER)
    response = server.post(f"{prefix}/chat/completions", {"model": "fake", "messages": USER})
    assert response.status_code == 200
    answer = response.json()
    assert answer["id"].startswith("chatcmpl-")
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "fake"
    assert answer["created"] > 1_700_000_000
    (choice,) = answer["choices"]
    assert choice["index"] == 0
    assert choice["finish_reason"] == "stop"
    assert choice["logprobs"] is None
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"] == ANSWER
    assert choice["message"]["refusal"] is None
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["completion_tokens"] == len(ANSWER.encode()) + 1  # the end is a token, too
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
    assert "extra" not in usage


@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.parametrize(
    ("prompt", "num_choices"),
    [("ab", 1), ([97, 98], 1), (["ab", "cd", "ef"], 3), ([[97, 98], [99]], 2)],
    ids=["text", "ids", "texts", "lists of ids"],
)
def test_completions(serve: Any, prefix: str, prompt: Any, num_choices: int) -> None:
    server = serve(answer=ANSWER)
    body = {"model": "fake", "prompt": prompt, "max_tokens": 100}
    response = server.post(f"{prefix}/completions", body)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert answer["object"] == "text_completion"
    assert [choice["index"] for choice in answer["choices"]] == list(range(num_choices))
    assert [choice["text"] for choice in answer["choices"]] == [ANSWER] * num_choices
    assert {choice["finish_reason"] for choice in answer["choices"]} == {"stop"}
    assert answer["usage"]["completion_tokens"] == num_choices * (len(ANSWER.encode()) + 1)


def test_completions_have_16_tokens_unless_told(serve: Any) -> None:
    answer = serve(answer="a" * 100).post(COMPLETIONS, {"prompt": "b"}).json()
    assert answer["choices"][0]["text"] == "a" * 16
    assert answer["choices"][0]["finish_reason"] == "length"


def test_models(serve: Any) -> None:
    server = serve(answer=ANSWER)
    for prefix in ("", "/v1"):
        listed = server.client.get(f"{prefix}/models").json()
        assert listed["object"] == "list"
        (model,) = listed["data"]
        assert model["id"] == "fake"
        assert model["object"] == "model"
        assert model["max_model_len"] == server.engine.max_input_sequence_length
        assert server.client.get(f"{prefix}/models/").json() == listed
        assert server.client.get(f"{prefix}/models/fake").json() == model
    missing = server.client.get("/v1/models/org/other")
    assert missing.status_code == 404
    assert error_of(missing)["code"] == "model_not_found"


def test_a_request_names_its_model(make_engine: Any) -> None:
    engines = {"first": make_engine(answer="one"), "second": make_engine(answer="two")}
    server = LiveServer(engines)
    try:
        assert server.chat()["model"] == "first"
        for name, text in (("first", "one"), ("second", "two")):
            answer = server.chat(model=name)
            assert answer["model"] == name
            assert answer["choices"][0]["message"]["content"] == text
        response = server.post(CHAT, {"model": "third", "messages": USER})
        assert response.status_code == 404
        error = error_of(response)
        assert error["code"] == "model_not_found"
        assert error["param"] == "model"
        assert "third" in error["message"]
        assert "first, second" in error["message"]
    finally:
        server.stop()


def test_a_folder_is_served_under_its_name(make_engine: Any) -> None:
    engine = make_engine(answer=ANSWER)
    server = LiveServer(engine)
    try:
        name = Path(engine.model_name).name
        assert [model["id"] for model in server.client.get("/v1/models").json()["data"]] == [name]
        for asked in (name, engine.model_name):
            assert server.chat(model=asked)["model"] == name
        refused = server.post(CHAT, {"messages": USER, "model": "other"})
        assert error_of(refused)["message"].endswith(f"this server has: {name}")
    finally:
        server.stop()


def test_tokenize_and_detokenize(serve: Any) -> None:
    server = serve(answer=ANSWER)
    text = "Hé 🤔"
    ids = list(text.encode())
    for prefix in ("", "/v1"):
        answer = server.post(
            f"{prefix}/tokenize", {"prompt": text, "return_token_strs": True}
        ).json()
        assert answer["tokens"] == ids
        assert answer["count"] == len(ids)
        assert answer["max_model_len"] == server.engine.max_input_sequence_length
        assert len(answer["token_strs"]) == len(ids)
        back = server.post(f"{prefix}/detokenize", {"tokens": ids}).json()
        assert back == {"prompt": text, "content": text}
    pieces = server.post("/tokenize", {"content": "é!", "with_pieces": True}).json()["tokens"]
    assert pieces == [
        {"id": 195, "piece": [195]},
        {"id": 169, "piece": [169]},
        {"id": 33, "piece": "!"},
    ]


def test_tokenize_without_control_tokens() -> None:
    """llama.cpp's ``parse_special: false``: a text stays a text."""
    with AsyncMLCEngine("demo", num_threads=1, verbose=False) as engine:
        client = TestClient(create_app(engine))

        def tokens(**fields: Any) -> Any:
            return client.post("/tokenize", json={"content": "a<|end|>", **fields}).json()["tokens"]

        assert engine.tokenizer is not None
        assert tokens() == tokens(parse_special=True) == engine.tokenizer.encode("a<|end|>")
        spelled = tokens(parse_special=False)
        assert engine.tokenizer.token_to_id("<|end|>") not in spelled
        assert engine.tokenizer.decode(spelled) == "a<|end|>"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": 3}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"prompt": "a", "add_special_tokens": "false"}, "add_special_tokens"),
        ("/tokenize", {"content": "a", "add_special": 1}, "add_special"),
        ("/tokenize", {"content": "a", "parse_special": 0}, "parse_special"),
        ("/tokenize", {"content": "a", "with_pieces": "yes"}, "with_pieces"),
        ("/tokenize", {"prompt": "a", "return_token_strs": 1}, "return_token_strs"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": "ab"}, "tokens"),
        ("/detokenize", {"tokens": [1, -1]}, "tokens"),
        ("/detokenize", {"tokens": [EOS + 1]}, "tokens"),
        ("/detokenize", {"tokens": [True]}, "tokens"),
        ("/detokenize", {"tokens": [10**30]}, "tokens"),
    ],
)
def test_tokenize_refuses(serve: Any, path: str, body: Any, param: str) -> None:
    response = serve(answer=ANSWER).post(path, body)
    assert response.status_code == 400
    assert error_of(response)["param"] == param


def test_detokenize_shows_what_is_wrong(serve: Any) -> None:
    server = serve(answer=ANSWER)
    for tokens, got in ([1, 2, -3], "-3"), ([1, 1 << 53], str(1 << 53)), ("ab", "'ab'"):
        response = server.post("/detokenize", {"tokens": tokens})
        assert error_of(response)["message"].endswith(f"token ids in [0, {EOS + 1}), got {got}")


def test_usage_equals_tokenize_of_the_chat(serve: Any) -> None:
    server = serve(answer=ANSWER)
    messages = [{"role": "system", "content": "Be ö."}, {"role": "user", "content": "hi 🤔"}]
    counted = server.post("/tokenize", {"messages": messages}).json()["count"]
    answer = server.post(CHAT, {"messages": messages}).json()
    assert answer["usage"]["prompt_tokens"] == counted
    prompt = "Once upon a time"
    counted = server.post("/tokenize", {"prompt": prompt}).json()["count"]
    answer = server.post(COMPLETIONS, {"prompt": prompt}).json()
    assert answer["usage"]["prompt_tokens"] == counted


def test_the_state_of_the_server(serve: Any) -> None:
    server = serve(answer=ANSWER)
    for path in ("/health", "/ready", "/ping"):
        assert server.client.get(path).status_code == 200
    assert server.client.post("/ping").status_code == 200
    assert server.client.get("/version").json() == {"version": mlc_native.__version__}
    server.engine.terminate()
    health = server.client.get("/health")
    assert health.status_code == 503
    assert error_of(health)["code"] == "unhealthy"
    response = server.post(CHAT, {"messages": USER})
    assert response.status_code == 503


def test_not_ready_while_the_model_loads(serve: Any) -> None:
    server = serve(answer=ANSWER)
    model = server.state.models.all[0]
    engine, model.engine = model.engine, None
    for path in ("/ready", "/health"):
        response = server.client.get(path)
        assert response.status_code == 503
        assert error_of(response)["message"] == "Loading model"
    assert server.client.get("/ping").status_code == 200
    assert server.post(CHAT, {"messages": USER}).status_code == 503
    model.engine = engine
    for path in ("/ready", "/health"):
        assert server.client.get(path).status_code == 200


def test_a_model_that_is_unloaded_leaves_the_others(make_engine: Any) -> None:
    engines = {"first": make_engine(answer="one"), "second": make_engine(answer="two")}
    server = LiveServer(engines)
    try:
        asyncio.run(engines["first"].unload())
        first, second = server.client.get("/v1/models").json()["data"]
        assert (first["id"], first["max_model_len"]) == ("first", None)
        assert second["max_model_len"] == engines["second"].max_input_sequence_length
        refused = server.post(CHAT, {"messages": USER, "model": "first"})
        assert (refused.status_code, error_of(refused)["code"]) == (503, "model_not_loaded")
        assert server.chat(model="second")["model"] == "second"
        metrics = server.client.get("/metrics")
        assert metrics.status_code == 200
        assert 'model_name="second"' in metrics.text
        assert server.client.get("/health").status_code == 200
        assert server.client.get("/ready").status_code == 503
    finally:
        server.stop()


def test_a_reload_is_no_stuck_step(make_engine: Any, make_model: Any, fake_lib: str) -> None:
    engine = make_engine(answer=ANSWER)
    server = LiveServer(engine, ServerConfig(stuck_step_timeout_s=0.1))
    endless = make_model(load_parts=100_000, us_per_load_part=1000)  # 100 seconds
    with ThreadPoolExecutor(1) as pool:
        reload = pool.submit(asyncio.run, engine.reload(endless, model_lib=fake_lib))
        try:
            while server.client.get("/v1/models").json()["data"][0]["max_model_len"] is not None:
                pass
            assert server.client.get("/ready").status_code == 503
            assert [server.client.get("/health").status_code for _ in range(3)] == [200] * 3
        finally:
            server.stop()
            engine.terminate()
        assert isinstance(reload.exception(WAIT_S), EngineTerminatedError)


def test_openapi_is_true(serve: Any) -> None:
    """Each path exists with its method, no other does, and requests and answers fit the schemas."""
    jsonschema = pytest.importorskip("jsonschema")
    server = serve(answer=ANSWER)
    document = server.client.get("/openapi.json").json()
    described = {(p, m.upper()) for p, methods in document["paths"].items() for m in methods}
    routed = {
        (route.path, method)
        for route in app_of(server.state).routes
        for method in route.methods or ()
        if method != "HEAD" and "{" not in route.path and route.include_in_schema
    }
    assert routed - described == {("/openapi.json", "GET")}
    assert described <= routed

    def check(name: str, value: Any) -> None:
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        jsonschema.Draft202012Validator(schema).validate(value)

    requests = {
        CHAT: ("ChatCompletion", {"messages": USER, "logprobs": True, "unknown": 1}),
        COMPLETIONS: ("Completion", {"prompt": ["a", "b"], "logprobs": 2}),
    }
    for path, (name, body) in requests.items():
        check(f"{name}Request", body)
        check(f"{name}Response", server.post(path, body).json())
    check("Error", server.post(CHAT, {}).json())


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v2/chat", 404, "not_found"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
    ],
)
def test_no_such_route(serve: Any, method: str, path: str, status: int, code: str) -> None:
    response = serve(answer=ANSWER).client.request(method, path)
    assert response.status_code == status
    assert error_of(response)["code"] == code


async def test_mounted_into_another_app(make_engine: Any) -> None:
    engine: AsyncMLCEngine = make_engine(answer=ANSWER)
    try:
        config = ServerConfig(api_keys=["k"])
        outer = Starlette(routes=[Mount("/llm", create_app(engine, config))])
        transport = httpx.ASGITransport(outer)
        async with httpx.AsyncClient(transport=transport, base_url="http://x/llm") as client:
            assert (await client.get("/health")).status_code == 200
            assert (await client.get("/v1/models")).status_code == 401
            client.headers["x-api-key"] = "k"
            answer = (await client.post(CHAT, json={"messages": USER})).json()
            assert answer["choices"][0]["message"]["content"] == ANSWER
            response = await client.post(CHAT, json={"messages": USER, "stream": True})
            assert response.text.endswith("data: [DONE]\n\n")
    finally:
        engine.terminate()
