"""GGUF files made from Hugging Face folders, as llama.cpp's converter makes them.

Names, keys, types and the quantizers are those of the package ``gguf``, which is llama.cpp's. What
the converter does to tensors is in gguf_families.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf_families import (
    ARCHITECTURES,
    add_activations,
    add_factors,
    add_numbers,
    change_of,
    is_vector,
    join_numbered,
    split_numbered,
)
from gguf_gemma4 import add_gemma4_tokenizer
from gguf_gpt import with_usual_names
from gguf_mamba import as_on_the_hub, without_multipliers
from quantized_checkpoints import WEIGHTS, Tensors, from_bfloat16, load_file, save_file

# Of a matrix: its name in the file -> its type.
TypeOf = Callable[[str], Type]
Metadata = dict[str, float | int | bool | str | list[int]]


# Of blocks for which there is no quantizer in Python, where their scales are. That of IQ1_M is in
# four pieces.
PLACES_OF_SCALES: dict[Type, tuple[int, ...]] = {
    Type.Q2_K: (80, 82),
    Type.Q3_K: (108,),
    Type.Q4_K: (0, 2),
    Type.Q5_K: (0, 2),
    Type.Q6_K: (208,),
    Type.IQ4_NL: (0,),
    Type.IQ4_XS: (0,),
    Type.IQ1_S: (0,),
    Type.IQ1_M: (),
    Type.IQ2_XXS: (0,),
    Type.IQ2_XS: (0,),
    Type.IQ2_S: (0,),
    Type.IQ3_XXS: (0,),
    Type.IQ3_S: (0,),
    Type.NVFP4: (),
}
# Of those whose codes are small, by how much the scales are larger.
LARGER_SCALES = {
    Type.IQ1_S: 30,
    Type.IQ1_M: 30,
    Type.IQ2_XXS: 5,
    Type.IQ2_XS: 5,
    Type.IQ2_S: 5,
    Type.IQ3_XXS: 5,
}


def random_blocks(
    shape: tuple[int, ...], kind: Type, rng: np.random.Generator, centred: bool = False
) -> np.ndarray:
    """Blocks of any bits with sane scales; of Q4_K, also with means of 0."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] // elements, size), np.uint8)
    of_scale = LARGER_SCALES.get(kind, 1) * np.array([1e-4, 6e-4])
    for place in PLACES_OF_SCALES[kind]:
        scale = rng.uniform(*of_scale, blocks.shape[:-1]).astype("<f2")
        blocks[..., place : place + 2] = scale[..., None].view(np.uint8)
    if kind == Type.IQ1_M:
        bits = rng.uniform(*of_scale, blocks.shape[:-1]).astype("<f2").view("<u2")
        for i in range(4):
            high = (bits >> 4 * i & 15).astype(np.uint8) << 4
            blocks[..., 49 + 2 * i] = blocks[..., 49 + 2 * i] & 15 | high
    if kind == Type.NVFP4:  # 0.003 to 0.5, for codes up to 12
        blocks[..., :4] = blocks[..., :4] % 64
    if centred:  # the minimum of a group is half of what its codes can add
        assert kind == Type.Q4_K
        scale = blocks[..., :2].copy().view("<f2")
        blocks[..., 2:4] = (scale * np.float16(7.5)).view(np.uint8)
        blocks[..., 8:12] = blocks[..., 4:8]
        blocks[..., 12:16] = (blocks[..., 12:16] & 15) * 17
    return blocks.reshape(*shape[:-1], -1)


def encode(
    weight: np.ndarray, kind: Type, rng: np.random.Generator, centred: bool = False
) -> np.ndarray:
    if kind in (Type.F32, Type.F16):
        return weight.astype(np.float32 if kind == Type.F32 else np.float16)
    if kind in PLACES_OF_SCALES:
        return random_blocks(weight.shape, kind, rng, centred)
    return gguf.quants.quantize(weight, kind)


def decode(data: np.ndarray, kind: Type) -> np.ndarray:
    if kind in (Type.F32, Type.F16):
        return data.astype(np.float32)
    return gguf.quants.dequantize(data, kind)


def as_floats(tensor: np.ndarray) -> np.ndarray:
    return from_bfloat16(tensor) if tensor.dtype == np.uint16 else tensor


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


