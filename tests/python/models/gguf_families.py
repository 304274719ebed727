"""What llama.cpp's converter writes of each family: the numbers, and what becomes of the tensors.

A tensor of a Hugging Face folder becomes one or two tensors of the file. A ``Change`` says how, and
what their values mean for the folder's tensor.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np
from gguf import MODEL_ARCH as Arch
from gguf_gemma3n import FLOATS, NUMBERED, add_gemma3n_sizes, gemma3n_change
from gguf_gemma4 import add_gemma4_factors, add_gemma4_sizes, gemma4_change
from gguf_gpt import GPT, GPT_ARCHITECTURES, add_gpt_numbers, gpt_change
from gguf_hybrid import HYBRID, add_hybrid_sizes, hybrid_change, nextn_name
from gguf_kimi import KIMI, add_kimi_sizes, as_deepseek, kimi_change
from gguf_lfm2 import LFM2, add_lfm2_sizes, lfm2_change
from gguf_mamba import MAMBA, MAMBA_ARCHITECTURES, NEMOTRON, add_mamba_sizes, mamba_change
from quantized_checkpoints import Tensors

ARCHITECTURES = {
    "LlamaForCausalLM": Arch.LLAMA,
    "MistralForCausalLM": Arch.LLAMA,
    "MixtralForCausalLM": Arch.LLAMA,
    "Ministral3ForCausalLM": Arch.MISTRAL3,
    "Qwen2ForCausalLM": Arch.QWEN2,
    "Qwen2MoeForCausalLM": Arch.QWEN2MOE,
    "Qwen2_5_VLForConditionalGeneration": Arch.QWEN2VL,
    "Qwen3ForCausalLM": Arch.QWEN3,
    "Qwen3MoeForCausalLM": Arch.QWEN3MOE,
    "Qwen3VLForConditionalGeneration": Arch.QWEN3VL,
    "Qwen3VLMoeForConditionalGeneration": Arch.QWEN3VLMOE,
    "Qwen3NextForCausalLM": Arch.QWEN3NEXT,
    "Qwen3_5ForCausalLM": Arch.QWEN35,
    "Qwen3_5ForConditionalGeneration": Arch.QWEN35,
    "Qwen3_5MoeForCausalLM": Arch.QWEN35MOE,
    "Phi3ForCausalLM": Arch.PHI3,
    "PhimoeForCausalLM": Arch.PHIMOE,
    "GemmaForCausalLM": Arch.GEMMA,
    "Gemma2ForCausalLM": Arch.GEMMA2,
    "Gemma3ForCausalLM": Arch.GEMMA3,
    "Gemma3nForCausalLM": Arch.GEMMA3N,
    "Gemma4ForCausalLM": Arch.GEMMA4,
    "Gemma4ForConditionalGeneration": Arch.GEMMA4,
    "Gemma4UnifiedForConditionalGeneration": Arch.GEMMA4,
    "Lfm2ForCausalLM": Arch.LFM2,
    "Lfm2MoeForCausalLM": Arch.LFM2MOE,
    "Olmo2ForCausalLM": Arch.OLMO2,
    "Olmo3ForCausalLM": Arch.OLMO2,
    "OlmoeForCausalLM": Arch.OLMOE,
    "GraniteForCausalLM": Arch.GRANITE,
    "GraniteMoeForCausalLM": Arch.GRANITE_MOE,
    "GraniteMoeSharedForCausalLM": Arch.GRANITE_MOE,
    "SmolLM3ForCausalLM": Arch.SMOLLM3,
    "GlmForCausalLM": Arch.CHATGLM,
    "Glm4ForCausalLM": Arch.GLM4,
    "Glm4MoeForCausalLM": Arch.GLM4_MOE,
    "DeepseekV2ForCausalLM": Arch.DEEPSEEK2,
    "DeepseekV3ForCausalLM": Arch.DEEPSEEK2,
    "Glm4MoeLiteForCausalLM": Arch.DEEPSEEK2,
    "GlmMoeDsaForCausalLM": Arch.GLM_DSA,
    "Mistral4ForCausalLM": Arch.DEEPSEEK2,  # as which there is Mistral Large 3
    "KimiLinearForCausalLM": Arch.KIMI_LINEAR,
    "Llama4ForCausalLM": Arch.LLAMA4,
    "AfmoeForCausalLM": Arch.AFMOE,
    "MiniMaxM2ForCausalLM": Arch.MINIMAXM2,
    "Dots1ForCausalLM": Arch.DOTS1,
    "ExaoneMoeForCausalLM": Arch.EXAONE_MOE,
    "HunYuanMoEV1ForCausalLM": Arch.HUNYUAN_MOE,
    "GptOssForCausalLM": Arch.GPT_OSS,
    "CohereForCausalLM": Arch.COMMAND_R,
    "Cohere2ForCausalLM": Arch.COHERE2,
    "Exaone4ForCausalLM": Arch.EXAONE4,
    "SeedOssForCausalLM": Arch.SEED_OSS,
    "HunYuanDenseV1ForCausalLM": Arch.HUNYUAN_DENSE,
    "Ernie4_5ForCausalLM": Arch.ERNIE4_5,
    "Ernie4_5_MoeForCausalLM": Arch.ERNIE4_5_MOE,
    "StableLmForCausalLM": Arch.STABLELM,
    "Starcoder2ForCausalLM": Arch.STARCODER2,
    "NemotronForCausalLM": Arch.NEMOTRON,
    "ArceeForCausalLM": Arch.ARCEE,
    "ApertusForCausalLM": Arch.APERTUS,
    "Jais2ForCausalLM": Arch.JAIS2,
    "OlmoForCausalLM": Arch.OLMO,
    **GPT_ARCHITECTURES,
    **MAMBA_ARCHITECTURES,
}
PERMUTED = {
    Arch.LLAMA, Arch.MISTRAL3, Arch.GRANITE, Arch.GRANITE_MOE, Arch.GRANITE_HYBRID, Arch.SMOLLM3,
    Arch.ARCEE, Arch.INTERNLM2, Arch.OLMO, *NEMOTRON,
}  # fmt: skip
ADDS_ONE = {Arch.GEMMA, Arch.GEMMA2, Arch.GEMMA3, Arch.GEMMA_EMBEDDING, Arch.NEMOTRON}
SIGMOID = {Arch.GLM4_MOE, Arch.MINIMAXM2, Arch.DOTS1, Arch.EXAONE_MOE}
LATENT = {Arch.DEEPSEEK2, Arch.MISTRAL4, Arch.GLM_DSA, *KIMI}
Config = dict[str, Any]
JOINED = f"experts|norms|{NUMBERED}"  # tensors that are parts of one in a file


# ---- Tensors ----


@dataclass(frozen=True)
class Change:
    """``apply`` makes the tensors of the file, ``undo`` what they mean."""

    names: tuple[str, ...]  # under which gguf's tables know them
    apply: Callable[[np.ndarray], list[np.ndarray]] = lambda tensor: [tensor]
    undo: Callable[[list[np.ndarray]], np.ndarray] = lambda parts: parts[0]


def permute(weight: np.ndarray, heads: int) -> np.ndarray:
    """The rows of a head in the order first of one half, first of the other, second of one..."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(weight.shape)


