"""What llama.cpp's converter does to layers with linear attention: Qwen3-Next and Qwen3.5."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np
from gguf import MODEL_ARCH as Arch

HYBRID = {Arch.QWEN3NEXT, Arch.QWEN35, Arch.QWEN35MOE}
TILED = {Arch.QWEN35, Arch.QWEN35MOE}
Config = dict[str, Any]
Change = tuple[
    tuple[str, ...],
    Callable[[np.ndarray], list[np.ndarray]],
    Callable[[list[np.ndarray]], np.ndarray],
]


@dataclass(frozen=True)
class Sizes:
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int

    @property
    def keys(self) -> int:
        return self.key_heads * self.key_dim

    @property
    def of_key(self) -> int:
        return self.value_heads // self.key_heads


def sizes_of(config: Config) -> Sizes:
    return Sizes(
        config["linear_num_key_heads"],
        config["linear_num_value_heads"],
        config["linear_key_head_dim"],
        config["linear_value_head_dim"],
    )


def tile_order(sizes: Sizes, size: int, first: int) -> np.ndarray:
    """Where the rows of a tensor come from: value heads of ``size`` rows behind ``first`` others.

    First the first value head of each key head, then the second one of each, and so on."""
    heads = np.arange(sizes.value_heads * size).reshape(sizes.key_heads, sizes.of_key, size)
    return np.concatenate([np.arange(first), first + heads.swapaxes(0, 1).reshape(-1)])


def tiling(sizes: Sizes, name: str) -> np.ndarray | None:
    if "in_proj_qkv." in name or "conv1d." in name:
        return tile_order(sizes, sizes.value_dim, 2 * sizes.keys)
    if "in_proj_z." in name or "out_proj." in name:
        return tile_order(sizes, sizes.value_dim, 0)
    if name.endswith(("in_proj_a.weight", "in_proj_b.weight", "A_log", "dt_bias")):
        return tile_order(sizes, 1, 0)
    return None


def split_groups(tensor: np.ndarray, sizes: Sizes) -> list[np.ndarray]:
    """Queries, keys and values of all heads, and the gates, of which each key head has its own."""
    values = sizes.of_key * sizes.value_dim
    of_head = tensor.reshape(sizes.key_heads, -1, tensor.shape[-1])
    ends = np.cumsum([sizes.key_dim, sizes.key_dim, values])
    parts = [p.reshape(-1, tensor.shape[-1]) for p in np.split(of_head, ends, axis=1)]
    return [np.concatenate(parts[:3]), parts[3]]


def join_groups(parts: list[np.ndarray], sizes: Sizes) -> np.ndarray:
    qkv = np.split(parts[0], [sizes.keys, 2 * sizes.keys])
    columns = parts[0].shape[-1]
    of_heads = [p.reshape(sizes.key_heads, -1, columns) for p in (*qkv, parts[1])]
    return np.concatenate(of_heads, axis=1).reshape(-1, columns)


NEXTN = {
    "mtp.fc.": "nextn.eh_proj.",
    "mtp.pre_fc_norm_embedding.": "nextn.enorm.",
    "mtp.pre_fc_norm_hidden.": "nextn.hnorm.",
    "mtp.norm.": "nextn.shared_head_norm.",
    "mtp.layers.0.": "",
}


def nextn_name(config: Config, plain: str) -> str:
    """The head that guesses is the layer behind the last one."""
    for own, stored in NEXTN.items():
        if plain.startswith(own):
            return f"model.layers.{config['num_hidden_layers']}.{stored}{plain.removeprefix(own)}"
    return plain


def hybrid_change(arch: Arch, config: Config, plain: str) -> Change | None:
    """The names, what is done, and what undoes it; None: nothing of its own."""
    one = np.float32(1)
    if plain.endswith("norm.weight") and not plain.endswith("linear_attn.norm.weight"):
        return (plain,), lambda t: [t + one], lambda p: p[0] - one
    if "linear_attn." not in plain:
        return None
    sizes = sizes_of(config)
    if "in_proj_qkvz." in plain and not config.get("old_converter"):
        names = tuple(plain.replace("qkvz", part) for part in ("qkv", "z"))
        return names, lambda t: split_groups(t, sizes), lambda p: join_groups(p, sizes)
    order = tiling(sizes, plain) if arch in TILED else None
    axis = 1 if "out_proj." in plain else 0

    def apply(tensor: np.ndarray) -> list[np.ndarray]:
        if order is not None:
            tensor = np.take(tensor, order, axis)
        if plain.endswith("A_log"):
            tensor = -np.exp(tensor)
        return [np.ascontiguousarray(tensor.squeeze(1) if "conv1d." in plain else tensor)]

    def undo(parts: list[np.ndarray]) -> np.ndarray:
        tensor = parts[0][:, None] if "conv1d." in plain else parts[0]
        if plain.endswith("A_log"):
            tensor = np.log(-tensor)
        return tensor if order is None else np.take(tensor, np.argsort(order), axis)

    return (plain.replace(".dt_bias", ".dt_proj.bias"),), apply, undo


def add_hybrid_sizes(writer: gguf.GGUFWriter, config: Config) -> None:
    sizes = sizes_of(config)
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(sizes.key_dim)
    writer.add_ssm_group_count(sizes.key_heads)
    writer.add_ssm_time_step_rank(sizes.value_heads)
    writer.add_ssm_inner_size(sizes.value_heads * sizes.value_dim)
    types = [*config["layer_types"], *["linear_attention"] * 3, "full_attention"]
    writer.add_full_attention_interval(types.index("full_attention") + 1)
    sections = config["rope_parameters"].get("mrope_section")
    if sections:
        writer.add_rope_dimension_sections([*sections, 0])
