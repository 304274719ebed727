"""Settings and model folders that are wrong end in one clear error, and nothing is left behind."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mlc_native import AsyncMLCEngine, EngineConfig, MLCEngine, SyncMLCEngine
from mlc_native.errors import InvalidConfig, LoadError
from mlc_native.support import model_source
from mlc_native.support.model_source import resolve_adapter, resolve_model

MakeModel = Callable[..., str]
pytestmark = pytest.mark.both_step_kinds
NAN, INF = float("nan"), float("inf")

# ------------------------------------------------------------------------------- engine settings

CONSTRUCTORS = [MLCEngine, AsyncMLCEngine, SyncMLCEngine]


@pytest.fixture(params=CONSTRUCTORS)
def construct(request: pytest.FixtureRequest, fake_lib: str) -> Iterator[Callable[..., Any]]:
    """Makes an engine of one kind; afterwards no thread of the failed ones is left."""
    before = set(threading.enumerate())

    def make(model: str, **kwargs: Any) -> Any:
        return request.param(model, model_lib=kwargs.pop("model_lib", fake_lib), **kwargs)

    yield make
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kv_cache_page_size", 32),
        ("gpu_memory_utilization", 0),
        ("gpu_memory_utilization", 1.5),
        ("gpu_memory_utilization", NAN),
        ("max_num_sequence", 0),
        ("max_num_sequence", "four"),
        ("max_total_sequence_length", -1),
        ("max_total_sequence_length", 1 << 62),
        ("max_single_sequence_length", 0),
        ("prefill_chunk_size", 0),
        ("max_history_size", 4),
        ("dtype", "int3"),
        ("num_threads", 0),
        ("mode", "turbo"),
        ("prefill_mode", "fast"),
        ("prefix_cache_mode", "magic"),
        ("speculative_mode", "psychic"),
        ("tensor_parallel_shards", 2),
        ("kv_state_kind", "rnn_state"),
        pytest.param("opt", object(), id="opt-object"),
        ("additional_models", None),
        ("additional_models", [5]),
        ("verbose", "yes"),
        ("weight_cache_dir", "caf\udce9"),
        ("additional_models", ["caf\udce9"]),
        ("adapters", None),
        ("adapters", [5]),
        ("adapters", ["a"]),
        ("adapters", {"a": 5}),
        ("adapters", ["a=caf\udce9"]),
        ("adapters", {"caf\udce9": "a"}),
    ],
    ids=ascii,
)
def test_bad_engine_settings(
    construct: Callable[..., Any], make_model: MakeModel, field: str, value: Any
) -> None:
    config = EngineConfig(**{field: value})
    arguments = {"mode": value} if field == "mode" else {}
    with pytest.raises(InvalidConfig) as error:
        construct(make_model(), engine_config=config, **arguments)
    assert field in str(error.value) or error.value.field == field


@pytest.mark.parametrize("name", ["caf\udce9", "/tmp/caf\udce9"], ids=ascii)
def test_a_path_that_is_no_text_is_named(name: str) -> None:
    with pytest.raises(InvalidConfig, match='"model" must be valid Unicode') as error:
        MLCEngine(name)
    assert error.value.field == "model"


def test_unknown_engine_settings() -> None:
    with pytest.raises(TypeError, match="max_num_sequences"):
        EngineConfig(max_num_sequences=3)  # type: ignore[call-arg]
    with pytest.raises(InvalidConfig, match='no field "max_num_sequences"') as error:
        EngineConfig.from_json('{"max_num_sequences": 3}')
    assert error.value.field == "max_num_sequences"
    for text in ("{", "[]"):
        with pytest.raises(InvalidConfig):
            EngineConfig.from_json(text)


def test_engine_config_round_trip() -> None:
    config = EngineConfig(model="m", max_num_sequence=3, prefill_mode="chunked")
    assert EngineConfig.from_json(config.asjson()) == config


@pytest.mark.parametrize(
    ("field", "config", "arguments"),
    [
        ("model", {"model": "/elsewhere"}, {}),
        ("mode", {"mode": "server"}, {"mode": "interactive"}),
        ("model_lib", {"model_lib": "/elsewhere.so"}, {}),
    ],
)
def test_conflicting_arguments(
    construct: Callable[..., Any], make_model: MakeModel, field: str, config: Any, arguments: Any
) -> None:
    with pytest.raises(InvalidConfig, match=f'The argument "{field}" of engine constructor'):
        construct(make_model(), engine_config=EngineConfig(**config), **arguments)


@pytest.mark.parametrize("device", ["tpu", "cpu:7", "", "cpux", "cuda:", "cuda:-1"])
def test_a_device_that_does_not_exist(
    construct: Callable[..., Any], make_model: MakeModel, device: str
) -> None:
    with pytest.raises(InvalidConfig, match=f'"cuda" or "cuda:i", got "{device}"'):
        construct(make_model(), device=device)


class PrintsAs:
    """A device object of another library."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name


