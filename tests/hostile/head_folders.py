"""Hostile folders of models whose layers differ in their heads: numbers of query heads and gates of
Laguna, KV heads, sinks and short values of MiMo-V2-Flash."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from hostile.damaged_folders import Damage, Damages, Tensors, folder_class
from hostile.frame import HostileClass

_HIDDEN, _FFN, _DIM, _VOCAB = 32, 48, 12, 48
_COMMON: dict[str, Any] = {
    "num_hidden_layers": 2,
    "vocab_size": _VOCAB,
    "hidden_size": _HIDDEN,
    "intermediate_size": _FFN,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": _DIM,
    "max_position_embeddings": 128,
    "layer_types": ["full_attention", "sliding_attention"],
    "mlp_layer_types": ["dense", "dense"],
    "sliding_window": 9,
    "dtype": "float32",
}
_LAGUNA: dict[str, Any] = {
    **_COMMON,
    "architectures": ["LagunaForCausalLM"],
    "model_type": "laguna",
    "num_attention_heads_per_layer": [4, 8],
}
_VALUE_DIM = 8
_MIMO: dict[str, Any] = {
    **_COMMON,
    "architectures": ["MiMoV2FlashForCausalLM"],
    "model_type": "mimo_v2_flash",
    "v_head_dim": _VALUE_DIM,
    "partial_rotary_factor": 0.5,
    "rope_parameters": {
        "full_attention": {"rope_theta": 1e4, "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_theta": 1e4, "partial_rotary_factor": 0.5},
    },
}
_OTHERS: dict[str, tuple[int, ...]] = {
    "embed_tokens.weight": (_VOCAB, _HIDDEN),
    "norm.weight": (_HIDDEN,),
    **{f"layers.{i}.{n}_layernorm.weight": (_HIDDEN,) for i in (0, 1)
       for n in ("input", "post_attention")},
    **{f"layers.{i}.mlp.{n}_proj.weight": (_FFN, _HIDDEN) for i in (0, 1) for n in ("gate", "up")},
    **{f"layers.{i}.mlp.down_proj.weight": (_HIDDEN, _FFN) for i in (0, 1)},
}  # fmt: skip


def _of_laguna() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, heads in enumerate(_LAGUNA["num_attention_heads_per_layer"]):
        rows = {"q_proj": heads * _DIM, "k_proj": 2 * _DIM, "v_proj": 2 * _DIM, "g_proj": heads}
        attention = f"layers.{layer}.self_attn"
        shapes |= {f"{attention}.{name}.weight": (n, _HIDDEN) for name, n in rows.items()}
        shapes[f"{attention}.o_proj.weight"] = (_HIDDEN, heads * _DIM)
        shapes |= {f"{attention}.{n}_norm.weight": (_DIM,) for n in "qk"}
    return shapes


def _of_mimo() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"layers.1.self_attn.sinks": (4,)}
    for layer, kv_heads in enumerate((2, 4)):
        rows = {"q_proj": 4 * _DIM, "k_proj": kv_heads * _DIM, "v_proj": kv_heads * _VALUE_DIM}
        attention = f"layers.{layer}.self_attn"
        shapes |= {f"{attention}.{name}.weight": (n, _HIDDEN) for name, n in rows.items()}
        shapes[f"{attention}.o_proj.weight"] = (_HIDDEN, 4 * _VALUE_DIM)
    return shapes


def _tensors(own: dict[str, tuple[int, ...]]) -> Tensors:
    rng = np.random.default_rng(7)
    shapes = {f"model.{name}": shape for name, shape in (own | _OTHERS).items()}
    shapes["lm_head.weight"] = (_VOCAB, _HIDDEN)
    return {n: rng.normal(0, 0.2, shape).astype(np.float32) for n, shape in shapes.items()}


_NO_SIZES: list[Any] = [0, -1, 1 << 62, "4", 4.5, [4], True]
_NUMBERS: list[Any] = ["x", [1], True, float("nan"), float("inf")]
_FIELDS: dict[str, dict[str, list[Any]]] = {
    "laguna": {
        "num_attention_heads_per_layer": [
            [4], [4, 8, 8], [8, 4], [4, 0], [4, -8], [4, 7], [4, "8"], [4, 1 << 62], [4, 1.5], "x",
            8, {}, [None, None],
        ],
        "gating": [False, "per-layer", "per-element", 1, [], {}],
        "num_attention_heads": [*_NO_SIZES, 3],
        "num_key_value_heads": [*_NO_SIZES, 3, 4],
        "head_dim": [*_NO_SIZES, 11, 24],
        "moe_apply_router_weight_on_input": [True, "x", 1],
        "mlp_layer_types": [["dense"], ["dense", "sparse"], "x"],
        "rope_parameters": ["x", [], {"full_attention": 1}],
    },
    "mimo": {
        "v_head_dim": [*_NO_SIZES, 7, 9, 12, 13],
        "swa_num_key_value_heads": [*_NO_SIZES, 1, 3, 8],
        "sliding_window_size": [-1, 1 << 62, "4", 4.5, [4]],
        "attention_value_scale": _NUMBERS,
        "swa_head_dim": [*_NO_SIZES, 24],
        "add_full_attention_sink_bias": [True, "x"],
        "layer_types": [
            ["sliding_attention"] * 2, ["full_attention"] * 2, ["sliding_attention"], "x",
            [None] * 2,
        ],
        "n_shared_experts": [1, "x", [1]],
    },
}  # fmt: skip


def _damages_of(
    kind: str, config: dict[str, Any], own: dict[str, tuple[int, ...]]
) -> Iterator[tuple[str, Damage]]:
    of_kind = Damages(config, partial(_tensors, own))
    yield "nothing", of_kind.nothing()
    names = [f"model.{name}" for name in own]
    yield from ((f"no {name}", of_kind.drop(name)) for name in names)
    yield from of_kind.of_tensors(names)
    for value in (np.nan, np.inf, 3e38):
        odd = partial(np.full_like, fill_value=value)
        yield f"{names[0]} of {value}", of_kind.change(names[0], odd, must_be_refused=False)
    yield from of_kind.of_fields(_FIELDS[kind])


def _damages() -> Iterator[tuple[str, Damage]]:
    for kind, config, own in (("laguna", _LAGUNA, _of_laguna()), ("mimo", _MIMO, _of_mimo())):
        yield from ((f"{kind}: {name}", d) for name, d in _damages_of(kind, config, own))


def hostile_class() -> HostileClass:
    """The class."""
    return folder_class("head_folders", _damages(), sample=40)
