"""Hostile folders of models with linear attention whose channels decay by themselves, and latent
attention (Kimi Linear).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from hostile.damaged_folders import Damage, Damages, Tensors, folder_class
from hostile.frame import HostileClass

_HIDDEN, _FFN, _HEADS, _DIM, _VOCAB = 32, 64, 4, 12, 48
_SECTION: dict[str, Any] = {
    "full_attn_layers": [2], "kda_layers": [1], "num_heads": _HEADS, "head_dim": _DIM,
    "short_conv_kernel_size": 4,
}  # fmt: skip
_CONFIG: dict[str, Any] = {
    "architectures": ["KimiLinearForCausalLM"],
    "model_type": "kimi_linear",
    "linear_attn_config": _SECTION,
    "num_hidden_layers": 2,
    "first_k_dense_replace": 2,
    "vocab_size": _VOCAB,
    "hidden_size": _HIDDEN,
    "intermediate_size": _FFN,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "kv_lora_rank": 16,
    "q_lora_rank": None,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "model_max_length": 128,
    "dtype": "float32",
}
_ROWS = _HEADS * _DIM
_SHAPES: dict[str, tuple[int, ...]] = {
    **{f"layers.0.self_attn.{p}_proj.weight": (_ROWS, _HIDDEN) for p in "qkv"},
    **{f"layers.0.self_attn.{p}_conv1d.weight": (_ROWS, 1, 4) for p in "qkv"},
    **{f"layers.0.self_attn.{p}_a_proj.weight": (_DIM, _HIDDEN) for p in "fg"},
    **{f"layers.0.self_attn.{p}_b_proj.weight": (_ROWS, _DIM) for p in "fg"},
    "layers.0.self_attn.b_proj.weight": (_HEADS, _HIDDEN),
    "layers.0.self_attn.dt_bias": (_ROWS,),
    "layers.0.self_attn.o_norm.weight": (_DIM,),
    "layers.0.self_attn.o_proj.weight": (_HIDDEN, _ROWS),
    "layers.1.self_attn.q_proj.weight": (2 * 12, _HIDDEN),
    "layers.1.self_attn.kv_a_proj_with_mqa.weight": (20, _HIDDEN),
    "layers.1.self_attn.kv_a_layernorm.weight": (16,),
    "layers.1.self_attn.kv_b_proj.weight": (2 * 16, 16),
    "layers.1.self_attn.o_proj.weight": (_HIDDEN, 2 * 8),
}
_A_LOG = "model.layers.0.self_attn.A_log"
_OTHERS: dict[str, tuple[int, ...]] = {
    "embed_tokens.weight": (_VOCAB, _HIDDEN),
    "norm.weight": (_HIDDEN,),
    "layers.0.self_attn.A_log": (1, 1, _HEADS, 1),
    **{f"layers.{i}.{n}_layernorm.weight": (_HIDDEN,) for i in (0, 1)
       for n in ("input", "post_attention")},
    **{f"layers.{i}.mlp.{n}_proj.weight": (_FFN, _HIDDEN) for i in (0, 1) for n in ("gate", "up")},
    **{f"layers.{i}.mlp.down_proj.weight": (_HIDDEN, _FFN) for i in (0, 1)},
}  # fmt: skip


def _tensors() -> Tensors:
    rng = np.random.default_rng(7)
    shapes = {f"model.{name}": shape for name, shape in (_SHAPES | _OTHERS).items()}
    shapes["lm_head.weight"] = (_VOCAB, _HIDDEN)
    return {n: rng.normal(0, 0.2, shape).astype(np.float32) for n, shape in shapes.items()}


_OF_KIMI = Damages(_CONFIG, _tensors)
_NO_SIZES: list[Any] = [0, -1, 1 << 62, "4", 4.5, [4], True]


def _in_section(field: str, value: Any) -> Damage:
    return _OF_KIMI(lambda folder: folder.config["linear_attn_config"].update({field: value}))


def _damages() -> Iterator[tuple[str, Damage]]:
    yield "nothing", _OF_KIMI.nothing()
    names = [f"model.{name}" for name in _SHAPES]
    yield from ((f"no {name}", _OF_KIMI.drop(name)) for name in [*names, _A_LOG])
    yield from _OF_KIMI.of_tensors(names)
    # Of the logarithms, dimensions of one element are harmless; others are not.
    for shape in ((1, 1, _HEADS + 1, 1), (2, 1, _HEADS, 1), (2, _HEADS // 2), (1, 1, 0, 1)):
        other = np.zeros(shape, np.float32)
        yield f"A_log of {shape}", _OF_KIMI.change(_A_LOG, lambda _, t=other: t)
    for name in (_A_LOG, "model.layers.0.self_attn.dt_bias", names[3], names[8], names[9]):
        for value in (np.nan, np.inf, -np.inf, 3e38):
            odd = partial(np.full_like, fill_value=value)
            yield f"{name} of {value}", _OF_KIMI.change(name, odd, must_be_refused=False)
    for field, values in {
        "num_heads": [*_NO_SIZES, 1, 3, 8, 1025],
        "head_dim": [*_NO_SIZES, 11, 24, 1 << 20],
        "short_conv_kernel_size": [*_NO_SIZES, 1, 3, 9],
        "kda_layers": [[], [0], [2], [3], [1, 1], [1, 2], [-1], ["1"], [1 << 62], 1, "x", [None]],
        "full_attn_layers": [[], [0], [1], [3], [2, 2], [-1], ["2"], [1 << 62], 2, "x", [[2]]],
    }.items():
        yield from ((f"{field} = {str(v)[:40]} ({i})", _in_section(field, v))
                    for i, v in enumerate(values))  # fmt: skip
    values: dict[str, list[Any]] = {
        "linear_attn_config": ["x", [], 1],
        "layer_types": [
            ["full_attention"] * 2, ["linear_attention"] * 2, ["linear_attention"], "x",
            ["full_attention", "linear_attention"], [None, None],
        ],
        "kv_lora_rank": [*_NO_SIZES, 15],
        "qk_rope_head_dim": [*_NO_SIZES, 3, 6],
        "mla_use_nope": [False, "x", 1],
        "moe_layer_freq": [0, 2, "x", [1, 2]],
        "hidden_act": ["gelu", "x", 1],
        "mlp_layer_types": [["dense"], ["dense", "x"], ["sparse"] * 2, "x"],
        "model_max_length": [-1, "x", 1.5],
    }  # fmt: skip
    yield from _OF_KIMI.of_fields(values)


def hostile_class() -> HostileClass:
    """The class."""
    return folder_class("kimi_folders", _damages(), sample=60)
