"""What llama.cpp's converter writes of GPT-2, StarCoder, Falcon, GPT-NeoX, BLOOM and MPT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gguf
import numpy as np
from gguf import MODEL_ARCH as Arch

GPT_ARCHITECTURES = {
    "GPT2LMHeadModel": Arch.GPT2,
    "GPTBigCodeForCausalLM": Arch.STARCODER,
    "FalconForCausalLM": Arch.FALCON,
    "GPTNeoXForCausalLM": Arch.GPTNEOX,
    "BloomForCausalLM": Arch.BLOOM,
    "MptForCausalLM": Arch.MPT,
}
GPT = set(GPT_ARCHITECTURES.values())
Config = dict[str, Any]
Change = tuple[
    tuple[str, ...],
    Callable[[np.ndarray], list[np.ndarray]],
    Callable[[list[np.ndarray]], np.ndarray],
]
TRANSPOSED = ("attn.c_attn.weight", "c_proj.weight", "mlp.c_fc.weight")


def with_usual_names(config: Config) -> Config:
    """With the fields of other families beside the own ones."""
    if config["architectures"][0] not in GPT_ARCHITECTURES:
        return config
    names = {
        "hidden_size": ("n_embd", "d_model"), "num_attention_heads": ("n_head", "n_heads"),
        "num_hidden_layers": ("n_layer", "n_layers"),
        "max_position_embeddings": ("n_positions", "seq_length", "max_seq_len"),
        "intermediate_size": ("n_inner", "ffn_hidden_size"),
    }  # fmt: skip
    usual = {name: config[own] for name, all_ in names.items() for own in all_ if own in config}
    config = usual | config
    config.setdefault("intermediate_size", 4 * config["hidden_size"])
    return config


def kv_heads(config: Config, arch: Arch) -> int:
    heads = int(config["num_attention_heads"])
    if arch in (Arch.GPT2, Arch.GPTNEOX, Arch.BLOOM):
        return heads
    if config.get("new_decoder_architecture"):
        return int(config["num_kv_heads"])
    return 1 if config["multi_query"] else heads


def gpt_change(arch: Arch, config: Config, name: str) -> Change | None:
    """The names, what is done, and what undoes it; None: nothing of its own."""
    if arch == Arch.GPT2 and name.endswith(TRANSPOSED):
        return (name,), lambda t: [np.ascontiguousarray(t.T)], lambda p: p[0].T.copy()
    own = name.removeprefix("transformer.") if arch == Arch.BLOOM else name
    if arch == Arch.BLOOM and "query_key_value" not in name:
        return (own,), lambda t: [t], lambda p: p[0]
    if arch not in (Arch.FALCON, Arch.GPTNEOX, Arch.BLOOM) or "query_key_value" not in name:
        return None
    kv = kv_heads(config, arch)
    q = int(config["num_attention_heads"]) // kv

    def apply(t: np.ndarray) -> list[np.ndarray]:
        groups = t.reshape(kv, q + 2, -1, *t.shape[1:])
        parts = [groups[:, :q], groups[:, q : q + 1], groups[:, q + 1 :]]
        return [np.concatenate([p.reshape(-1, *t.shape[1:]) for p in parts])]

    def undo(parts: list[np.ndarray]) -> np.ndarray:
        t = parts[0]
        dim = t.shape[0] // (kv * (q + 2))
        split = np.split(t, [kv * q * dim, kv * (q + 1) * dim])
        groups = [p.reshape(kv, -1, dim, *t.shape[1:]) for p in split]
        return np.concatenate(groups, axis=1).reshape(t.shape)

    return (own,), apply, undo


def add_gpt_numbers(writer: gguf.GGUFWriter, config: Config, arch: Arch) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    if arch == Arch.GPTNEOX:
        rope = config["rope_parameters"]
        dim = config["hidden_size"] // config["num_attention_heads"]
        writer.add_rope_dimension_count(int(rope["partial_rotary_factor"] * dim))
        writer.add_parallel_residual(config["use_parallel_residual"])
        return writer.add_layer_norm_eps(config["layer_norm_eps"])
    if arch == Arch.MPT:
        writer.add_max_alibi_bias(config["attn_config"]["alibi_bias_max"])
    elif arch == Arch.BLOOM:
        writer.add_head_count_kv(config["num_attention_heads"])
    elif arch != Arch.GPT2:
        writer.add_head_count_kv(kv_heads(config, arch))
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
