"""What folders of Kimi Linear may say: fields as the hub has them, which layers attend, and the
names of tensors that transformers writes and those of its memory."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from paged_driver import PagedModel, PagedSequence, relative_error, transformers_logits
from transformers import AutoModelForCausalLM

from mlc_native import inspect_model
from mlc_native._core import LoadError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

LIKE = "tiny-kimi_linear"
PROMPT = list(range(3, 103))
# As moonshotai/Kimi-Linear-48B-A3B-Instruct has them, with the sizes of the shape.
HUB: dict[str, Any] = {
    "layer_types": None, "mlp_layer_types": None, "linear_head_dim": None,
    "linear_num_heads": None, "linear_conv_kernel_dim": None, "first_k_dense_replace": 1,
    "linear_attn_config": {
        "full_attn_layers": [2], "kda_layers": [1, 3, 4, 5], "head_dim": 24, "num_heads": 4,
        "short_conv_kernel_size": 4,
    },
    "head_dim": 72, "mla_use_nope": True, "moe_layer_freq": 1, "use_grouped_topk": True,
    "moe_router_activation_func": "sigmoid", "num_nextn_predict_layers": 0,
    "rope_scaling": None, "rope_theta": 10000.0,
}  # fmt: skip


def edit_config(path: Path, **fields: Any) -> None:
    """Set fields of a config.json, or leave them out where they are None."""
    config = json.loads((path / "config.json").read_text()) | fields
    left = {name: value for name, value in config.items() if value is not None}
    (path / "config.json").write_text(json.dumps(left))


def logits(path: Path) -> np.ndarray:
    return PagedModel(path).forward([(PagedSequence(PROMPT), len(PROMPT))], "all")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_checkpoint(LIKE, tmp_path / "m")


def test_a_config_as_the_hub_has_it(folder: Path) -> None:
    expected = logits(folder)
    config = json.loads((folder / "config.json").read_text())
    for field in ("num_experts", "num_experts_per_token", "num_expert_group", "moe_renormalize",
                  "num_shared_experts", "model_max_length"):  # fmt: skip
        assert field in config
    edit_config(folder, **HUB)
    assert np.array_equal(logits(folder), expected)
    assert relative_error(expected, transformers_logits(folder, PROMPT)) < 1e-4


def test_a_config_with_the_names_of_deepseek(folder: Path) -> None:
    """They are attributes of transformers' configuration, too."""
    expected = logits(folder)
    fields = {
        "num_experts_per_tok": "num_experts_per_token", "n_group": "num_expert_group",
        "norm_topk_prob": "moe_renormalize", "n_shared_experts": "num_shared_experts",
        "max_position_embeddings": "model_max_length",
    }  # fmt: skip
    config = json.loads((folder / "config.json").read_text())
    edit_config(folder, **{own: config[hub] for own, hub in fields.items()},
                **dict.fromkeys(fields.values()))  # fmt: skip
    assert np.array_equal(logits(folder), expected)


