"""Classifiers and rerankers over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import reranker_folders as folders
from live_server import COMPLETIONS, LiveServer, error_of

from mlc_native import AsyncMLCEngine, MLCEngine
from mlc_native.server import ServerConfig

CLASSIFY, SCORE, RERANK = "/v1/classify", "/v1/score", "/v1/rerank"
SETTINGS: dict[str, Any] = {
    **{"dtype": "float32", "num_threads": 1, "max_num_sequence": 4, "verbose": False},
    **{"max_total_sequence_length": 2048, "max_single_sequence_length": 512},
}
QUERY = "What is the capital of France?"
TEXTS = ["Paris is the capital of France.", "A house.", "x"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Folders and settings by the names that requests use."""
    root = tmp_path_factory.mktemp("models")
    labels = {"0": "bad", "1": "good", "2": "neither"}
    made = folders.make_generator("tiny-qwen3", root / "qwen3")
    return {
        "classes": (folders.make_classifier("tiny-qwen2", root / "a", 3, id2label=labels), {}),
        "cross": (folders.make_classifier("tiny-llama", root / "b"), {}),
        "qwen3": (made, {"classifier_from_token": ["no", "yes"]}),
        "demo": ("demo", {}),
    }


@pytest.fixture(scope="module")
def server(models: dict[str, Any]) -> Iterator[LiveServer]:
    engines = {
        name: AsyncMLCEngine(folder, "cpu", mode="server", **SETTINGS, **more)
        for name, (folder, more) in models.items()
    }
    made = LiveServer(engines, ServerConfig(max_prompts=50))
    yield made
    made.stop()


@pytest.mark.parametrize("path", [CLASSIFY, "/classify"])
def test_classes(server: LiveServer, models: dict[str, Any], path: str) -> None:
    response = server.post(path, {"model": "classes", "input": TEXTS, "user": "me"})
    assert response.status_code == 200, response.text
    answer = response.json()
    assert answer["id"].startswith("classify-")
    assert (answer["object"], answer["model"]) == ("list", "classes")
    with MLCEngine(models["classes"][0], "cpu", **SETTINGS) as engine:
        expected = engine.classify(TEXTS)
        logits = engine.classify(TEXTS, use_activation=False)
    assert answer["data"] == [
        {"index": i, "label": each.label, "probs": each.probs, "num_classes": 3}
        for i, each in enumerate(expected)
    ]
    assert {each["label"] for each in answer["data"]} <= {"bad", "good", "neither"}
    assert all(sum(each["probs"]) == pytest.approx(1) for each in answer["data"])
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 3
    raw = server.post(path, {"model": "classes", "input": TEXTS, "use_activation": False}).json()
    assert [each["probs"] for each in raw["data"]] == [each.probs for each in logits]
    (one,) = server.post(path, {"model": "classes", "input": TEXTS[0]}).json()["data"]
    assert one == answer["data"][0]


