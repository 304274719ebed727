"""A compact case of every family that the other tests run only at night.

One sequence is computed alone, then beside two others in chunks of another size on two threads: the
same bits, and the greedy tokens and logits of transformers. Prompts are longer than windows, the
original contexts of ropes, and the periods of scaled queries.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from families import COMPACT
from paged_driver import (
    PagedModel,
    PagedSequence,
    random_tokens,
    relative_error,
    transformers_logits,
)
from safetensors.torch import load_file, save_file

from mlc_native import EngineConfig, MLCEngine

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

PROMPT_LEN = 150
NUM_NEW_TOKENS = 24
LONGROPE = {
    "rope_type": "longrope",
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.5, 1.7],
    "long_factor": [1.5, 2.0, 3.0, 4.0, 6.0, 9.0],
}
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    "stablelm-parallel": ("tiny-stablelm", {"use_parallel_residual": True, "qk_layernorm": False}),
    "exaone4-no-windows": (
        "tiny-exaone4",
        {"sliding_window": None, "layer_types": ["full_attention"] * 4},
    ),
    "phi4-mini": (
        "tiny-phi3",
        {
            "tie_word_embeddings": True,
            "original_max_position_embeddings": 64,
            "rope_parameters": LONGROPE,
        },
    ),
    "lfm3-plain": (
        "tiny-lfm3",
        {
            "use_sandwich_norm": False,
            "use_attention_gate": False,
            "attention_bias": True,
            "conv_L_cache": 8,
            "layer_types": ["sliding_attention"] * 4 + ["conv"],
        },
    ),
    "llama4-plain": (
        "tiny-llama4_text",
        {
            "num_experts_per_tok": 2,
            "moe_layers": [0, 3],
            "use_qk_norm": False,
            "attn_temperature_tuning": False,
            "attention_chunk_size": None,
            "layer_types": ["full_attention"] * 4,
        },
    ),
    "afmoe-biases": ("tiny-afmoe", {"attention_bias": True}),  # which its gates lack
    "cohere-biases": ("tiny-cohere", {"use_qk_norm": False, "attention_bias": True}),
    "deepseek_v3-direct-queries": (
        "tiny-deepseek_v3",
        {
            "q_lora_rank": None,
            "attention_bias": False,
            "rope_parameters": None,
            "first_k_dense_replace": 0,
        },
    ),
    "deepseek_v3-wide-values": (  # wider than all else that a row of attention has
        "tiny-deepseek_v3",
        {"kv_lora_rank": 8, "qk_nope_head_dim": 8, "v_head_dim": 2048},
    ),
    "deepseek_v2-yarn": (
        "tiny-deepseek_v2",
        {
            "q_lora_rank": 24,
            "attention_bias": True,
            "mlp_bias": True,
            "routed_scaling_factor": 2.5,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 40.0,
                "mscale": 0.707,
                "mscale_all_dim": 0.707,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "deepseek_v2-groups": (
        "tiny-deepseek_v2",
        {
            "topk_method": "group_limited_greedy",
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 16.0,
        },
    ),
    "glm4_moe_lite-dense-layers": (
        "tiny-glm4_moe_lite",
        {"mlp_layer_types": ["sparse", "dense", "sparse"], "v_head_dim": 24},
    ),
    "gpt_neox-one-after-the-other": (
        "tiny-gpt_neox",
        {"use_parallel_residual": False, "attention_bias": False, "hidden_act": "gelu_fast"},
    ),
    "hyperclovax-pre-norms": (
        "tiny-hyperclovax",
        {"use_post_norm": False, "attention_multiplier": 0.3, "attention_bias": True},
    ),
    "gpt2-own-head": (
        "tiny-gpt2",
        {"tie_word_embeddings": False, "n_inner": None, "activation_function": "relu"},
    ),
    "gpt_bigcode-all-kv-heads": ("tiny-gpt_bigcode", {"multi_query": False}),
    "gpt_neo-every-other-layer": (
        "tiny-gpt_neo",
        {"num_layers": 4, "attention_types": [[["global", "local"], 2]], "intermediate_size": None},
    ),
    "opt-no-biases": ("tiny-opt", {"enable_bias": False, "activation_function": "gelu"}),
    "falcon-one-after-the-other": (
        "tiny-falcon",
        {"parallel_attn": False, "multi_query": False, "bias": True},
    ),
    "falcon-new-with-one-norm": ("tiny-falcon_new", {"num_ln_in_parallel_attn": 1, "bias": False}),
    "codegen-all-of-a-head": ("tiny-codegen", {"rotary_dim": 16, "tie_word_embeddings": True}),
    "jais2-no-biases": ("tiny-jais2", {"attention_bias": False, "mlp_bias": False}),
    "nanochat-tied": ("tiny-nanochat", {"tie_word_embeddings": True, "attention_bias": True}),
    "olmo-biases": ("tiny-olmo", {"attention_bias": True, "tie_word_embeddings": True}),
    "youtu-direct-queries": (
        "tiny-youtu",
        {
            "q_lora_rank": None,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 40.0,
                "mscale": 1.0,
                "mscale_all_dim": 0.8,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "minicpm3-longrope": (
        "tiny-minicpm3",
        {
            "attention_bias": True,
            "mlp_bias": True,
            "rope_parameters": LONGROPE
            | {
                "partial_rotary_factor": 1.0,
                "original_max_position_embeddings": 64,
                "short_factor": [1.0] * 8,
                "long_factor": [1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 9.0],
            },
        },
    ),
    "gemma3n-first-stream": (
        "tiny-gemma3n_text",
        {
            "altup_num_inputs": 4,
            "altup_active_idx": 0,
            "altup_correct_scale": False,
            "activation_sparsity_pattern": [0.0] * 8,
            "intermediate_size": 112,
            "num_kv_shared_layers": 0,
            "attention_bias": True,
            "tie_word_embeddings": False,
        },
    ),
    "cohere2_moe-sums": (
        "tiny-cohere2_moe",
        {
            "rms_norm_eps": None,
            "expert_selection_fn": "softmax",
            "shared_expert_combination_strategy": "sum",
            "prefix_dense_sliding_window_pattern": 2,
            "first_k_dense_replace": 3,
        },
    ),
    "cohere2_moe-without-shared-experts": (
        "tiny-cohere2_moe",
        {"num_shared_experts": 0, "norm_topk_prob": True, "tie_word_embeddings": False},
    ),
    "mimo_v2_flash-biases": (
        "tiny-mimo_v2_flash",
        {"attention_bias": True, "attention_value_scale": None, "norm_topk_prob": False},
    ),
    "mimo_v2_flash-values-as-long-as-keys": (
        "tiny-mimo_v2_flash",
        {
            "v_head_dim": 24,
            "sliding_window_size": 32,
            "layer_types": ["sliding_attention", "full_attention", "full_attention"] * 2
            + ["sliding_attention"],
        },
    ),
    "olmo_hybrid-rope": (
        "tiny-olmo_hybrid",
        {
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
            "linear_allow_neg_eigval": False,
            "attention_bias": True,
            "layer_types": ["full_attention"] + ["linear_attention"] * 3 + ["full_attention"],
        },
    ),
    "laguna-gates-of-elements": (
        "tiny-laguna",
        {
            "gating": "per-element",
            "attention_bias": True,
            "num_attention_heads_per_layer": [2, 6, 4, 10, 4],
            "moe_router_logit_softcapping": 0.0,
        },
    ),
    "falcon3": ("tiny-llama", {"head_dim": 32, "rope_parameters": None, "rope_theta": 1000042}),
}


def check(path: Path) -> None:
    alone = PagedModel(path)
    prompt = random_tokens(PROMPT_LEN, alone.vocab_size, seed=1)
    tokens, logits = alone.generate(prompt, 512, NUM_NEW_TOKENS)
    reference = transformers_logits(path, prompt + tokens[:-1])[PROMPT_LEN - 1 :]
    for position in range(NUM_NEW_TOKENS):
        assert relative_error(logits[position], reference[position]) < 1e-4, position
    assert tokens == reference.argmax(-1).tolist()

    model = PagedModel(path, num_threads=2)
    text = prompt + tokens
    sequences = [PagedSequence(text), PagedSequence(text[:40]), PagedSequence(text[60:])]
    rows = []
    while sequences[0].kv_len < PROMPT_LEN + NUM_NEW_TOKENS - 1:
        # The last rows one by one, as a decode.
        left = PROMPT_LEN - sequences[0].kv_len
        first = (sequences[0], min(17, left) if left > 0 else 1)
        others = [(s, min(5, len(s.tokens) - s.kv_len)) for s in sequences[1:]]
        row = model.forward([first, *(w for w in others if w[1] > 0)])[0]
        if sequences[0].kv_len >= PROMPT_LEN:
            rows.append(row)
    assert np.array_equal(np.stack(rows), logits)


@pytest.mark.parametrize("family", COMPACT)
def test_is_transformers_and_the_same_in_company(family: str, tmp_path: Path) -> None:
    check(make_checkpoint(family, tmp_path / family))


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants(variant: str, tmp_path: Path) -> None:
    like, overrides = VARIANTS[variant]
    check(make_checkpoint(like, tmp_path / like, overrides=overrides))


def test_internlm3_as_its_own_code_writes_it(tmp_path: Path) -> None:
    """transformers saves it as a Llama; the hub's files have names of their own."""
    path = make_checkpoint("tiny-internlm3", tmp_path / "m")
    expected = PagedModel(path).generate([5, 6, 7], 512, 8)[1]
    config = json.loads((path / "config.json").read_text())
    config["architectures"] = ["InternLM3ForCausalLM"]
    config["qkv_bias"] = config.pop("attention_bias")
    config["bias"] = config.pop("mlp_bias")
    (path / "config.json").write_text(json.dumps(config))
    assert np.array_equal(PagedModel(path).generate([5, 6, 7], 512, 8)[1], expected)