def test_a_folder_that_transformers_writes(folder: Path, tmp_path: Path) -> None:
    """Its layers without experts have the names of those with some."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.save_pretrained(tmp_path / "saved")
    assert np.array_equal(logits(tmp_path / "saved"), logits(folder))


def test_the_tensors_of_the_memory_of_transformers(folder: Path, tmp_path: Path) -> None:
    """One convolution for queries, keys and values, and all experts in one tensor."""
    path = make_checkpoint(LIKE, tmp_path / "memory", hub_names=False)
    assert np.array_equal(logits(path), logits(folder))


@pytest.mark.parametrize(
    "overrides",
    [
        {"layer_types": ["full_attention"] * 5},
        {"layer_types": None, "mlp_layer_types": None, "norm_topk_prob": False},
        {
            "layer_types": ["linear_attention"] * 4 + ["full_attention"],
            "n_group": 1,
            "topk_group": 1,
        },
        {"q_lora_rank": 24, "attention_bias": True, "linear_conv_kernel_dim": 8},
        {"linear_num_heads": 3, "linear_head_dim": 7, "tie_word_embeddings": True},
        {"linear_head_dim": 160, "linear_conv_kernel_dim": 2, "n_shared_experts": 1},
    ],
)
def test_other_combinations(tmp_path: Path, overrides: dict[str, Any]) -> None:
    path = make_checkpoint(LIKE, tmp_path / "m", overrides=overrides)
    tokens, ours = PagedModel(path).generate(PROMPT, 64, 8)
    reference = transformers_logits(path, PROMPT + tokens[:-1])[len(PROMPT) - 1 :]
    assert relative_error(ours, reference) < 1e-4
    assert tokens == reference.argmax(-1).tolist()


@pytest.mark.parametrize(("quantization", "error"), [("", 0.06), ("q8", 0.2), ("q4", 0.5)])
def test_fewer_bits(tmp_path: Path, quantization: str, error: float) -> None:
    """All experts are chosen, so that none is chosen otherwise."""
    all_chosen = {"num_experts_per_tok": 12, "n_group": 1, "topk_group": 1}
    path = make_checkpoint(LIKE, tmp_path / "m", overrides=all_chosen)
    model = PagedModel(path, dtype="bfloat16", quantization=quantization)
    ours = model.forward([(PagedSequence(PROMPT), len(PROMPT))], "all")
    assert relative_error(ours, transformers_logits(path, PROMPT)) < error


def test_inspect_counts_all_tensors(folder: Path) -> None:
    found = inspect_model(folder)
    assert found["loads"]
    assert sum(each["count"] for each in found["matrices"]) == found["num_tensors"]
    kernels = [each for each in found["matrices"] if "conv1d" in each["name"]]
    assert [each["count"] for each in kernels] == [4] * 3
    assert all(each["shape"] == [96, 1, 4] for each in kernels)
    # 4 layers with 3 rows of 3 * 96 floats, and a state of 24 rows of 32 columns for each head.
    assert found["recurrent_bytes_per_slot"] == 4 * (3 * 288 + 4 * 24 * 32) * 4
    assert found["kv_bytes_per_token"] == 2 * 64 * 4  # of one layer, in lines of 16 floats


def listed(**fields: Any) -> dict[str, Any]:
    return HUB | {"linear_attn_config": HUB["linear_attn_config"] | fields}


@pytest.mark.parametrize(
    ("fields", "field", "what"),
    [
        (listed(kda_layers=[1, 3, 4]), "kda_layers", "layer 5 is there 0 times"),
        (listed(full_attn_layers=[2, 3]), "kda_layers", "layer 3 is there 2 times"),
        (listed(full_attn_layers=[0]), "full_attn_layers", "has 0, which is no layer"),
        (listed(kda_layers=[1, 3, 4, 6]), "kda_layers", "has 6, which is no layer"),
        (listed(head_dim=0), "head_dim", r"an integer in \[1, 1024\], got 0"),
        (listed(short_conv_kernel_size=9), "short_conv_kernel_size", r"in \[2, 8\], got 9"),
        ({"mla_use_nope": False}, "mla_use_nope", "a rope in layers with latent attention"),
        ({"moe_layer_freq": 2}, "moe_layer_freq", "layers without experts"),
        ({"moe_router_activation_func": "softmax"}, "moe_router_activation_func", "another score"),
        ({"hidden_act": "gelu"}, "hidden_act", '"silu" in a model with linear attention'),
        ({"num_expert_group": 5}, "num_expert_group", "a divisor of the number of experts"),
        ({"num_experts_per_token": 13}, "num_experts_per_token", r"in \[1, 12\], got 13"),
    ],
)
def test_what_is_refused(folder: Path, fields: dict[str, Any], field: str, what: str) -> None:
    edit_config(folder, **fields)
    with pytest.raises(LoadError, match=what) as error:
        PagedModel(folder)
    assert error.value.field == field
