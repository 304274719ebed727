"""Adapters of the engines of Python: loading, choosing, the prefix cache, unloading."""

from __future__ import annotations

import asyncio
import gc
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from adapter_folders import write_demo_adapters
from fake_model import find_test_library

from mlc_native import AsyncMLCEngine, EngineConfig, MLCEngine, SyncMLCEngine
from mlc_native.errors import (
    EngineTerminatedError,
    InvalidConfig,
    InvalidRequest,
    LoadError,
    ModelNotLoaded,
)
from mlc_native.protocol.generation_config import GenerationConfig

SETTINGS: dict[str, Any] = {
    **{"dtype": "float32", "num_threads": 1, "max_num_sequence": 4, "verbose": False},
    **{"max_total_sequence_length": 2048, "max_single_sequence_length": 512},
}
PROMPT = "Once upon a time there was a small house. In this house"
USER = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 16}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two adapters of the demo model."""
    return write_demo_adapters(tmp_path_factory.mktemp("adapters"))


@pytest.fixture
def engine(folders: dict[str, Path]) -> Iterator[MLCEngine]:
    with MLCEngine("demo", "cpu", adapters=folders, **SETTINGS) as made:
        yield made


def text_of(engine: MLCEngine, **fields: Any) -> str:
    return engine.completions.create(**{"prompt": PROMPT, **GREEDY, **fields}).choices[0].text


def cached_of(engine: MLCEngine, **fields: Any) -> int:
    usage = engine.completions.create(**{"prompt": PROMPT, **GREEDY, **fields}).usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    return usage.prompt_tokens_details.cached_tokens


# ------------------------------------------------------------------------------------- choosing


def test_every_interface_chooses_an_adapter(engine: MLCEngine) -> None:
    plain, a, b = (text_of(engine, adapter=name) for name in (None, "a", "b"))
    assert len({plain, a, b}) == 3
    assert text_of(engine, adapter="") == plain
    assert text_of(engine, extra_body={"adapter": "a"}) == a
    body = {"prompt": PROMPT, "model": "a", **GREEDY}
    answer: Any = engine.completions.create_from(body)
    assert answer.choices[0].text == a
    results = engine.generate([PROMPT, {"prompt": PROMPT, "adapter": "b"}], adapter="a", **GREEDY)
    assert [each.text for each in results] == [a, b]
    config = GenerationConfig(adapter="b", **GREEDY)
    assert engine.generate(PROMPT, config)[0].text == b

    def chat(**fields: Any) -> Any:
        return engine.chat.completions.create(messages=USER, **GREEDY, **fields)

    contents = [chat(**({"adapter": n} if n else {})).choices[0].message.content for n in ("", "a")]
    assert contents[0] != contents[1]
    pieces = [
        chunk.choices[0].delta.content or "" for chunk in chat(adapter="a", stream=True)
        if chunk.choices
    ]  # fmt: skip
    assert "".join(pieces) == contents[1]


def test_a_gpu_answers_with_adapters_as_the_cpu_does(folders: dict[str, Path]) -> None:
    library = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")
    requests: list[Any] = ["Paris is", *({"prompt": "Paris is", "adapter": name} for name in "ab")]
    answers = []
    for device in ({"device": "cpu"}, {"device": "cuda:0", "model_lib": library}):
        with MLCEngine("demo", adapters=folders, **device, **SETTINGS) as engine:
            results = engine.generate(requests, temperature=0, max_tokens=4)
            answers.append([each.text for each in results])
    assert answers[0] == answers[1]
    assert len(set(answers[0])) == 3


def test_the_name_of_a_model_chooses_an_adapter(engine: MLCEngine) -> None:
    plain, a, b = (text_of(engine, adapter=name) for name in ("", "a", "b"))
    assert text_of(engine, model="a") == a
    assert text_of(engine, model="a", adapter="b") == b
    assert text_of(engine, model="a", adapter="") == plain
    assert text_of(engine, model="demo") == plain
    assert text_of(engine, model="anything") == plain
    answer = engine.chat.completions.create(messages=USER, model="a", **GREEDY)
    assert answer.model == "a"
    chosen = engine.chat.completions.create(messages=USER, adapter="a", **GREEDY)
    assert chosen.model == "demo"
    assert chosen.choices[0].message.content == answer.choices[0].message.content


def test_an_adapter_with_the_name_of_the_model(folders: dict[str, Path]) -> None:
    with MLCEngine("demo", "cpu", **SETTINGS) as engine:
        plain = text_of(engine)
        engine.load_adapter("demo", folders["a"])
        assert text_of(engine, model="demo") == plain
        assert text_of(engine, adapter="demo") != plain


@pytest.mark.parametrize("adapter", ["c", "A", "a ", "a\0", "x" * 10_000])
def test_an_unknown_adapter_is_refused(engine: MLCEngine, adapter: str) -> None:
    for ask in (
        lambda: engine.completions.create(prompt=PROMPT, adapter=adapter),
        lambda: engine.chat.completions.create(messages=USER, adapter=adapter),
        lambda: engine.generate([PROMPT], adapter=adapter),
    ):
        with pytest.raises(InvalidRequest) as error:
            ask()
        assert error.value.field == "adapter"
        assert '"a", "b"' in str(error.value)
    [first, second] = engine.generate([{"prompt": PROMPT, "adapter": adapter}, PROMPT], **GREEDY)
    assert isinstance(first.error, InvalidRequest)
    assert first.error.field == "adapter"
    assert second.error is None


@pytest.mark.parametrize("adapter", [5, True, ["a"], {"a": 1}, "\ud800"])
def test_a_name_that_is_none(engine: MLCEngine, adapter: Any) -> None:
    with pytest.raises(InvalidRequest) as error:
        engine.completions.create(prompt=PROMPT, adapter=adapter)
    assert error.value.field == "adapter"


def test_requests_of_several_threads(engine: MLCEngine) -> None:
    names = ("", "a", "b") * 4
    expected = {name: text_of(engine, adapter=name) for name in ("", "a", "b")}
    found: dict[int, str] = {}

    def ask(i: int) -> None:
        found[i] = text_of(engine, adapter=names[i])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(names))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[i] for i in range(len(names))] == [expected[name] for name in names]


# ----------------------------------------------------------------------------- loading, unloading


def test_adapters_are_listed(engine: MLCEngine, folders: dict[str, Path]) -> None:
    found = {each.name: each for each in engine.adapters()}
    assert found.keys() == engine.adapter_names == {"a", "b"}
    assert (found["a"].rank, found["b"].rank) == (8, 4)
    assert {name: each.path for name, each in found.items()} == {
        name: str(folder) for name, folder in folders.items()
    }
    assert found["a"].num_bytes > found["b"].num_bytes > 0
    assert "a" in repr(found["a"])


def test_adapters_come_and_go(folders: dict[str, Path]) -> None:
    with MLCEngine("demo", "cpu", **SETTINGS) as engine:
        assert engine.adapters() == []
        engine.load_adapter("x", folders["a"])
        engine.load_adapter("y", str(folders["b"]))
        first = text_of(engine, adapter="x")
        for wrong, field in ((("x", folders["b"]), "adapter"), (("", folders["b"]), "adapter")):
            with pytest.raises(InvalidRequest) as error:
                engine.load_adapter(*wrong)
            assert error.value.field == field
        assert text_of(engine, adapter="x") == first
        engine.unload_adapter("x")
        assert engine.adapter_names == {"y"}
        for name in ("x", ""):
            with pytest.raises(InvalidRequest) as error:
                engine.unload_adapter(name)
            assert error.value.field == "adapter"
        with pytest.raises(InvalidRequest, match="y") as error:
            text_of(engine, adapter="x")
        assert error.value.field == "adapter"
        assert text_of(engine, model="x") == text_of(engine)  # a name as any other


@pytest.mark.parametrize("folder", [None, 5, "", [], b"x", "a\0b", "/no/such/folder", "\ud800"])
def test_a_folder_that_is_none(engine: MLCEngine, folder: Any) -> None:
    with pytest.raises((InvalidRequest, LoadError)):
        engine.load_adapter("x", folder)
    assert engine.adapter_names == {"a", "b"}


def test_a_folder_is_not_needed_afterwards(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(folders["a"], folder)
    with MLCEngine("demo", "cpu", **SETTINGS) as engine:
        engine.load_adapter("x", folder)
        before = text_of(engine, adapter="x")
        shutil.rmtree(folder)
        engine.reset()
        assert text_of(engine, adapter="x") == before


def test_the_same_name_with_other_weights(folders: dict[str, Path]) -> None:
    with MLCEngine("demo", "cpu", **SETTINGS) as engine:
        expected = {}
        for name, folder in folders.items():
            engine.load_adapter(name, folder)
            expected[name] = text_of(engine, adapter=name)
        engine.load_adapter("x", folders["a"])
        assert text_of(engine, adapter="x") == expected["a"]
        assert cached_of(engine, adapter="x") > 0
        engine.unload_adapter("x")
        engine.load_adapter("x", folders["b"])
        assert cached_of(engine, adapter="x") == 0
        assert text_of(engine, adapter="x") == expected["b"]


def test_a_request_finishes_with_an_adapter_that_is_unloaded(folders: dict[str, Path]) -> None:
    with MLCEngine("demo", "cpu", **SETTINGS) as engine:
        engine.load_adapter("x", folders["a"])
        fields: dict[str, Any] = {"prompt": PROMPT, "adapter": "x", "temperature": 0}
        fields |= {"max_tokens": 200, "ignore_eos": True}
        expected = engine.completions.create(**fields).choices[0].text
        stream = engine.completions.create(**fields, stream=True)
        text = next(stream).choices[0].text
        engine.unload_adapter("x")
        engine.load_adapter("x", folders["b"])
        text += "".join(chunk.choices[0].text for chunk in stream if chunk.choices)
        assert text == expected
        assert cached_of(engine, adapter="x") == 0


def test_adapters_come_and_go_while_requests_run(
    engine: MLCEngine, folders: dict[str, Path]
) -> None:
    """Each request that is accepted gets the answer of the adapter that had the name then."""
    expected = {text_of(engine, adapter=name) for name in ("a", "b")}
    stopped = threading.Event()

    def change(i: int) -> None:
        while not stopped.is_set():
            for folder in folders.values():
                engine.load_adapter(f"x{i}", folder)
                engine.unload_adapter(f"x{i}")

    threads = [threading.Thread(target=change, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    try:
        texts = []
        while len(texts) < 20:
            for i in range(2):
                try:
                    texts.append(text_of(engine, adapter=f"x{i}"))
                except InvalidRequest as error:
                    refused = error.field
                    assert refused == "adapter"
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
    assert set(texts) <= expected
    assert engine.adapter_names == {"a", "b"}
    assert [each.name for each in engine.adapters()] == ["a", "b"]


def test_a_reload_keeps_the_adapters_of_its_settings_only(folders: dict[str, Path]) -> None:
    with MLCEngine("demo", "cpu", adapters={"a": folders["a"]}, **SETTINGS) as engine:
        first = text_of(engine, adapter="a")
        engine.load_adapter("b", folders["b"])
        engine.reload("demo", **SETTINGS)
        assert engine.adapters() == []
        assert engine.adapter_names == set()
        with pytest.raises(InvalidRequest, match="adapter"):
            text_of(engine, adapter="a")
        engine.load_adapter("b", folders["a"])
        assert text_of(engine, adapter="b") == first
        engine.reload("demo", adapters=folders, **SETTINGS)
        assert engine.adapter_names == {"a", "b"}
        engine.unload()
        for ask in (
            lambda: engine.load_adapter("x", folders["a"]),
            lambda: engine.unload_adapter("a"),
            lambda: engine.adapters(),
        ):
            with pytest.raises(ModelNotLoaded):
                ask()


def test_after_the_end(folders: dict[str, Path]) -> None:
    engine = MLCEngine("demo", "cpu", **SETTINGS)
    engine.terminate()
    for ask in (
        lambda: engine.load_adapter("x", folders["a"]),
        lambda: engine.unload_adapter("a"),
        lambda: engine.adapters(),
    ):
        with pytest.raises(EngineTerminatedError):
            ask()


def test_a_reset_keeps_adapters(engine: MLCEngine) -> None:
    before = text_of(engine, adapter="a")
    engine.reset()
    assert engine.adapter_names == {"a", "b"}
    assert cached_of(engine, adapter="a") == 0
    assert text_of(engine, adapter="a") == before


# ------------------------------------------------------------------------------- the prefix cache


def test_an_adapter_finds_what_it_has_left_in_the_cache(engine: MLCEngine) -> None:
    names = ("", "a", "b")
    assert [cached_of(engine, adapter=name) for name in names] == [0, 0, 0]
    again = [cached_of(engine, adapter=name) for name in names]
    assert again[0] > 0
    assert again == [again[0]] * 3
    assert cached_of(engine, adapter="a", cache_salt="x") == 0
    assert cached_of(engine, adapter="a", cache_salt="x") == again[0]
    assert cached_of(engine, adapter="b", cache_salt="x") == 0


def test_hits_do_not_change_the_tokens(engine: MLCEngine) -> None:
    for name in ("", "a", "b", "", "a", "b"):
        first = text_of(engine, adapter=name)
        engine.reset()
        assert text_of(engine, adapter=name) == first


# ------------------------------------------------------------------------- with what else there is


def test_grammars(engine: MLCEngine) -> None:
    pytest.importorskip("xgrammar")
    form = {"type": "regex", "regex": "(red|green|blue) (cat|dog)"}
    for name in ("", "a", "b"):
        colour, animal = text_of(engine, adapter=name, response_format=form).split()
        assert colour in ("red", "green", "blue")
        assert animal in ("cat", "dog")


@pytest.mark.parametrize(
    "settings",
    [
        {"speculative_mode": "ngram"},
        {"speculative_mode": "suffix"},
        {"speculative_mode": "small_draft", "additional_models": ["demo-draft"]},
        {"speculative_mode": "auto", "additional_models": ["demo-draft"]},
    ],
    ids=["ngram", "suffix", "small_draft", "auto"],
)
def test_guesses(engine: MLCEngine, folders: dict[str, Path], settings: dict[str, Any]) -> None:
    names = ("", "a", "b")
    expected = [text_of(engine, adapter=name, max_tokens=40) for name in names]
    with MLCEngine("demo", "cpu", adapters=folders, **SETTINGS, **settings) as guessing:
        assert [text_of(guessing, adapter=name, max_tokens=40) for name in names] == expected


@pytest.mark.parametrize("head", ["eagle3", "mtp"])
def test_guesses_of_heads(engine: MLCEngine, folders: dict[str, Path], head: str) -> None:
    """Heads read the hidden states of the model, which adapters change."""
    settings: dict[str, Any] = {"speculative_mode": head, "additional_models": [f"demo-{head}"]}
    names = ("", "a", "b")
    expected = [text_of(engine, adapter=name, max_tokens=40) for name in names]
    with MLCEngine("demo", "cpu", adapters=folders, **SETTINGS, **settings) as guessing:
        assert [text_of(guessing, adapter=name, max_tokens=40) for name in names] == expected


def test_several_answers_and_seeds(engine: MLCEngine) -> None:
    fields: dict[str, Any] = {"prompt": PROMPT, "n": 3, "temperature": 1, "seed": 5}

    def texts(adapter: str) -> list[str]:
        choices = engine.completions.create(**fields, max_tokens=12, adapter=adapter).choices
        return [choice.text for choice in choices]

    assert texts("a") == texts("a")
    assert texts("a") != texts("")


@pytest.mark.parametrize("quantization", ["q8", "q4"])
def test_a_quantized_model(folders: dict[str, Path], quantization: str) -> None:
    settings = {**SETTINGS, "quantization": quantization, "adapters": folders}
    with MLCEngine("demo", "cpu", **settings) as engine:
        assert len({text_of(engine, adapter=name) for name in ("", "a", "b")}) == 3


# ------------------------------------------------------------------------------ the other engines


def test_the_async_engine(folders: dict[str, Path], engine: MLCEngine) -> None:
    expected = {name: text_of(engine, adapter=name) for name in ("", "a", "b")}

    async def run() -> None:
        async with AsyncMLCEngine("demo", "cpu", **SETTINGS) as made:
            for name, folder in folders.items():
                await made.load_adapter(name, folder)
            assert {each.name for each in await made.adapters()} == made.adapter_names == {"a", "b"}

            async def text(name: str) -> str:
                fields: dict[str, Any] = {"prompt": PROMPT, "model": name, **GREEDY}
                return (await made.completions.create(**fields)).choices[0].text

            names = ("a", "", "b", "a")
            texts = await asyncio.gather(*map(text, names))
            assert texts == [expected[name] for name in names]
            with pytest.raises(InvalidRequest):
                await made.load_adapter("a", folders["a"])
            with pytest.raises(LoadError):
                await made.load_adapter("c", "/no/such/folder")
            await made.unload_adapter("a")
            assert made.adapter_names == {"b"}
            with pytest.raises(InvalidRequest):
                await made.unload_adapter("a")
        with pytest.raises(EngineTerminatedError):
            await made.adapters()

    asyncio.run(run())


def test_the_sync_engine(folders: dict[str, Path]) -> None:
    engine = SyncMLCEngine("demo", "cpu", adapters={"a": folders["a"]}, **SETTINGS)
    engine.load_adapter("b", folders["b"])
    assert [each.name for each in engine.adapters()] == ["a", "b"]
    configs = [GenerationConfig(adapter=name, **GREEDY) for name in ("", "a", "b")]
    mixed = engine.generate([PROMPT] * 3, configs)[0]
    assert len({texts[0] for texts in mixed}) == 3
    for config, texts in zip(configs, mixed, strict=True):
        assert engine.generate(PROMPT, config)[0] == [texts]
    for wrong in ("", "a"):
        with pytest.raises(InvalidRequest):
            engine.load_adapter(wrong, folders["a"])
    with pytest.raises(InvalidRequest):
        engine.load_adapter("c", 5)  # type: ignore[arg-type]
    engine.unload_adapter("a")
    with pytest.raises(InvalidRequest) as error:
        engine.create_request("r", PROMPT, configs[1])
    assert error.value.field == "adapter"
    engine.unload()
    for ask in (lambda: engine.load_adapter("a", folders["a"]), engine.adapters):
        with pytest.raises(ModelNotLoaded):
            ask()


def test_the_echo_has_no_adapters(folders: dict[str, Path]) -> None:
    with MLCEngine("demo", model_lib="mock://echo", verbose=False) as echo:
        assert echo.adapters() == []
        assert echo.adapter_names == set()
        for ask in (
            lambda: echo.load_adapter("a", folders["a"]),
            lambda: echo.unload_adapter("a"),
            lambda: echo.completions.create(prompt="x", adapter="a"),
        ):
            with pytest.raises(InvalidRequest) as error:
                ask()
            assert error.value.field == "adapter"
        assert echo.completions.create(prompt="x", adapter="").choices[0].text == "x"
    with pytest.raises(InvalidConfig) as wrong:
        MLCEngine("demo", model_lib="mock://echo", adapters=folders, verbose=False)
    assert wrong.value.field == "adapters"


# ----------------------------------------------------------------------------------- the setting


def test_forms_of_the_setting(folders: dict[str, Path]) -> None:
    entries = [f"{name}={folder}" for name, folder in folders.items()]
    for setting in (folders, entries, {name: str(folder) for name, folder in folders.items()}):
        config = EngineConfig(adapters=setting)  # type: ignore[arg-type]
        with MLCEngine("demo", "cpu", engine_config=config, **SETTINGS) as engine:
            assert engine.adapter_names == {"a", "b"}
            assert sorted(engine.engine_config.adapters) == entries
        assert config.adapters is setting


@pytest.mark.parametrize(
    "setting",
    [
        *(5, None, True, "folder", [5], ["folder"], ["=folder"], ["a="], {"a": 5}, {"": "folder"}),
        *({"a": ""}, {5: "folder"}, {"a=b": "folder"}, ["a=x", "a=y"], [("a", "x")], {"a": b"x"}),
        [["a=x"]],
    ],
    ids=repr,
)
def test_a_wrong_setting(setting: Any) -> None:
    with pytest.raises(InvalidConfig) as error:
        MLCEngine("demo", "cpu", adapters=setting, **SETTINGS)
    assert error.value.field == "adapters"


def test_a_folder_of_the_setting_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="nothing"):
        MLCEngine("demo", "cpu", adapters={"a": tmp_path / "nothing"}, **SETTINGS)
    (tmp_path / "empty").mkdir()
    with pytest.raises(LoadError, match=r"adapter_config\.json"):
        MLCEngine("demo", "cpu", adapters={"a": tmp_path / "empty"}, **SETTINGS)


def test_a_reload_with_a_wrong_adapter_leaves_no_model_or_the_old_one(
    engine: MLCEngine, tmp_path: Path
) -> None:
    before = text_of(engine, adapter="a")
    with pytest.raises(LoadError):
        engine.reload("demo", adapters={"a": tmp_path / "nothing"}, **SETTINGS)
    assert text_of(engine, adapter="a") == before


def test_memory_of_an_adapter_is_given_back(engine: MLCEngine, folders: dict[str, Path]) -> None:
    """Loading again and again does not add up; an adapter of the demo model has some 100 KB."""

    def rounds(count: int) -> int:
        for _ in range(count):
            engine.load_adapter("x", folders["a"])
            text_of(engine, adapter="x", max_tokens=1)
            engine.unload_adapter("x")
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    each = next(info.num_bytes for info in engine.adapters() if info.name == "a")
    before = rounds(20)
    assert rounds(100) - before < 20 * each