def test_internlm2_is_a_llama_with_one_tensor_of_q_k_and_v(tmp_path: Path) -> None:
    """transformers has none; the groups of a KV head lie one after another."""
    path = make_checkpoint("tiny-llama", tmp_path / "m", overrides={"attention_bias": True})
    weights = load_file(path / "model.safetensors")
    expected = PagedModel(path).generate([5, 6, 7], 512, 8)[1]
    names = {
        "self_attn.o_proj": "attention.wo",
        "mlp.gate_proj": "feed_forward.w1",
        "mlp.up_proj": "feed_forward.w3",
        "mlp.down_proj": "feed_forward.w2",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm",
        "embed_tokens": "tok_embeddings",
        "lm_head": "output",
    }
    renamed = {}
    for name, tensor in weights.items():
        if "q_proj" in name:
            parts = [weights[name.replace("q_proj", f"{p}_proj")] for p in "qkv"]
            grouped = [p.reshape(2, -1, *p.shape[1:]) for p in parts]  # by KV head
            fused = torch.cat(grouped, dim=1).reshape(-1, *tensor.shape[1:])
            renamed[name.replace("self_attn.q_proj", "attention.wqkv")] = fused
        elif "k_proj" not in name and "v_proj" not in name:
            own = next((n for n in names if n in name), "")
            renamed[name.replace(own, names[own]) if own else name] = tensor
    save_file(renamed, path / "model.safetensors")
    config = json.loads((path / "config.json").read_text())
    config["architectures"] = ["InternLM2ForCausalLM"]
    config["bias"] = config.pop("attention_bias")
    (path / "config.json").write_text(json.dumps(config))
    assert np.array_equal(PagedModel(path).generate([5, 6, 7], 512, 8)[1], expected)


