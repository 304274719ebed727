"""Hostile folders of models whose layers are one block alone: Mamba-2, experts, attention or an MLP
(Nemotron-H).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from hostile.damaged_folders import Damage, Damages, Tensors, folder_class
from hostile.frame import HostileClass

_HIDDEN, _FFN, _EXPERT, _EXPERTS, _VOCAB = 32, 64, 24, 4, 48
_CONFIG: dict[str, Any] = {
    "architectures": ["NemotronHForCausalLM"],
    "model_type": "nemotron_h",
    "layers_block_type": ["mamba", "moe", "attention", "mlp"],
    "vocab_size": _VOCAB,
    "hidden_size": _HIDDEN,
    "intermediate_size": _FFN,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "mamba_num_heads": 4,
    "mamba_head_dim": 12,
    "n_groups": 2,
    "ssm_state_size": 8,
    "conv_kernel": 4,
    "n_routed_experts": _EXPERTS,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": _EXPERT,
    "moe_shared_expert_intermediate_size": 40,
    "dtype": "float32",
}
_CONVOLVED = 48 + 2 * 2 * 8
_SHAPES: dict[str, tuple[int, ...]] = {
    "layers.0.mixer.in_proj.weight": (48 + _CONVOLVED + 4, _HIDDEN),
    "layers.0.mixer.out_proj.weight": (_HIDDEN, 48),
    "layers.0.mixer.conv1d.weight": (_CONVOLVED, 1, 4),
    "layers.0.mixer.conv1d.bias": (_CONVOLVED,),
    "layers.0.mixer.A_log": (4,),
    "layers.0.mixer.dt_bias": (4,),
    "layers.0.mixer.D": (4,),
    "layers.0.mixer.norm.weight": (48,),
    "layers.1.mixer.gate.weight": (_EXPERTS, _HIDDEN),
    "layers.1.mixer.gate.e_score_correction_bias": (_EXPERTS,),
    "layers.1.mixer.shared_experts.up_proj.weight": (40, _HIDDEN),
    "layers.1.mixer.shared_experts.down_proj.weight": (_HIDDEN, 40),
    "layers.2.mixer.q_proj.weight": (32, _HIDDEN),
    "layers.2.mixer.k_proj.weight": (16, _HIDDEN),
    "layers.2.mixer.v_proj.weight": (16, _HIDDEN),
    "layers.2.mixer.o_proj.weight": (_HIDDEN, 32),
    "layers.3.mixer.up_proj.weight": (_FFN, _HIDDEN),
    "layers.3.mixer.down_proj.weight": (_HIDDEN, _FFN),
}
_OTHERS: dict[str, tuple[int, ...]] = {
    "embeddings.weight": (_VOCAB, _HIDDEN),
    "norm_f.weight": (_HIDDEN,),
    **{f"layers.{layer}.norm.weight": (_HIDDEN,) for layer in range(4)},
    **{f"layers.1.mixer.experts.{i}.up_proj.weight": (_EXPERT, _HIDDEN) for i in range(_EXPERTS)},
    **{f"layers.1.mixer.experts.{i}.down_proj.weight": (_HIDDEN, _EXPERT) for i in range(_EXPERTS)},
}


def _tensors() -> Tensors:
    rng = np.random.default_rng(7)
    shapes = {f"backbone.{name}": shape for name, shape in (_SHAPES | _OTHERS).items()}
    shapes["lm_head.weight"] = (_VOCAB, _HIDDEN)
    return {n: rng.normal(0, 0.2, shape).astype(np.float32) for n, shape in shapes.items()}


_MODEL = Damages(_CONFIG, _tensors)
_NO_SIZES: list[Any] = [0, -1, 1 << 62, "4", 4.5, [4], True]


def _damages() -> Iterator[tuple[str, Damage]]:
    yield "nothing", _MODEL.nothing()
    names = [f"backbone.{name}" for name in _SHAPES]
    names.append("backbone.layers.1.mixer.experts.3.down_proj.weight")
    # Without what corrects the choice, it is taken for another spelling, which lacks nothing.
    yield from ((f"no {name}", _MODEL.drop(name)) for name in names)
    yield from ((f"no {n}", _MODEL.drop(f"backbone.{n}")) for n in ("norm_f.weight",
                "layers.3.norm.weight"))  # fmt: skip
    yield from _MODEL.of_tensors(names)
    for name in names[4:7]:
        for value in (np.nan, np.inf, -np.inf, 3e38):
            odd = partial(np.full_like, fill_value=value)
            yield f"{name} of {value}", _MODEL.change(name, odd, must_be_refused=False)
    yield "a projection of another block", _MODEL.add("backbone.layers.1.mixer.up_proj.weight", 1)
    values: dict[str, list[Any]] = {
        "layers_block_type": [
            [], ["mamba"], ["mlp"] * 4, ["mamba", "moe", "attention", "conv"], "x", [None] * 4,
            ["mamba", "mlp", "attention", "mlp"], ["attention", "moe", "mamba", "mlp"],
            ["mamba", "moe", "attention", "mlp", "mlp"], ["mamba"] * 5000,
        ],
        "mamba_num_heads": [*_NO_SIZES, 3, 8, 1025],
        "mamba_head_dim": [*_NO_SIZES, 11, 24, 1025],
        "n_groups": [*_NO_SIZES, 1, 3, 4, 8],
        "ssm_state_size": [*_NO_SIZES, 7, 9, 1 << 40],
        "conv_kernel": [*_NO_SIZES, 1, 3, 5, 9],
        "use_bias": [True, "x", 1],
        "use_conv_bias": ["x", 1],
        "mamba_hidden_act": ["gelu", "x", 1],
        "mlp_hidden_act": ["x", 1],
        "n_routed_experts": [*_NO_SIZES, 3, 5, 1 << 20],
        "num_experts_per_tok": [*_NO_SIZES, 5],
        "moe_intermediate_size": [*_NO_SIZES, 23, 48],
        "moe_shared_expert_intermediate_size": [-1, 1 << 62, "4", 4.5, [4], 39, 80],
        "moe_latent_size": [1, 16, "x", 4.5, [4], True],
        "n_group": [*_NO_SIZES, 3],
        "time_step_limit": [[], [0.0], [1.0, 0.5], ["x", 1.0], [0.0, None], 1.0],
    }  # fmt: skip
    yield from _MODEL.of_fields(values)
    for pattern in ("", "M", "ME*", "ME*X", "ME*-" * 2000, "\0", "-----"):
        what = f"hybrid_override_pattern = {pattern[:20]}"
        yield what, _MODEL(lambda folder, pattern=pattern: folder.config.update(
            {"layers_block_type": None, "hybrid_override_pattern": pattern}))  # fmt: skip


def hostile_class() -> HostileClass:
    """The class."""
    return folder_class("single_block_folders", _damages(), sample=60)
