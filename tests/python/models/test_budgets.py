"""``quantization="q4.8"``: matrices in 4, 6 or 8 bits, within a number of bits per weight."""

from __future__ import annotations

import functools
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from mlc_native import EngineConfig, MLCEngine, _core, inspect_model
from mlc_native._core import testing
from mlc_native.cli.main import main
from mlc_native.errors import InvalidConfig

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tools")]
from common import DEMO, make_checkpoint  # noqa: E402
from fidelity import (  # noqa: E402
    Precision,
    Reference,
    calibration_tokens,
    compare,
    greedy_answers,
    held_out_texts,
    logits,
    question_prompts,
    random_texts,
)
from paged_driver import PagedModel  # noqa: E402

BITS = {"q4": 4.5, "q6": 6.25, "q8": 8.25}


def weight_bytes(path: Path, quantization: str) -> int:
    return testing.TestModel(str(path), quantization=quantization).metadata["weight_bytes"]


# ------------------------------------------------------------------------ a reference of the rule


def rounded_to(name: str, weight: np.ndarray) -> np.ndarray:
    """What packed weights stand for: a scale for each group of a row, and the nearest codes."""
    size = 32 if name == "q4" else 64
    rows, columns = weight.shape
    padded = np.zeros((rows, -(-columns // size) * size), np.float32)
    padded[:, :columns] = weight
    groups = padded.reshape(-1, size)
    if name == "q8":
        scale = np.abs(groups).max(axis=1) / np.float32(127)
        nearest = scale.astype(np.float16)
        up = np.nextafter(nearest, np.float16(np.inf))
        scale = np.where(nearest.astype(np.float32) < scale, up, nearest).astype(np.float32)
        half = 128
    else:
        half = 8 if name == "q4" else 32
        scale = best_scale(groups, half).astype(np.float16).astype(np.float32)
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
    codes = np.rint(np.clip(groups * inverse[:, None], -half, half - 1))
    return (codes * scale[:, None]).reshape(rows, -1)[:, :columns]


def best_scale(groups: np.ndarray, half: int) -> np.ndarray:
    steps = {8: [-9.5, -9, -8.5, -8, -7.5, -7, 6.5, 7, 7.5, 8, 8.5],
             32: [-34, -33, -32, -31, -30, 31, 32]}[half]  # fmt: skip
    low, high = groups.min(axis=1, initial=0), groups.max(axis=1, initial=0)
    extreme = np.where(-low > high, low, high)
    scale = np.zeros_like(extreme)
    explained = np.zeros_like(extreme)
    for step in steps:
        inverse = np.divide(
            np.float32(step), extreme, out=np.zeros_like(extreme), where=extreme != 0
        )
        codes = np.rint(np.clip(groups * inverse[:, None], -half, half - 1))
        xq = (groups * codes).sum(axis=1)
        norm = np.maximum((codes * codes).sum(axis=1), 1)
        better = xq * xq / norm > explained
        explained = np.where(better, xq * xq / norm, explained)
        scale = np.where(better, xq / norm, scale)
    return scale


PARTS = {"o": ("o_proj",), "qkv": ("q_proj", "k_proj", "v_proj"), "down": ("down_proj",),
         "in": ("gate_proj", "up_proj")}  # fmt: skip


def formats_of_demo(millibits: int) -> dict[str, str]:
    """The format of each tensor of the demo model, whose head is smaller than its first layer."""
    tensors = load_file(DEMO / "model.safetensors")

    def named(layer: int, kind: str) -> list[str]:
        block = "self_attn" if kind in ("qkv", "o") else "mlp"
        return [f"model.layers.{layer}.{block}.{part}.weight" for part in PARTS[kind]]

    def others(*kinds: str) -> list[list[str]]:
        return [named(layer, kind) for kind in kinds for layer in (1, 2, 3)]

    sensitive = [["model.embed_tokens.weight"], *(named(0, kind) for kind in PARTS)]
    attention, rest = others("o", "qkv"), others("down", "in")
    every = [*sensitive, *attention, *rest]
    formats = {name: "q4" for unit in every for name in unit}
    room = (millibits - 4500) * sum(tensors[name].numel() for name in formats)
    for units, wider in (
        *((sensitive, "q6"), (attention, "q6"), (sensitive, "q8")),
        *((rest, "q6"), (attention, "q8"), (rest, "q8")),
    ):
        for unit in units:
            cost = 1750 if wider == "q6" else 2000
            room -= cost * sum(tensors[name].numel() for name in unit)
            if room < 0:
                return formats
            formats |= dict.fromkeys(unit, wider)
    return formats


def decoded_demo(folder: Path, formats: dict[str, str]) -> Path:
    """The demo model with the values that its matrices have in these formats."""
    shutil.copytree(DEMO, folder, ignore=shutil.ignore_patterns("eagle3", "mtp", "draft"))
    tensors = {name: t.float() for name, t in load_file(DEMO / "model.safetensors").items()}
    for name, chosen in formats.items():
        tensors[name] = torch.from_numpy(rounded_to(chosen, tensors[name].numpy()))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text()) | {"dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("bits", ["4.8", "5.4", "6.2", "7.0"])
def test_logits_and_tokens_are_those_of_the_decoded_weights(bits: str, tmp_path: Path) -> None:
    formats = formats_of_demo(round(1000 * float(bits)))
    assert len(set(formats.values())) == (2 if bits != "6.2" else 3)
    reference = Reference(decoded_demo(tmp_path / "decoded", formats))
    texts = held_out_texts(num_documents=8, num_long=1)
    expected = [reference.logits(text) for text in texts]
    model = PagedModel(DEMO, "float32", 1, f"q{bits}")
    # Of activations, which are rounded besides.
    assert compare((logits(model, text) for text in texts), expected, texts).error < 0.017
    prompts = question_prompts()
    engine = Precision("", "float32", quantization=f"q{bits}").engine(DEMO, 1)
    assert greedy_answers(engine, prompts) == [reference.greedy(prompt) for prompt in prompts]


# ------------------------------------------------------------------------------------- properties


@pytest.mark.parametrize("like", ["tiny-llama", "tiny-qwen2", "tiny-qwen3_moe"])
def test_more_bits_take_more_bytes_within_the_budget(like: str, tmp_path: Path) -> None:
    model = make_checkpoint(like, tmp_path / "model")
    sizes = {bits: weight_bytes(model, f"q{bits}") for bits in (4.5, 4.8, 5.4, 6.25, 7.3, 8.25)}
    assert sorted(sizes.values()) == list(sizes.values())
    assert sizes[8.25] == weight_bytes(model, "q8")
    assert sizes[4.5] < weight_bytes(model, "q6") < sizes[8.25]
    least, most = sizes[4.5], sizes[8.25]
    for bits, size in sizes.items():  # tables and vectors take the same in all
        assert size <= least + (most - least) * (bits - 4.5) / (8.25 - 4.5) + 4096


def test_inspect_shows_the_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(DEMO), "--quantization", "q4.8"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"loaded: q4 and q6 with bfloat16, 4\.\d\d bits per weight", shown)
    found = inspect_model(DEMO, "q5.4")
    loaded = {(each["name"], each["loads_as"]): each["count"] for each in found["matrices"]}
    expected: dict[tuple[str, str], int] = {}
    for name, chosen in formats_of_demo(5400).items():
        kind = (re.sub(r"\.\d\.", ".*.", name), chosen)
        expected[kind] = expected.get(kind, 0) + 1
    assert {kind: n for kind, n in loaded.items() if kind[1] in BITS} == expected
    assert found["bits_per_weight"] < 5.42  # with the vectors
    assert found == inspect_model(DEMO, "q5.4")
    assert inspect_model(DEMO)["bits_per_weight"] > 16


# --------------------------------------------------------------------------- packed ahead of time


@functools.cache
def tokens_of_text() -> list[int]:
    return calibration_tokens(DEMO)[:1024]


@pytest.mark.parametrize("calibrated", [False, True])
def test_packed_weights_are_found_again(calibrated: bool, tmp_path: Path) -> None:
    config = EngineConfig(
        model=str(DEMO), weight_cache_dir=str(tmp_path), quantization="q5.4", num_threads=1
    )
    tokens = tokens_of_text() if calibrated else None
    packed = _core.pack_model(config.engine_json(), None, None, tokens)
    assert packed.weight_format == "q4 and q6 with bfloat16"
    assert not packed.was_there
    assert _core.pack_model(config.engine_json(), None, None, tokens).was_there
    model = PagedModel(DEMO, num_threads=1, quantization="q5.4", weight_cache_dir=str(tmp_path))
    metadata = model.model.metadata
    assert metadata["mapped_weight_bytes"] == metadata["weight_bytes"] == packed.bytes
    with MLCEngine("demo", quantization="q5.4", weight_cache_dir=str(tmp_path)) as engine:
        assert engine.engine_config.quantization == "q5.4"
        assert ("calibrated" in repr(engine)) == calibrated
    assert [str(path) for path in tmp_path.iterdir()] == [packed.path]
    (text,) = random_texts(DEMO, 40, seed=3)
    plain = logits(PagedModel(DEMO, num_threads=1, quantization="q5.4"), text)
    assert np.array_equal(logits(model, text), plain) != calibrated
    # Another budget is another file.
    PagedModel(DEMO, num_threads=1, quantization="q4.8", weight_cache_dir=str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 2


def test_calibrated_weights_lose_less(tmp_path: Path) -> None:
    texts = held_out_texts(num_documents=16, num_long=1)
    reference = Reference(DEMO)
    expected = [reference.logits(text) for text in texts]

    def divergence(quantization: str, calibrated: bool) -> float:
        model = Precision("", quantization=quantization, calibrated=calibrated).model(DEMO, 1)
        return compare((logits(model, text) for text in texts), expected, texts).divergence

    assert divergence("q4.8", True) < 0.7 * divergence("q4.8", False)
    assert divergence("q5.4", False) < divergence("q4.8", False) < divergence("q4.5", False)


# ------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize("value", ["q4.4", "q8.3", "q5", "q4.", "q4.8.1", "4.8"])
def test_what_is_no_budget_is_refused(
    value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for call in (
        lambda: MLCEngine("demo", quantization=value),
        lambda: inspect_model(DEMO, value),
    ):
        with pytest.raises(InvalidConfig, match=r"\[4\.5, 8\.25\]") as error:
            call()
        assert error.value.field == "quantization"
        assert f'"{value}"' in str(error.value)
    for command in (["pack", "demo", str(tmp_path)], ["inspect", "demo"]):
        assert main([*command, "--quantization", value]) == 2
        assert "[4.5, 8.25]" in capsys.readouterr().err
