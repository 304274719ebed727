"""Adapters over HTTP: models by name, the list of models, loading and unloading."""

from __future__ import annotations

import argparse
import json
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from adapter_folders import write_demo_adapters
from live_server import CHAT, COMPLETIONS, USER, WAIT_S, LiveServer, error_of
from test_server_command import Process
from test_server_command import start as start

from mlc_native import AsyncMLCEngine
from mlc_native.cli.overrides import engine_config_from_flags
from mlc_native.cli.serve import add_arguments
from mlc_native.errors import InvalidConfig
from mlc_native.server import ServerConfig, create_app
from mlc_native.server.models import Models, ServedModel

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
SETTINGS: dict[str, Any] = {
    **{"dtype": "float32", "num_threads": 1, "max_num_sequence": 4, "verbose": False},
    **{"max_total_sequence_length": 2048, "max_single_sequence_length": 512},
}
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 12}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_demo_adapters(tmp_path_factory.mktemp("adapters"))


def engine_of(**settings: Any) -> AsyncMLCEngine:
    return AsyncMLCEngine("demo", "cpu", mode="server", **{**SETTINGS, **settings})


@pytest.fixture(scope="module")
def server(folders: dict[str, Path]) -> Iterator[LiveServer]:
    """The demo model as "demo" with "a" and "b", which no test changes."""
    made = LiveServer({"demo": engine_of(adapters=folders)})
    yield made
    made.stop()


@pytest.fixture
def open_server() -> Iterator[LiveServer]:
    """Two models, "one" and "two", to which clients may add adapters."""
    engines = {"one": engine_of(), "two": engine_of()}
    made = LiveServer(engines, ServerConfig(allow_adapter_loading=True))
    yield made
    made.stop()


def content_of(server: LiveServer, **fields: Any) -> str:
    answer = server.chat(**GREEDY, **fields)["choices"][0]["message"]["content"]
    assert isinstance(answer, str)
    return answer


# --------------------------------------------------------------------------------------- choosing


def test_chats(server: LiveServer) -> None:
    contents = {name: content_of(server, model=name) for name in ("demo", "a", "b")}
    assert len(set(contents.values())) == 3
    for name, content in contents.items():
        answer = server.chat(model=name, **GREEDY)
        assert answer["model"] == name
        assert answer["choices"][0]["message"]["content"] == content
        events = server.stream(CHAT, {"messages": USER, "model": name, **GREEDY})
        assert {event["model"] for event in events} == {name}
        deltas = [c["delta"].get("content") or "" for e in events for c in e["choices"]]
        assert "".join(deltas) == content
    assert content_of(server) == contents["demo"]
    assert content_of(server, adapter="a") == contents["a"]
    assert content_of(server, model="demo", adapter="b") == contents["b"]
    assert content_of(server, model="a", adapter="b") == contents["b"]
    assert content_of(server, model="a", adapter="") == contents["demo"]


def test_completions(server: LiveServer) -> None:
    def complete(**fields: Any) -> Any:
        response = server.post(COMPLETIONS, {"prompt": "Once upon", **GREEDY, **fields})
        assert response.status_code == 200, response.text
        return response.json()

    found = {name: complete(model=name) for name in ("demo", "a", "b")}
    assert {name: answer["model"] for name, answer in found.items()} == {n: n for n in found}
    assert len({answer["choices"][0]["text"] for answer in found.values()}) == 3
    assert complete(adapter="a")["choices"] == found["a"]["choices"]


def test_responses_and_messages(server: LiveServer) -> None:
    asked = [{"role": "user", "content": "hi"}]
    for name in ("demo", "a", "b"):
        expected = content_of(server, model=name)
        body = {"model": name, "input": asked, "temperature": 0, "max_output_tokens": 12}
        response = server.post("/v1/responses", body).json()
        assert response["model"] == name
        [message] = response["output"]
        assert message["content"][0]["text"] == expected
        body = {"model": name, "messages": asked, "temperature": 0, "max_tokens": 12}
        response = server.post("/v1/messages", body).json()
        assert response["model"] == name
        assert response["content"][0]["text"] == expected