def test_a_chat_is_classified(tmp_path: Path) -> None:
    folder = folders.make_classifier("tiny-qwen2", tmp_path)
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}<|sep|>{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    chat = [{"role": "user", "content": QUERY}, {"role": "assistant", "content": TEXTS[0]}]
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        expected = [
            engine.classify(engine.render_chat(chat, add_generation_prompt=adds).token_ids)[0].probs
            for adds in (False, True)
        ]
    made = LiveServer({"reward": AsyncMLCEngine(folder, "cpu", mode="server", **SETTINGS)})
    try:
        for more, probs in (({}, expected[0]), ({"add_generation_prompt": True}, expected[1])):
            response = made.post(CLASSIFY, {"messages": chat, **more})
            assert response.status_code == 200, response.text
            assert response.json()["data"][0]["probs"] == probs
        for wrong, param in (
            ({"messages": []}, "messages"),
            ({"messages": 3}, "messages"),
            ({"messages": chat, "input": "x"}, "messages"),
            ({"messages": chat, "chat_template": "x"}, "chat_template"),
        ):
            refused = made.post(CLASSIFY, wrong)
            assert refused.status_code == 400, refused.text
            assert error_of(refused)["param"] == param
    finally:
        made.stop()


@pytest.mark.parametrize("name", ["cross", "qwen3", "demo"])
def test_scores_and_ranks_are_those_of_the_engine(
    server: LiveServer, models: dict[str, Any], name: str
) -> None:
    folder, more = models[name]
    with MLCEngine(folder, "cpu", **SETTINGS, **more) as engine:
        expected = [each.score for each in engine.score(QUERY, TEXTS)]
        ranked = engine.rerank(QUERY, TEXTS, 2)
    answer = server.post(SCORE, {"model": name, "text_1": QUERY, "text_2": TEXTS}).json()
    assert [each["score"] for each in answer["data"]] == pytest.approx(expected, abs=1e-6)
    assert answer["model"] == name
    for path in (RERANK, "/rerank", "/v2/rerank"):
        body = {"model": name, "query": QUERY, "documents": TEXTS, "top_n": 2}
        found = server.post(path, body).json()
        assert [each["index"] for each in found["results"]] == [x.index for x in ranked.results]
        assert found["results"][0]["document"] == {"text": TEXTS[ranked.results[0].index]}
        assert found["usage"]["total_tokens"] == ranked.usage.total_tokens


def test_an_instruction_and_logits(server: LiveServer, models: dict[str, Any]) -> None:
    folder, more = models["qwen3"]
    fields = {"instruction": "Find it", "use_activation": False}
    with MLCEngine(folder, "cpu", **SETTINGS, **more) as engine:
        expected = [each.score for each in engine.score(QUERY, TEXTS, **fields)]
        assert expected != [each.score for each in engine.score(QUERY, TEXTS, use_activation=False)]
    body = {"model": "qwen3", "queries": QUERY, "documents": TEXTS, **fields}
    answer = server.post(SCORE, body).json()
    assert [each["score"] for each in answer["data"]] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (CLASSIFY, {"model": "demo", "input": "x"}, "model"),
        (CLASSIFY, {"model": "classes"}, "input"),
        (CLASSIFY, {"model": "classes", "input": ["x"] * 51}, "input"),
        (CLASSIFY, {"model": "classes", "input": "x", "use_activation": "maybe"}, "use_activation"),
        (COMPLETIONS, {"model": "classes", "prompt": "x"}, "model"),
        (SCORE, {"model": "classes", "text_1": "x", "text_2": "y"}, "model"),
        (
            SCORE,
            {"model": "cross", "text_1": "x", "text_2": "y", "instruction": "z"},
            "instruction",
        ),
        (SCORE, {"model": "demo", "text_1": "x", "text_2": "y", "instruction": "z"}, "instruction"),
        (SCORE, {"model": "cross", "text_1": "x", "text_2": "y" * 600}, "text_2"),
        (SCORE, {"model": "cross", "text_1": "x", "queries": "x", "text_2": "y"}, "queries"),
        (SCORE, {"model": "cross", "text_1": "x", "text_2": "y", "data_2": "y"}, "data_2"),
        (RERANK, {"model": "cross", "query": "x", "documents": ["y" * 600]}, "documents"),
        (RERANK, {"model": "cross", "query": "x", "documents": ["y"] * 51}, "documents"),
        (
            RERANK,
            {"model": "cross", "query": "x", "documents": ["y"], "timeout_s": -1},
            "timeout_s",
        ),
    ],
)
def test_wrong_requests(server: LiveServer, path: str, fields: dict[str, Any], param: str) -> None:
    response = server.post(path, fields)
    assert response.status_code == 400, response.text
    assert error_of(response)["param"] == param


def test_unknown_fields_are_reported(server: LiveServer) -> None:
    body = {"model": "cross", "query": "x", "documents": ["y"], "max_tokens_per_doc": 3}
    response = server.post(RERANK, body)
    assert response.status_code == 200
    assert response.headers["x-ignored-fields"] == "max_tokens_per_doc"


def test_the_description_has_them(server: LiveServer) -> None:
    document = server.client.get("/openapi.json").json()
    for path in (CLASSIFY, "/classify", SCORE, RERANK):
        assert "post" in document["paths"][path], path
    fields = document["components"]["schemas"]["ClassificationRequest"]["properties"]
    assert "use_activation" in fields
