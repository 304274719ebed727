"""What llama.cpp's converter writes of LFM2: which layers have convolutions, and their tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gguf
import numpy as np
from gguf import MODEL_ARCH as Arch

LFM2 = {Arch.LFM2, Arch.LFM2MOE}
Config = dict[str, Any]
Change = tuple[
    tuple[str, ...],
    Callable[[np.ndarray], list[np.ndarray]],
    Callable[[list[np.ndarray]], np.ndarray],
]


def lfm2_change(plain: str) -> Change | None:
    """The names, what is done, and what undoes it; None: nothing of its own."""
    if plain.endswith("conv.conv.weight"):
        return (plain,), lambda t: [np.ascontiguousarray(t[:, 0])], lambda p: p[0][:, None]
    if ".experts." in plain:
        return (plain.removeprefix("model."),), lambda t: [t], lambda p: p[0]
    if plain.endswith(".expert_bias"):
        return (f"{plain}.bias",), lambda t: [t], lambda p: p[0]
    return None


def ffn_size(config: Config) -> int:
    """That of the matrices."""
    size = int(config["intermediate_size"])
    if not config["block_auto_adjust_ff_dim"]:
        return size
    size = 2 * size // 3
    if config["block_ffn_dim_multiplier"] is not None:
        size = int(config["block_ffn_dim_multiplier"] * size)
        multiple = config["block_multiple_of"]
        size = multiple * ((size + multiple - 1) // multiple)
    return size


def add_lfm2_sizes(writer: gguf.GGUFWriter, config: Config, arch: Arch) -> None:
    writer.add_head_count_kv(
        [0 if kind == "conv" else config["num_key_value_heads"] for kind in config["layer_types"]]
    )
    writer.add_vocab_size(config["vocab_size"])
    writer.add_shortconv_l_cache(config["conv_L_cache"])
    if arch == Arch.LFM2:
        writer.add_feed_forward_length(ffn_size(config))
        return
    writer.add_leading_dense_block_count(config["num_dense_layers"])
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