def unpermute(weight: np.ndarray, heads: int) -> np.ndarray:
    pairs = weight.reshape(heads, weight.shape[0] // heads // 2, 2, *weight.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)


def alternating(gate_up: np.ndarray) -> list[np.ndarray]:
    return [np.ascontiguousarray(gate_up[:, half::2]) for half in (0, 1)]


def joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.stack(parts, axis=2).reshape(parts[0].shape[0], -1, *parts[0].shape[2:])


def turned(tensor: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(tensor.swapaxes(-1, -2))


def gate_and_up(name: str, old: str, ending: str) -> tuple[str, str]:
    return name.replace(old, f"gate_proj{ending}"), name.replace(old, f"up_proj{ending}")


def gpt_oss_change(name: str) -> Change:
    """Experts are stored as [columns, rows], gate and up alternate."""
    if name.endswith("gate_up_proj_bias"):
        return Change(gate_and_up(name, "gate_up_proj_bias", ".bias"), alternating, joined)
    if name.endswith("gate_up_proj"):
        names = gate_and_up(name, "gate_up_proj", ".weight")
        return Change(names, lambda t: alternating(turned(t)), lambda p: turned(joined(p)))
    if name.endswith("down_proj_bias"):
        return Change((name.replace("down_proj_bias", "down_proj.bias"),))
    if name.endswith("experts.down_proj"):
        return Change((name + ".weight",), lambda t: [turned(t)], lambda p: turned(p[0]))
    return Change((name + ".weight",) if name.endswith("sinks") else (name,))


def granite_change(name: str) -> Change | None:
    """Gate and up are one tensor."""
    for old, place in (("block_sparse_moe.input_linear", "mlp.experts."),
                       ("shared_mlp.input_linear", "mlp.shared_expert.")):  # fmt: skip
        if old in name:
            names = gate_and_up(name.removesuffix(".weight"), old, ".weight")
            names = tuple(re.sub(r"(gate|up)_proj", rf"{place}\1_proj", n) for n in names)
            return Change(names, lambda t: np.split(t, 2, axis=-2),
                          lambda p: np.concatenate(p, axis=-2))  # fmt: skip
    return None


def key_value_up_change(config: Config, plain: str) -> Change:
    """The keys of all heads, each transposed, and their values."""
    heads = config["num_attention_heads"]
    key = config["qk_nope_head_dim"]

    def apply(t: np.ndarray) -> list[np.ndarray]:
        of_heads = t.reshape(heads, -1, t.shape[-1])
        return [turned(of_heads[:, :key]), np.ascontiguousarray(of_heads[:, key:])]

    def undo(parts: list[np.ndarray]) -> np.ndarray:
        both = np.concatenate([turned(parts[0]), parts[1]], axis=1)
        return both.reshape(-1, both.shape[-1])

    names = tuple(plain.replace("kv_b_proj", f"{part}_b_proj") for part in "kv")
    return Change(names, apply, undo)


def change_of(arch: Arch, config: Config, name: str) -> Change:
    """What becomes of a tensor whose experts or heads have been joined."""
    plain = nextn_name(config, name.replace("language_model.", "").replace(".norms.", "."))
    if arch in PERMUTED and re.search(r"\.[qk]_proj\.", name):
        heads = config["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"]
        return Change((plain,), lambda t: [permute(t, heads)], lambda p: unpermute(p[0], heads))
    if ".kv_b_proj." in name and not config.get("old_converter"):
        return key_value_up_change(config, plain)
    if arch in HYBRID and (hybrid := hybrid_change(arch, config, plain)):
        return Change(*hybrid)
    if arch == Arch.GEMMA3N and (gemma3n := gemma3n_change(plain)):
        return Change(*gemma3n)
    if arch == Arch.GEMMA4 and (gemma4 := gemma4_change(config, plain)):
        return Change(*gemma4)
    if arch in KIMI and (kimi := kimi_change(plain)):
        return Change(*kimi)
    if arch in LFM2 and (lfm2 := lfm2_change(plain)):
        return Change(*lfm2)
    if arch in MAMBA and (mamba := mamba_change(config, plain)):
        return Change(*mamba)
    if arch in GPT and (gpt := gpt_change(arch, config, name)):
        return Change(*gpt)
    if arch in ADDS_ONE and name.endswith("norm.weight"):
        one = np.float32(1)
        return Change((plain,), lambda t: [t + one], lambda p: p[0] - one)
    if arch == Arch.GPT_OSS:
        return gpt_oss_change(plain)
    if arch in (Arch.GRANITE_MOE, Arch.GRANITE_HYBRID) and (change := granite_change(plain)):
        return change
    if plain.endswith(".expert_bias"):
        return Change((f"{plain}.bias",))
    turn = turned if arch in (Arch.QWEN3VLMOE, Arch.LLAMA4) else lambda tensor: tensor
    if name.endswith("experts.gate_up_proj"):
        names = gate_and_up(plain, "gate_up_proj", ".weight")
        return Change(names, lambda t: np.split(turn(t), 2, axis=-2),
                      lambda p: turn(np.concatenate(p, axis=-2)))  # fmt: skip
    if name.endswith("experts.down_proj"):
        return Change((plain + ".weight",), lambda t: [turn(t)], lambda p: turn(p[0]))
    if name.endswith("shared_expert_gate.weight"):  # a row, as a vector
        return Change((plain,), lambda t: [t[0]], lambda p: p[0][None])
    return Change((plain.replace("e_score_correction_bias", "e_score_correction.bias"),))


def join_numbered(tensors: Tensors) -> Tensors:
    """With one tensor for the experts of a layer, or for the norms of its heads."""
    parts: dict[str, list[np.ndarray]] = {}
    for name, tensor in tensors.items():
        parts.setdefault(re.sub(rf"\.({JOINED})\.\d+\.", r".\1.", name), []).append(tensor)
    return {
        name: np.stack(found) if name not in tensors else found[0] for name, found in parts.items()
    }


def split_numbered(tensors: Tensors, names: Tensors) -> Tensors:
    """The reverse, for the names of a folder."""
    split: Tensors = {}
    for name, tensor in tensors.items():
        if name in names:
            split[name] = tensor
            continue
        for i, part in enumerate(tensor):
            split[re.sub(rf"\.({JOINED})\.", rf".\1.{i}.", name)] = part
    return split


def is_vector(own: str) -> bool:
    """Whether the converter keeps floats of 32 bits, whatever type is asked for."""
    floats = ("_norm.", "ffn_gate_inp", "ssm_conv1d", "shortconv.conv", "position_embd",
              *FLOATS)  # fmt: skip
    return not own.endswith(".weight") or any(name in own for name in floats)


# ---- Numbers ----


def rope_factors(config: Config, rope: Config, dim: int) -> np.ndarray:
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


def add_numbers(writer: gguf.GGUFWriter, config: Config, arch: Arch) -> None:
    if arch in KIMI:
        config = as_deepseek(config)
    if arch in GPT:
        return add_gpt_numbers(writer, config, arch)
    heads = config["num_attention_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    guessing = 0  # layers, whose tensors may be left out
    for name in ("num_nextn_predict_layers", "mtp_num_hidden_layers"):
        guessing = config.get(name) or guessing
    writer.add_block_count(config["num_hidden_layers"] + guessing)
    writer.add_nextn_predict_layers(guessing)
    if "intermediate_size" in config:
        dense = config.get("intermediate_size_mlp", config["intermediate_size"])
        writer.add_feed_forward_length(dense)
    writer.add_head_count(heads)
    latent = arch in LATENT
    writer.add_head_count_kv(1 if latent else config["num_key_value_heads"])
    for name in ("rms_norm_eps", "layer_norm_eps", "norm_epsilon", "norm_eps"):
        if name in config:
            rms = name == "rms_norm_eps" or arch in LFM2
            (writer.add_layer_norm_rms_eps if rms else writer.add_layer_norm_eps)(config[name])
    if arch == Arch.OLMO:
        writer.add_layer_norm_eps(1e-5)
    if latent:
        dim = add_latent_sizes(writer, config)
    else:
        writer.add_key_length(dim)
        writer.add_value_length(dim)
    if "residual_multiplier" in config:
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    if "logit_scale" in config:
        writer.add_logit_scale(config["logit_scale"])
    if arch == Arch.GEMMA2:
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    add_rope(writer, config, arch, dim)
    if arch in HYBRID:
        add_hybrid_sizes(writer, config)
    add_windows(writer, config, arch)
    add_experts(writer, config, arch)
    if arch == Arch.GEMMA3N:
        add_gemma3n_sizes(writer, config)
    if arch == Arch.GEMMA4:
        add_gemma4_sizes(writer, config)
    if arch in KIMI:
        add_kimi_sizes(writer, config)
    if arch in LFM2:
        add_lfm2_sizes(writer, config, arch)
    if arch in MAMBA:
        add_mamba_sizes(writer, config, arch)


def add_latent_sizes(writer: gguf.GGUFWriter, config: Config) -> int:
    """Those of heads, which the first converters of this family wrote without "_mla"."""
    rank, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
    key, value = config["qk_nope_head_dim"] + rope, config["v_head_dim"]
    writer.add_kv_lora_rank(rank)
    if "index_topk" in config:
        writer.add_indexer_head_count(config["index_n_heads"])
        writer.add_indexer_key_length(config["index_head_dim"])
        writer.add_indexer_top_k(config["index_topk"])
    if config["q_lora_rank"]:
        writer.add_q_lora_rank(config["q_lora_rank"])
    if config.get("old_converter"):
        writer.add_key_length(key)
        writer.add_value_length(value)
        return rope
    writer.add_key_length(rank + rope)
    writer.add_value_length(rank)
    writer.add_key_length_mla(key)
    writer.add_value_length_mla(value)
    return rope


def rope_of(config: Config) -> Config:
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return rope.get("full_attention", rope)


def add_rope(writer: gguf.GGUFWriter, config: Config, arch: Arch, dim: int) -> None:
    rope = rope_of(config)
    part = rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    if arch in LATENT:
        part = 1.0  # of the part of a head that has rope
    writer.add_rope_dimension_count(config.get("rotary_dim") or int(dim * part))
    base = rope.get("rope_theta", config.get("rope_theta"))
    if base is not None and arch not in (Arch.GEMMA, Arch.GEMMA2):
        writer.add_rope_freq_base(base * rope.get("alpha", 1.0) ** (dim / (dim - 2)))
    local = (config.get("rope_parameters") or {}).get("sliding_attention", {})
    if "rope_theta" in local:
        writer.add_rope_freq_base_swa(local["rope_theta"])
    if rope.get("rope_type") == "longrope":
        original = rope["original_max_position_embeddings"]
        scale = config["max_position_embeddings"] / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(original)))
    if rope.get("rope_type") != "yarn":
        return
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    for name, add in {
        "attention_factor": writer.add_rope_scaling_yarn_attn_factor,
        "beta_fast": writer.add_rope_scaling_yarn_beta_fast,
        "beta_slow": writer.add_rope_scaling_yarn_beta_slow,
        "mscale_all_dim": writer.add_rope_scaling_yarn_log_mul,
        "llama_4_scaling_beta": writer.add_attn_temperature_scale,
    }.items():
        if rope.get(name) is not None:
            tenth = arch in LATENT and name == "mscale_all_dim"
            add(0.1 * rope[name] if tenth else rope[name])
    if arch in LATENT and rope.get("llama_4_scaling_beta"):
        writer.add_attn_temperature_length(rope["original_max_position_embeddings"])


def add_factors(writer: gguf.GGUFWriter, config: Config) -> None:
    """The tensors of factors of wavelengths."""
    rope = rope_of(config)
    if rope.get("rope_type") == "proportional":
        add_gemma4_factors(writer, config)
    if rope.get("rope_type") == "llama3":
        dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        writer.add_tensor("rope_freqs.weight", rope_factors(config, rope, dim))
    if rope.get("rope_type") == "longrope":
        for name in ("long", "short"):
            factors = np.array(rope[f"{name}_factor"], np.float32)
            writer.add_tensor(f"rope_factors_{name}.weight", factors)


def add_windows(writer: gguf.GGUFWriter, config: Config, arch: Arch) -> None:
    window = config.get("sliding_window")
    lacks_windows = "sliding_attention" not in config.get("layer_types", ["sliding_attention"])
    if arch == Arch.PHI3:
        writer.add_sliding_window(window or 0)
    elif window and arch != Arch.LLAMA and not (lacks_windows and arch == Arch.GEMMA3):
        writer.add_sliding_window(window)
    lists = ("Olmo3ForCausalLM", "Exaone4ForCausalLM", "ExaoneMoeForCausalLM")
    if window and config["architectures"][0] in lists:
        types = config["layer_types"]
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in types])