def test_olmo_hybrid_as_the_hub_writes_it(tmp_path: Path) -> None:
    """Queries, keys and values have convolutions of their own; transformers joins them."""
    path = make_checkpoint("tiny-olmo_hybrid", tmp_path / "m")
    expected = PagedModel(path).generate([5, 6, 7], 512, 8)[1]
    weights = {}
    for name, tensor in load_file(path / "model.safetensors").items():
        if "conv1d" in name:
            parts = tensor.split([48, 48, 160])
            weights |= {name.replace("conv1d", f"{p}_conv1d"): t.contiguous()
                        for p, t in zip("qkv", parts, strict=True)}  # fmt: skip
        else:
            weights[name] = tensor
    for renames in ({}, {"input_layernorm": "attention_layer_norm"}):
        for own, hub in renames.items():
            weights = {name.replace(own, hub): tensor for name, tensor in weights.items()}
        save_file(weights, path / "model.safetensors")
        assert np.array_equal(PagedModel(path).generate([5, 6, 7], 512, 8)[1], expected)


@pytest.mark.parametrize("name", ["PerceptionLM", "FastVlm"])
def test_texts_of_models_whose_vision_transformers_does_not_have(tmp_path: Path, name: str) -> None:
    """Their images need a package of their own; the text is stored as in Llava."""
    path = make_checkpoint("tiny-llava", tmp_path / "m")
    expected = PagedModel(path).generate([5, 6, 7], 512, 8)[1]
    config = json.loads((path / "config.json").read_text())
    config["architectures"] = [f"{name}ForConditionalGeneration"]
    (path / "config.json").write_text(json.dumps(config))
    assert np.array_equal(PagedModel(path).generate([5, 6, 7], 512, 8)[1], expected)


