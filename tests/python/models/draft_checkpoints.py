"""Random draft heads in the layouts of those who train them (torch_drafts.py computes them)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

MTP_STYLES = ("MiMo", "DeepSeek", "Qwen3-Next")


def mtp_names(style: str, num_layers: int) -> dict[str, str]:
    """What the tensors of an MTP head are called in the folder of a model with `num_layers`."""
    if style == "MiMo":
        layer = "model.mtp_layers.0."
        return {
            "layer": layer,
            "embedding_norm": layer + "token_layernorm",
            "state_norm": layer + "hidden_layernorm",
            "fuse": layer + "input_proj",
            "final_norm": layer + "final_layernorm",
        }
    if style == "DeepSeek":
        layer = f"model.layers.{num_layers}."
        return {
            "layer": layer,
            "embedding_norm": layer + "enorm",
            "state_norm": layer + "hnorm",
            "fuse": layer + "eh_proj",
            "final_norm": layer + "shared_head.norm",
        }
    return {
        "layer": "mtp.layers.0.",
        "embedding_norm": "mtp.pre_fc_norm_embedding",
        "state_norm": "mtp.pre_fc_norm_hidden",
        "fuse": "mtp.fc",
        "final_norm": "mtp.norm",
    }


HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 64, 96, 4, 2, 16, 512


class RandomTensors:
    """Matrices whose outputs vary enough for clear maxima, and norms around 1."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.tensors: dict[str, Tensor] = {}

    def matrix(self, name: str, rows: int, columns: int, bias: bool = False) -> None:
        scale = columns**-0.5
        weight = torch.randn(rows, columns, generator=self.generator) * scale
        self.tensors[name + ".weight"] = weight
        if bias:
            self.tensors[name + ".bias"] = torch.randn(rows, generator=self.generator) * 0.1

    def norm(self, name: str, size: int = HIDDEN) -> None:
        self.tensors[name + ".weight"] = 1 + 0.3 * torch.randn(size, generator=self.generator)

    def like(self, name: str, other: Tensor) -> None:
        """A tensor of the same kind: of a matrix, a norm or a bias."""
        if other.dim() > 1:
            scale = other.shape[-1] ** -0.5
            self.tensors[name] = torch.randn(other.shape, generator=self.generator) * scale
        elif name.endswith("norm.weight"):
            self.norm(name.removesuffix(".weight"), len(other))
        else:
            self.tensors[name] = torch.randn(len(other), generator=self.generator) * 0.1

    def layer(self, prefix: str, columns: int) -> None:
        for name, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            self.matrix(f"{prefix}self_attn.{name}_proj", heads * HEAD_DIM, columns)
        self.matrix(f"{prefix}self_attn.o_proj", HIDDEN, HEADS * HEAD_DIM)
        self.matrix(f"{prefix}mlp.gate_proj", FFN, HIDDEN)
        self.matrix(f"{prefix}mlp.up_proj", FFN, HIDDEN)
        self.matrix(f"{prefix}mlp.down_proj", HIDDEN, FFN)
        self.norm(f"{prefix}input_layernorm")
        self.norm(f"{prefix}post_attention_layernorm")


LAYER_CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": FFN,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 20000.0,
}


def write_eagle3(
    folder: Path,
    *,
    style: str = "SafeAILab",
    draft_vocab: int = VOCAB,
    own_embeddings: bool = False,
    own_head: bool = True,
    qk_norm: bool = False,
    num_states: int = 3,
    target_hidden: int = HIDDEN,
    fields: Mapping[str, Any] | None = None,
    seed: int = 5,
) -> Path:
    """A random EAGLE-3 head as one of its trainers writes it."""
    fields = fields or {}
    prefix = "layers.0." if style == "speculators" else "midlayer."
    if style == "speculators":
        config = {
            "architectures": ["Eagle3Speculator"],
            "speculators_model_type": "eagle3",
            "transformer_layer_config": LAYER_CONFIG,
            "draft_vocab_size": draft_vocab,
        }
    else:
        name = {"SafeAILab": "LlamaForCausalLMEagle3", "AngelSlim": "Eagle3LlamaForCausalLM"}[style]
        config = {**LAYER_CONFIG, "architectures": [name], "draft_vocab_size": draft_vocab}
    random = RandomTensors(seed)
    random.matrix("fc", HIDDEN, num_states * target_hidden)
    random.layer(prefix, 2 * HIDDEN)
    random.norm(prefix + "hidden_norm")
    random.norm("norm")
    if own_head:
        random.matrix("lm_head", draft_vocab, HIDDEN)
    if own_embeddings:
        random.matrix("embed_tokens", VOCAB, HIDDEN)
    if qk_norm:
        random.norm(prefix + "self_attn.q_norm", HEAD_DIM)
        random.norm(prefix + "self_attn.k_norm", HEAD_DIM)
    if fields.get("norm_before_fc"):
        random.norm("input_norm", num_states * target_hidden)
    if fields.get("fc_norm"):
        for i in range(num_states):
            random.norm(f"fc_norm.{i}", target_hidden)
    if draft_vocab < VOCAB:
        ids = torch.randperm(VOCAB, generator=random.generator)[:draft_vocab].sort().values
        random.tensors["d2t"] = ids - torch.arange(draft_vocab)
        random.tensors["t2d"] = torch.zeros(VOCAB, dtype=torch.bool).index_fill(0, ids, True)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**config, **fields}))
    save_file(random.tensors, folder / "model.safetensors")
    return folder


