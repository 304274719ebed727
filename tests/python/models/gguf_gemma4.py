"""What llama.cpp's converter writes of Gemma 4: sizes of layers, tensors, and the vocabulary."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from transformers import GemmaTokenizer

Config = dict[str, Any]
Change = tuple[
    tuple[str, ...],
    Callable[[np.ndarray], list[np.ndarray]],
    Callable[[list[np.ndarray]], np.ndarray],
]
SPECIAL = [
    "<|turn>", "<turn|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>",
    "<|channel>", "<channel|>", '<|"|>', "<|think|>",
]  # fmt: skip
# Which the converter makes no control tokens of.
VISIBLE = set(SPECIAL) - {"<|turn>", "<turn|>", "<|think|>"}
TEMPLATE = """{{ bos_token }}{% for message in messages %}<|turn>{{ message['role'] }}
{{ message['content'] }}<turn|>
{% endfor %}{% if add_generation_prompt %}<|turn>model
{% endif %}"""


def _same(*names: str) -> Change:
    return names, lambda tensor: [tensor], lambda parts: parts[0]


def gemma4_change(config: Config, plain: str) -> Change | None:
    """The names, what is done, and what undoes it; None: nothing of its own."""
    block = re.sub(r"model\.layers\.(\d+)\..*", r"blk.\1.", plain)
    if plain.endswith("router.scale"):
        return _same(f"{block}ffn_gate_inp.scale")
    if plain.endswith("router.per_expert_scale"):
        return _same(f"{block}ffn_down_exps.scale")
    if plain.endswith("layer_scalar"):
        return _same(f"{plain}.weight")
    if plain.endswith("experts.gate_up_proj") and config.get("separate_experts"):
        # As in files that other programs make of such tensors.
        names = (f"{block}ffn_gate_exps.weight", f"{block}ffn_up_exps.weight")
        return names, lambda t: np.split(t, 2, 1), lambda p: np.concatenate(p, 1)
    if ".experts." in plain:
        return _same(f"{plain}.weight")
    return None


def sizes_without_window(config: Config) -> tuple[int, int]:
    """The size of a head and the number of KV heads."""
    layers: dict[str, Config] = config["per_layer_config"]
    (own,) = {(own["head_dim"], own.get("num_key_value_heads")) for own in layers.values()}
    return own[0], own[1] or config["num_key_value_heads"]


def add_gemma4_sizes(writer: gguf.GGUFWriter, config: Config) -> None:
    has_window = [kind == "sliding_attention" for kind in config["layer_types"]]
    writer.add_sliding_window_pattern(has_window)
    shared = config["num_kv_shared_layers"]
    writer.add_shared_kv_layers(shared)
    writer.add_embedding_length_per_layer_input(config.get("hidden_size_per_layer_input") or 0)
    head_dim, kv_heads = sizes_without_window(config)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_key_length_swa(config["head_dim"])
    writer.add_value_length_swa(config["head_dim"])
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_dimension_count_swa(config["head_dim"])
    if kv_heads != config["num_key_value_heads"]:
        writer.add_head_count_kv(
            [config["num_key_value_heads"] if window else kv_heads for window in has_window]
        )
    if config["use_double_wide_mlp"]:
        size = config["intermediate_size"]
        writer.add_feed_forward_length([size] * (len(has_window) - shared) + [2 * size] * shared)
    if config.get("final_logit_softcapping"):
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if config.get("top_k_experts"):
        writer.add_expert_used_count(config["top_k_experts"])


def add_gemma4_factors(writer: gguf.GGUFWriter, config: Config) -> None:
    """The pairs of a head without rotation have wavelengths beyond every position."""
    pairs = sizes_without_window(config)[0] // 2
    part = config["rope_parameters"]["full_attention"]["partial_rotary_factor"]
    rotated = int(pairs * part)
    factors = np.array([1.0] * rotated + [1e30] * (pairs - rotated), np.float32)
    writer.add_tensor("rope_freqs.weight", factors)


# ---- The vocabulary ----


def make_gemma4_tokenizer(folder: Path, words: list[str], merges: list[list[str]]) -> int:
    """Writes one as transformers does into a folder; the number of its tokens."""
    front = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    texts = [*front, *SPECIAL, *words]
    tokenizer = GemmaTokenizer(
        vocab={text: i for i, text in enumerate(texts)},
        merges=[(left, right) for left, right in merges],
        extra_special_tokens=SPECIAL,
        chat_template=TEMPLATE,
    )
    tokenizer.save_pretrained(folder, save_jinja_files=False)
    return len(texts)


def add_gemma4_tokenizer(writer: gguf.GGUFWriter, folder: Path, adds_bos: bool = True) -> None:
    file = json.loads((folder / "tokenizer.json").read_text())
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    ids = file["model"]["vocab"]
    special = {token["content"] for token in file["added_tokens"]} - VISIBLE
    kinds = []
    for text in sorted(ids, key=ids.__getitem__):
        kind = gguf.TokenType.NORMAL
        if re.fullmatch("<0x[0-9A-F]{2}>", text):
            kind = gguf.TokenType.BYTE
        elif text in VISIBLE:
            kind = gguf.TokenType.USER_DEFINED
        elif text in special:
            kind = gguf.TokenType.CONTROL
        kinds.append(kind)
    writer.add_tokenizer_model("gemma4")
    writer.add_token_list(sorted(ids, key=ids.__getitem__))
    writer.add_token_scores([-1000.0] * len(ids))
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(merge) for merge in file["model"]["merges"]])
    writer.add_bos_token_id(ids["<bos>"])
    writer.add_eos_token_id(ids["<eos>"])
    writer.add_unk_token_id(ids["<unk>"])
    writer.add_pad_token_id(ids["<pad>"])
    if "chat_template" in settings:
        writer.add_chat_template(settings["chat_template"])
    writer.add_add_space_prefix(False)
    writer.add_add_bos_token(adds_bos)
