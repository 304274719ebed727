"""What llama.cpp's converter writes of Gemma 3n: its numbers, and the names of its tensors."""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import gguf
import numpy as np

Config = dict[str, Any]
Change = tuple[
    tuple[str, ...],
    Callable[[np.ndarray], list[np.ndarray]],
    Callable[[list[np.ndarray]], np.ndarray],
]
# Which have a tensor each in a folder, and one in a file.
NUMBERED = "altup_projections|altup_unembed_projections"
FLOATS = ("altup_correct_coef", "altup_predict_coef")


def gemma3n_change(plain: str) -> Change | None:
    """The names, what is done, and what undoes it; None: nothing of its own."""
    if plain.endswith("correct_output_scale"):
        return (f"{plain}.weight",), lambda t: [t], lambda p: p[0]
    return None


def add_gemma3n_sizes(writer: gguf.GGUFWriter, config: Config) -> None:
    writer.add_sliding_window_pattern([t == "sliding_attention" for t in config["layer_types"]])
    writer.add_altup_active_idx(config["altup_active_idx"])
    writer.add_altup_num_inputs(config["altup_num_inputs"])
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    writer.add_shared_kv_layers(config["num_kv_shared_layers"])
    writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    writer.add_activation_sparsity_scale(
        [
            NormalDist().inv_cdf(float(np.float32(share))) if share > 0 else -np.inf
            for share in config["activation_sparsity_pattern"]
        ]
    )
