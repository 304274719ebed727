"""GGUF files made from Hugging Face folders, as llama.cpp's converter makes them.

Names, keys, types and the quantizers are those of the package ``gguf``, which is llama.cpp's. What
the converter does to tensors is done here: the rows of q and k of Llama's relatives are permuted
for a rotation of neighbours, Gemma's norms get the 1 that they lack, and the stretched wavelengths
of Llama 3.1 become a tensor.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from quantized_checkpoints import WEIGHTS, Tensors, from_bfloat16, load_file, save_file

ARCHITECTURES = {
    "LlamaForCausalLM": gguf.MODEL_ARCH.LLAMA,
    "MistralForCausalLM": gguf.MODEL_ARCH.LLAMA,
    "Qwen2ForCausalLM": gguf.MODEL_ARCH.QWEN2,
    "Qwen3ForCausalLM": gguf.MODEL_ARCH.QWEN3,
    "Qwen3MoeForCausalLM": gguf.MODEL_ARCH.QWEN3MOE,
    "Phi3ForCausalLM": gguf.MODEL_ARCH.PHI3,
    "GemmaForCausalLM": gguf.MODEL_ARCH.GEMMA,
    "Gemma2ForCausalLM": gguf.MODEL_ARCH.GEMMA2,
    "Gemma3ForCausalLM": gguf.MODEL_ARCH.GEMMA3,
    "Olmo2ForCausalLM": gguf.MODEL_ARCH.OLMO2,
    "Olmo3ForCausalLM": gguf.MODEL_ARCH.OLMO2,
    "GraniteForCausalLM": gguf.MODEL_ARCH.GRANITE,
    "SmolLM3ForCausalLM": gguf.MODEL_ARCH.SMOLLM3,
}
PERMUTED = {gguf.MODEL_ARCH.LLAMA, gguf.MODEL_ARCH.GRANITE, gguf.MODEL_ARCH.SMOLLM3}
ADDS_ONE = {gguf.MODEL_ARCH.GEMMA, gguf.MODEL_ARCH.GEMMA2, gguf.MODEL_ARCH.GEMMA3}
# Of a matrix: its name in the file -> its type.
TypeOf = Callable[[str], Type]


def permute(weight: np.ndarray, heads: int) -> np.ndarray:
    """The rows of a head in the order first of one half, first of the other, second of one..."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(weight.shape)


def unpermute(weight: np.ndarray, heads: int) -> np.ndarray:
    pairs = weight.reshape(heads, weight.shape[0] // heads // 2, 2, *weight.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)


def random_blocks(shape: tuple[int, ...], kind: Type, rng: np.random.Generator) -> np.ndarray:
    """Blocks of any bits with sane scales, of a type for which there is no quantizer in Python."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] // elements, size), np.uint8)
    places = {Type.Q4_K: (0, 2), Type.Q5_K: (0, 2), Type.Q6_K: (208,), Type.IQ4_NL: (0,)}[kind]
    for place in places:
        scale = rng.uniform(1e-4, 6e-4, blocks.shape[:-1]).astype("<f2")
        blocks[..., place : place + 2] = scale[..., None].view(np.uint8)
    return blocks.reshape(*shape[:-1], -1)


def encode(weight: np.ndarray, kind: Type, rng: np.random.Generator) -> np.ndarray:
    if kind in (Type.F32, Type.F16):
        return weight.astype(np.float32 if kind == Type.F32 else np.float16)
    if kind in (Type.Q4_K, Type.Q5_K, Type.Q6_K, Type.IQ4_NL):
        return random_blocks(weight.shape, kind, rng)
    return gguf.quants.quantize(weight, kind)


def decode(data: np.ndarray, kind: Type) -> np.ndarray:
    if kind in (Type.F32, Type.F16):
        return data.astype(np.float32)
    return gguf.quants.dequantize(data, kind)


def rope_factors(config: dict[str, Any], rope: dict[str, Any], dim: int) -> np.ndarray:
    """Llama 3.1's: by what a wavelength is stretched."""
    factors = []
    for i in range(0, dim, 2):
        wavelength = 2 * math.pi * rope.get("rope_theta", config.get("rope_theta")) ** (i / dim)
        original = rope["original_max_position_embeddings"]
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        if wavelength < original / high:
            factors.append(1.0)
        elif wavelength > original / low:
            factors.append(rope["factor"])
        else:
            smooth = (original / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, np.float32)


def join_experts(tensors: Tensors) -> Tensors:
    """With one tensor for the experts of a layer, as the converter joins them."""
    joined: dict[str, list[np.ndarray]] = {}
    for name, tensor in tensors.items():
        joined.setdefault(re.sub(r"\.experts\.\d+\.", ".experts.", name), []).append(tensor)
    return {name: np.stack(t) if ".experts." in name else t[0] for name, t in joined.items()}


def split_experts(tensors: Tensors) -> Tensors:
    split: Tensors = {}
    for name, tensor in tensors.items():
        if ".experts." not in name:
            split[name] = tensor
            continue
        for i, expert in enumerate(tensor):
            split[name.replace(".experts.", f".experts.{i}.")] = expert
    return split


def add_numbers(writer: gguf.GGUFWriter, config: dict[str, Any], arch: gguf.MODEL_ARCH) -> None:
    heads = config["num_attention_heads"]
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope = rope.get("full_attention", rope)
    dim = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_key_length(dim)
    writer.add_value_length(dim)
    writer.add_rope_dimension_count(dim)
    theta = rope.get("rope_theta", config.get("rope_theta"))
    if arch not in (gguf.MODEL_ARCH.GEMMA, gguf.MODEL_ARCH.GEMMA2):
        writer.add_rope_freq_base(theta)
    if rope.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if rope.get("attention_factor"):
            writer.add_rope_scaling_attn_factors(rope["attention_factor"])
    if rope.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_factors(config, rope, dim))
    if arch == gguf.MODEL_ARCH.GRANITE:
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    experts = config.get("num_experts") or config.get("num_local_experts")
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if arch == gguf.MODEL_ARCH.GEMMA2:
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if config["architectures"] == ["Olmo3ForCausalLM"]:
        types = config["layer_types"]
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in types])
    if config.get("sliding_window") and arch != gguf.MODEL_ARCH.LLAMA:
        writer.add_sliding_window(config["sliding_window"])