def add_experts(writer: gguf.GGUFWriter, config: Config, arch: Arch) -> None:
    keys: dict[Callable[[Any], None], tuple[str, ...]] = {
        writer.add_expert_count: (
            "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts",
        ),
        writer.add_expert_used_count: ("num_experts_per_tok", "moe_k", "moe_topk"),
        writer.add_expert_feed_forward_length: ("moe_intermediate_size",),
        writer.add_expert_shared_feed_forward_length: (
            "shared_expert_intermediate_size", "shared_intermediate_size",
        ),
        writer.add_expert_shared_count: (
            "n_shared_experts", "moe_num_shared_experts", "num_shared_experts",
        ),
        writer.add_expert_group_count: ("n_group",),
        writer.add_expert_group_used_count: ("topk_group",),
        writer.add_expert_weights_scale: ("routed_scaling_factor", "route_scale"),
        writer.add_leading_dense_block_count: ("first_k_dense_replace", "moe_layer_start_index"),
        writer.add_interleave_moe_layer_step: ("moe_layer_interval", "interleave_moe_layer_step"),
    }  # fmt: skip
    for add, names in keys.items():
        found = [config[name] for name in names if config.get(name) is not None]
        if found:
            add(found[0][0] if isinstance(found[0], list) else found[0])
    if "mlp_layer_types" in config:
        writer.add_leading_dense_block_count(config["mlp_layer_types"].count("dense"))
    if arch == Arch.AFMOE:
        writer.add_leading_dense_block_count(config["num_dense_layers"])
    if arch in (Arch.GPT_OSS, Arch.LLAMA4, Arch.MINIMAXM2):
        writer.add_expert_feed_forward_length(config["intermediate_size"])
    if arch in LATENT and not config.get("old_converter"):
        softmax = config["model_type"] in ("deepseek_v2", "mistral4")
        kind = gguf.ExpertGatingFuncType
        writer.add_expert_gating_func(kind.SOFTMAX if softmax else kind.SIGMOID)
    if arch in SIGMOID:
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if arch in {Arch.GLM4_MOE, Arch.DOTS1, Arch.EXAONE_MOE, *LATENT} - KIMI:
        writer.add_expert_weights_norm(config["norm_topk_prob"])


def add_activations(writer: gguf.GGUFWriter, tensors: Tensors) -> None:
    """The numbers of xIELU are lists with an element for each layer."""
    for name, add in {
        "alpha_p": writer.add_xielu_alpha_p,
        "alpha_n": writer.add_xielu_alpha_n,
        "beta": writer.add_xielu_beta,
        "eps": writer.add_xielu_eps,
    }.items():
        values = [float(t.item()) for n, t in tensors.items() if n.endswith(f"act_fn.{name}")]
        if values:
            add(values)
