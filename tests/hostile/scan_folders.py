"""Hostile folders of models with Mamba-1: Mamba and Falcon Mamba, whose layers have nothing else,
and Jamba, of which some layers have attention and some have experts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from hostile.damaged_folders import Damage, Damages, Tensors, folder_class
from hostile.frame import HostileClass

Shapes = dict[str, tuple[int, ...]]
_HIDDEN, _FFN, _VOCAB, _CHANNELS, _STATES, _RANK = 32, 48, 48, 40, 6, 3
_MAMBA: dict[str, Any] = {
    "architectures": ["MambaForCausalLM"],
    "model_type": "mamba",
    "vocab_size": _VOCAB,
    "hidden_size": _HIDDEN,
    "intermediate_size": _CHANNELS,
    "num_hidden_layers": 2,
    "state_size": _STATES,
    "conv_kernel": 4,
    "time_step_rank": _RANK,
    "tie_word_embeddings": True,
    "dtype": "float32",
}
_JAMBA: dict[str, Any] = {
    "architectures": ["JambaForCausalLM"],
    "model_type": "jamba",
    "vocab_size": _VOCAB,
    "hidden_size": _HIDDEN,
    "intermediate_size": _FFN,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "attn_layer_period": 2,
    "attn_layer_offset": 1,
    "expert_layer_period": 2,
    "expert_layer_offset": 0,
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "mamba_expand": 1,
    "mamba_d_state": _STATES,
    "mamba_d_conv": 4,
    "mamba_dt_rank": _RANK,
    "tie_word_embeddings": True,
    "dtype": "float32",
}


def _scan_shapes(channels: int) -> Shapes:
    return {
        "in_proj.weight": (2 * channels, _HIDDEN),
        "conv1d.weight": (channels, 1, 4),
        "conv1d.bias": (channels,),
        "x_proj.weight": (_RANK + 2 * _STATES, channels),
        "dt_proj.weight": (channels, _RANK),
        "dt_proj.bias": (channels,),
        "A_log": (channels, _STATES),
        "D": (channels,),
        "out_proj.weight": (_HIDDEN, channels),
    }


def _filled(shapes: Shapes) -> Tensors:
    rng = np.random.default_rng(7)
    return {name: rng.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}


def _mamba_tensors() -> Tensors:
    shapes: Shapes = {"embeddings.weight": (_VOCAB, _HIDDEN), "norm_f.weight": (_HIDDEN,)}
    for layer in range(2):
        shapes[f"layers.{layer}.norm.weight"] = (_HIDDEN,)
        for name, shape in _scan_shapes(_CHANNELS).items():
            shapes[f"layers.{layer}.mixer.{name}"] = shape
    return _filled({f"backbone.{name}": shape for name, shape in shapes.items()})


def _jamba_tensors() -> Tensors:
    ffn: Shapes = {"gate_proj": (_FFN, _HIDDEN), "up_proj": (_FFN, _HIDDEN),
                   "down_proj": (_HIDDEN, _FFN)}  # fmt: skip
    shapes: Shapes = {"embed_tokens.weight": (_VOCAB, _HIDDEN),
                      "final_layernorm.weight": (_HIDDEN,)}  # fmt: skip
    for name, shape in _scan_shapes(_HIDDEN).items():
        shapes[f"layers.0.mamba.{name}"] = shape
    for name, size in (("dt", _RANK), ("b", _STATES), ("c", _STATES)):
        shapes[f"layers.0.mamba.{name}_layernorm.weight"] = (size,)
    shapes["layers.0.feed_forward.router.weight"] = (2, _HIDDEN)
    for name, shape in ffn.items():
        shapes[f"layers.1.feed_forward.{name}.weight"] = shape
        for expert in range(2):
            shapes[f"layers.0.feed_forward.experts.{expert}.{name}.weight"] = shape
    for name, rows in (("q", _HIDDEN), ("k", 16), ("v", 16), ("o", _HIDDEN)):
        shapes[f"layers.1.self_attn.{name}_proj.weight"] = (rows, _HIDDEN)
    for layer in range(2):
        for name in ("input_layernorm", "pre_ff_layernorm"):
            shapes[f"layers.{layer}.{name}.weight"] = (_HIDDEN,)
    return _filled({f"model.{name}": shape for name, shape in shapes.items()})


_OF_MAMBA = Damages(_MAMBA, _mamba_tensors)
_OF_FALCON = Damages(
    _MAMBA | {"architectures": ["FalconMambaForCausalLM"], "model_type": "falcon_mamba"},
    _mamba_tensors,
)
_OF_JAMBA = Damages(_JAMBA, _jamba_tensors)
_NO_SIZES: list[Any] = [0, -1, 1 << 62, "4", 4.5, [4], True]


def _mamba_cases() -> Iterator[tuple[str, Damage]]:
    names = [f"backbone.layers.0.mixer.{name}" for name in _scan_shapes(_CHANNELS)]
    yield from ((f"no {name}", _OF_MAMBA.drop(name)) for name in names)
    yield from _OF_MAMBA.of_tensors(names)
    for name in names[3:8]:
        for value in (np.nan, np.inf, -np.inf, 3e38):
            odd = partial(np.full_like, fill_value=value)
            yield f"{name} of {value}", _OF_MAMBA.change(name, odd, must_be_refused=False)
    values: dict[str, list[Any]] = {
        "intermediate_size": [*_NO_SIZES, 39, 41, 1 << 23, 1 << 40],
        "state_size": [*_NO_SIZES, 5, 7, 1024, 1 << 40],
        "conv_kernel": [*_NO_SIZES, 1, 3, 5, 9],
        "time_step_rank": [*_NO_SIZES, "x", "auto", 2, 4, 1 << 22],
        "use_bias": [True, "x", 1],
        "use_conv_bias": ["x", 1],
        "use_mambapy": ["x", 1],
        "hidden_act": ["gelu", "x", 1],
        "num_hidden_layers": [*_NO_SIZES, 3, 4097],
    }
    yield from _OF_MAMBA.of_fields(values)


def _falcon_cases() -> Iterator[tuple[str, Damage]]:
    yield from _OF_FALCON.of_fields({"mixer_rms_eps": [0, -1.0, "x", [1e-6], 1e400]})


def _jamba_cases() -> Iterator[tuple[str, Damage]]:
    names = [
        "model.layers.0.mamba.dt_layernorm.weight",
        "model.layers.0.mamba.b_layernorm.weight",
        "model.layers.0.mamba.c_layernorm.weight",
        "model.layers.0.mamba.x_proj.weight",
        "model.layers.0.feed_forward.router.weight",
        "model.layers.0.feed_forward.experts.1.up_proj.weight",
    ]
    yield from ((f"no {name}", _OF_JAMBA.drop(name)) for name in names)
    yield from _OF_JAMBA.of_tensors(names)
    values: dict[str, list[Any]] = {
        "attn_layer_period": [*_NO_SIZES, 1],
        "attn_layer_offset": [-1, 0, 2, 1 << 62, "1", 0.5],
        "expert_layer_period": [*_NO_SIZES, 1],
        "expert_layer_offset": [-1, 1, 2, 1 << 62, "1", 0.5],
        "num_experts": [-1, 0, 1, 3, 1 << 62, "2", 2.5],
        "num_experts_per_tok": [*_NO_SIZES, 3],
        "mamba_expand": [*_NO_SIZES, 2, 65],
        "mamba_d_state": [*_NO_SIZES, 5, 7, 1 << 40],
        "mamba_dt_rank": [*_NO_SIZES, "x", 2, 4],
        "mamba_proj_bias": [True, "x", 1],
    }
    yield from _OF_JAMBA.of_fields(values)


def _damages() -> Iterator[tuple[str, Damage]]:
    for model, of_model, cases in (
        ("Mamba", _OF_MAMBA, _mamba_cases),
        ("Falcon Mamba", _OF_FALCON, _falcon_cases),
        ("Jamba", _OF_JAMBA, _jamba_cases),
    ):
        yield f"{model}: nothing", of_model.nothing()
        yield from ((f"{model}: {what}", damage) for what, damage in cases())


def hostile_class() -> HostileClass:
    """The class."""
    return folder_class("scan_folders", _damages(), sample=60)