def add_tokenizer(writer: gguf.GGUFWriter, folder: Path, pre: str) -> None:
    """The byte-level vocabulary of tokenizer.json, whose splitting has the name ``pre``."""
    file = json.loads((folder / "tokenizer.json").read_text())
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    ids = dict(file["model"]["vocab"])
    kinds = dict.fromkeys(ids.values(), gguf.TokenType.NORMAL)
    for token in file["added_tokens"]:
        ids[token["content"]] = token["id"]
        special = token["special"]
        kinds[token["id"]] = gguf.TokenType.CONTROL if special else gguf.TokenType.USER_DEFINED
    texts = {i: text for text, i in ids.items()}
    size = max(texts) + 1
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([texts.get(i, f"[PAD{i}]") for i in range(size)])
    writer.add_token_types([kinds.get(i, gguf.TokenType.UNUSED) for i in range(size)])
    merges = file["model"]["merges"]
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    writer.add_add_bos_token(False)
    for name, add in {"bos_token": writer.add_bos_token_id, "eos_token": writer.add_eos_token_id,
                      "pad_token": writer.add_pad_token_id}.items():  # fmt: skip
        if settings.get(name) in ids:
            add(ids[settings[name]])
    if "chat_template" in settings:
        writer.add_chat_template(settings["chat_template"])


def write_gguf(
    folder: Path,
    path: Path,
    type_of: TypeOf,
    *,
    floats: Path | None = None,
    pre: str = "",
    seed: int = 0,
    **options: Any,
) -> Path:
    """Writes ``folder`` as a GGUF file, and the values that its tensors then have as ``floats``.

    ``pre`` names the tokenizer's splitting; "": no tokenizer. ``options`` are those of the writer.
    """
    config = json.loads((folder / "config.json").read_text())
    arch = ARCHITECTURES[config["architectures"][0]]
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch], **options)
    writer.add_name("a model of the tests")
    add_numbers(writer, config, arch)
    if pre:
        add_tokenizer(writer, folder, pre)
    values: Tensors = {}
    rng = np.random.default_rng(seed)
    tied = config.get("tie_word_embeddings")
    for name, tensor in join_experts(load_file(folder / WEIGHTS)).items():
        if name == "lm_head.weight" and tied:
            continue
        own = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert own is not None, name
        heads = 0
        if arch in PERMUTED and ".q_proj." in name:
            heads = config["num_attention_heads"]
        if arch in PERMUTED and ".k_proj." in name:
            heads = config["num_key_value_heads"]
        tensor = from_bfloat16(tensor) if tensor.dtype == np.uint16 else tensor
        weight = permute(tensor, heads) if heads else tensor
        one = np.float32(1) if arch in ADDS_ONE and name.endswith("norm.weight") else np.float32(0)
        kind = type_of(own) if weight.ndim > 1 else Type.F32
        data = encode(weight + one if one else weight, kind, rng)
        writer.add_tensor(own, data, raw_dtype=kind)
        stored = decode(data, kind) - one if one else decode(data, kind)
        values[name] = unpermute(stored, heads) if heads else stored
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if floats is not None:
        floats.mkdir()
        save_file(split_experts(values), floats / WEIGHTS)
        shutil.copy(folder / "config.json", floats)
    return path