def test_counts_of_tokens(server: LiveServer) -> None:
    for path, body in (
        ("/v1/tokenize", {"prompt": "hello"}),
        ("/v1/tokenize", {"messages": USER}),
        ("/v1/detokenize", {"tokens": [40, 41]}),
        ("/v1/messages/count_tokens", {"messages": USER}),
    ):
        plain, chosen = (server.post(path, {"model": n, **body}) for n in ("demo", "a"))
        assert plain.status_code == chosen.status_code == 200
        assert plain.json() == chosen.json()


def test_the_prefix_cache(server: LiveServer) -> None:
    """What one adapter has computed is not found by another."""

    def cached(**fields: Any) -> int:
        asked = [{"role": "user", "content": "a question of this test alone"}]
        answer = server.post(CHAT, {"messages": asked, **GREEDY, **fields}).json()
        count = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert isinstance(count, int)
        return count

    first = [cached(model=name, cache_salt="t") for name in ("demo", "a", "b")]
    assert first == [0, 0, 0]
    again = [cached(model=name, cache_salt="t") for name in ("demo", "a", "b")]
    assert again[0] > 0
    assert again == [again[0]] * 3


def test_the_list_of_models(server: LiveServer) -> None:
    listed = server.client.get("/v1/models").json()["data"]
    assert [(each["id"], each["parent"]) for each in listed] == [
        ("demo", None), ("a", "demo"), ("b", "demo")
    ]  # fmt: skip
    assert len({each["max_model_len"] for each in listed}) == 1
    for each in listed:
        assert each["object"] == "model"
        assert server.client.get(f"/v1/models/{each['id']}").json() == each
    assert "/" not in json.dumps(listed)  # clients do not learn the folders of adapters


def test_unknown_names(server: LiveServer) -> None:
    response = server.post(CHAT, {"messages": USER, "model": "c"})
    assert response.status_code == 404
    assert error_of(response)["code"] == "model_not_found"
    assert "demo, a, b" in error_of(response)["message"]
    response = server.post(CHAT, {"messages": USER, "adapter": "c"})
    assert response.status_code == 400
    assert error_of(response)["param"] == "adapter"


def test_requests_for_several_adapters_at_once(server: LiveServer) -> None:
    expected = {name: content_of(server, model=name) for name in ("demo", "a", "b")}
    names = ["demo", "a", "b"] * 4
    with ThreadPoolExecutor(len(names)) as pool:
        found = pool.map(lambda name: content_of(server, model=name), names)
        assert list(found) == [expected[name] for name in names]


def test_any_name_stands_for_what_is_no_adapter(folders: dict[str, Path]) -> None:
    made = LiveServer({"demo": engine_of(adapters=folders)})
    made.state.models = Models([ServedModel(("demo", "*"), made.engine)])
    try:
        plain, chosen = content_of(made, model="x"), content_of(made, model="a")
        assert plain != chosen
        assert made.chat(model="x")["model"] == "demo"
        assert made.chat(model="a")["model"] == "a"
    finally:
        made.stop()


# ----------------------------------------------------------------------------- loading, unloading


def test_loading_is_off_by_default(server: LiveServer, folders: dict[str, Path]) -> None:
    for path in (LOAD, UNLOAD, LOAD.removeprefix("/v1"), UNLOAD.removeprefix("/v1")):
        body = {"lora_name": "a", "lora_path": str(folders["a"])}
        response = server.post(path, body)
        assert response.status_code == 403
        error = error_of(response)
        assert error["code"] == "adapter_loading_not_allowed"
        assert error["type"] == "permission_error"
        assert "--allow-adapter-loading" in error["message"]
    assert server.engine.adapter_names == {"a", "b"}


