"""Tensors that do not fit the configuration: each is a LoadError that names what is wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from damaged_models import NORM, Q_PROJ, WEIGHTS, edit_config, load_error
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint


def edit_tensors(path: Path, edit: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(path / WEIGHTS)
    edit(tensors)
    save_file(tensors, path / WEIGHTS, metadata={"format": "pt"})


def test_missing_tensors_are_all_named(llama: Path) -> None:
    def edit(tensors: dict[str, torch.Tensor]) -> None:
        del tensors[NORM], tensors[Q_PROJ]

    edit_tensors(llama, edit)
    load_error(llama, "LlamaForCausalLM", NORM, Q_PROJ)


def test_many_missing_tensors_are_counted(llama: Path) -> None:
    edit_config(llama, num_hidden_layers=5)
    load_error(llama, "model.layers.3.self_attn.q_proj.weight", "and 10 more")


def test_missing_head_when_not_tied(llama: Path) -> None:
    edit_tensors(llama, lambda tensors: tensors.pop("lm_head.weight"))
    load_error(llama, "lm_head.weight")


def test_unused_tensors_are_named(llama: Path) -> None:
    edit_tensors(llama, lambda t: t.update({"model.layers.3.extra": torch.zeros(2)}))
    load_error(llama, "does not use", "model.layers.3.extra")


def test_bias_that_the_configuration_denies(llama: Path) -> None:
    edit_tensors(llama, lambda t: t.update({Q_PROJ.replace("weight", "bias"): torch.zeros(64)}))
    load_error(llama, "does not use", "q_proj.bias")


def test_wrong_shape_gives_both(llama: Path) -> None:
    edit_tensors(llama, lambda t: t.update({Q_PROJ: torch.zeros(64, 48)}))
    load_error(llama, Q_PROJ, "[64, 48]", "[64, 64]")


def test_transposed_matrix(llama: Path) -> None:
    name = "model.layers.0.mlp.down_proj.weight"
    edit_tensors(llama, lambda t: t.update({name: t[name].T.contiguous()}))
    load_error(llama, name, "[160, 64]", "[64, 160]")


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.int8])
def test_weights_of_a_type_that_is_no_weight(llama: Path, dtype: torch.dtype) -> None:
    edit_tensors(llama, lambda t: t.update({NORM: t[NORM].to(dtype)}))
    load_error(llama, NORM, "F32, BF16 or F16")


# ---- Experts ----

EXPERTS = "model.layers.0.mlp.experts"


@pytest.fixture
def moe(tmp_path: Path) -> Path:
    return make_checkpoint("tiny-qwen3_moe", tmp_path / "moe")


@pytest.fixture
def joined_moe(tmp_path: Path) -> Path:
    return make_checkpoint("tiny-qwen3_moe", tmp_path / "joined", hub_names=False)


@pytest.mark.parametrize("name", ["0.gate_proj.weight", "7.down_proj.weight", "11.up_proj.weight"])
def test_missing_part_of_an_expert(moe: Path, name: str) -> None:
    edit_tensors(moe, lambda tensors: tensors.pop(f"{EXPERTS}.{name}"))
    load_error(moe, "Qwen3MoeForCausalLM", f"{EXPERTS}.{name}")


def test_fewer_experts_than_the_configuration_asks_for(moe: Path) -> None:
    edit_config(moe, num_local_experts=13)
    load_error(moe, f"{EXPERTS}.12.gate_proj.weight", "and 1 more")


def test_experts_that_the_configuration_denies(moe: Path) -> None:
    name = f"{EXPERTS}.12.up_proj.weight"
    edit_tensors(moe, lambda t: t.update({name: torch.zeros(48, 64)}))
    load_error(moe, "does not use", name)


def test_expert_of_a_wrong_shape(moe: Path) -> None:
    name = f"{EXPERTS}.3.down_proj.weight"
    edit_tensors(moe, lambda t: t.update({name: t[name].T.contiguous()}))
    load_error(moe, name, "[48, 64]", "[64, 48]")


def test_joined_experts_of_a_wrong_shape(joined_moe: Path) -> None:
    name = f"{EXPERTS}.gate_up_proj"
    edit_tensors(joined_moe, lambda t: t.update({name: t[name][:11].clone()}))
    load_error(joined_moe, name, "[11, 96, 64]", "[12, 96, 64]")


def test_missing_tensor_of_all_experts(joined_moe: Path) -> None:
    edit_tensors(joined_moe, lambda tensors: tensors.pop(f"{EXPERTS}.down_proj"))
    load_error(joined_moe, f"{EXPERTS}.down_proj")


@pytest.mark.parametrize(
    ("like", "fields", "message"),
    [
        (
            "tiny-qwen3_moe",
            {"num_local_experts": 0},
            '"num_local_experts" must be an integer in [1, 1024]',
        ),
        ("tiny-qwen3_moe", {"num_local_experts": 1025}, '"num_local_experts" must be'),
        ("tiny-qwen3_moe", {"num_experts_per_tok": 13}, "must be an integer in [1, 12], got 13"),
        ("tiny-qwen3_moe", {"moe_intermediate_size": -1}, '"moe_intermediate_size" must be'),
        ("tiny-qwen3_moe", {"mlp_only_layers": [-1]}, '"mlp_only_layers"'),
        ("tiny-qwen3_moe", {"decoder_sparse_step": 0}, '"decoder_sparse_step" must be'),
        ("tiny-qwen2_moe", {"shared_expert_intermediate_size": -3}, "shared_expert_intermediate"),
        ("tiny-olmoe", {"clip_qkv": 8.0}, '"clip_qkv" is not supported'),
    ],
)
def test_wrong_field_of_experts(
    tmp_path: Path, like: str, fields: dict[str, Any], message: str
) -> None:
    path = make_checkpoint(like, tmp_path / like)
    edit_config(path, **fields)
    load_error(path, "config.json", message)
