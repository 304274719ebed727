"""What folders of LFM2 may say: which layers have convolutions, and the size of their blocks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paged_driver import PagedModel, PagedSequence, relative_error, transformers_logits

from mlc_native import inspect_model
from mlc_native._core import LoadError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

PROMPT = list(range(3, 103))


def edit_config(path: Path, **fields: Any) -> None:
    """Set fields of a config.json, or leave them out where they are None."""
    config = json.loads((path / "config.json").read_text())
    config |= fields
    left = {name: value for name, value in config.items() if value is not None}
    (path / "config.json").write_text(json.dumps(left))


def logits(path: Path) -> np.ndarray:
    return PagedModel(path).forward([(PagedSequence(PROMPT), len(PROMPT))], "all")


def test_a_config_as_the_hub_has_it(tmp_path: Path) -> None:
    """With the first names of the fields."""
    path = make_checkpoint("tiny-lfm2", tmp_path / "m")
    expected = logits(path)
    edit_config(path, layer_types=None, full_attn_idxs=[2], block_ff_dim=200,
                intermediate_size=None, tie_word_embeddings=None, tie_embedding=True,
                rope_parameters=None, rope_theta=1000000.0)  # fmt: skip
    assert np.array_equal(logits(path), expected)


@pytest.mark.parametrize(
    ("like", "overrides"),
    [
        ("tiny-lfm2", {"layer_types": ["full_attention"] * 5}),
        ("tiny-lfm2", {"layer_types": ["conv"] * 4 + ["full_attention"], "conv_L_cache": 2}),
        ("tiny-lfm2", {"block_auto_adjust_ff_dim": False, "conv_L_cache": 8}),
        ("tiny-lfm2", {"block_ffn_dim_multiplier": 1.0, "tie_word_embeddings": False}),
        ("tiny-lfm2_moe", {"num_dense_layers": 0, "norm_topk_prob": False}),
        ("tiny-lfm2_moe", {"use_expert_bias": False, "tie_word_embeddings": True}),
    ],
)
def test_other_combinations(tmp_path: Path, like: str, overrides: dict[str, Any]) -> None:
    path = make_checkpoint(like, tmp_path / "m", overrides=overrides)
    tokens, ours = PagedModel(path).generate(PROMPT, 64, 8)
    reference = transformers_logits(path, PROMPT + tokens[:-1])[len(PROMPT) - 1 :]
    assert relative_error(ours, reference) < 1e-4
    assert tokens == reference.argmax(-1).tolist()


def test_experts_in_one_tensor(tmp_path: Path) -> None:
    """As transformers has them in memory."""
    path = make_checkpoint("tiny-lfm2_moe", tmp_path / "m", hub_names=False)
    assert relative_error(logits(path), transformers_logits(path, PROMPT)) < 1e-4


def test_inspect_shows_the_states(tmp_path: Path) -> None:
    found = inspect_model(make_checkpoint("tiny-lfm2", tmp_path / "m"))
    assert found["loads"]
    assert found["recurrent_bytes_per_slot"] == 4 * 2 * 64 * 4  # 4 layers, 2 rows of 64 floats
    # One layer has keys and values: 2 heads of 16 elements.
    assert found["kv_bytes_per_token"] == 2 * 2 * 16 * 4


@pytest.mark.parametrize(
    ("fields", "field", "what"),
    [
        ({"conv_bias": True}, "conv_bias", "= true is not supported"),
        ({"conv_L_cache": 9}, "conv_L_cache", "[2, 8]"),
        ({"conv_L_cache": 1}, "conv_L_cache", "[2, 8]"),
        ({"conv_L_cache": 4}, "model.layers.0.conv.conv.weight", "shape [64, 1, 3]"),
        ({"layer_types": ["conv"] * 4}, "layer_types", "has 4 entries"),
        ({"layer_types": ["linear_attention"] * 5}, "layer_types", "full_attention, conv"),
        ({"layer_types": None, "full_attn_idxs": [5]}, "full_attn_idxs", "is no layer"),
        ({"intermediate_size": 1}, "block_auto_adjust_ff_dim", "blocks of 0"),
        ({"block_ffn_dim_multiplier": 1e9}, "block_ffn_dim_multiplier", "too wide"),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, fields: dict[str, Any], field: str, what: str
) -> None:
    path = make_checkpoint("tiny-lfm2", tmp_path / "m")
    edit_config(path, **fields)
    with pytest.raises(LoadError) as error:
        PagedModel(path)
    assert what in str(error.value)
    assert error.value.field == field