def test_adapters_come_and_go(open_server: LiveServer, folders: dict[str, Path]) -> None:
    server = open_server
    plain = content_of(server)
    body = {"lora_name": "x", "lora_path": str(folders["a"])}
    response = server.post(LOAD, body)
    assert response.status_code == 200
    assert response.text.startswith("Success")
    assert content_of(server, model="x") != plain
    assert server.chat(model="x")["model"] == "x"
    assert server.engines[0].adapter_names == {"x"}
    response = server.post(LOAD, {**body, "lora_name": "y", "model": "two"})
    assert response.status_code == 200
    assert server.engines[1].adapter_names == {"y"}
    ids = [each["id"] for each in server.client.get("/v1/models").json()["data"]]
    assert ids == ["one", "x", "two", "y"]
    assert content_of(server, model="y") == content_of(server, model="x")
    for name in ("x", "y"):
        assert server.post(UNLOAD, {"lora_name": name}).status_code == 200
        assert server.post(CHAT, {"messages": USER, "model": name}).status_code == 404
        response = server.post(UNLOAD, {"lora_name": name})
        assert response.status_code == 404
        assert error_of(response)["param"] == "lora_name"
    assert content_of(server) == plain


def test_names_that_are_taken(open_server: LiveServer, folders: dict[str, Path]) -> None:
    path = str(folders["a"])
    assert open_server.post(LOAD, {"lora_name": "x", "lora_path": path}).status_code == 200
    for name in ("x", "one", "two"):
        for model in ("one", "two"):
            body = {"lora_name": name, "lora_path": path, "model": model}
            response = open_server.post(LOAD, body)
            assert response.status_code == 400
            assert error_of(response)["param"] == "lora_name"
    for name in ("one", "two"):  # models are not unloaded
        assert open_server.post(UNLOAD, {"lora_name": name}).status_code == 404


def test_one_of_two_gets_a_name(open_server: LiveServer, folders: dict[str, Path]) -> None:
    def load(model: str) -> int:
        body = {"lora_name": "x", "lora_path": str(folders["a"]), "model": model}
        return open_server.post(LOAD, body).status_code

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(load, ("one", "two", "one", "two"))) == [200, 400, 400, 400]
    assert sum(len(engine.adapter_names) for engine in open_server.engines) == 1


def test_an_adapter_that_comes_and_goes(open_server: LiveServer, folders: dict[str, Path]) -> None:
    """Requests get an answer or a refusal, whatever happens to their adapter meanwhile."""
    stopped = threading.Event()

    def ask(_: int) -> list[int]:
        statuses = []
        while not stopped.is_set():
            body = {"messages": USER, "model": "x", **GREEDY}
            statuses.append(open_server.post(CHAT, body).status_code)
        return statuses

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask, i) for i in range(4)]
        try:
            for _ in range(20):
                for folder in folders.values():
                    body = {"lora_name": "x", "lora_path": str(folder)}
                    assert open_server.post(LOAD, body).status_code == 200
                    content_of(open_server, model="x")
                    assert open_server.post(UNLOAD, {"lora_name": "x"}).status_code == 200
        finally:
            stopped.set()
        statuses = {status for each in asking for status in each.result(WAIT_S)}
    assert 200 in statuses
    assert statuses <= {200, 400, 404}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "lora_name"),
        ({"lora_name": "x"}, "lora_path"),
        ({"lora_path": "x"}, "lora_name"),
        ({"lora_name": "", "lora_path": "x"}, "lora_name"),
        ({"lora_name": 5, "lora_path": "x"}, "lora_name"),
        ({"lora_name": "x", "lora_path": ["x"]}, "lora_path"),
        ({"lora_name": "x", "lora_path": "/no/such/folder"}, "lora_path"),
        ({"lora_name": "x", "lora_path": "a\0b"}, "lora_path"),
        ({"lora_name": "x", "lora_path": "/etc/passwd"}, "lora_path"),
        ({"lora_name": "x", "lora_path": "/"}, "lora_path"),
        ({"lora_name": "x", "lora_path": "/", "model": 5}, "model"),
    ],
    ids=repr,
)
def test_wrong_requests(open_server: LiveServer, body: dict[str, Any], param: str) -> None:
    response = open_server.post(LOAD, body)
    assert response.status_code == 400
    assert error_of(response)["param"] == param
    response = open_server.post(LOAD, {"lora_name": "x", "lora_path": "/", "model": "three"})
    assert response.status_code == 404
    assert all(engine.adapter_names == set() for engine in open_server.engines)


