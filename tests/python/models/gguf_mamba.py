"""What llama.cpp's converter writes of Granite 4 H, Bamba, Falcon-H1, Nemotron-H, Mamba 2, Mamba,
Falcon Mamba and Jamba: which layers have Mamba, their sizes, and what becomes of the tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gguf
import numpy as np
from gguf import MODEL_ARCH as Arch

MAMBA_ARCHITECTURES = {
    "GraniteMoeHybridForCausalLM": Arch.GRANITE_HYBRID,
    "BambaForCausalLM": Arch.GRANITE_HYBRID,
    "FalconH1ForCausalLM": Arch.FALCON_H1,
    "NemotronHForCausalLM": Arch.NEMOTRON_H_MOE,
    "Mamba2ForCausalLM": Arch.MAMBA2,
    "MambaForCausalLM": Arch.MAMBA,
    "FalconMambaForCausalLM": Arch.MAMBA,
    "JambaForCausalLM": Arch.JAMBA,
}
SCANS = {Arch.MAMBA, Arch.JAMBA}
NEMOTRON = {Arch.NEMOTRON_H, Arch.NEMOTRON_H_MOE}
MAMBA = {*MAMBA_ARCHITECTURES.values(), *NEMOTRON}
EXPERT_FIELDS = ("n_routed_experts", "num_experts_per_tok", "n_shared_experts", "n_group",
                 "topk_group", "routed_scaling_factor", "norm_topk_prob", "moe_intermediate_size",
                 "moe_shared_expert_intermediate_size")  # fmt: skip
Config = dict[str, Any]
Change = tuple[
    tuple[str, ...],
    Callable[[np.ndarray], list[np.ndarray]],
    Callable[[list[np.ndarray]], np.ndarray],
]


def as_on_the_hub(config: Config) -> Config:
    """With the number of layers, and without experts of which there are none: as NVIDIA's files."""
    if config["model_type"] in ("mamba", "falcon_mamba"):
        epsilon = config["layer_norm_epsilon"]
        return config | {
            "num_attention_heads": 1,
            "num_key_value_heads": 1,
            "head_dim": 8,
            "max_position_embeddings": 1,
            "rms_norm_eps": epsilon,
        }
    if config["model_type"] == "mamba2":  # no head; add_mamba_sizes says so
        epsilon = config["layer_norm_epsilon"]
        return config | {
            "num_attention_heads": 1,
            "num_key_value_heads": 1,
            "head_dim": 8,
            "intermediate_size": 1,
            "max_position_embeddings": 1,
            "rms_norm_eps": epsilon,
            "mamba_head_dim": config["head_dim"],
        }
    blocks = config.get("layers_block_type")
    if blocks is None:
        return config
    config = config | {"num_hidden_layers": len(blocks)}
    if "moe" in blocks:
        return config
    return {k: v for k, v in config.items() if k not in EXPERT_FIELDS} | {"gguf_arch": "NEMOTRON_H"}


def without_multipliers(config: Config) -> Config:
    """Of a folder with the values of the file: Falcon-H1's multipliers are a part of them."""
    if config["model_type"] != "falcon_h1":
        return config
    ones = {
        k: [1.0] * len(v) if isinstance(v, list) else 1.0
        for k, v in config.items()
        if k.endswith(("_multiplier", "_multipliers"))
    }
    return config | ones


def scaled(config: Config, name: str, tensor: np.ndarray) -> np.ndarray:
    """A tensor of Falcon-H1 with its multipliers."""
    inputs = config["attention_in_multiplier"]
    gates, down = config["mlp_multipliers"]
    size, keys = config["mamba_d_ssm"], config["mamba_n_groups"] * config["mamba_d_state"]
    parts = np.array(config["ssm_multipliers"]) * config["ssm_in_multiplier"]
    rows = np.repeat(parts, [size, size, keys, keys, config["mamba_n_heads"]])
    factors: dict[str, Any] = {
        "embed_tokens.": config["embedding_multiplier"],
        "lm_head.": config["lm_head_multiplier"],
        ".q_proj.": inputs,
        ".k_proj.": inputs * config["key_multiplier"],
        ".v_proj.": inputs,
        ".o_proj.": config["attention_out_multiplier"],
        ".mamba.in_proj.": rows[:, None],
        ".mamba.out_proj.": config["ssm_out_multiplier"],
        ".gate_proj.": gates,
        ".down_proj.": down,
    }
    factor = next((factor for part, factor in factors.items() if part in name), 1.0)
    return (tensor * factor).astype(np.float32)


def attending(config: Config) -> list[int]:
    if "attn_layer_indices" in config:
        return list(config["attn_layer_indices"])
    kinds = enumerate(config["layer_types"])
    return [i for i, kind in kinds if kind in ("attention", "full_attention")]


def mamba_change(config: Config, plain: str) -> Change | None:
    """The names, what is done, and what undoes it; None: nothing of its own."""
    if config["model_type"] in ("mamba", "falcon_mamba", "jamba"):
        return scan_change(plain)
    if plain.endswith(".A_log"):
        return (plain,), lambda t: [-np.exp(t)[:, None]], logarithm
    if plain.endswith(".D"):
        return (plain,), lambda t: [t[:, None]], lambda p: p[0][:, 0]
    if plain.endswith(".dt_bias"):
        return (plain.replace(".dt_bias", ".dt_proj.bias"),), lambda t: [t], lambda p: p[0]
    if plain.endswith(".conv1d.weight"):
        return (plain,), lambda t: [np.ascontiguousarray(t[:, 0])], lambda p: p[0][:, None]
    if plain.endswith(("mamba.norm.weight", "mixer.norm.weight")):
        groups = config.get("mamba_n_groups") or config["n_groups"]
        return (plain,), lambda t: [t.reshape(groups, -1)], lambda p: p[0].reshape(-1)
    if ".mixer.experts." in plain:
        return (plain.replace("backbone.", "model.").replace("mixer.", "mlp."),), whole, first
    if config["model_type"] == "falcon_h1":
        return (plain,), lambda t: [scaled(config, plain, t)], first
    if "shared_mlp." not in plain or config["num_local_experts"]:
        return None
    if "output_linear" in plain:
        return (plain.replace("shared_mlp.output_linear", "mlp.down_proj"),), whole, first
    names = tuple(plain.replace("shared_mlp.input_linear", f"mlp.{p}_proj") for p in ("gate", "up"))
    return names, lambda t: np.split(t, 2), np.concatenate