def test_tensors_of_a_vision_tower_are_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = make_checkpoint("tiny-qwen3_vl", tmp_path / "m")
    count = sum("visual" in name for name in load_file(path / "model.safetensors"))
    MLCEngine(str(path), "cpu", engine_config=EngineConfig(strict_weights=True)).terminate()
    (record,) = [r for r in caplog.records if r.levelname == "WARNING"]
    assert record.getMessage().endswith(f"does not use: {count} of parts that read no text")


def test_text_fields_outside_of_text_config(tmp_path: Path) -> None:
    """The first Qwen2.5-VL folders have them there."""
    path = make_checkpoint("tiny-qwen2_5_vl", tmp_path / "m")
    expected = PagedModel(path).generate([5, 6, 7], 512, 8)[1]
    config = json.loads((path / "config.json").read_text())
    text = config.pop("text_config")
    config["rope_scaling"] = {"type": "mrope", "mrope_section": [2, 3, 3]}
    config["rope_theta"] = text.pop("rope_parameters")["rope_theta"]
    (path / "config.json").write_text(json.dumps(text | config))
    assert np.array_equal(PagedModel(path).generate([5, 6, 7], 512, 8)[1], expected)


@pytest.mark.parametrize(
    ("like", "architecture"),
    [
        ("tiny-qwen2_5_omni_thinker", "Qwen2_5OmniForConditionalGeneration"),
        ("tiny-qwen2_5_omni_thinker", "Qwen2_5OmniModel"),
        ("tiny-qwen3_omni_moe_thinker", "Qwen3OmniMoeForConditionalGeneration"),
    ],
)
def test_a_thinker_beside_its_talker(tmp_path: Path, like: str, architecture: str) -> None:
    """The hub's folders have the whole model, whose talker is left out."""
    path = make_checkpoint(like, tmp_path / "m")
    expected = PagedModel(path).generate([5, 6, 7], 512, 8)[1]
    weights = load_file(path / "model.safetensors")
    for part in ("model.visual.", "model.audio_tower.", "model.language_model."):
        own = "model." if "language" in part else part.removeprefix("model.")
        weights = {n.replace(part, own): tensor for n, tensor in weights.items()}
    renamed = {f"thinker.{name}": tensor for name, tensor in weights.items()}
    renamed |= {"talker.model.norm.weight": torch.ones(8), "code2wav.input.bias": torch.ones(8)}
    save_file(renamed, path / "model.safetensors")
    config = json.loads((path / "config.json").read_text())
    whole = {"architectures": [architecture], "thinker_config": config, "talker_config": {}}
    (path / "config.json").write_text(json.dumps(whole))
    assert np.array_equal(PagedModel(path).generate([5, 6, 7], 512, 8)[1], expected)
    MLCEngine(str(path), "cpu", engine_config=EngineConfig(strict_weights=True)).terminate()


@pytest.mark.parametrize("like", ["tiny-flint", "tiny-kolibri1"])
def test_windows_where_the_configuration_is_silent(tmp_path: Path, like: str) -> None:
    path = make_checkpoint(like, tmp_path / "m")
    prompt = random_tokens(PROMPT_LEN, 512, seed=1)
    expected = PagedModel(path).generate(prompt, 512, 2)[1]
    config = json.loads((path / "config.json").read_text())
    assert len(set(config.pop("layer_types"))) == 2
    (path / "config.json").write_text(json.dumps(config))
    assert np.array_equal(PagedModel(path).generate(prompt, 512, 2)[1], expected)