def write_eagle1(folder: Path, bias: bool, seed: int = 7) -> Path:
    """A random EAGLE-1 head, which has its target's lm_head."""
    random = RandomTensors(seed)
    random.matrix("fc", HIDDEN, 2 * HIDDEN, bias)
    random.layer("layers.0.", HIDDEN)
    del random.tensors["layers.0.input_layernorm.weight"]
    random.matrix("embed_tokens", VOCAB, HIDDEN)
    folder.mkdir()
    config = {**LAYER_CONFIG, "architectures": ["EagleLlamaForCausalLM"], "bias": bias}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(random.tensors, folder / "model.safetensors")
    return folder


def add_mtp(target: Path, style: str = "MiMo", seed: int = 6) -> Path:
    """Put a random head into the folder of a model, with a layer like the model's last one that has
    attention; MiMo's model is a Qwen2."""
    config = json.loads((target / "config.json").read_text())
    config |= {"num_nextn_predict_layers": 1}
    if style == "MiMo":
        config |= {"architectures": ["MiMoForCausalLM"]}
    (target / "config.json").write_text(json.dumps(config))
    weights = load_file(target / "model.safetensors")
    random = RandomTensors(seed)
    text = {**config, **config.get("text_config", {})}
    num_layers, hidden = text["num_hidden_layers"], text["hidden_size"]
    names = mtp_names(style, num_layers)
    layer = names["layer"]
    attends = re.compile(r"(model\.(language_model\.)?layers\.\d+\.)self_attn\.o_proj\.")
    last = max(found[1] for found in map(attends.match, weights) if found)
    for name in sorted(weights):
        if name.startswith(last):
            random.like(layer + name.removeprefix(last), weights[name])
    for norm in ("embedding_norm", "state_norm", "final_norm"):
        random.norm(names[norm], hidden)
    random.matrix(names["fuse"], hidden, 2 * hidden)
    if style == "DeepSeek":  # which stores these twice
        embeddings = weights["model.embed_tokens.weight"]
        random.tensors[layer + "embed_tokens.weight"] = embeddings.clone()
        head = weights.get("lm_head.weight", embeddings)
        random.tensors[layer + "shared_head.head.weight"] = head.clone()
    save_file({**weights, **random.tensors}, target / "model.safetensors")
    return target


def write_medusa(
    folder: Path,
    *,
    style: str = "FasterDecoding",
    num_heads: int = 4,
    num_blocks: int = 1,
    own_heads: bool = True,
    seed: int = 8,
) -> Path:
    """Random heads of Medusa as one of its trainers writes them."""
    random = RandomTensors(seed)
    of_vllm = style == "vLLM"
    prefix = "medusa_head." if style == "with-module" else ""
    for head in range(num_heads):
        for block in range(num_blocks):
            name = f"blocks.{head}.layers.{block}" if of_vllm else f"{prefix}{head}.{block}.linear"
            random.matrix(name, HIDDEN, HIDDEN, bias=not of_vllm)
            random.tensors[name + ".weight"] *= 3
        if own_heads:
            name = f"lm_heads.{head}" if of_vllm else f"{prefix}{head}.{num_blocks}"
            random.matrix(name, VOCAB, HIDDEN)
    config: dict[str, Any] = {"medusa_num_heads": num_heads, "medusa_num_layers": num_blocks}
    if of_vllm:
        sizes = {"hidden_size": HIDDEN, "vocab_size": VOCAB, "truncated_vocab_size": VOCAB}
        config = {"model_type": "medusa", "architectures": ["MedusaModel"], **sizes}
        config |= {"num_heads": num_heads, "num_hidden_layers": num_blocks}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    file = "medusa_lm_head.safetensors" if style == "FasterDecoding" else "model.safetensors"
    save_file(random.tensors, folder / file)
    return folder
