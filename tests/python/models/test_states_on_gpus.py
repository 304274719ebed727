"""Short convolutions and Mamba-2 on CUDA, through the emulator: logits and tokens of transformers,
and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_model import find_test_library
from paged_driver import PagedModel, PagedSequence, relative_error, transformers_logits

from mlc_native import EngineConfig, MLCEngine
from mlc_native.errors import InvalidConfig, LoadError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

PROMPT = list(range(3, 103))
# Sizes on devices are multiples of 4.
BAMBA = {"mamba_n_heads": 48, "mamba_d_head": 4, "mamba_d_state": 12}
GRANITE_MOE = {"mamba_d_state": 36}


def library() -> str:
    return find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")


@pytest.mark.parametrize(
    ("like", "overrides"),
    [
        ("tiny-lfm2", {}),
        ("tiny-lfm2", {"conv_L_cache": 8, "layer_types": ["conv"] * 4 + ["full_attention"]}),
        ("tiny-lfm2_moe", {}),
        ("tiny-lfm3", {}),
        ("tiny-granitemoehybrid_mamba", {}),
        ("tiny-granitemoehybrid_moe", GRANITE_MOE),
        ("tiny-bamba", BAMBA),
    ],
)
def test_cuda_has_the_logits_and_tokens_of_transformers(
    tmp_path: Path, like: str, overrides: dict[str, Any]
) -> None:
    path = make_checkpoint(like, tmp_path / "m", overrides=overrides)
    model = PagedModel(path, model_lib=library(), dtype="float32")
    tokens, ours = model.generate(PROMPT, 64, 8)
    every_row = transformers_logits(path, PROMPT + tokens[:-1])
    reference = every_row[len(PROMPT) - 1 :]
    assert relative_error(ours, reference) < 1e-4
    assert tokens == reference.argmax(-1).tolist()
    # In transformers, too, some rows have other experts in 16 bits.
    work = [(PagedSequence(list(PROMPT)), len(PROMPT))]
    ours = PagedModel(path, model_lib=library(), dtype="bfloat16").forward(work, "all")
    errors = [relative_error(row, wanted) for row, wanted in zip(ours, every_row, strict=False)]
    assert np.median(errors) < 0.05


@pytest.mark.parametrize(
    ("overrides", "missing"),
    [
        ({}, "mamba_d_state.*multiple of 4, at most 256"),
        ({"mamba_d_state": 264}, "mamba_d_state.*at most 256"),
        ({"mamba_d_state": 8}, "mamba_d_head.*multiple of 4"),
    ],
)
def test_sizes_that_kernels_lack_are_refused_by_name(
    tmp_path: Path, overrides: dict[str, Any], missing: str
) -> None:
    path = make_checkpoint("tiny-bamba", tmp_path / "m", overrides=overrides)
    with pytest.raises(LoadError, match=missing):
        PagedModel(path, model_lib=library())


def test_heads_that_gpus_cannot_divide_are_refused_by_name(tmp_path: Path) -> None:
    path = make_checkpoint("tiny-granitemoehybrid_mamba", tmp_path / "m")
    config = EngineConfig(tensor_parallel_shards=4)  # of two groups
    with pytest.raises(InvalidConfig, match="in 2 groups of Mamba-2"):
        MLCEngine(str(path), "cuda:0", model_lib=library(), engine_config=config)
