"""Hostile folders of mixtures of experts: tensors that lack, are too many, or do not fit together.

A case changes the config.json or the tensors of a small model, of which some experts are stored as
FP8 with scales of blocks. The folder is then loaded, and computes three rows. It works, or a typed
error names the field or the tensor; what could not be computed must be refused.
"""

from __future__ import annotations

import copy
import json
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hostile.frame import Case, HostileClass

_MODELS = Path(__file__).resolve().parents[1] / "python" / "models"
_WEIGHTS = "model.safetensors"
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
Tensors = dict[str, np.ndarray]
# In this child, set by ``_prepared``.
_state: dict[str, Path] = {}


@dataclass
class Folder:
    """What a case may change before it is written, and the file afterwards."""

    config: dict[str, Any]
    tensors: Tensors
    edit_file: Callable[[bytes], bytes] = lambda content: content


@dataclass(frozen=True)
class Damage:
    apply: Callable[[Folder], object]
    must_be_refused: bool = True


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


# ----------------------------------------------------------------------------------- the damages


def _set(field: str, value: Any) -> Damage:
    return Damage(lambda folder: folder.config.update({field: value}))


def _drop(*names: str) -> Damage:
    return Damage(lambda folder: [folder.tensors.pop(name) for name in names])


def _change(name: str, edit: Callable[[np.ndarray], np.ndarray]) -> Damage:
    return Damage(lambda folder: folder.tensors.update({name: edit(folder.tensors[name])}))


def _add(name: str, *shape: int) -> Damage:
    return Damage(lambda folder: folder.tensors.update({name: np.zeros(shape, np.float32)}))


def _file(edit: Callable[[bytes], bytes]) -> Damage:
    return Damage(lambda folder: setattr(folder, "edit_file", edit))


def _tensor_cases() -> Iterator[tuple[str, Damage]]:
    parts = ("gate_proj", "up_proj", "down_proj")
    for expert in range(_NUM_EXPERTS):
        for part in parts:
            yield f"no {part} of expert {expert}", _drop(f"{_EXPERTS}{expert}.{part}.weight")
            name = f"{_EXPERTS}{expert}.{part}.weight_scale_inv"
            yield f"no scales of {part} of expert {expert}", _drop(name)
        yield (
            f"no expert {expert} in the last layer",
            _drop(*(f"model.layers.1.mlp.experts.{expert}.{part}.weight" for part in parts)),
        )
    yield "no router", _drop(_ROUTER)
    yield "an expert too many", _add(f"{_EXPERTS}{_NUM_EXPERTS}.up_proj.weight", _FFN, _HIDDEN)
    yield "an expert without a number", _add(f"{_EXPERTS}up_proj.weight", _FFN, _HIDDEN)
    yield "an expert of number 01", _add(f"{_EXPERTS}01.up_proj.weight", _FFN, _HIDDEN)
    yield "an expert of a layer that is not there", _add("model.layers.2.mlp.gate.weight", 4, 32)
    yield "an unknown tensor", _add("model.layers.0.mlp.shared_expert.up_proj.weight", 64, 32)
    yield "both spellings", _add(f"{_EXPERTS}gate_up_proj", _NUM_EXPERTS, 2 * _FFN, _HIDDEN)
    for name in (_ROUTER, f"{_EXPERTS}1.up_proj.weight", f"{_EXPERTS}3.down_proj.weight"):
        yield f"{name} with a row less", _change(name, lambda t: t[:-1])
        yield f"{name} with a column less", _change(name, lambda t: t[:, :-1].copy())
        yield f"{name} transposed", _change(name, lambda t: t.T.copy())
        yield f"{name} as a vector", _change(name, lambda t: t.reshape(-1))
        yield f"{name} with a dimension more", _change(name, lambda t: t[None])
        yield f"{name} without rows", _change(name, lambda t: t[:0])
        yield f"{name} of integers", _change(name, lambda t: np.zeros(t.shape, np.int32))


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
        yield f"scales {what}", _change(name, edit)
    for value in (np.nan, np.inf, -np.inf, 0.0, -1.0, 3e38):
        odd = partial(np.full_like, fill_value=value)
        yield f"scales of {value}", Damage(_change(name, odd).apply, must_be_refused=False)
    for block in ([0, 16], [32, -1], [32], [32, 16, 1], "x", [1 << 62, 1 << 62], [32.5, 16], None):
        quantization = {"quant_method": "fp8", "weight_block_size": block}
        yield f"blocks of {block}", _set("quantization_config", quantization)
    for block in ([16, 16], [1, 1], [32, 32]):
        quantization = {"quant_method": "fp8", "weight_block_size": block}
        yield f"blocks of {block}, which are not those", _set("quantization_config", quantization)
    yield "an unknown method", _set("quantization_config", {"quant_method": "fp9"})
    yield "no method", _set("quantization_config", {})
    yield "no quantization", Damage(lambda folder: folder.config.pop("quantization_config"))


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
    for field, odd in values.items():
        for i, value in enumerate(odd):
            harmless = (field, value) == ("mlp_only_layers", [1 << 62])  # no such layer
            damage = Damage(_set(field, value).apply, must_be_refused=not harmless)
            yield f"{field} = {str(value)[:40]} ({i})", damage


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
        yield f"a file of {what}", _file(lambda content, cut=cut: content[: cut(content)])
    yield "a file with a byte more", _file(lambda content: content + b"\0")
    yield "two files in one", _file(lambda content: content * 2)


def _damages() -> Iterator[tuple[str, Damage]]:
    yield "nothing", Damage(lambda folder: None, must_be_refused=False)
    yield from _tensor_cases()
    yield from _scale_cases()
    yield from _config_cases()
    yield from _file_cases()


# ------------------------------------------------------------------------------------ the class


def hostile_class() -> HostileClass:
    """The class."""
    cases = [Case(name, damage) for name, damage in _damages()]
    return HostileClass(
        "expert_folders", cases, _attempt, cpu_s=2, memory_mib=64, sample=60, prepared=_prepared
    )


@contextmanager
def _prepared() -> Iterator[None]:
    sys.path[:0] = [str(_MODELS)]
    with tempfile.TemporaryDirectory(prefix="mlc-native-hostile-") as folder:
        _state["folder"] = Path(folder) / "model"
        assert _attempt(Damage(lambda folder: None, must_be_refused=False)) == "served"
        yield


def _attempt(damage: Damage) -> str:
    from quantized_checkpoints import save_file

    folder = Folder(copy.deepcopy(_CONFIG), _tensors())
    damage.apply(folder)
    path = _state["folder"]
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    (path / "config.json").write_text(json.dumps(folder.config))
    save_file(folder.tensors, path / _WEIGHTS)
    (path / _WEIGHTS).write_bytes(folder.edit_file((path / _WEIGHTS).read_bytes()))
    outcome = _compute(path)
    if damage.must_be_refused and outcome == "served":
        return "it was computed"
    return outcome


def _compute(path: Path) -> str:
    """The logits of three rows."""
    from mlc_native._core import testing
    from mlc_native.errors import MAX_MESSAGE, LoadError

    try:
        model = testing.TestModel(str(path))
        model.allocate(4, 16, 16)
        model.forward([([1, 2, 3], 0, [0])], "all")
    except LoadError as error:
        if len(str(error)) > MAX_MESSAGE + 10:
            return f"an error of {len(str(error))} characters: {str(error)[:100]}"
        return "refused" if error.field else f"an error without a field: {error}"
    return "served"
