"""MLC model folders made from Hugging Face checkpoints, in numpy, and what their weights mean.

Written from the formats' description in MLC-LLM's public sources: names and fusions of its model
definitions, group quantization, mlc-chat-config.json and the list of tensors in the shards.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from quantized_checkpoints import (
    WEIGHTS,
    Tensors,
    from_bfloat16,
    load_file,
    pack,
    to_bfloat16,
    unpack,
    write_folder,
)

CHAT_CONFIG = "mlc-chat-config.json"
INDEX = "tensor-cache.json"
DTYPES = {"f4": "float32", "f2": "float16", "u2": "bfloat16", "u4": "uint32"}

CONV_TEMPLATE = {
    "name": "chatml",
    "system_template": "<|im_start|>system\n{system_message}<|im_end|>\n",
    "system_message": "Be kind.",
    "roles": {"user": "<|im_start|>user", "assistant": "<|im_start|>assistant"},
    "seps": ["<|im_end|>\n"],
    "role_content_sep": "\n",
    "role_empty_sep": "\n",
    "stop_str": ["<|im_end|>"],
    "stop_token_ids": [260],
    "system_prefix_token_ids": [256],
}


@dataclass
class MlcQuantization:
    """0 bits: floats. `dtype`: "f2", "u2" (bfloat16) or "f4"."""

    dtype: str
    bits: int = 0
    group_size: int = 32
    whole: bool = True  # embeddings and head, too


QUANTIZATIONS = {
    "q0f16": MlcQuantization("f2"),
    "q0bf16": MlcQuantization("u2"),
    "q0f32": MlcQuantization("f4"),
    "q3f16_1": MlcQuantization("f2", 3, 40),
    "q4f16_1": MlcQuantization("f2", 4),
    "q4f16_2": MlcQuantization("f2", 4, whole=False),
    "q4bf16_1": MlcQuantization("u2", 4),
    "q4f32_1": MlcQuantization("f4", 4),
}
# Of the tiny checkpoints: whether q, k, v are one tensor and what it is called.
QKV_NAMES = {"llama": "qkv_proj", "mistral": "qkv_proj", "qwen2": "c_attn", "qwen3": "c_attn",
             "gemma": "qkv_proj", "gemma2": "qkv_proj", "gemma3_text": None}  # fmt: skip
FAMILIES = sorted(f"tiny-{model_type}" for model_type in QKV_NAMES)


def store_float(values: np.ndarray, dtype: str) -> np.ndarray:
    return to_bfloat16(values) if dtype == "u2" else values.astype(dtype)


def load_float(stored: np.ndarray) -> np.ndarray:
    return from_bfloat16(stored) if stored.dtype == np.uint16 else stored.astype(np.float32)


def quantize_groups(weight: np.ndarray, q: MlcQuantization) -> tuple[np.ndarray, np.ndarray]:
    """q_weight [rows, words] and q_scale [rows, groups]; columns padded to whole groups."""
    rows, columns = weight.shape
    largest = (1 << (q.bits - 1)) - 1
    padded = np.pad(weight, [(0, 0), (0, -columns % q.group_size)])
    groups = padded.reshape(rows, -1, q.group_size)
    scale = store_float(np.abs(groups).max(2) / largest, q.dtype)
    levels = np.rint(groups / load_float(scale)[:, :, None]) + largest
    levels = np.clip(levels, 0, 2 * largest).astype(np.int64)
    return pack(levels, q.bits).reshape(rows, -1), scale


def dequantize_groups(
    words: np.ndarray, scale: np.ndarray, columns: int, q: MlcQuantization
) -> np.ndarray:
    """(integer - largest) * scale, float32 [rows, columns]."""
    rows, groups = scale.shape
    integers = unpack(words.reshape(rows, groups, -1), q.bits, q.group_size).reshape(rows, -1)
    group_of = np.arange(columns) // q.group_size
    signed = (integers[:, :columns] - ((1 << (q.bits - 1)) - 1)).astype(np.float32)
    return signed * load_float(scale)[:, group_of]


def mlc_names(tensors: Tensors, model_type: str) -> dict[str, list[str]]:
    """MLC-LLM's parameter -> the tensors of the checkpoint that are its rows."""
    prefix = "language_model." if model_type == "gemma3_text" else ""
    fusions = {"mlp.gate_up_proj": ["mlp.gate_proj", "mlp.up_proj"]}
    if QKV_NAMES[model_type] is not None:
        qkv = [f"self_attn.{x}_proj" for x in "qkv"]
        fusions[f"self_attn.{QKV_NAMES[model_type]}"] = qkv
    names: dict[str, list[str]] = {}
    for name in tensors:
        fused = [(f, parts) for f, parts in fusions.items() if any(p in name for p in parts)]
        if not fused:
            names[prefix + name] = [name]
            continue
        target, parts = fused[0]
        part = next(p for p in parts if p in name)
        names[prefix + name.replace(part, target)] = [name.replace(part, p) for p in parts]
    return names


def convert(
    tensors: Tensors, model_type: str, q: MlcQuantization, encode: bool
) -> tuple[Tensors, Tensors]:
    """Parameters of the MLC folder, and the checkpoint's tensors with the values they have there.

    `encode`: float32 is stored as bfloat16, which MLC-LLM's converter does to save space.
    """
    stored, values = Tensors(), Tensors()
    adds_one = model_type.startswith("gemma")
    for name, parts in mlc_names(tensors, model_type).items():
        whole = np.concatenate([tensors[part] for part in parts])
        quantized = whole.ndim == 2 and (q.whole or ".layers." in name)
        if quantized and q.bits:
            base = name.removesuffix(".weight")
            words, scale = quantize_groups(whole, q)
            scale = rounded(scale, encode)
            stored |= {f"{base}.q_weight": words, f"{base}.q_scale": scale}
            result = dequantize_groups(words, scale, whole.shape[1], q)
        else:
            shift = np.float32(adds_one and "norm" in name)
            stored[name] = rounded(store_float(whole + shift, q.dtype), encode)
            result = load_float(stored[name]) - shift
        rows = np.cumsum([len(tensors[part]) for part in parts])[:-1]
        values |= dict(zip(parts, np.split(result, rows), strict=True))
    return stored, values


