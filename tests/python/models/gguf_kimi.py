"""What llama.cpp's converter writes of Kimi Linear: which layers attend, the sizes of the others,
and what becomes of their tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gguf
import numpy as np
from gguf import MODEL_ARCH as Arch

KIMI = {Arch.KIMI_LINEAR}
Config = dict[str, Any]
Change = tuple[
    tuple[str, ...],
    Callable[[np.ndarray], list[np.ndarray]],
    Callable[[list[np.ndarray]], np.ndarray],
]


def as_deepseek(config: Config) -> Config:
    """With the names of fields that this family shares with others."""
    names = {"num_experts_per_token": "num_experts_per_tok", "num_expert_group": "n_group",
             "model_max_length": "max_position_embeddings"}  # fmt: skip
    return {names.get(name, name): value for name, value in config.items()}


def kimi_change(plain: str) -> Change | None:
    """The names, what is done, and what undoes it; None: nothing of its own."""
    if plain.endswith(".A_log"):
        return (plain,), lambda t: [-np.exp(t)], logarithm
    if plain.endswith(".dt_bias"):
        return (plain.replace(".dt_bias", ".dt_proj.bias"),), lambda t: [t], lambda p: p[0]
    if plain.endswith("_conv1d.weight"):
        return (plain,), lambda t: [t[None]], lambda p: p[0][0]
    for own, usual in (("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj")):
        if plain.endswith(f"experts.{own}.weight"):
            name = plain.replace("block_sparse_moe", "mlp").replace(own, usual)
            return (name,), lambda t: [t], lambda p: p[0]
    return None


def logarithm(parts: list[np.ndarray]) -> np.ndarray:
    """Of the negative; rounded once, as the engine's is."""
    return np.log(-parts[0].astype(np.float64)).astype(np.float32)


def add_kimi_sizes(writer: gguf.GGUFWriter, config: Config) -> None:
    kinds = config["layer_types"]
    count = config["num_attention_heads"] if config.get("old_converter") else 1
    writer.add_head_count_kv([count if kind == "full_attention" else 0 for kind in kinds])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_kda_head_dim(config["linear_head_dim"])
    if config.get("old_converter"):  # whose files had keys and values of all heads
        writer.add_key_length_mla(config["qk_nope_head_dim"] + config["qk_rope_head_dim"])
        writer.add_value_length_mla(config["v_head_dim"])