@pytest.mark.parametrize("device", ["cpu:0", PrintsAs("cpu"), PrintsAs("cpu:0")], ids=str)
def test_devices_that_are_the_cpu(
    construct: Callable[..., Any], make_model: MakeModel, device: object
) -> None:
    engine = construct(make_model(), device=device)
    assert engine.device == "cpu"
    if not isinstance(engine, SyncMLCEngine):
        engine.terminate()


def test_an_object_that_prints_as_no_device(
    construct: Callable[..., Any], make_model: MakeModel
) -> None:
    with pytest.raises(InvalidConfig, match='or "cuda:i", got "cpu:1"') as error:
        construct(make_model(), device=PrintsAs("cpu:1"))
    assert error.value.field == "device"


# ----------------------------------------------------------------------------------- model files


def break_config(text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "config.json").write_text(text) and None


def break_tokenizer(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_text(path.read_text()[:1000])


def break_fake(**settings: Any) -> Callable[[Path], None]:
    return break_config(json.dumps({"fake": settings}))


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda folder: (folder / "config.json").unlink(), "config.json"),
        (break_config("{"), "config.json"),
        (break_config("[]"), "config.json"),
        (break_config('{"vocab_size": "many"}'), "config.json"),
        (break_tokenizer, "tokenizer.json"),
        (break_fake(no_such_setting=1), "no_such_setting"),
        (lambda folder: (folder / "tokenizer_config.json").write_text("{"), "tokenizer_config"),
    ],
)
def test_damaged_model_folders(
    construct: Callable[..., Any], make_model: MakeModel, damage: Any, named: str
) -> None:
    model = make_model()
    damage(Path(model))
    with pytest.raises(LoadError, match=named):
        construct(model)


def test_models_that_are_not_there(construct: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="there is no model folder"):
        construct("./no/such/folder")
    with pytest.raises(LoadError, match=r"is not a model folder: it has no config\.json"):
        construct(str(tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(LoadError, match="is a file"):
        construct(str(tmp_path / "file"))


def test_model_libraries_that_are_none(
    construct: Callable[..., Any], make_model: MakeModel, tmp_path: Path
) -> None:
    model = make_model()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        construct(model, model_lib="/nowhere.so")
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(LoadError, match=r"text\.so"):
        construct(model, model_lib=str(tmp_path / "text.so"))


def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub

    def refuse(*_args: Any, **_kwargs: Any) -> str:
        raise OSError("no network\nwith details")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    monkeypatch.setattr(model_source, "hub_answers", lambda: True)
    monkeypatch.chdir(tmp_path)
    for name in ("HF://org/name", "org/name"):
        with pytest.raises(LoadError, match=r"could not be downloaded .* OSError: no network$"):
            resolve_model(name)


def test_hub_ids_are_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub

    asked: list[tuple[str, str | None]] = []

    def download(repo: str, *, revision: str | None, **_filters: Any) -> str:
        asked.append((repo, revision))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(model_source, "hub_answers", lambda: True)
    monkeypatch.chdir(tmp_path)
    assert resolve_model("HF://org/name") == tmp_path
    assert resolve_model("org/name@v1.0") == tmp_path
    assert asked == [("org/name", None), ("org/name", "v1.0")]
    os.makedirs("org/name")
    assert resolve_model("org/name") == Path("org/name")  # a folder of that name wins


def test_hub_ids_of_adapters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub

    asked: list[tuple[str, str | None, list[str]]] = []

    def download(repo: str, *, revision: str | None, allow_patterns: list[str], **_: Any) -> str:
        asked.append((repo, revision, allow_patterns))
        if repo == "org/none":
            raise OSError("no such repository")
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(model_source, "hub_answers", lambda: True)
    monkeypatch.chdir(tmp_path)
    files = ["adapter_config.json", "adapter_model.safetensors"]
    assert resolve_adapter("HF://org/name") == tmp_path
    assert resolve_adapter("org/name@v1.0") == tmp_path
    assert asked == [("org/name", None, files), ("org/name", "v1.0", files)]
    with pytest.raises(LoadError, match="no such repository") as error:
        resolve_adapter("org/none")
    assert error.value.field == "adapter"
    monkeypatch.setattr(model_source, "hub_answers", lambda: False)
    with pytest.raises(LoadError, match="its cache does not have the adapter") as error:
        resolve_adapter("org/none")
    assert error.value.field == "adapter"
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert resolve_adapter("org/name") == Path("org/name")  # a folder of that name wins
    (tmp_path / "file").write_text("x")
    for wrong in ("file", "missing", "~no_such_user/x", "x" * 5000, "a\0b"):
        with pytest.raises(LoadError) as error:
            resolve_adapter(wrong)
        assert error.value.field == "adapter"
