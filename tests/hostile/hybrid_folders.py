"""Hostile folders of models whose layers are of several kinds: linear attention (Qwen3.5), short
convolutions (LFM2) or Mamba-2 (Bamba) and attention, layers that have both (Falcon-H1), and layers
that differ in their heads, share keys and have inputs of their own (Gemma 4), also with residual
streams (Gemma 3n).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from hostile.damaged_folders import Damage, Damages, Tensors, folder_class
from hostile.frame import HostileClass

Shapes = dict[str, tuple[int, ...]]
_HIDDEN, _FFN, _VOCAB = 32, 64, 48
_SHARED: dict[str, Any] = {
    "vocab_size": _VOCAB,
    "hidden_size": _HIDDEN,
    "intermediate_size": _FFN,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
    "dtype": "float32",
}
_RECURRENT = _SHARED | {
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 4,
}
_CONVOLUTIONS = _SHARED | {
    "architectures": ["Lfm2ForCausalLM"],
    "model_type": "lfm2",
    "num_hidden_layers": 2,
    "layer_types": ["conv", "full_attention"],
    "conv_L_cache": 3,
    "block_auto_adjust_ff_dim": False,
}
_MAMBA = _SHARED | {
    "architectures": ["BambaForCausalLM"],
    "model_type": "bamba",
    "num_hidden_layers": 2,
    "attn_layer_indices": [1],
    "mamba_expand": 2,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_n_groups": 2,
    "mamba_d_state": 8,
    "mamba_d_conv": 4,
}
_FALCON = _MAMBA | {
    "architectures": ["FalconH1ForCausalLM"],
    "model_type": "falcon_h1",
    "mamba_d_ssm": 64,
    "mamba_rms_norm": False,
}
_GEMMA = _SHARED | {
    "architectures": ["Gemma4ForCausalLM"],
    "model_type": "gemma4_text",
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "sliding_window": 8,
    "global_head_dim": 24,
    "num_global_key_value_heads": 1,
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 56,
}
_STREAMS = _SHARED | {
    "architectures": ["Gemma3nForCausalLM"],
    "model_type": "gemma3n_text",
    "num_hidden_layers": 2,
    "layer_types": ["sliding_attention"] * 2,
    "sliding_window": 8,
    "num_kv_shared_layers": 1,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 40,
    "altup_num_inputs": 2,
    "altup_active_idx": 1,
    "laurel_rank": 4,
    "activation_sparsity_pattern": [0.5, 0.0],
}
_FFN_SHAPES = {
    "mlp.gate_proj": (_FFN, _HIDDEN),
    "mlp.up_proj": (_FFN, _HIDDEN),
    "mlp.down_proj": (_HIDDEN, _FFN),
}
_DELTA_SHAPES = {
    "in_proj_qkv.weight": (2 * 2 * 8 + 4 * 12, _HIDDEN),
    "in_proj_z.weight": (4 * 12, _HIDDEN),
    "in_proj_a.weight": (4, _HIDDEN),
    "in_proj_b.weight": (4, _HIDDEN),
    "conv1d.weight": (2 * 2 * 8 + 4 * 12, 1, 4),
    "A_log": (4,),
    "dt_bias": (4,),
    "norm.weight": (12,),
    "out_proj.weight": (_HIDDEN, 4 * 12),
}


_CONVOLUTION_SHAPES = {
    "in_proj.weight": (3 * _HIDDEN, _HIDDEN),
    "conv.weight": (_HIDDEN, 1, 3),
    "out_proj.weight": (_HIDDEN, _HIDDEN),
}


_MAMBA_SHAPES = {
    "in_proj.weight": (64 + 64 + 2 * 2 * 8 + 4, _HIDDEN),
    "out_proj.weight": (_HIDDEN, 64),
    "conv1d.weight": (64 + 2 * 2 * 8, 1, 4),
    "conv1d.bias": (64 + 2 * 2 * 8,),
    "A_log": (4,),
    "dt_bias": (4,),
    "D": (4,),
    "norm.weight": (64,),
}


def _filled(shapes: Shapes) -> Tensors:
    rng = np.random.default_rng(7)
    shapes = {"embed_tokens.weight": (_VOCAB, _HIDDEN), "norm.weight": (_HIDDEN,)} | shapes
    return {
        f"model.{name}": rng.normal(0, 0.2, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def _attention(heads: int, head_dim: int, has_kv: bool = True) -> Shapes:
    """Of `heads` query heads (a gate counts as one) and one KV head; 2 heads give the output."""
    shapes: Shapes = {
        "q_proj": (heads * head_dim, _HIDDEN),
        "q_norm": (head_dim,),
        "o_proj": (_HIDDEN, 2 * head_dim),
    }
    if has_kv:
        kv = (head_dim, _HIDDEN)
        shapes |= {"k_proj": kv, "v_proj": kv, "k_norm": (head_dim,)}
    return {f"self_attn.{name}": shape for name, shape in shapes.items()}


def _of_layer(layer: int, shapes: Shapes) -> Shapes:
    return {f"layers.{layer}.{name}.weight": shape for name, shape in shapes.items()}


def _recurrent_tensors() -> Tensors:
    both = {"input_layernorm": (_HIDDEN,), "post_attention_layernorm": (_HIDDEN,)} | _FFN_SHAPES
    delta = {f"layers.0.linear_attn.{name}": shape for name, shape in _DELTA_SHAPES.items()}
    return _filled(delta | _of_layer(0, both) | _of_layer(1, both | _attention(4, 16)))


def _convolution_tensors() -> Tensors:
    ffn = {
        "feed_forward.w1": (_FFN, _HIDDEN),
        "feed_forward.w3": (_FFN, _HIDDEN),
        "feed_forward.w2": (_HIDDEN, _FFN),
    }
    both = {"operator_norm": (_HIDDEN,), "ffn_norm": (_HIDDEN,)} | ffn
    names = {"q_norm": "q_layernorm", "k_norm": "k_layernorm", "o_proj": "out_proj"}
    attention = {}
    for name, shape in _attention(2, 16).items():
        last = name.split(".")[-1]
        attention[f"self_attn.{names.get(last, last)}"] = shape
    convolution = {f"layers.0.conv.{name}": shape for name, shape in _CONVOLUTION_SHAPES.items()}
    tensors = _filled(convolution | _of_layer(0, both) | _of_layer(1, both | attention))
    return tensors | {"model.embedding_norm.weight": tensors.pop("model.norm.weight")}


def _mamba_tensors() -> Tensors:
    ffn = {name.replace("mlp", "feed_forward"): shape for name, shape in _FFN_SHAPES.items()}
    both = {"input_layernorm": (_HIDDEN,), "pre_ff_layernorm": (_HIDDEN,)} | ffn
    names = ("q_proj", "k_proj", "v_proj", "o_proj")
    attention = {n: s for n, s in _attention(2, 16).items() if n.split(".")[-1] in names}
    mamba = {f"layers.0.mamba.{name}": shape for name, shape in _MAMBA_SHAPES.items()}
    tensors = _filled(mamba | _of_layer(0, both) | _of_layer(1, both | attention))
    return tensors | {"model.final_layernorm.weight": tensors.pop("model.norm.weight")}


def _falcon_tensors() -> Tensors:
    tensors = _mamba_tensors()
    for name in list(tensors):
        of_layer, other = (
            ("layers.0.", "layers.1.") if "mamba" in name else ("layers.1.", "layers.0.")
        )
        if ("mamba" in name or "self_attn" in name) and not name.endswith("mamba.norm.weight"):
            tensors[name.replace(of_layer, other)] = tensors[name]
    return {n: tensor for n, tensor in tensors.items() if not n.endswith("mamba.norm.weight")}


def _with_layer_inputs(config: dict[str, Any]) -> tuple[Shapes, Shapes]:
    """What is outside of layers whose tokens have inputs, and in each of them besides attention."""
    count, size = config["num_hidden_layers"], config["hidden_size_per_layer_input"]
    outside: Shapes = {
        "embed_tokens_per_layer.weight": (config["vocab_size_per_layer_input"], count * size),
        "per_layer_model_projection.weight": (count * size, _HIDDEN),
        "per_layer_projection_norm.weight": (size,),
    }
    norms = ("input", "post_attention", "pre_feedforward", "post_feedforward")
    each: Shapes = {f"{name}_layernorm": (_HIDDEN,) for name in norms} | _FFN_SHAPES
    return outside, each | {
        "per_layer_input_gate": (size, _HIDDEN),
        "per_layer_projection": (_HIDDEN, size),
        "post_per_layer_input_norm": (_HIDDEN,),
    }


def _stream_tensors() -> Tensors:
    count = _STREAMS["altup_num_inputs"]
    shapes, each = _with_layer_inputs(_STREAMS)
    for i in range(count - 1):
        for name in ("altup_projections", "altup_unembed_projections"):
            shapes[f"{name}.{i}.weight"] = (_HIDDEN, _HIDDEN)
    each |= {
        "altup.modality_router": (count, _HIDDEN),
        "altup.prediction_coefs": (count * count, count),
        "altup.correction_coefs": (count, count),
        "altup.router_norm": (_HIDDEN,),
        "laurel.linear_left": (_STREAMS["laurel_rank"], _HIDDEN),
        "laurel.linear_right": (_HIDDEN, _STREAMS["laurel_rank"]),
        "laurel.post_laurel_norm": (_HIDDEN,),
    }
    for layer in range(2):
        shapes |= _of_layer(layer, each | _attention(2, 16, has_kv=layer == 0))
        shapes[f"layers.{layer}.altup.correct_output_scale"] = (_HIDDEN,)
    return _filled(shapes)


def _gemma_tensors() -> Tensors:
    shapes, each = _with_layer_inputs(_GEMMA)
    for layer in range(_GEMMA["num_hidden_layers"]):
        attention = _attention(2, (16, 24)[layer % 2], has_kv=layer < 2)
        shapes |= _of_layer(layer, each | attention)
        shapes[f"layers.{layer}.layer_scalar"] = (1,)
    return _filled(shapes)


_OF_RECURRENT = Damages(_RECURRENT, _recurrent_tensors)
_OF_CONVOLUTIONS = Damages(_CONVOLUTIONS, _convolution_tensors)
_OF_MAMBA = Damages(_MAMBA, _mamba_tensors)
_OF_FALCON = Damages(_FALCON, _falcon_tensors)
_OF_GEMMA = Damages(_GEMMA, _gemma_tensors)
_OF_STREAMS = Damages(_STREAMS, _stream_tensors)
_NO_SIZES: list[Any] = [0, -1, 1 << 62, "4", 4.5, [4], True]


def _recurrent_cases() -> Iterator[tuple[str, Damage]]:
    names = [f"model.layers.0.linear_attn.{name}" for name in _DELTA_SHAPES]
    yield from ((f"no {name}", _OF_RECURRENT.drop(name)) for name in names)
    yield from _OF_RECURRENT.of_tensors([*names, "model.layers.1.self_attn.q_proj.weight"])
    for name in names[4:8]:
        for value in (np.nan, np.inf, -np.inf, 3e38):
            odd = partial(np.full_like, fill_value=value)
            change = _OF_RECURRENT.change(name, odd, must_be_refused=False)
            yield f"{name} of {value}", change
    yield (
        "attention in a recurrent layer",
        _OF_RECURRENT.add("model.layers.0.self_attn.q_proj.weight", 64, _HIDDEN),
    )
    values: dict[str, list[Any]] = {
        "linear_num_key_heads": [*_NO_SIZES, 1, 3, 4, 1025],
        "linear_num_value_heads": [*_NO_SIZES, 1, 2, 3, 6, 1025],
        "linear_key_head_dim": [*_NO_SIZES, 7, 16, 1 << 20],
        "linear_value_head_dim": [*_NO_SIZES, 11, 24, 1 << 20],
        "linear_conv_kernel_dim": [*_NO_SIZES, 1, 3, 5, 9],
        "layer_types": [
            ["linear_attention"], ["linear_attention"] * 2, ["full_attention"] * 2,
            ["full_attention", "linear_attention"], ["linear_attention", "sliding_attention"],
            [None, None], "linear_attention", [["linear_attention"]] * 2,
        ],
        "full_attention_interval": [0, -1, "2", 1 << 62],
        "num_hidden_layers": [0, 1, 3, 4097, 1 << 62],
    }  # fmt: skip
    # layer_types says all of it.
    harmless = [("full_attention_interval", value) for value in (0, -1, "2", 1 << 62)]
    yield from _OF_RECURRENT.of_fields(values, harmless)
    for value in (0, -1, "2", 1 << 62):
        yield (
            f"every {value}-th layer",
            _OF_RECURRENT(
                lambda folder, value=value: folder.config.update(
                    {"layer_types": None, "full_attention_interval": value}
                )
            ),
        )


def _convolution_cases() -> Iterator[tuple[str, Damage]]:
    names = [f"model.layers.0.conv.{name}" for name in _CONVOLUTION_SHAPES]
    yield from ((f"no {name}", _OF_CONVOLUTIONS.drop(name)) for name in names)
    yield from _OF_CONVOLUTIONS.of_tensors(names)
    values: dict[str, list[Any]] = {
        "conv_L_cache": [*_NO_SIZES, 1, 2, 4, 9],
        "conv_bias": [True, "x", 1],
        "layer_types": [
            ["conv"] * 2, ["full_attention"] * 2, ["conv"], ["conv", "linear_attention"], "conv",
            ["full_attention", "conv"], [None, None],
        ],
        "block_auto_adjust_ff_dim": [True, "x", 1],
        "block_ff_dim": [0, -1, 63, 1 << 62, "64"],
    }  # fmt: skip
    yield from _OF_CONVOLUTIONS.of_fields(values)
    for value in ([0, 2], [-1], ["1"], [1 << 62], 1, "x", [0], []):
        yield (
            f"attention in {value}",
            _OF_CONVOLUTIONS(
                lambda folder, value=value: folder.config.update(
                    {"layer_types": None, "full_attn_idxs": value}
                )
            ),
        )
    for field, value in (("block_ffn_dim_multiplier", 1e300), ("block_multiple_of", 0)):
        yield (
            f"{field} = {value}",
            _OF_CONVOLUTIONS(
                lambda folder, field=field, value=value: folder.config.update(
                    {
                        "block_auto_adjust_ff_dim": True,
                        "block_ffn_dim_multiplier": 1.0,
                        field: value,
                    }
                )
            ),
        )


def _mamba_cases() -> Iterator[tuple[str, Damage]]:
    names = [f"model.layers.0.mamba.{name}" for name in _MAMBA_SHAPES]
    yield from ((f"no {name}", _OF_MAMBA.drop(name)) for name in names)
    yield from _OF_MAMBA.of_tensors(names)
    for name in names[4:7]:
        for value in (np.nan, np.inf, -np.inf, 3e38):
            odd = partial(np.full_like, fill_value=value)
            yield f"{name} of {value}", _OF_MAMBA.change(name, odd, must_be_refused=False)
    values: dict[str, list[Any]] = {
        "mamba_expand": [0, -1, 1 << 62, "2", 2.5, [2], True, 1, 3, 64],
        "mamba_n_heads": [*_NO_SIZES, "x", 3, 8, 1 << 40],
        "mamba_d_head": [*_NO_SIZES, 8, 1 << 40, "x"],
        "mamba_n_groups": [*_NO_SIZES, 1, 3, 4, 8],
        "mamba_d_state": [*_NO_SIZES, 7, 9, 1 << 40],
        "mamba_d_conv": [*_NO_SIZES, 1, 3, 5, 9],
        "mamba_proj_bias": [True, "x", 1],
        "mamba_conv_bias": ["x", 1],
        "hidden_act": ["gelu", "x", 1],
        "time_step_limit": [
            [], [0.0], [0.0, 1.0, 2.0], [-1.0, 1.0], [1.0, 0.5], ["x", 1.0], [0.0, None], 1.0,
            [{"__float__": "Infinity"}, {"__float__": "Infinity"}], [0.0, {"__float__": "NaN"}],
        ],
        "attn_layer_indices": [[2], [-1], ["1"], [1 << 62], 1, "x", [0], [0, 1], []],
        "layer_types": [["mamba"], ["attention", "mamba"], ["mamba", "conv"], [None, None], "x"],
    }  # fmt: skip
    yield from _OF_MAMBA.of_fields(values)


def _falcon_cases() -> Iterator[tuple[str, Damage]]:
    names = ["model.layers.1.mamba.in_proj.weight", "model.layers.0.self_attn.k_proj.weight"]
    yield from ((f"no {name}", _OF_FALCON.drop(name)) for name in names)
    yield from _OF_FALCON.of_tensors(names)
    odd: list[Any] = ["x", [1.0], 1e400]
    values: dict[str, list[Any]] = {
        "mamba_d_ssm": [*_NO_SIZES, 32, 63, 128, 1 << 40],
        "mamba_rms_norm": [True, "x", 1],
        "projectors_bias": [True, "x", 1],
        "ssm_multipliers": [[], [1.0] * 4, [1.0] * 6, "x", [None] * 5, 1.0],
        "mlp_multipliers": [[], [1.0], [1.0] * 3, "x", ["1", 1.0]],
        **dict.fromkeys(("key_multiplier", "ssm_in_multiplier", "attention_in_multiplier"), odd),
    }
    yield from _OF_FALCON.of_fields(values)


def _gemma_cases() -> Iterator[tuple[str, Damage]]:
    names = [
        "model.embed_tokens_per_layer.weight",
        "model.per_layer_model_projection.weight",
        "model.per_layer_projection_norm.weight",
        "model.layers.0.per_layer_input_gate.weight",
        "model.layers.3.per_layer_projection.weight",
        "model.layers.1.self_attn.k_proj.weight",
        "model.layers.2.self_attn.q_proj.weight",
        "model.layers.3.layer_scalar",
    ]
    yield from ((f"no {name}", _OF_GEMMA.drop(name)) for name in names)
    yield from _OF_GEMMA.of_tensors(names)
    unread: list[Any] = [0, -1, 1 << 62, "4", 4.5, [4]]
    values: dict[str, list[Any]] = {
        "global_head_dim": [*_NO_SIZES, 16, 23, 1 << 20],
        "num_global_key_value_heads": unread,
        "num_kv_shared_layers": [-1, 0, 1, 4, 5, 1 << 62, "2", 2.5],
        "hidden_size_per_layer_input": [-1, 0, 7, 1 << 40, "8", 8.5],
        "vocab_size_per_layer_input": [0, -1, 47, 55, 1 << 62, "x"],
        "sliding_window": [0, -1, "x", None],
        "layer_types": [
            ["full_attention"] * 4, ["sliding_attention"] * 4, ["full_attention"],
            ["full_attention", "sliding_attention"] * 2, ["linear_attention"] * 4, "x",
            ["sliding_attention", "sliding_attention", "full_attention", "full_attention"],
        ],
        "use_double_wide_mlp": ["x", 1, True],
        "attention_k_eq_v": ["x", 1, True],
        "enable_moe_block": ["x", 1, True],
        "per_layer_config": ["x", [], {"9": {"head_dim": 16}}, {"0": {"hidden_size": 1}}],
        "final_logit_softcapping": [0, -1.0, "x"],
    }  # fmt: skip
    # Layers whose values are no keys have as many KV heads as the others.
    harmless = [("num_global_key_value_heads", value) for value in unread]
    harmless.append(("final_logit_softcapping", 0))
    yield from _OF_GEMMA.of_fields(values, harmless)


def _stream_cases() -> Iterator[tuple[str, Damage]]:
    names = [
        "model.altup_projections.0.weight",
        "model.altup_unembed_projections.0.weight",
        "model.layers.0.altup.modality_router.weight",
        "model.layers.1.altup.prediction_coefs.weight",
        "model.layers.0.altup.correction_coefs.weight",
        "model.layers.1.altup.correct_output_scale",
        "model.layers.0.laurel.linear_right.weight",
    ]
    yield from ((f"no {name}", _OF_STREAMS.drop(name)) for name in names)
    yield from _OF_STREAMS.of_tensors(names)
    for name in names[2:6]:
        for value in (np.nan, np.inf, -np.inf, 3e38):
            odd = partial(np.full_like, fill_value=value)
            yield f"{name} of {value}", _OF_STREAMS.change(name, odd, must_be_refused=False)
    values: dict[str, list[Any]] = {
        "altup_num_inputs": [*_NO_SIZES, 1, 3, 8, 9],
        "altup_active_idx": [-1, 2, 1 << 62, "1", 0.5, [0]],
        "altup_correct_scale": ["x", 1],
        "laurel_rank": [*_NO_SIZES, 3, 5, 1 << 40],
        "num_kv_shared_layers": [-1, 0, 2, 15, 1 << 62, "1", 0.5],
        "intermediate_size": [[64], [64] * 3, [64, 0], [64, -1], [64, 1 << 62], [], ["64"] * 2],
        "activation_sparsity_pattern": [
            [], [0.5], [0.5] * 3, [1.0, 0.0], [-0.1, 0.0], ["x", 0.0], [None] * 2, 0.5, [[0.5]] * 2,
        ],
        "activation_sparsity_deviations": [[], [1.0], [1e300, 0.0], ["x"] * 2, [-1e20, 0.0]],
        "vocab_size_per_layer_input": [0, -1, 39, 41, 1 << 62, "x"],
    }  # fmt: skip
    yield from _OF_STREAMS.of_fields(values)


def _damages() -> Iterator[tuple[str, Damage]]:
    for model, of_model, cases in (
        ("recurrent", _OF_RECURRENT, _recurrent_cases),
        ("convolutions", _OF_CONVOLUTIONS, _convolution_cases),
        ("Mamba-2", _OF_MAMBA, _mamba_cases),
        ("Falcon-H1", _OF_FALCON, _falcon_cases),
        ("Gemma 4", _OF_GEMMA, _gemma_cases),
        ("Gemma 3n", _OF_STREAMS, _stream_cases),
    ):
        yield f"{model}: nothing", of_model.nothing()
        yield from ((f"{model}: {what}", damage) for what, damage in cases())


def hostile_class() -> HostileClass:
    """The class."""
    return folder_class("hybrid_folders", _damages(), sample=60)
