"""Embeddings over HTTP, and scores and ranks that are made of them."""

from __future__ import annotations

import argparse
import base64
import json
import shutil
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from adapter_folders import write_demo_adapters
from live_server import COMPLETIONS, LiveServer, error_of

from mlc_native import AsyncMLCEngine
from mlc_native.cli.serve import _model_plans, add_arguments
from mlc_native.errors import InvalidConfig
from mlc_native.server import ServerConfig
from mlc_native.server.models import Models
from mlc_native.support.model_source import resolve_model

EMBEDDINGS, SCORE, RERANK = "/v1/embeddings", "/v1/score", "/v1/rerank"
SETTINGS: dict[str, Any] = {
    **{"dtype": "float32", "num_threads": 1, "max_num_sequence": 4, "verbose": False},
    **{"max_total_sequence_length": 2048, "max_single_sequence_length": 512},
}
TEXTS = ["The capital of France is Paris.", "A small house.", "x"]


def engine_of(model: Any = "demo", **settings: Any) -> AsyncMLCEngine:
    return AsyncMLCEngine(model, "cpu", mode="server", **{**SETTINGS, **settings})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The demo model as "demo" with two adapters, and as "prompted" with prompts."""
    folders = write_demo_adapters(tmp_path_factory.mktemp("adapters"))
    prompted = tmp_path_factory.mktemp("models") / "prompted"
    shutil.copytree(resolve_model("demo", verbose=False), prompted)
    prompts = {"query": "Find: ", "document": "Text: "}
    file = prompted / "config_sentence_transformers.json"
    file.write_text(json.dumps({"prompts": prompts}))
    made = LiveServer(
        {"demo": engine_of(adapters=folders), "prompted": engine_of(prompted)},
        ServerConfig(max_prompts=50),
    )
    yield made
    made.stop()


def vectors(server: LiveServer, texts: Any, **fields: Any) -> list[list[float]]:
    answer = server.post(EMBEDDINGS, {"input": texts, **fields}).json()
    return [each["embedding"] for each in answer["data"]]


def cosine(a: list[float], b: list[float]) -> float:
    lengths = sum(x * x for x in a) ** 0.5 * sum(x * x for x in b) ** 0.5
    return sum(x * y for x, y in zip(a, b, strict=True)) / lengths


def test_embeddings(server: LiveServer) -> None:
    response = server.post(EMBEDDINGS, {"input": TEXTS, "model": "demo", "user": "me"})
    assert response.status_code == 200
    answer = response.json()
    assert answer["object"] == "list"
    assert answer["model"] == "demo"
    assert [each["index"] for each in answer["data"]] == [0, 1, 2]
    assert {each["object"] for each in answer["data"]} == {"embedding"}
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 3
    for text, each in zip(TEXTS, answer["data"], strict=True):
        assert vectors(server, text) == [each["embedding"]]
        assert abs(sum(x * x for x in each["embedding"]) - 1) < 1e-5
    assert server.post("/embeddings", {"input": "x"}).status_code == 200


def test_forms(server: LiveServer) -> None:
    whole = vectors(server, "x")[0]
    answer = server.post(EMBEDDINGS, {"input": "x", "encoding_format": "base64"}).json()
    assert array("f", base64.b64decode(answer["data"][0]["embedding"])).tolist() == whole
    cut = vectors(server, "x", dimensions=4, normalize=False)[0]
    assert len(cut) == 4
    assert cosine(cut, whole[:4]) > 0.99999
    tokens = server.post("/tokenize", {"prompt": "A house"}).json()["tokens"]
    assert vectors(server, tokens) == vectors(server, [tokens]) == vectors(server, "A house")
    text = TEXTS[0]
    assert vectors(server, text, pooling="mean") != vectors(server, text)
    assert vectors(server, text, pooling="mean", add_special_tokens=False)


def test_models_and_adapters(server: LiveServer) -> None:
    plain, a, b = (vectors(server, "x", model=name)[0] for name in ("demo", "a", "b"))
    assert plain not in (a, b)
    assert a != b
    assert server.post(EMBEDDINGS, {"input": "x", "model": "a"}).json()["model"] == "a"
    assert vectors(server, "x", model="prompted")[0] == plain
    asked = vectors(server, "x", model="prompted", prompt_name="query")
    assert asked == vectors(server, "Find: x")
    missing = server.post(EMBEDDINGS, {"input": "x", "model": "none"})
    assert missing.status_code == 404


def test_many_clients(server: LiveServer) -> None:
    expected = vectors(server, TEXTS)
    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(vectors, server, TEXTS) for _ in range(24)]
        answer = server.post(COMPLETIONS, {"prompt": "Once", "max_tokens": 8, "temperature": 0})
        assert all(job.result() == expected for job in jobs)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (EMBEDDINGS, {}, "input"),
        (EMBEDDINGS, {"input": []}, "input"),
        (EMBEDDINGS, {"input": {"a": 1}}, "input"),
        (EMBEDDINGS, {"input": ["x"] * 51}, "input"),
        (EMBEDDINGS, {"input": "x " * 1500}, "input"),
        (EMBEDDINGS, {"input": "x", "dimensions": 100000}, "dimensions"),
        (EMBEDDINGS, {"input": "x", "encoding_format": "hex"}, "encoding_format"),
        (EMBEDDINGS, {"input": "x", "prompt_name": "query"}, "prompt_name"),
        (SCORE, {"text_2": "x"}, "text_1"),
        (SCORE, {"text_1": "x"}, "text_2"),
        (SCORE, {"text_1": ["x", "y"], "text_2": ["x", "y", "z"]}, "text_1"),
        (SCORE, {"text_1": 3, "text_2": "x"}, "text_1"),
        (SCORE, {"text_1": "x", "text_2": ["x"] * 51}, "text_2"),
        (SCORE, {"text_1": "x " * 1500, "text_2": "x"}, "text_1"),
        (SCORE, {"text_1": "x", "text_2": "x " * 1500}, "text_2"),
        (RERANK, {"documents": ["x"]}, "query"),
        (RERANK, {"query": "x"}, "documents"),
        (RERANK, {"query": ["x", "y"], "documents": ["x"]}, "query"),
        (RERANK, {"query": "x", "documents": ["x", 3]}, "documents"),
        (RERANK, {"query": "x", "documents": [{"title": "x"}]}, "documents"),
        (RERANK, {"query": "x", "documents": ["x"], "top_n": -1}, "top_n"),
        (RERANK, {"query": "x", "documents": ["x"], "top_n": "all"}, "top_n"),
        (RERANK, {"query": "x", "documents": ["x"], "return_documents": 3}, "return_documents"),
    ],
)
def test_wrong_requests(server: LiveServer, path: str, fields: dict[str, Any], param: str) -> None:
    response = server.post(path, fields)
    assert response.status_code == 400, response.text
    assert error_of(response)["param"] == param
    assert server.post(EMBEDDINGS, {"input": "x"}).status_code == 200


def test_a_time_limit(server: LiveServer) -> None:
    response = server.post(EMBEDDINGS, {"input": TEXTS, "timeout_s": 1e-6})
    assert response.status_code == 504
    assert error_of(response)["code"] == "timeout"


def test_unknown_fields_are_reported(server: LiveServer) -> None:
    response = server.post(EMBEDDINGS, {"input": "x", "embed_dtype": "float16"})
    assert response.status_code == 200
    assert response.headers["x-ignored-fields"] == "embed_dtype"


def test_scores(server: LiveServer) -> None:
    query, *others = vectors(server, ["house", *TEXTS])
    expected = [cosine(query, other) for other in others]
    answer = server.post(SCORE, {"text_1": "house", "text_2": TEXTS}).json()
    assert [each["index"] for each in answer["data"]] == [0, 1, 2]
    assert [each["score"] for each in answer["data"]] == pytest.approx(expected, abs=1e-6)
    assert answer["usage"]["total_tokens"] > 0
    pairs = server.post(SCORE, {"queries": TEXTS, "documents": TEXTS}).json()
    assert [each["score"] for each in pairs["data"]] == pytest.approx([1, 1, 1], abs=1e-6)
    one = server.post("/score", {"text_1": "x", "text_2": "x", "model": "demo"}).json()
    assert one["data"][0]["score"] == pytest.approx(1)
    assert one["model"] == "demo"


def test_scores_of_an_adapter(server: LiveServer) -> None:
    query, other = vectors(server, ["house", TEXTS[0]], model="a")
    answer = server.post(SCORE, {"text_1": "house", "text_2": TEXTS[0], "model": "a"}).json()
    assert answer["data"][0]["score"] == pytest.approx(cosine(query, other), abs=1e-6)
    assert answer["model"] == "a"
    plain = server.post(SCORE, {"text_1": "house", "text_2": TEXTS[0], "model": "demo"}).json()
    assert plain["data"][0]["score"] != answer["data"][0]["score"]


def test_prompts_of_both_sides(server: LiveServer) -> None:
    query, document = vectors(server, ["Find: house", "Text: x"])
    fields = {"text_1": "house", "text_2": "x", "model": "prompted"}
    answer = server.post(SCORE, fields).json()
    assert answer["data"][0]["score"] == pytest.approx(cosine(query, document), abs=1e-6)


@pytest.mark.parametrize("path", [RERANK, "/rerank", "/v2/rerank"])
def test_ranks(server: LiveServer, path: str) -> None:
    body: dict[str, Any] = {"query": "x", "documents": [*TEXTS[:2], {"text": "x"}]}
    answer = server.post(path, body).json()
    scores = [each["relevance_score"] for each in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert answer["results"][0]["index"] == 2
    assert answer["results"][0]["document"] == {"text": "x"}
    assert scores[0] == pytest.approx(1)
    best = server.post(path, {**body, "top_n": 1, "return_documents": False}).json()
    assert best["results"] == [{"index": 2, "relevance_score": scores[0]}]
    assert len(server.post(path, {**body, "top_n": 0}).json()["results"]) == 3


def test_a_model_for_embeddings(tmp_path: Path) -> None:
    folder = tmp_path / "other"
    shutil.copytree(resolve_model("demo", verbose=False), folder)
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    flag = f"{folder};max_num_sequence=2"
    plans = list(_model_plans(parser.parse_args(["demo", "--embedding-model", flag])))
    models = Models([model for model, _ in plans])
    assert [model.names for model in models.all] == [("demo",), ("other",)]
    assert plans[1][1][0] == str(folder)
    assert plans[1][1][1].max_num_sequence == 2
    assert models.find(None).name == "demo"
    assert models.find_for_embeddings(None).name == "other"
    assert models.find_for_embeddings("demo").name == "demo"
    alone = list(_model_plans(parser.parse_args(["--embedding-model", "demo"])))
    assert [model.name for model, _ in alone] == ["demo"]
    with pytest.raises(InvalidConfig, match="name a model"):
        list(_model_plans(parser.parse_args([])))


def test_the_description_has_them(server: LiveServer) -> None:
    paths = server.client.get("/openapi.json").json()["paths"]
    for path in (EMBEDDINGS, SCORE, RERANK, "/v2/rerank", "/embeddings"):
        assert "post" in paths[path], path


def test_metrics_count_them(server: LiveServer) -> None:
    def count() -> float:
        lines = server.client.get("/metrics").text.splitlines()
        name = "vllm:request_prompt_tokens_count"
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    before = count()
    server.post(EMBEDDINGS, {"input": "x"})
    assert count() == before + 1


def test_a_client_that_leaves_ends_its_requests() -> None:
    server = LiveServer({"demo": engine_of()})
    try:
        texts = [f"{i} " + "A house. " * 60 for i in range(400)]
        for timeout_s in (0.01, 0.05, 0.1, 0.2):
            with suppress(httpx.TimeoutException):
                httpx.post(server.url + EMBEDDINGS, json={"input": texts}, timeout=timeout_s)
        server.wait_until_idle()
        assert server.post(EMBEDDINGS, {"input": "x"}).status_code == 200
    finally:
        server.stop()
