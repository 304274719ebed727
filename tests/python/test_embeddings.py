"""``engine.embeddings``: values, batches, settings of model folders, and errors."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import threading
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from adapter_folders import write_demo_adapters
from transformers import AutoModel

from mlc_native import AsyncMLCEngine, EngineConfig, MLCEngine, SyncMLCEngine
from mlc_native._core import Cancellation
from mlc_native.errors import (
    EngineRequestError,
    EngineTerminatedError,
    InvalidRequest,
    LoadError,
    QueueFull,
    UnknownFieldWarning,
)
from mlc_native.protocol.embeddings import EmbeddingArguments, EmbeddingRequest
from mlc_native.serve import AsyncEmbeddingEngine
from mlc_native.serve.embeddings import Portions
from mlc_native.support.model_source import resolve_model

SETTINGS: dict[str, Any] = {
    **{"dtype": "float32", "num_threads": 1, "max_num_sequence": 4, "verbose": False},
    **{"max_total_sequence_length": 4096, "max_single_sequence_length": 1024},
}
TEXTS = [
    "The capital of France is Paris.",
    "Once upon a time there was a small house.",
    "x",
    "What is the capital of France? " * 12,
]
DEMO = resolve_model("demo", verbose=False)


@pytest.fixture(scope="module")
def engine() -> Iterator[MLCEngine]:
    with MLCEngine("demo", "cpu", **SETTINGS) as made:
        yield made


def vectors(engine: MLCEngine, texts: Any, **fields: Any) -> np.ndarray:
    response = engine.embeddings.create(input=texts, **fields)
    return np.array([each.embedding for each in response.data], dtype=np.float32)


def reference(engine: Any, text: str, pooling: str) -> np.ndarray:
    model = AutoModel.from_pretrained(DEMO, dtype=torch.float32)
    ids = engine.tokenizer.special_tokens.around(engine.tokenizer.encode(text))
    with torch.no_grad():
        states = model(torch.tensor([ids])).last_hidden_state[0].numpy()
    return np.asarray(states[-1] if pooling == "last" else states.mean(axis=0))


# --------------------------------------------------------------------------------------- values


@pytest.mark.emulated(slow=True)
@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_they_are_those_of_transformers(device: dict[str, Any], pooling: str) -> None:
    with MLCEngine("demo", **device, **SETTINGS) as engine:
        plain = vectors(engine, TEXTS[:3], pooling=pooling, normalize=False)
        unit = vectors(engine, TEXTS[:3], pooling=pooling)
        for text, one, normalized in zip(TEXTS, plain, unit, strict=False):
            expected = reference(engine, text, pooling)
            assert np.abs(one - expected).max() < 1e-4 * np.abs(expected).max()
            length = np.linalg.norm(expected)
            assert np.abs(normalized - expected / length).max() < 1e-4
            assert abs(np.linalg.norm(normalized) - 1) < 1e-6


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_bits_depend_on_nothing_else(pooling: str) -> None:
    alone: list[str] = []
    for settings in ({}, {"prefill_chunk_size": 16}, {"prefix_cache_mode": "disable"}):
        with MLCEngine("demo", "cpu", **{**SETTINGS, **settings}) as engine:

            def bits(texts: list[str], engine: MLCEngine = engine) -> list[Any]:
                fields: Any = {"pooling": pooling, "encoding_format": "base64"}
                response = engine.embeddings.create(input=texts, **fields)
                return [each.embedding for each in response.data]

            alone = alone or [bits([text])[0] for text in TEXTS]
            assert bits(TEXTS * 3) == alone * 3
            assert bits(TEXTS[::-1]) == alone[::-1]


def test_answers_go_on_meanwhile(engine: MLCEngine) -> None:
    ask: Any = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 60}
    expected = engine.completions.create(**ask).choices[0].text
    alone = vectors(engine, TEXTS)
    answers: list[str] = []
    asking = threading.Thread(
        target=lambda: answers.append(engine.completions.create(**ask).choices[0].text)
    )
    asking.start()
    for _ in range(10):
        assert np.array_equal(vectors(engine, TEXTS), alone)
    asking.join()
    assert answers == [expected]


def test_base64_has_the_same_numbers(engine: MLCEngine) -> None:
    floats = engine.embeddings.create(input=TEXTS).data
    coded = engine.embeddings.create(input=TEXTS, encoding_format="base64").data
    for one, other in zip(floats, coded, strict=True):
        assert isinstance(other.embedding, str)
        assert array("f", base64.b64decode(other.embedding)).tolist() == one.embedding


def test_dimensions_are_the_first_ones(engine: MLCEngine) -> None:
    whole = vectors(engine, "x", normalize=False)[0]
    assert np.array_equal(vectors(engine, "x", dimensions=8, normalize=False)[0], whole[:8])
    cut = vectors(engine, "x", dimensions=8)[0]
    assert np.allclose(cut, whole[:8] / np.linalg.norm(whole[:8]), atol=1e-6)


def test_inputs_may_be_token_ids(engine: MLCEngine) -> None:
    assert engine.tokenizer is not None
    ids = engine.tokenizer.special_tokens.around(engine.tokenizer.encode(TEXTS[0]))
    expected = vectors(engine, TEXTS[0])
    for given in (ids, [ids], np.array(ids), tuple(ids)):
        assert np.array_equal(vectors(engine, given), expected)
    response = engine.embeddings.create(input=[ids, ids[:2]])
    assert [each.index for each in response.data] == [0, 1]
    assert response.usage.prompt_tokens == response.usage.total_tokens == len(ids) + 2
    assert response.model == "demo"
    assert response.object == "list"
    plain = engine.tokenizer.encode(TEXTS[0])
    assert np.array_equal(
        vectors(engine, TEXTS[0], add_special_tokens=False), vectors(engine, plain)
    )
    last = vectors(engine, ids[-3:])
    assert np.array_equal(vectors(engine, TEXTS[0], truncate_prompt_tokens=3), last)


def test_event_loops_get_the_same(engine: MLCEngine) -> None:
    async def run() -> list[Any]:
        async with AsyncMLCEngine("demo", "cpu", **SETTINGS) as other:
            calls = [other.embeddings.create(input=text) for text in TEXTS]
            calls.append(other.embeddings.create_from({"input": TEXTS, "model": "any"}))
            return list(await asyncio.gather(*calls))

    *single, group = asyncio.run(run())
    expected = [each.embedding for each in engine.embeddings.create(input=TEXTS).data]
    assert [each.data[0].embedding for each in single] == expected
    assert [each.embedding for each in group.data] == expected
    assert group.model == "any"


def test_a_task_that_is_cancelled_leaves_nothing() -> None:
    async def run() -> None:
        async with AsyncMLCEngine("demo", "cpu", **SETTINGS) as other:
            texts = [f"{i} {TEXTS[3]}" for i in range(40)]
            for num_turns in range(0, 60, 3):
                call = asyncio.create_task(other.embeddings.create(input=texts))
                for _ in range(num_turns):
                    await asyncio.sleep(0)
                call.cancel()
                await asyncio.wait([call])
                assert call.cancelled() or len(call.result().data) == len(texts)
            while (await other.metrics())["num_running_requests"] > 0:
                await asyncio.sleep(0)
            await other.embeddings.create(input="x")

    asyncio.run(run())


def test_adapters_change_them(tmp_path: Path, engine: MLCEngine) -> None:
    folders = write_demo_adapters(tmp_path)
    with MLCEngine("demo", "cpu", adapters=folders, **SETTINGS) as other:
        plain = vectors(other, "x")
        assert np.array_equal(plain, vectors(engine, "x"))
        by_name = vectors(other, "x", model="a")
        assert np.array_equal(by_name, vectors(other, "x", adapter="a"))
        assert not np.array_equal(by_name, plain)
        with pytest.raises(InvalidRequest, match="no adapter"):
            vectors(other, "x", adapter="c")


# ---------------------------------------------------------------------------------- model folders


def copy_of_demo(folder: Path) -> Path:
    shutil.copytree(DEMO, folder)
    return folder


def write_modules(folder: Path, pooling: dict[str, Any], *more: str) -> None:
    """modules.json of a folder, as sentence-transformers writes it."""
    names = ["Transformer", "Pooling", *more]
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": f"{i}_{name}" if i else "",
            "type": f"sentence_transformers.models.{name}",
        }
        for i, name in enumerate(names)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


MEAN = {"word_embedding_dimension": 128, "pooling_mode_mean_tokens": True}
LAST = {"pooling_mode_cls_token": False, "pooling_mode_lasttoken": True, "include_prompt": True}


def test_the_folder_says_how(tmp_path: Path, engine: MLCEngine) -> None:
    for name, pooling, more, expected in (
        ("mean", MEAN, (), {"pooling": "mean", "normalize": False}),
        ("unit", MEAN, ("Normalize",), {"pooling": "mean", "normalize": True}),
        ("last", LAST, ("Normalize",), {"pooling": "last", "normalize": True}),
        ("new", {"pooling_mode": "mean"}, (), {"pooling": "mean", "normalize": False}),
    ):
        folder = copy_of_demo(tmp_path / name)
        write_modules(folder, pooling, *more)
        with MLCEngine(folder, "cpu", **SETTINGS) as other:
            assert np.array_equal(vectors(other, TEXTS), vectors(engine, TEXTS, **expected)), name
            overridden = vectors(other, "x", pooling="last", normalize=True)
            assert np.array_equal(overridden, vectors(engine, "x"))


@pytest.mark.parametrize(
    ("pooling", "more", "said"),
    [
        ({"pooling_mode_cls_token": True}, (), "attend in both directions"),
        ({"pooling_mode_max_tokens": True}, (), "1_Pooling/config.json pools by max_tokens"),
        ({}, (), "pools by nothing"),
        (MEAN | LAST, (), "mean_tokens and lasttoken|lasttoken and mean_tokens"),
        (MEAN | {"include_prompt": False}, (), "leaves the prompt out"),
        (LAST, ("CNN", "Normalize"), '"CNN"'),
        (LAST, ("Dense", "Normalize"), "2_Dense/config.json does not exist"),
    ],
)
def test_what_is_not_supported_is_said(
    tmp_path: Path, pooling: dict[str, Any], more: tuple[str, ...], said: str
) -> None:
    folder = copy_of_demo(tmp_path / "model")
    write_modules(folder, pooling, *more)
    with MLCEngine(folder, "cpu", **SETTINGS) as other:
        with pytest.raises(InvalidRequest, match=said) as caught:
            vectors(other, "x")
        assert caught.value.field == "pooling"
        assert vectors(other, "x", pooling="last").shape[0] == 1
        assert other.completions.create(prompt="x", max_tokens=1).choices


@pytest.mark.parametrize(
    "modules",
    ["[", "{}", "3", '[{"type": 3}]', "[3]", '[{"type": "a.Pooling", "path": "../x"}]', "[]]"],
)
def test_a_damaged_file_is_named(tmp_path: Path, modules: str) -> None:
    folder = copy_of_demo(tmp_path / "model")
    (folder / "modules.json").write_text(modules)
    with pytest.raises(LoadError, match=r"modules\.json"):
        MLCEngine(folder, "cpu", **SETTINGS)


def test_prompts_of_the_folder(tmp_path: Path, engine: MLCEngine) -> None:
    folder = copy_of_demo(tmp_path / "model")
    file = folder / "config_sentence_transformers.json"
    prompts = {"query": "Find: ", "document": ""}
    file.write_text(json.dumps({"prompts": prompts, "default_prompt_name": None}))
    with MLCEngine(folder, "cpu", **SETTINGS) as other:
        asked = vectors(other, ["a", "b"], prompt_name="query")
        assert np.array_equal(asked, vectors(engine, ["Find: a", "Find: b"]))
        for name in (None, "", "document"):
            assert np.array_equal(vectors(other, "a", prompt_name=name), vectors(engine, "a"))
        with pytest.raises(InvalidRequest, match='"query", "document"') as caught:
            vectors(other, "a", prompt_name="passage")
        assert caught.value.field == "prompt_name"
        with pytest.raises(InvalidRequest, match="token ids"):
            vectors(other, [1, 2], prompt_name="query")
    file.write_text(json.dumps({"prompts": prompts, "default_prompt_name": "query"}))
    with MLCEngine(folder, "cpu", **SETTINGS) as other:
        assert np.array_equal(vectors(other, "a"), vectors(engine, "Find: a"))
        assert np.array_equal(vectors(other, "a", prompt_name=""), vectors(engine, "a"))
    damaged: tuple[dict[str, Any], ...] = (
        *({"prompts": 3}, {"prompts": {"a": 3}}, {"default_prompt_name": "b"}),
        *({"default_prompt_name": []}, {"default_prompt_name": {}}),
    )
    for wrong in damaged:
        file.write_text(json.dumps(wrong))
        with pytest.raises(LoadError, match="config_sentence_transformers"):
            MLCEngine(folder, "cpu", **SETTINGS)


def test_a_checkpoint_without_a_head(tmp_path: Path, engine: MLCEngine) -> None:
    folder = tmp_path / "model"
    AutoModel.from_pretrained(DEMO).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO / name, folder)
    config = json.loads((folder / "config.json").read_text())
    assert not config["architectures"][0].endswith("ForCausalLM")
    with MLCEngine(folder, "cpu", **SETTINGS) as other:
        assert np.array_equal(vectors(other, TEXTS), vectors(engine, TEXTS))
        for ask in (
            lambda: other.completions.create(prompt="x", max_tokens=1),
            lambda: other.completions.create(prompt="x", max_tokens=0),
        ):
            with pytest.raises(InvalidRequest, match="embeds texts and generates none") as caught:
                ask()
            assert caught.value.field == "model"


# ----------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"input": ""}, "input", "at least 1 token"),  # the demo puts nothing around a text
        ({"input": []}, "input", "at least 1 token"),
        ({"input": [[]]}, "input", "at least 1 token"),
        ({"input": [1 << 40]}, "input", "token"),
        ({"input": ["a", 3]}, "input", "text"),
        ({"input": None}, "input", "text"),
        ({"input": "x " * 3000}, "input", "input length limit"),
        ({"input": "x", "dimensions": 0}, "dimensions", "[1, "),
        ({"input": "x", "dimensions": 1 << 20}, "dimensions", "[1, "),
        ({"input": "x", "dimensions": 1 << 80}, "dimensions", ""),
        ({"input": "x", "pooling": "max"}, "pooling", "'last', 'mean' or 'cls'"),
        ({"input": "x", "encoding_format": "int8"}, "encoding_format", "base64"),
        ({"input": "x", "normalize": "perhaps"}, "normalize", "boolean"),
        ({"input": "x", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "at least 1"),
        ({"input": "x", "timeout_s": -1}, "timeout_s", "seconds"),
        ({"input": "x", "priority": "top"}, "priority", "high"),
        ({"input": "x", "adapter": "none"}, "adapter", "no adapter"),
        ({"input": "x", "request_id": ""}, "request_id", "not empty"),
        ({"input": "x", "extra_body": {"inputs": 1}}, "inputs", "input"),
    ],
)
def test_wrong_calls(engine: MLCEngine, fields: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        engine.embeddings.create(**fields)
    assert caught.value.field == field
    assert said in str(caught.value)
    assert vectors(engine, "x").shape[0] == 1


def test_one_wrong_input_refuses_the_call(engine: MLCEngine) -> None:
    with pytest.raises(InvalidRequest, match="input length limit"):
        engine.embeddings.create(input=["a", "x " * 3000, "b"])
    assert engine.metrics()["num_running_requests"] == 0


def test_there_is_no_such_argument(engine: MLCEngine) -> None:
    create: Any = engine.embeddings.create
    with pytest.raises(TypeError, match="inputs"):
        create(input="x", inputs="x")
    with pytest.raises(TypeError, match="input"):
        create()
    with pytest.warns(UnknownFieldWarning, match="truncation"):
        engine.embeddings.create_from({"input": "x", "truncation": "left"})


def test_a_time_limit_ends_the_call(engine: MLCEngine) -> None:
    with pytest.raises(EngineRequestError, match="timeout") as caught:
        engine.embeddings.create(input=[TEXTS[3]] * 3, timeout_s=1e-6)
    assert caught.value.finish_reason == "timeout"
    assert vectors(engine, "x").shape[0] == 1


def test_a_queue_with_a_limit(engine: MLCEngine) -> None:
    texts = [f"{i} {TEXTS[0]}" for i in range(30)]
    expected = engine.embeddings.create(input=texts)
    for limit in (1, 2, 7):
        settings = {**SETTINGS, "max_queue_length": limit}
        with MLCEngine("demo", "cpu", **settings) as other:
            assert other.embeddings.create(input=texts) == expected

        async def run(settings: Any = settings, num_calls: int = 1 + limit // 4) -> Any:
            async with AsyncMLCEngine("demo", "cpu", **settings) as other:
                calls = [other.embeddings.create(input=texts) for _ in range(num_calls)]
                return await asyncio.gather(*calls)

        assert all(each == expected for each in asyncio.run(run()))
        single = SyncMLCEngine("demo", "cpu", **settings)
        assert single.embeddings.create(input=texts) == expected


def test_portions_shrink_where_others_wait() -> None:
    requests: list[Any] = [SimpleNamespace(id=str(i)) for i in range(7)]
    room, opened = 3, []

    def open_stream(portion: list[Any]) -> int:
        if len(portion) > room:
            raise QueueFull("the queue is full", 10, 10)
        opened.append([each.id for each in portion])
        return len(portion)

    portions = Portions(requests, EngineConfig(max_queue_length=10))
    cancellation = Cancellation()
    assert portions.call_id == "0"
    assert portions.open(open_stream, cancellation) == 2  # half of five, of which there is room
    assert portions.open(open_stream, cancellation) == 2
    room = 0
    with pytest.raises(QueueFull):
        portions.open(open_stream, cancellation)
    assert opened == [["0", "1"], ["2", "3"]]
    assert portions
    room = 3
    cancellation.cancel()
    with pytest.raises(EngineRequestError, match="abort") as caught:
        portions.open(open_stream, cancellation)
    assert caught.value.finish_reason == "abort"
    assert len(opened) == 2


def test_an_abort_ends_the_call() -> None:
    """Whenever it comes: with requests in the engine, or between two portions."""
    texts = [f"{i} {TEXTS[3]}" for i in range(200)]
    with MLCEngine("demo", "cpu", **{**SETTINGS, "max_queue_length": 8}) as engine:
        for number in range(3):
            request_id = f"call-{number}"
            ended = threading.Event()

            def abort(request_id: str = request_id, ended: threading.Event = ended) -> None:
                while not ended.is_set():
                    engine.abort(request_id)

            aborting = threading.Thread(target=abort)
            aborting.start()
            try:
                with pytest.raises(EngineRequestError, match="abort"):
                    engine.embeddings.create(input=texts, request_id=request_id)
            finally:
                ended.set()
                aborting.join()
        assert len(engine.embeddings.create(input=texts).data) == len(texts)


def test_an_engine_that_is_gone() -> None:
    engine = MLCEngine("demo", "cpu", **SETTINGS)
    engine.terminate()
    with pytest.raises(EngineTerminatedError):
        engine.embeddings.create(input="x")


def test_the_engine_without_threads(engine: MLCEngine) -> None:
    expected = engine.embeddings.create(input=TEXTS)
    seen: list[str] = []

    def callback(outputs: list[Any]) -> None:
        seen.extend(output.request_id for output in outputs)

    other = SyncMLCEngine("demo", "cpu", request_stream_callback=callback, **SETTINGS)
    other.add_request(other.create_request("beside", "x", {"max_tokens": 500}))
    assert other.embeddings.create(input=TEXTS) == expected
    assert set(seen) <= {"beside"}
    while not other.empty():
        other.step()
    assert other.embeddings.create_from({"input": TEXTS, "unknown": 1}) == expected
    with pytest.raises(InvalidRequest, match="dimensions"):
        other.embeddings.create(input="x", dimensions=0)
    with pytest.raises(EngineRequestError, match="timeout"):
        other.embeddings.create(input=TEXTS, timeout_s=1e-6)
    assert other.empty()
    assert other.embeddings.create(input=TEXTS) == expected


def test_an_id_that_another_request_has_leaves_that_one_alone() -> None:
    """Of an engine without threads, whose calls abort what they have added."""
    ended: dict[str, str] = {}

    def callback(outputs: list[Any]) -> None:
        for output in outputs:
            request_id, (first, *_) = output.unpack()
            if first.finish_reason is not None:
                ended[request_id] = first.finish_reason

    other = SyncMLCEngine("demo", "cpu", request_stream_callback=callback, **SETTINGS)
    config = {"max_tokens": 3, "temperature": 0}
    other.add_request(other.create_request("call-1", "x", config))
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="call-1"):
            other.embeddings.create(input=["a", "b"], request_id="call")
        with pytest.raises(InvalidRequest, match="call-1"):
            other.embeddings.create(input="a", request_id="call-1")
    other.add_request(other.create_request("generate-0-0", "x", config))
    with pytest.raises(InvalidRequest, match="generate-0-0"):
        other.generate("x", config)
    while not other.empty():
        other.step()
    assert ended["call-1"] in ("stop", "length")
    assert ended["generate-0-0"] in ("stop", "length")
    # What ends with a call, in the same step, is told all the same.
    other.add_request(other.create_request("late", "x", {"timeout_s": 1e-6}))
    with pytest.raises(EngineRequestError, match="timeout"):
        other.embeddings.create(input="x", timeout_s=1e-6)
    while not other.empty():
        other.step()
    assert ended["late"] == "timeout"


def test_the_engine_of_mlc_llm(engine: MLCEngine) -> None:
    with AsyncEmbeddingEngine("demo", None, "cpu", **SETTINGS) as other:
        assert other.model_type == "decoder"
        assert other.pooling_strategy == "last"
        found, num_tokens = other.embed(TEXTS)
        expected = engine.embeddings.create(input=TEXTS)
        assert found == [each.embedding for each in expected.data]
        assert num_tokens == expected.usage.prompt_tokens
        assert asyncio.run(other.async_embed(TEXTS)) == (found, num_tokens)
        assert other.embed("x")[0] == [engine.embeddings.create(input="x").data[0].embedding]
        assert other.engine.embedding_size == len(found[0])
    with AsyncEmbeddingEngine("demo", None, "cpu", pooling_strategy="mean", **SETTINGS) as other:
        expected = engine.embeddings.create(input=TEXTS, pooling="mean")
        assert other.embed(TEXTS)[0] == [each.embedding for each in expected.data]
    with pytest.raises(EngineTerminatedError):
        asyncio.run(other.async_embed("x"))
    wrong: list[tuple[Any, str]] = [("cls", "is of encoders")]
    wrong += [(each, '"cls", "mean", "last" or None') for each in ("max", 3, np.array([1, 2]))]
    for pooling, said in wrong:
        with pytest.raises(InvalidRequest, match=said):
            AsyncEmbeddingEngine("demo", None, "cpu", pooling_strategy=pooling, **SETTINGS)


def test_tasks_of_the_engine_of_mlc_llm(monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait for no thread of asyncio's, and are aborted when they are cancelled."""
    texts = [f"{i} {TEXTS[3]}" for i in range(40)]
    aborted: list[str] = []
    cancelled = 0

    async def run(other: AsyncEmbeddingEngine) -> None:
        nonlocal cancelled
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        go_on = threading.Event()
        busy = asyncio.create_task(asyncio.to_thread(go_on.wait))
        try:
            calls = asyncio.gather(*[other.async_embed("x") for _ in range(20)])
            found = await asyncio.wait_for(calls, 60)
        finally:
            go_on.set()
        assert await busy
        assert all(each == found[0] for each in found)
        for num_turns in range(3, 60, 3):
            call = asyncio.create_task(other.async_embed(texts))
            for _ in range(num_turns):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
            assert call.cancelled() or len(call.result()[0]) == len(texts)
            cancelled += call.cancelled()
        assert await other.async_embed("x") == found[0]

    with AsyncEmbeddingEngine("demo", None, "cpu", **SETTINGS) as other:
        abort = other.engine.abort

        def noted(request_id: str) -> None:
            aborted.append(request_id)
            abort(request_id)

        monkeypatch.setattr(other.engine, "abort", noted)
        asyncio.run(run(other))
        assert len(set(aborted)) == cancelled > 0
        while other.engine.metrics()["num_running_requests"] > 0:
            pass


def test_the_mock_engine_has_none() -> None:
    with (
        MLCEngine("demo", "cpu", model_lib="mock://echo", verbose=False) as echo,
        pytest.raises(InvalidRequest, match="embeds no texts"),
    ):
        echo.embeddings.create(input="x")


def test_the_declared_arguments_are_the_fields() -> None:
    declared = set(EmbeddingArguments.__annotations__)
    assert declared == {*EmbeddingRequest.model_fields, "request_id", "extra_body"} - {"input"}
