"""Adapters that are refused: a typed error names what is wrong, and nothing else has changed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adapter_driver import AdapterDriver, AdapterWork
from adapter_folders import (
    ATTENTION,
    PREFIX,
    edit_config,
    read_tensors,
    write_adapter,
    write_tensors,
)

from mlc_native.errors import InvalidConfig, InvalidRequest, LoadError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

WORK = AdapterWork(list(range(1, 20)))
Q0 = f"{PREFIX}model.layers.0.self_attn.q_proj"
Change = Callable[[Path], object]


class Loaded:
    """A model with one adapter "good", which each test tries to add another one to."""

    def __init__(self, folder: Path) -> None:
        self.model = make_checkpoint("tiny-llama", folder / "model")
        self.good = write_adapter(folder / "good", self.model)
        self.driver = AdapterDriver(self.model, {"good": self.good}, max_total_sequence_length=1024)
        self.works = [WORK, AdapterWork(WORK.prompt, "good")]
        self.before = self.driver.tokens(self.works)

    def refuse(self, folder: Path, *expected: str) -> None:
        """Checks that a folder is refused with these words, and that nothing else happened."""
        with pytest.raises((LoadError, InvalidConfig)) as error:
            self.driver.engine.load_adapter("bad", str(folder))
        for text in expected:
            assert text in str(error.value)
        assert [each.name for each in self.driver.engine.adapters()] == ["good"]
        assert self.driver.tokens(self.works) == self.before
        with pytest.raises(InvalidRequest) as refused:
            self.driver.tokens([AdapterWork(WORK.prompt, "bad")])
        assert refused.value.field == "adapter"
        assert "good" in str(refused.value)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return Loaded(tmp_path_factory.mktemp("loaded"))


@pytest.fixture
def folder(loaded: Loaded, tmp_path: Path) -> Path:
    """An adapter that a test may damage."""
    return write_adapter(tmp_path / "bad", loaded.model, targets=ATTENTION)


# ----------------------------------------------------------------------------------- the settings

CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"peft_type": "LOHA"}, "peft_type"),
    ({"peft_type": "IA3"}, "peft_type"),
    ({"use_dora": True}, "use_dora"),
    ({"bias": "all"}, "bias"),
    ({"bias": "lora_only"}, "bias"),
    ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
    ({"lora_bias": True}, "lora_bias"),
    ({"trainable_token_indices": [1]}, "trainable_token_indices"),
    ({"target_parameters": ["experts.gate_up_proj"]}, "target_parameters"),
    *(
        ({"init_lora_weights": kind}, "init_lora_weights")
        for kind in ("pissa", "pissa_niter_4", "olora", "corda", "loftq")
    ),
    ({"alpha_pattern": {"q_.*": 4}}, "alpha_pattern"),
    ({"r": 1025}, "r"),
    ({"r": 0}, "r"),
    ({"r": -8}, "r"),
    ({"r": "8"}, "r"),
    ({"r": 8.5}, "r"),
    ({"r": True}, "r"),
    ({"r": 1 << 40}, "r"),
    ({"lora_alpha": "16"}, "lora_alpha"),
    ({"lora_alpha": None}, "lora_alpha"),
    ({"lora_alpha": 1e300}, "lora_alpha"),
    ({"rank_pattern": {"q_proj": 0}}, "q_proj"),
    ({"rank_pattern": {"q_proj": "4"}}, "q_proj"),
    ({"rank_pattern": ["q_proj"]}, "rank_pattern"),
    ({"alpha_pattern": {"q_proj": "4"}}, "q_proj"),
    ({"use_rslora": "yes"}, "use_rslora"),
]


@pytest.mark.parametrize(("fields", "name"), CONFIGS, ids=[str(fields) for fields, _ in CONFIGS])
def test_settings(loaded: Loaded, folder: Path, fields: dict[str, Any], name: str) -> None:
    edit_config(folder, **fields)
    loaded.refuse(folder, f'"{name}"')


@pytest.mark.parametrize("alpha", ["NaN", "Infinity", "1e999"])
def test_numbers_that_json_does_not_have(loaded: Loaded, folder: Path, alpha: str) -> None:
    path = folder / "adapter_config.json"
    path.write_text(path.read_text().replace('"lora_alpha": 16', f'"lora_alpha": {alpha}'))
    loaded.refuse(folder, "adapter_config.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"r": 8}', '{"peft_type": "LORA"}'])
def test_a_config_of_another_form(loaded: Loaded, folder: Path, text: str) -> None:
    (folder / "adapter_config.json").write_text(text)
    loaded.refuse(folder, "adapter_config.json")


# -------------------------------------------------------------------------------------- the files


def test_no_folder(loaded: Loaded, tmp_path: Path) -> None:
    loaded.refuse(tmp_path / "nothing", "adapter_config.json")
    (tmp_path / "file").write_text("x")
    loaded.refuse(tmp_path / "file")


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_missing_file(loaded: Loaded, folder: Path, name: str) -> None:
    (folder / name).unlink()
    loaded.refuse(folder, name)


def test_a_pickle_is_not_read(loaded: Loaded, folder: Path) -> None:
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    loaded.refuse(folder, "adapter_model.bin", "adapter_model.safetensors")


@pytest.mark.parametrize("kept", [0, 7, 100, -1])
def test_a_truncated_file(loaded: Loaded, folder: Path, kept: int) -> None:
    path = folder / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    loaded.refuse(folder, "adapter_model.safetensors")


# ------------------------------------------------------------------------------------ the tensors


def _with_tensors(**changes: np.ndarray | None) -> Change:
    """Tensors by their names, without the prefix of the module; None: without the tensor."""

    def change(folder: Path) -> None:
        tensors = read_tensors(folder)
        for name, tensor in changes.items():
            tensors.pop(name, None)
            if tensor is not None:
                tensors[name] = tensor
        write_tensors(folder, tensors)

    return change


def _zeros(*shape: int, dtype: type[np.generic] = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


HIDDEN, VOCAB = 64, 512  # of tiny-llama; test_the_size_of_the_model checks it
A, B = f"{Q0}.lora_A.weight", f"{Q0}.lora_B.weight"
TENSORS: dict[str, tuple[Change, str]] = {
    "no A": (_with_tensors(**{A: None}), Q0),
    "no B": (_with_tensors(**{B: None}), Q0),
    "A of another rank": (_with_tensors(**{A: _zeros(4, HIDDEN)}), A),
    "A that is transposed": (_with_tensors(**{A: _zeros(HIDDEN, 8)}), A),
    "A of another width": (_with_tensors(**{A: _zeros(8, HIDDEN + 1)}), A),
    "B of another height": (_with_tensors(**{B: _zeros(HIDDEN + 1, 8)}), B),
    "A of one dimension": (_with_tensors(**{A: _zeros(8 * HIDDEN)}), A),
    "A without values": (_with_tensors(**{A: _zeros(0, HIDDEN)}), A),
    "integers": (_with_tensors(**{A: _zeros(8, HIDDEN, dtype=np.int32)}), A),
    "an unknown module": (
        _with_tensors(
            **{
                f"{PREFIX}model.layers.0.self_attn.r_proj.lora_A.weight": _zeros(8, HIDDEN),
                f"{PREFIX}model.layers.0.self_attn.r_proj.lora_B.weight": _zeros(HIDDEN, 8),
            }
        ),
        "r_proj",
    ),
    "a layer that is not there": (
        _with_tensors(
            **{
                f"{PREFIX}model.layers.99.self_attn.q_proj.lora_A.weight": _zeros(8, HIDDEN),
                f"{PREFIX}model.layers.99.self_attn.q_proj.lora_B.weight": _zeros(HIDDEN, 8),
            }
        ),
        "layers.99",
    ),
    "a magnitude of DoRA": (
        _with_tensors(**{f"{Q0}.lora_magnitude_vector": _zeros(HIDDEN)}),
        "lora_magnitude_vector",
    ),
    "a bias": (_with_tensors(**{f"{Q0}.lora_B.bias": _zeros(HIDDEN)}), "bias"),
    "an embedding": (
        _with_tensors(
            **{
                f"{PREFIX}model.embed_tokens.lora_embedding_A": _zeros(8, VOCAB),
                f"{PREFIX}model.embed_tokens.lora_embedding_B": _zeros(HIDDEN, 8),
            }
        ),
        "embed_tokens",
    ),
    "a module that was saved whole": (
        _with_tensors(**{f"{PREFIX}lm_head.weight": _zeros(VOCAB, HIDDEN)}),
        "lm_head",
    ),
    "no tensors": (lambda folder: write_tensors(folder, {}), "adapter_model.safetensors"),
}


@pytest.mark.parametrize("case", TENSORS)
def test_tensors(loaded: Loaded, folder: Path, case: str) -> None:
    change, expected = TENSORS[case]
    change(folder)
    loaded.refuse(folder, expected.removeprefix(PREFIX))


def test_the_size_of_the_model(loaded: Loaded) -> None:
    config = json.loads((loaded.model / "config.json").read_text())
    assert (config["hidden_size"], config["vocab_size"]) == (HIDDEN, VOCAB)
    assert read_tensors(loaded.good)[A].shape == (8, HIDDEN)


def test_the_adapter_of_another_model(loaded: Loaded, tmp_path: Path) -> None:
    other = make_checkpoint("tiny-qwen3", tmp_path / "other")
    loaded.refuse(write_adapter(tmp_path / "bad", other))


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_weights_that_are_no_numbers_fail_their_own_requests(
    loaded: Loaded, folder: Path, value: float
) -> None:
    """As those of a model do. Others in the same batch have their answers."""
    _with_tensors(**{A: np.full((8, HIDDEN), value, np.float32)})(folder)
    engine = loaded.driver.engine
    engine.load_adapter("bad", str(folder))
    try:
        works = [*loaded.works, AdapterWork(WORK.prompt, "bad")]
        answers = loaded.driver.run(works, may_fail=["2"])
        assert [each.tokens for each in answers[:2]] == loaded.before
        assert "NaN" in answers[2].error
    finally:
        engine.unload_adapter("bad")


# -------------------------------------------------------------------------------------- the names


def test_names(loaded: Loaded, folder: Path) -> None:
    engine = loaded.driver.engine
    for name in ("", "good"):
        with pytest.raises(InvalidRequest) as error:
            engine.load_adapter(name, str(folder))
        assert error.value.field == "adapter"
    for name in ("", "other"):
        with pytest.raises(InvalidRequest) as error:
            engine.unload_adapter(name)
        assert error.value.field == "adapter"
    assert [each.name for each in engine.adapters()] == ["good"]
    assert loaded.driver.tokens(loaded.works) == loaded.before


def test_an_undamaged_folder_loads(loaded: Loaded, folder: Path) -> None:
    """What the other tests damage is refused for its damage."""
    engine = loaded.driver.engine
    engine.load_adapter("other", str(folder))
    try:
        found = {each.name: each for each in engine.adapters()}
        assert found.keys() == {"good", "other"}
        assert found["other"].path == str(folder)
        assert found["other"].rank == 8
        assert 0 < found["other"].num_bytes < found["good"].num_bytes
    finally:
        engine.unload_adapter("other")