def reads_no_text(name: str) -> bool:
    parts = ("visual", "vision_", "embed_vision", "audio_tower", "embed_audio")
    return any(part in name for part in parts)


def fusion_of(own: str) -> tuple[str, int, int]:
    """The tensor that may hold it, as one of how many, and the axis they are joined on."""
    if re.search(r"attn_[qkv]\.", own):
        return re.sub(r"attn_[qkv]\.", "attn_qkv.", own), 3, 0
    if re.search(r"ffn_(gate|up)_exps\.", own):
        return re.sub(r"ffn_(gate|up)_exps\.", "ffn_gate_up_exps.", own), 2, 1
    return own, 1, 0


def write_gguf(
    folder: Path,
    path: Path,
    type_of: TypeOf,
    *,
    floats: Path | None = None,
    pre: str = "",
    seed: int = 0,
    fused: bool = False,
    centred: bool = False,
    metadata: Metadata | None = None,
    **options: Any,
) -> Path:
    """Writes ``folder`` as a GGUF file, and the values that its tensors then have as ``floats``.

    ``pre`` names the tokenizer's splitting; "": no tokenizer. ``fused``: q, k and v are one tensor,
    and so are the gates and ups of experts. ``centred`` is that of ``random_blocks``. ``metadata``
    is what it has besides. ``options`` are those of the writer.
    """
    config = json.loads((folder / "config.json").read_text())
    config |= {**config.get("text_config", {}), "architectures": config["architectures"]}
    config = with_usual_names(as_on_the_hub(config))
    arch = ARCHITECTURES[config["architectures"][0]]
    if "gguf_arch" in config:
        arch = gguf.MODEL_ARCH[config["gguf_arch"]]
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"] + 1)
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch], **options)
    writer.add_name("a model of the tests")
    add_numbers(writer, config, arch)
    for key, value in (metadata or {}).items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_float32(key, value)
    if pre == "gemma4":
        add_gemma4_tokenizer(writer, folder)
    elif pre:
        add_tokenizer(writer, folder, pre)
    stored = {n: as_floats(t) for n, t in load_file(folder / WEIGHTS).items()
              if not reads_no_text(n)}  # fmt: skip
    add_activations(writer, stored)
    values: Tensors = {}
    fusing: dict[str, list[np.ndarray]] = {}  # by the name of the fused tensor
    rng = np.random.default_rng(seed)
    for name, tensor in join_numbered(stored).items():
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        if ".act_fn." in name:
            values[name] = tensor
            continue
        change = change_of(arch, config, name)
        parts = []
        for plain, part in zip(change.names, change.apply(tensor), strict=True):
            own = plain if plain.startswith("blk.") else names.get_name(plain, (".weight", ".bias"))
            if ".nextn." in plain:
                own = plain.replace("model.layers.", "blk.")
            assert own is not None, plain
            kind = Type.F32 if part.ndim == 1 or is_vector(own) else type_of(own)
            joined, count, axis = fusion_of(own)
            if re.sub(r"\.[qk]_proj\.", ".v_proj.", name) not in stored:
                count = 1  # values are the keys, or another layer's
            if (fused or arch == gguf.MODEL_ARCH.CHATGLM) and count > 1:
                kind = Type.F32 if part.ndim == 1 or is_vector(own) else Type.Q8_0
                held = fusing.setdefault(joined, [])
                held.append(encode(part, kind, rng))
                data = held[-1]
                if len(held) == count:
                    writer.add_tensor(joined, np.concatenate(held, axis), raw_dtype=kind)
            else:
                data = encode(part, kind, rng, centred)
                writer.add_tensor(own, data, raw_dtype=kind)
            scale = np.float32(1)
            if kind == Type.NVFP4:  # of each matrix
                scale = rng.uniform(0.02, 0.06, part.shape[:-2]).astype(np.float32)
                writer.add_tensor(own.replace(".weight", ".scale"), scale.reshape(-1))
                scale = scale[..., None, None]
            parts.append(decode(data, kind) * scale)
        values[name] = change.undo(parts)
    add_factors(writer, config)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if floats is not None:
        floats.mkdir()
        save_file(split_numbered(values, stored), floats / WEIGHTS)
        own = without_multipliers(json.loads((folder / "config.json").read_text()))
        (floats / "config.json").write_text(json.dumps(own))
    return path