def test_a_key_guards_loading(folders: dict[str, Path]) -> None:
    config = ServerConfig(allow_adapter_loading=True, api_keys=["k"])
    made = LiveServer({"demo": engine_of()}, config)
    try:
        body = {"lora_name": "a", "lora_path": str(folders["a"])}
        assert made.post(LOAD, body).status_code == 401
        assert made.engine.adapter_names == set()
        assert made.post(LOAD, body, headers={"x-api-key": "k"}).status_code == 200
    finally:
        made.stop()


def test_a_name_of_two(folders: dict[str, Path]) -> None:
    one = engine_of(adapters={"two": folders["a"], "x": folders["a"]})
    two = engine_of(adapters={"x": folders["b"]})
    try:
        for engines in ({"one": one, "two": two}, {"one": one, "three": two}):
            with pytest.raises(InvalidConfig) as error:
                create_app(engines)
            assert error.value.field == "adapters"
        create_app({"three": one})
    finally:
        one.terminate()
        two.terminate()


# ------------------------------------------------------------------------------------ the command


def test_the_command(start: Callable[..., Process], folders: dict[str, Path]) -> None:
    process = start(
        *("demo", "--port", "0", "--device", "cpu", "--dtype", "float32"),
        *("--adapters", f"a={folders['a']}", f"b={folders['b']}"),
    )
    process.wait_until_ready()
    with httpx.Client(base_url=process.url, timeout=WAIT_S) as client:
        names = [each["id"] for each in client.get("/v1/models").json()["data"]]
        assert names == ["demo", "a", "b"]
        contents = set()
        for name in names:
            answer = client.post(CHAT, json={"messages": USER, "model": name, **GREEDY}).json()
            assert answer["model"] == name
            contents.add(answer["choices"][0]["message"]["content"])
        assert len(contents) == 3
        assert client.post(LOAD, json={}).status_code == 403
    process.process.send_signal(signal.SIGTERM)
    process.end()
    assert process.process.returncode == 0


def test_the_command_of_several_models(
    start: Callable[..., Process], folders: dict[str, Path]
) -> None:
    process = start(
        *("--port", "0", "--device", "cpu", "--allow-adapter-loading"),
        *("--model", f"one=demo;max_num_sequence=2;adapters=a={folders['a']}"),
        *("--model", "two=demo;max_num_sequence=2"),
    )
    process.wait_until_ready()
    with httpx.Client(base_url=process.url, timeout=WAIT_S) as client:
        body = {"lora_name": "b", "lora_path": str(folders["b"]), "model": "two"}
        assert client.post(LOAD, json=body).status_code == 200
        listed = client.get("/v1/models").json()["data"]
        parents = {each["id"]: each["parent"] for each in listed}
        assert parents == {"one": None, "a": "one", "two": None, "b": "two"}


def test_flags_of_vllm() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for flags in (["--adapters"], ["--enable-lora", "--lora-modules"]):
        args = parser.parse_args(["demo", *flags, "a=b", "c=d"])
        assert engine_config_from_flags(args).adapters == ["a=b", "c=d"]
    assert engine_config_from_flags(parser.parse_args(["demo"])).adapters == []


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (("demo", "--adapters", "demo=x"), 2, "adapters"),
        (("demo", "--adapters", "x"), 2, "adapters"),
        (("demo", "--model", "x=demo", "--adapters", "x=y"), 2, "adapters"),
        (("demo", "--adapters", "x=/no/such/folder"), None, "/no/such/folder"),
    ],
    ids=["the name of the model", "no name", "the name of another", "no folder"],
)
def test_wrong_arguments(
    start: Callable[..., Process], arguments: tuple[str, ...], status: int | None, expected: str
) -> None:
    process = start(*arguments, "--port", "0", "--device", "cpu")
    errors = process.end()
    assert process.process.returncode == status or (
        status is None and process.process.returncode not in (0, 2)
    )
    assert expected in errors
    assert "Traceback" not in errors