def scan_change(plain: str) -> Change | None:
    """Of Mamba-1, whose decays are a matrix."""
    if plain.endswith(".A_log"):
        return (plain,), lambda t: [-np.exp(t)], lambda p: logarithm([p[0][..., None]])
    if plain.endswith(".conv1d.weight"):
        return (plain,), lambda t: [np.ascontiguousarray(t[:, 0])], lambda p: p[0][:, None]
    return None


def logarithm(parts: list[np.ndarray]) -> np.ndarray:
    """Of the negative; rounded once, as the engine's is."""
    return np.log(-parts[0][..., 0].astype(np.float64)).astype(np.float32)


def whole(tensor: np.ndarray) -> list[np.ndarray]:
    return [tensor]


def first(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0]


def add_mamba_sizes(writer: gguf.GGUFWriter, config: Config, arch: Arch) -> None:
    if arch in SCANS:
        return add_scan_sizes(writer, config, arch)
    add_ssm_sizes(writer, config)
    if arch in NEMOTRON:
        add_blocks(writer, config)
    elif arch == Arch.MAMBA2:
        writer.add_context_length(2**20)
        writer.add_feed_forward_length(0)
        writer.add_head_count(0)
    elif arch == Arch.GRANITE_HYBRID:
        layers = attending(config)
        writer.add_head_count_kv(
            [config["num_key_value_heads"] if i in layers else 0
             for i in range(config["num_hidden_layers"])]
        )  # fmt: skip
        has_rope = config["architectures"] == ["BambaForCausalLM"]
        writer.add_rope_scaling_finetuned(has_rope)
        if not has_rope:
            writer.add_context_length(2**20)


def add_scan_sizes(writer: gguf.GGUFWriter, config: Config, arch: Arch) -> None:
    """Of Mamba-1."""
    if arch == Arch.MAMBA:
        writer.add_context_length(2**20)
        writer.add_feed_forward_length(0)
        writer.add_head_count(0)
        writer.add_ssm_dt_b_c_rms(config["model_type"] == "falcon_mamba")
        writer.add_ssm_inner_size(config["intermediate_size"])
        writer.add_ssm_state_size(config["state_size"])
        writer.add_ssm_conv_kernel(config["conv_kernel"])
        writer.add_ssm_time_step_rank(config["time_step_rank"])
        return
    layers = range(config["num_hidden_layers"])
    period, offset = config["attn_layer_period"], config["attn_layer_offset"]
    kv = config["num_key_value_heads"]
    writer.add_head_count_kv([kv if i % period == offset else 0 for i in layers])
    writer.add_ssm_inner_size(config["mamba_expand"] * config["hidden_size"])
    writer.add_ssm_state_size(config["mamba_d_state"])
    writer.add_ssm_conv_kernel(config["mamba_d_conv"])
    writer.add_ssm_time_step_rank(config["mamba_dt_rank"])


def add_ssm_sizes(writer: gguf.GGUFWriter, config: Config) -> None:
    def value(*names: str) -> int:
        return next(int(config[name]) for name in names if name in config)

    heads = value("mamba_n_heads", "mamba_num_heads", "num_heads")
    if "mamba_d_ssm" in config:
        size = value("mamba_d_ssm")
    elif "mamba_expand" in config:
        size = value("mamba_expand") * config["hidden_size"]
    else:
        size = heads * value("mamba_head_dim", "head_dim")
    writer.add_ssm_conv_kernel(value("mamba_d_conv", "conv_kernel"))
    writer.add_ssm_state_size(value("mamba_d_state", "ssm_state_size", "state_size"))
    writer.add_ssm_group_count(value("mamba_n_groups", "n_groups"))
    writer.add_ssm_inner_size(size)
    writer.add_ssm_time_step_rank(heads)


def add_blocks(writer: gguf.GGUFWriter, config: Config) -> None:
    """Which layer is what. A layer that guesses has attention and experts."""
    kinds = config["layers_block_type"]
    experts = "moe" in kinds
    kv = config["num_key_value_heads"]
    ffn = config["moe_intermediate_size" if experts else "intermediate_size"]
    guessing = config["num_nextn_predict_layers"]
    kv_heads = [kv if kind == "full_attention" else 0 for kind in kinds]
    sizes = [ffn if kind in ("mlp", "moe") else 0 for kind in kinds]
    writer.add_head_count_kv(kv_heads + [kv] * guessing)
    writer.add_feed_forward_length(sizes + [ffn] * guessing)
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_rope_scaling_finetuned(False)
    writer.add_context_length(2**20)
    if experts:
        writer.add_expert_weights_norm(config["norm_topk_prob"])
        shared = config["moe_shared_expert_intermediate_size"]
        writer.add_expert_shared_feed_forward_length(shared)
        if config["moe_latent_size"]:
            writer.add_moe_latent_size(config["moe_latent_size"])
