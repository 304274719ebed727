"""gpt-oss with experts in MXFP4: the same values as in transformers, kept in 4 bits or widened."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_model import find_test_library
from paged_driver import (
    PagedModel,
    PagedSequence,
    random_tokens,
    relative_error,
    transformers_logits,
)
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from mlc_native import EngineConfig, MLCEngine, SyncMLCEngine, inspect_model
from mlc_native._core import LoadError
from mlc_native.protocol.generation_config import GenerationConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

WEIGHTS = "model.safetensors"
PROMPT = random_tokens(100, 512, seed=11)
EXPERTS = "model.layers.1.mlp.experts.gate_up_proj"

Tensors = dict[str, torch.Tensor]


def write_folder(folder: Path, source: Path, tensors: Tensors, config: dict[str, object]) -> None:
    folder.mkdir(exist_ok=True)
    for file in source.iterdir():
        if file.name != WEIGHTS:
            (folder / file.name).write_bytes(file.read_bytes())
    fields = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(fields | config))
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder with experts in MXFP4, and one with the values that transformers gives them."""
    folder = tmp_path_factory.mktemp("mxfp4")
    source = make_checkpoint("tiny-gpt_oss", folder / "source", dtype="bfloat16")
    random = torch.Generator().manual_seed(5)
    packed, floats = {}, {}
    for name, tensor in load_file(source / WEIGHTS).items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            packed[name] = floats[name] = tensor
            continue
        experts, columns, rows = tensor.shape
        blocks = torch.randint(
            256, (experts, rows, columns // 32, 16), generator=random, dtype=torch.uint8
        )
        scales = torch.randint(
            120, 126, (experts, rows, columns // 32), generator=random, dtype=torch.uint8
        )
        scales[0, 0, 0] = 0  # the least one
        packed[f"{name}_blocks"], packed[f"{name}_scales"] = blocks, scales
        floats[name] = convert_moe_packed_tensors(blocks, scales).contiguous()
    quantization = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    write_folder(folder / "packed", source, packed, {"quantization_config": quantization})
    write_folder(folder / "floats", source, floats, {})
    return folder / "packed", folder / "floats"


def logits(path: Path, dtype: str = "float32", quantization: str = "off") -> np.ndarray:
    model = PagedModel(path, dtype, quantization=quantization)
    return model.forward([(PagedSequence(PROMPT), len(PROMPT))], "all")


def test_widened_values_are_those_of_transformers(folders: tuple[Path, Path]) -> None:
    packed, floats = folders
    assert np.array_equal(logits(packed), logits(floats))
    assert np.array_equal(logits(packed, "bfloat16"), logits(floats, "bfloat16"))


def test_experts_stay_in_4_bits(folders: tuple[Path, Path]) -> None:
    packed, floats = folders
    kept = logits(packed, quantization="")
    # Inputs are rounded to 8 bits, which may be enough for another choice of experts.
    errors = np.abs(kept - logits(floats)).max(-1) / np.abs(kept).max()
    assert 0 < np.quantile(errors, 0.25) < 0.05
    report = inspect_model(packed)
    stored = {m["name"]: m for m in report["matrices"] if "experts" in m["name"]}
    matrices = [m for name, m in stored.items() if not name.endswith("_bias")]
    assert len(matrices) == 2
    assert {m["loads_as"] for m in matrices} == {"mxfp4"}
    # As they are stored: those of floats have rows and columns the other way round.
    assert sorted(m["shape"] for m in matrices) == [[6, 64, 96], [6, 192, 64]]
    assert report["memory"]["auto"] < 0.7 * inspect_model(floats)["memory"]["auto"]


def test_an_engine_answers(folders: tuple[Path, Path]) -> None:
    with MLCEngine(str(folders[0]), max_num_sequence=2) as engine:
        answers = [
            engine.completions.create(prompt=PROMPT, max_tokens=8, temperature=0, ignore_eos=True)
            for _ in range(2)
        ]
        assert answers[0].usage is not None
        assert answers[0].usage.completion_tokens == 8
        assert answers[0].choices[0].text == answers[1].choices[0].text


def test_gpus_keep_4_bits(folders: tuple[Path, Path]) -> None:
    """Through the emulator, the next token's logprobs are near those of the widened experts, from
    several chunks and from a prompt of one token."""
    library = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")
    config = GenerationConfig(max_tokens=1, temperature=0, logprobs=True, top_logprobs=5)
    logprobs, formats = [], []
    for quantization in (None, "off"):
        settings = EngineConfig(
            dtype="bfloat16", quantization=quantization, prefill_chunk_size=16, max_num_sequence=2
        )
        engine = SyncMLCEngine(str(folders[0]), "cuda:0", model_lib=library, engine_config=settings)
        formats.append(repr(engine))
        answers = engine.generate([PROMPT[:20], PROMPT[:1]], config)[1]
        logprobs.append([json.loads(answer[0][0])["logprob"] for answer in answers])
        engine.unload()
    assert "parameters in mxfp4 with bfloat16" in formats[0]
    assert "parameters in bfloat16" in formats[1]
    assert np.allclose(logprobs[0], logprobs[1], atol=0.02)


def test_rows_have_their_bits_in_every_batch(folders: tuple[Path, Path]) -> None:
    model = PagedModel(folders[0])
    sequences = [PagedSequence(random_tokens(n, 512, seed=n)) for n in (3, 40, 17)]
    alone = [model.prefill(PagedSequence(list(s.tokens)), 512) for s in sequences]
    together = model.forward([(s, len(s.tokens)) for s in sequences])
    assert np.array_equal(together, np.concatenate([a.reshape(1, -1) for a in alone]))


def drop(name: str) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.pop(name)


def put(name: str, tensor: torch.Tensor) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.update({name: tensor})


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        (drop(f"{EXPERTS}_scales"), f"{EXPERTS}_scales", "lacks tensor"),
        (drop(f"{EXPERTS}_blocks"), EXPERTS, "lacks tensor"),
        (
            put(f"{EXPERTS}_scales", torch.zeros(6, 192, 3, dtype=torch.uint8)),
            f"{EXPERTS}_scales",
            r"U8 \[6, 192, 3\], MXFP4 needs U8 \[6, 192, 2\]",
        ),
        (
            put(f"{EXPERTS}_blocks", torch.zeros(6, 192, 2, 16, dtype=torch.int8)),
            f"{EXPERTS}_blocks",
            "MXFP4 needs U8",
        ),
        (
            put(f"{EXPERTS}_scales", torch.full((6, 192, 2), 255, dtype=torch.uint8)),
            f"{EXPERTS}_scales",
            "a scale is 255, which is no number",
        ),
    ],
)
def test_damaged_folders(
    folders: tuple[Path, Path],
    tmp_path: Path,
    change: Callable[[Tensors], object],
    field: str,
    message: str,
) -> None:
    tensors = load_file(folders[0] / WEIGHTS)
    change(tensors)
    write_folder(tmp_path / "damaged", folders[0], tensors, {})
    with pytest.raises(LoadError, match=message) as error:
        PagedModel(tmp_path / "damaged")
    assert error.value.field == field


def test_the_reference_is_near(folders: tuple[Path, Path]) -> None:
    packed, floats = folders
    assert relative_error(logits(packed), transformers_logits(floats, PROMPT)) < 1e-4