def rounded(values: np.ndarray, encode: bool) -> np.ndarray:
    """Float32 as it comes back from bfloat16."""
    return from_bfloat16(to_bfloat16(values)) if encode and values.dtype == np.float32 else values


def model_fields(config: dict[str, Any]) -> dict[str, Any]:
    """`model_config`: the fields of MLC-LLM's configuration classes."""
    model_type = config["model_type"]
    rope = config["rope_parameters"]
    same = ["hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers",
            "rms_norm_eps", "vocab_size", "num_key_value_heads", "head_dim"]  # fmt: skip
    fields = {name: config[name] for name in same if name in config}
    fields |= {"context_window_size": config["max_position_embeddings"], "max_batch_size": 128,
               "prefill_chunk_size": 512, "tensor_parallel_shards": 1}  # fmt: skip
    if model_type in ("qwen2", "qwen3"):
        fields |= {"rope_theta": rope["rope_theta"], "hidden_act": config["hidden_act"],
                   "tie_word_embeddings": config["tie_word_embeddings"],
                   "dtype": "float32"}  # fmt: skip
        return fields if model_type == "qwen2" else fields | {"attention_bias": False}
    if model_type == "gemma3_text":
        return gemma3_fields(config, fields)
    fields["position_embedding_base"] = rope["rope_theta"]
    if model_type == "llama":
        scaling = {k: v for k, v in rope.items() if k != "rope_theta"}
        fields |= {"tie_word_embeddings": config["tie_word_embeddings"], "rope_scaling": scaling}
    elif model_type == "mistral":
        fields |= {"sliding_window_size": config["sliding_window"] or -1, "attention_sink_size": 4}
        fields["context_window_size"] = -1
    else:
        fields |= {"attention_bias": False, "hidden_activation": "gelu"}
    if model_type == "gemma2":
        fields |= {name: config[name] for name in ("attn_logit_softcapping", "sliding_window",
                   "final_logit_softcapping", "query_pre_attn_scalar")}  # fmt: skip
    return fields


def gemma3_fields(config: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    text = {k: v for k, v in fields.items() if k not in ("vocab_size", "max_batch_size")}
    text |= {"attention_bias": False, "hidden_activation": "gelu_pytorch_tanh", "rope_scaling": 0,
             "position_embedding_base": 1_000_000, "sliding_window_size": config["sliding_window"],
             "query_pre_attn_scalar": config["query_pre_attn_scalar"],
             "kwargs": {"layer_types": config["layer_types"]}}  # fmt: skip
    return {"text_config": text, "vocab_size": fields["vocab_size"], "context_window_size": -1,
            "sliding_window_size": 40, "is_text_model": True}  # fmt: skip


def write_shards(folder: Path, tensors: Tensors, encode: bool, index: str, shards: int) -> None:
    names = list(tensors)
    records = []
    for i in range(shards):
        offset, entries, data = 0, [], b""
        for name in names[i::shards]:
            tensor = tensors[name]
            short = encode and tensor.dtype == np.float32
            content = (to_bfloat16(tensor) if short else tensor).tobytes()
            entries.append({
                "name": name, "shape": list(tensor.shape), "dtype": DTYPES[tensor.dtype.str[1:]],
                "format": "f32-to-bf16" if encode else "raw", "nbytes": len(content),
                "byteOffset": offset,
            })  # fmt: skip
            offset += len(content)
            data += content
        (folder / f"params_shard_{i}.bin").write_bytes(data)
        records.append({"dataPath": f"params_shard_{i}.bin", "format": "raw-shard",
                        "nbytes": offset, "records": entries, "md5sum": ""})  # fmt: skip
    metadata = {"ParamSize": len(tensors)}
    (folder / index).write_text(json.dumps({"metadata": metadata, "records": records}))


def make_mlc_folder(
    source: Path, folder: Path, floats: Path, quantization: str, *, encode: bool = True,
    index: str = INDEX, shards: int = 3,
) -> None:  # fmt: skip
    """From a float32 checkpoint, an MLC folder and a checkpoint with the values it holds."""
    config = json.loads((source / "config.json").read_text())
    q = QUANTIZATIONS[quantization]
    stored, values = convert(load_file(source / WEIGHTS), config["model_type"], q, encode)
    write_folder(floats, config, values)
    folder.mkdir()
    write_shards(folder, stored, encode, index, shards)
    shutil.copy(source / "tokenizer.json", folder)
    chat = {
        "version": "0.1.0", "model_type": config["model_type"], "quantization": quantization,
        "model_config": model_fields(config), "vocab_size": config["vocab_size"],
        "context_window_size": config["max_position_embeddings"], "sliding_window_size": -1,
        "prefill_chunk_size": 512, "attention_sink_size": -1, "tensor_parallel_shards": 1,
        "pipeline_parallel_stages": 1, "temperature": 0.6, "presence_penalty": 0.0,
        "frequency_penalty": 0.25, "repetition_penalty": 1.0, "top_p": 0.9,
        "tokenizer_files": ["tokenizer.json"], "tokenizer_info": {}, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2, "conv_template": CONV_TEMPLATE,
    }  # fmt: skip
    (folder / CHAT_CONFIG).write_text(json.dumps(chat))
