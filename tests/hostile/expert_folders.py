"""Hostile folders of mixtures of experts: tensors that lack, are too many, or do not fit together.

Some experts of the model are stored as FP8 with scales of blocks (damaged_folders.py says more).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from hostile.damaged_folders import Damage, Damages, Tensors, folder_class
from hostile.frame import HostileClass

_EXPERTS = "model.layers.0.mlp.experts."
_ROUTER = "model.layers.1.mlp.gate.weight"
_HIDDEN, _FFN, _VOCAB, _NUM_EXPERTS = 32, 64, 48, 4
_CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "vocab_size": _VOCAB,
    "hidden_size": _HIDDEN,
    "intermediate_size": _FFN,
    "moe_intermediate_size": _FFN,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "num_experts": _NUM_EXPERTS,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "max_position_embeddings": 128,
    "layer_types": ["full_attention"] * 2,
    "dtype": "float32",
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [32, 16]},
}


def _tensors() -> Tensors:
    rng = np.random.default_rng(7)

    def floats(*shape: int) -> np.ndarray:
        return rng.normal(0, 0.2, shape).astype(np.float32)

    tensors = {
        "model.embed_tokens.weight": floats(_VOCAB, _HIDDEN),
        "lm_head.weight": floats(_VOCAB, _HIDDEN),
        "model.norm.weight": floats(_HIDDEN),
    }
    for layer in range(_CONFIG["num_hidden_layers"]):
        shapes = {
            "input_layernorm": (_HIDDEN,),
            "post_attention_layernorm": (_HIDDEN,),
            "self_attn.q_proj": (32, _HIDDEN),
            "self_attn.k_proj": (16, _HIDDEN),
            "self_attn.v_proj": (16, _HIDDEN),
            "self_attn.o_proj": (_HIDDEN, 32),
            "self_attn.q_norm": (16,),
            "self_attn.k_norm": (16,),
            "mlp.gate": (_NUM_EXPERTS, _HIDDEN),
        }
        for name, shape in shapes.items():
            tensors[f"model.layers.{layer}.{name}.weight"] = floats(*shape)
        for expert in range(_NUM_EXPERTS):
            for name in ("gate_proj", "up_proj", "down_proj"):
                shape = (_HIDDEN, _FFN) if name == "down_proj" else (_FFN, _HIDDEN)
                place = f"model.layers.{layer}.mlp.experts.{expert}.{name}.weight"
                if layer == 0:
                    codes = rng.integers(0, 127, shape, np.uint8)
                    tensors[place] = codes.view("V1")
                    scales = np.abs(floats(shape[0] // 32, shape[1] // 16)) / 64
                    tensors[f"{place}_scale_inv"] = scales
                else:
                    tensors[place] = floats(*shape)
    return tensors


_MODEL = Damages(_CONFIG, _tensors)


def _tensor_cases() -> Iterator[tuple[str, Damage]]:
    parts = ("gate_proj", "up_proj", "down_proj")
    for expert in range(_NUM_EXPERTS):
        for part in parts:
            yield (
                f"no {part} of expert {expert}",
                _MODEL.drop(f"{_EXPERTS}{expert}.{part}.weight"),
            )
            name = f"{_EXPERTS}{expert}.{part}.weight_scale_inv"
            yield f"no scales of {part} of expert {expert}", _MODEL.drop(name)
        last = [f"model.layers.1.mlp.experts.{expert}.{part}.weight" for part in parts]
        yield f"no expert {expert} in the last layer", _MODEL.drop(*last)
    yield "no router", _MODEL.drop(_ROUTER)
    yield (
        "an expert too many",
        _MODEL.add(f"{_EXPERTS}{_NUM_EXPERTS}.up_proj.weight", _FFN, _HIDDEN),
    )
    yield "an expert without a number", _MODEL.add(f"{_EXPERTS}up_proj.weight", _FFN, _HIDDEN)
    yield "an expert of number 01", _MODEL.add(f"{_EXPERTS}01.up_proj.weight", _FFN, _HIDDEN)
    yield (
        "an expert of a layer that is not there",
        _MODEL.add("model.layers.2.mlp.gate.weight", 4, 32),
    )
    yield (
        "an unknown tensor",
        _MODEL.add("model.layers.0.mlp.shared_expert.up_proj.weight", 64, 32),
    )
    yield "both spellings", _MODEL.add(f"{_EXPERTS}gate_up_proj", _NUM_EXPERTS, 2 * _FFN, _HIDDEN)
    names = (_ROUTER, f"{_EXPERTS}1.up_proj.weight", f"{_EXPERTS}3.down_proj.weight")
    yield from _MODEL.of_tensors(names)


def _scale_cases() -> Iterator[tuple[str, Damage]]:
    name = f"{_EXPERTS}2.gate_proj.weight_scale_inv"
    edits: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "with a row less": lambda t: t[:-1],
        "with a column more": lambda t: np.pad(t, ((0, 0), (0, 1))),
        "as a vector": lambda t: t.reshape(-1),
        "transposed": lambda t: t.T.copy()[:1],
        "with a dimension more": lambda t: t[None],
        "of integers": lambda t: np.ones(t.shape, np.int32),
        "of 64 bits": lambda t: t.astype(np.float64),
        "alone": lambda t: t[:1, :1].copy(),
        "without any": lambda t: t[:0],
    }
    for what, edit in edits.items():
        yield f"scales {what}", _MODEL.change(name, edit)
    for value in (np.nan, np.inf, -np.inf, 0.0, -1.0, 3e38):
        odd = partial(np.full_like, fill_value=value)
        yield f"scales of {value}", _MODEL.change(name, odd, must_be_refused=False)
    for block in ([0, 16], [32, -1], [32], [32, 16, 1], "x", [1 << 62, 1 << 62], [32.5, 16], None):
        quantization = {"quant_method": "fp8", "weight_block_size": block}
        yield f"blocks of {block}", _MODEL.set("quantization_config", quantization)
    for block in ([16, 16], [1, 1], [32, 32]):
        quantization = {"quant_method": "fp8", "weight_block_size": block}
        yield (
            f"blocks of {block}, which are not those",
            _MODEL.set("quantization_config", quantization),
        )
    yield "an unknown method", _MODEL.set("quantization_config", {"quant_method": "fp9"})
    yield "no method", _MODEL.set("quantization_config", {})
    yield "no quantization", _MODEL(lambda folder: folder.config.pop("quantization_config"))


def _config_cases() -> Iterator[tuple[str, Damage]]:
    values: dict[str, list[Any]] = {
        "num_experts": [0, -1, 1, 3, 5, 1025, 1 << 62, "4", 4.5, [4], True],
        "num_experts_per_tok": [0, -1, 5, 1 << 62, "2", 1.5, []],
        "moe_intermediate_size": [0, -1, 63, 1 << 40, "x", {}],
        "decoder_sparse_step": [0, -1, 2, 1 << 62, "1"],
        "mlp_only_layers": [[-1], [0], [1 << 62], "x", [[0]], 0],
        "norm_topk_prob": ["yes", 1, []],
        "layer_types": [
            ["full_attention"], ["full_attention"] * 3, ["linear_attention", "full_attention"],
            ["full_attention", ""], "full_attention", [1, 2], [None, None],
            ["x" * 1_000_000, "full_attention"], ["mamba"] * 2, {"0": "full_attention"},
        ],
        "num_hidden_layers": [0, 1, 3, 4097, 1 << 62],
    }  # fmt: skip
    harmless = [("mlp_only_layers", [1 << 62])]  # no such layer
    yield from _MODEL.of_fields(values, harmless)


def _file_cases() -> Iterator[tuple[str, Damage]]:
    def header_end(content: bytes) -> int:
        return 8 + int(struct.unpack("<Q", content[:8])[0])

    cuts: dict[str, Callable[[bytes], int]] = {
        "nothing": lambda content: 0,
        "seven bytes": lambda content: 7,
        "half of the header": lambda content: header_end(content) // 2,
        "the header": header_end,
        "half of the data": lambda content: (header_end(content) + len(content)) // 2,
        "all but a byte": lambda content: len(content) - 1,
    }
    for what, cut in cuts.items():
        yield f"a file of {what}", _MODEL.file(lambda content, cut=cut: content[: cut(content)])
    yield "a file with a byte more", _MODEL.file(lambda content: content + b"\0")
    yield "two files in one", _MODEL.file(lambda content: content * 2)


def _damages() -> Iterator[tuple[str, Damage]]:
    yield "nothing", _MODEL.nothing()
    yield from _tensor_cases()
    yield from _scale_cases()
    yield from _config_cases()
    yield from _file_cases()


def hostile_class() -> HostileClass:
    """The class."""
    return folder_class("expert_folders", _damages(), sample=60)
