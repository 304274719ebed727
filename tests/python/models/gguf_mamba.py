"""What llama.cpp's converter writes of Granite 4 H and Bamba: which layers have Mamba-2, and their
tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gguf
import numpy as np
from gguf import MODEL_ARCH as Arch

MAMBA = {Arch.GRANITE_HYBRID}
Config = dict[str, Any]
Change = tuple[
    tuple[str, ...],
    Callable[[np.ndarray], list[np.ndarray]],
    Callable[[list[np.ndarray]], np.ndarray],
]


def attending(config: Config) -> list[int]:
    if "attn_layer_indices" in config:
        return list(config["attn_layer_indices"])
    kinds = enumerate(config["layer_types"])
    return [i for i, kind in kinds if kind in ("attention", "full_attention")]


def mamba_change(config: Config, plain: str) -> Change | None:
    """The names, what is done, and what undoes it; None: nothing of its own."""
    if plain.endswith(".A_log"):
        return (plain,), lambda t: [-np.exp(t)[:, None]], logarithm
    if plain.endswith(".D"):
        return (plain,), lambda t: [t[:, None]], lambda p: p[0][:, 0]
    if plain.endswith(".dt_bias"):
        return (plain.replace(".dt_bias", ".dt_proj.bias"),), lambda t: [t], lambda p: p[0]
    if plain.endswith(".conv1d.weight"):
        return (plain,), lambda t: [np.ascontiguousarray(t[:, 0])], lambda p: p[0][:, None]
    if plain.endswith("mamba.norm.weight"):
        groups = config["mamba_n_groups"]
        return (plain,), lambda t: [t.reshape(groups, -1)], lambda p: p[0].reshape(-1)
    if "shared_mlp." not in plain or config["num_local_experts"]:
        return None
    if "output_linear" in plain:
        return (plain.replace("shared_mlp.output_linear", "mlp.down_proj"),), lambda t: [t], first
    names = tuple(plain.replace("shared_mlp.input_linear", f"mlp.{p}_proj") for p in ("gate", "up"))
    return names, lambda t: np.split(t, 2), np.concatenate


def logarithm(parts: list[np.ndarray]) -> np.ndarray:
    """Of the negative; rounded once, as the engine's is."""
    return np.log(-parts[0][:, 0].astype(np.float64)).astype(np.float32)


def first(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0]


def add_mamba_sizes(writer: gguf.GGUFWriter, config: Config) -> None:
    has_rope = config["architectures"] == ["BambaForCausalLM"]
    layers = attending(config)
    writer.add_head_count_kv(
        [config["num_key_value_heads"] if i in layers else 0
         for i in range(config["num_hidden_layers"])]
    )  # fmt: skip
    writer.add_ssm_conv_kernel(config["mamba_d_conv"])
    writer.add_ssm_state_size(config["mamba_d_state"])
    writer.add_ssm_group_count(config["mamba_n_groups"])
    writer.add_ssm_inner_size(config["mamba_expand"] * config["hidden_size"])
    writer.add_ssm_time_step_rank(config["mamba_n_heads"])
    writer.add_rope_scaling_finetuned(has_rope)
    if not has_rope:
        writer.add_context_length(2**20)
