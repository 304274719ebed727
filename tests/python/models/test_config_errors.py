"""Folders that are no models, and wrong configurations: each is a LoadError that says so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damaged_models import WEIGHTS, edit_config, load_error
from paged_driver import PagedModel, PagedSequence, random_tokens

from mlc_native._core import InvalidConfig, testing

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint


def test_no_such_folder(tmp_path: Path) -> None:
    load_error(tmp_path / "nothing", "nothing", "no such folder")


def test_folder_that_is_no_model(tmp_path: Path) -> None:
    load_error(tmp_path, "not a model folder", "config.json")


def test_file_in_place_of_a_folder(llama: Path) -> None:
    load_error(llama / "config.json", "not a model folder")


def test_no_weights(llama: Path) -> None:
    (llama / WEIGHTS).unlink()
    load_error(llama, WEIGHTS, "no weights")


def test_only_pickled_weights(llama: Path) -> None:
    (llama / WEIGHTS).rename(llama / "pytorch_model.bin")
    load_error(llama, "pytorch_model.bin", "safetensors")


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"architectures": ["Llama', "\xff"])
def test_config_that_is_no_json(llama: Path, text: str) -> None:
    (llama / "config.json").write_bytes(text.encode("latin-1"))
    load_error(llama, "config.json", "JSON")


def test_unknown_architecture_lists_the_supported(llama: Path) -> None:
    edit_config(llama, architectures=["ZambaForCausalLM"])
    load_error(llama, "ZambaForCausalLM", "LlamaForCausalLM", "Gemma2ForCausalLM", "Olmo2")


@pytest.mark.parametrize("architectures", [..., [], None])
def test_no_architecture(llama: Path, architectures: object) -> None:
    edit_config(llama, architectures=architectures)
    load_error(llama, "architectures", "LlamaForCausalLM")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_key_value_heads": 3}, '"num_key_value_heads" must be a divisor'),
        ({"num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": ...}, "a divisor"),
        ({"hidden_size": 0}, '"hidden_size"'),
        ({"hidden_size": -64}, '"hidden_size"'),
        ({"hidden_size": "64"}, '"hidden_size"'),
        ({"hidden_size": 64.5}, '"hidden_size"'),
        ({"hidden_size": 2**64}, '"hidden_size"'),
        ({"hidden_size": ...}, '"hidden_size"'),
        ({"vocab_size": ...}, '"vocab_size"'),
        ({"intermediate_size": None}, '"intermediate_size"'),
        ({"num_hidden_layers": 10**9}, '"num_hidden_layers"'),
        ({"num_attention_heads": 2**23, "num_key_value_heads": 1, "head_dim": 2**10}, "head_dim"),
        ({"head_dim": 15}, '"head_dim"'),
        ({"rms_norm_eps": 0}, '"rms_norm_eps"'),
        ({"rms_norm_eps": "x"}, '"rms_norm_eps"'),
        ({"hidden_act": "quick_gelu"}, '"hidden_act" must be one of silu'),
        ({"attention_bias": 1}, '"attention_bias"'),
        ({"tie_word_embeddings": "yes"}, '"tie_word_embeddings"'),
        ({"dtype": "float8"}, '"dtype" must be one of float32'),
        ({"quantization_config": {"bits": 4}}, '"quant_method"'),
        ({"rope_parameters": {"rope_type": "mrope"}}, "mrope"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, '"low_freq_factor"'),
        ({"rope_parameters": {"rope_type": "linear"}}, '"factor"'),
        ({"rope_parameters": {"rope_type": "linear", "factor": 0}}, '"factor"'),
        ({"rope_parameters": {"rope_theta": -1.0}}, '"rope_theta"'),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, '"partial_rotary_factor"'),
        ({"rope_parameters": 3}, '"rope_parameters"'),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "per layer type"),
        ({"max_position_embeddings": 0}, '"max_position_embeddings"'),
    ],
)
def test_wrong_config_field(llama: Path, fields: dict[str, Any], message: str) -> None:
    edit_config(llama, **fields)
    load_error(llama, "config.json", message)


MAMBA = "tiny-granitemoehybrid_mamba"
NEMOTRON = "tiny-nemotron_h"
NEMOTRON_EXPERTS = "tiny-nemotron_h_moe"
FALCON = "tiny-falcon_h1"
SCAN = "tiny-mamba"
JAMBA = "tiny-jamba"
LAGUNA = "tiny-laguna"
COHERE = "tiny-cohere2_moe"
MIMO = "tiny-mimo_v2_flash"


@pytest.mark.parametrize(
    ("like", "fields", "message"),
    [
        ("tiny-gemma2", {"layer_types": ["full_attention"]}, '"layer_types" has 1 entries'),
        ("tiny-gemma2", {"layer_types": ["chunked_attention"] * 4}, "chunked_attention"),
        ("tiny-gemma2", {"sliding_window": None}, '"sliding_window"'),
        ("tiny-gemma2", {"query_pre_attn_scalar": 0}, '"query_pre_attn_scalar"'),
        ("tiny-gemma2", {"hidden_activation": "quick_gelu"}, '"hidden_activation" must be one of'),
        ("tiny-starcoder2", {"hidden_act": "quick_gelu"}, '"hidden_act" must be one of'),
        ("tiny-gemma3_text", {"rope_parameters": {"rope_theta": 5}}, '"sliding_attention" for Gem'),
        ("tiny-gemma3_text", {"rope_scaling": {"type": "linear", "factor": 8}}, '"rope_type"'),
        ("tiny-gemma3_text", {"rope_scaling": {"full_attention": {"factor": 8}}}, "per layer type"),
        ("tiny-qwen3_moe", {"num_experts_per_tok": None, "num_local_experts": 5}, "in [1, 5]"),
        ("tiny-phimoe", {"num_experts_per_tok": 3}, '"num_experts_per_tok" must be 2'),
        ("tiny-mistral", {"sliding_window": 0}, '"sliding_window"'),
        ("tiny-phi", {"qk_layernorm": True}, "norms of q and k with biases"),
        ("tiny-olmo", {"clip_qkv": 8.0}, '"clip_qkv" is not supported'),
        ("tiny-granite_swa", {"layer_rope_theta": [1e4]}, '"num_hidden_layers" = 5'),
        (LAGUNA, {"num_attention_heads_per_layer": [8]}, '"num_hidden_layers" = 5 integers in [1'),
        (LAGUNA, {"num_attention_heads_per_layer": [8, 16, 9, 24, 16]}, '_heads" = 2 divides'),
        (LAGUNA, {"num_attention_heads_per_layer": [8, 16, 0, 24, 16]}, '_heads" = 2 divides'),
        (COHERE, {"expert_selection_fn": "top"}, '"expert_selection_fn" must be "softmax" or "sig'),
        (COHERE, {"shared_expert_combination_strategy": "max"}, '"average" or "sum"'),
        (MIMO, {"v_head_dim": 32}, '"v_head_dim" must be an integer in [1, 24]'),
        (MIMO, {"swa_num_key_value_heads": 3}, 'must be a divisor of "num_attention_heads" = 4'),
        (MIMO, {"swa_head_dim": 32}, "heads of another size in layers with a window"),
        (MIMO, {"add_full_attention_sink_bias": True}, "sinks of layers without a window"),
        (LAGUNA, {"gating": False}, '"gating" must be true, "per-head" or "per-element"'),
        (LAGUNA, {"gating": "per-layer"}, '"gating" must be true, "per-head" or "per-element"'),
        (LAGUNA, {"moe_router_logit_softcapping": -1.0}, "a number of at least 0"),
        (LAGUNA, {"moe_apply_router_weight_on_input": True}, "weights of what experts read"),
        (MAMBA, {"layer_types": ["mamba"]}, '"layer_types" has 1 entries, "num_hidden_layers" is'),
        (MAMBA, {"layer_types": ["moe"] * 5}, '"moe" is not supported; supported: mamba, att'),
        (MAMBA, {"mamba_n_heads": 9}, '"mamba_n_heads" must be a divisor of "mamba_expand" * "h'),
        (MAMBA, {"mamba_n_heads": 0}, '"mamba_n_heads" must be an integer in [1, 1024]'),
        (MAMBA, {"mamba_d_head": 12}, '"mamba_d_head" must be "mamba_expand" * "hidden_size" = '),
        (MAMBA, {"mamba_n_groups": 3}, '"mamba_n_groups" must be a divisor of "mamba_n_heads" = 8'),
        (MAMBA, {"mamba_expand": 64, "mamba_d_head": "auto", "mamba_n_heads": 1}, "more than 1024"),
        (MAMBA, {"mamba_d_state": 0}, '"mamba_d_state" must be an integer'),
        (MAMBA, {"mamba_d_conv": 9}, '"mamba_d_conv" must be an integer in [2, 8]'),
        (MAMBA, {"mamba_proj_bias": True}, '"mamba_proj_bias" = true is not supported'),
        (MAMBA, {"hidden_act": "gelu"}, '"hidden_act" must be "silu" in a model with Mamba layers'),
        (MAMBA, {"time_step_limit": [0.0]}, '"time_step_limit" must be a list of two numbers'),
        (MAMBA, {"time_step_limit": [0.2, 0.1]}, '"time_step_limit" must be a list of two numbers'),
        (MAMBA, {"time_step_limit": [0.0, "x"]}, '"time_step_limit" must be a list of two numbers'),
        ("tiny-bamba", {"attn_layer_indices": [5]}, '"attn_layer_indices" has 5, which is no'),
        (FALCON, {"mamba_d_ssm": 100}, '"mamba_n_heads" must be a divisor of "mamba_d_ssm" = 100'),
        (FALCON, {"mamba_d_head": 24}, '"mamba_d_head" must be "mamba_d_ssm" = 96 divided by "mam'),
        (
            FALCON,
            {"mamba_rms_norm": True},
            '"mamba_norm_before_gate" = true is not supported where',
        ),
        (FALCON, {"projectors_bias": True}, "then needs a bias of what Mamba-2 gives"),
        (FALCON, {"ssm_multipliers": [1.0]}, '"ssm_multipliers" must be a list of 5 numbers'),
        (FALCON, {"mlp_multipliers": ["x", 1.0]}, '"mlp_multipliers"'),
        (FALCON, {"key_multiplier": "x"}, '"key_multiplier" must be'),
        (NEMOTRON, {"layers_block_type": ["conv"]}, '"conv" is not supported; supported: mamba, a'),
        (NEMOTRON, {"layers_block_type": ["mlp"] * 8}, "has no layer with attention or Mamba-2"),
        (NEMOTRON, {"layers_block_type": []}, "has no layer with attention or Mamba-2"),
        (
            NEMOTRON,
            {"layers_block_type": None, "hybrid_override_pattern": "MX"},
            '"hybrid_override_pattern" must be a text of the letters M (Mamba-2), * (attention)',
        ),
        (NEMOTRON, {"use_bias": True}, '"use_bias" = true is not supported'),
        (NEMOTRON, {"mamba_hidden_act": "gelu"}, '"mamba_hidden_act" must be "silu" in a model'),
        (NEMOTRON, {"mamba_head_dim": 1025}, '"mamba_head_dim" must be an integer in [1, 1024]'),
        (NEMOTRON, {"n_groups": 3}, '"n_groups" must be a divisor of "mamba_num_heads" = 8'),
        (NEMOTRON_EXPERTS, {"moe_latent_size": 0}, "must be an integer in"),
        (SCAN, {"hidden_act": "gelu"}, '"hidden_act" must be "silu" in a model with Mamba layers'),
        (SCAN, {"state_size": 1025}, '"state_size" must be an integer in [1, 1024]'),
        (SCAN, {"conv_kernel": 9}, '"conv_kernel" must be an integer in [2, 8]'),
        (SCAN, {"time_step_rank": "all"}, '"time_step_rank" must be "auto" or an integer'),
        (SCAN, {"time_step_rank": 0}, '"time_step_rank" must be an integer in [1, '),
        (SCAN, {"intermediate_size": 0}, '"intermediate_size" must be an integer in [1, '),
        (SCAN, {"intermediate_size": None, "expand": 65}, '"expand" must be an integer in [1, 64]'),
        (SCAN, {"use_bias": "x"}, '"use_bias" must be'),
        (SCAN, {"use_mambapy": "x"}, '"use_mambapy" must be'),
        ("tiny-falcon_mamba", {"mixer_rms_eps": 0}, '"mixer_rms_eps" must be'),
        (JAMBA, {"attn_layer_offset": 4}, '"attn_layer_offset" must be less than "attn_layer_per'),
        (JAMBA, {"expert_layer_offset": 3}, '"expert_layer_offset" must be less than "expert_lay'),
        (JAMBA, {"mamba_dt_rank": -1}, '"mamba_dt_rank" must be an integer in [1, '),
        (JAMBA, {"num_experts_per_tok": 8}, '"num_experts_per_tok" must be an integer in [1, 7]'),
        (
            "tiny-glm46v",
            {"text_config": {"model_type": "qwen3"}},
            "then needs another text model",
        ),
        (
            "tiny-deepseek_v3",
            {"num_key_value_heads": 2},
            '"num_key_value_heads" must be "num_attention_heads" = 4',
        ),
        (
            "tiny-deepseek_v3",
            {
                **{"num_attention_heads": 1 << 20, "num_key_value_heads": 1 << 20},
                **{"qk_nope_head_dim": 1, "qk_rope_head_dim": 2, "v_head_dim": 1},
            },
            '"num_attention_heads" must be at most 1024, got 1048576',
        ),
        ("tiny-deepseek_v3", {"kv_lora_rank": 0}, '"kv_lora_rank"'),
        ("tiny-deepseek_v3", {"qk_rope_head_dim": 7}, '"qk_rope_head_dim" must be an even number'),
        ("tiny-deepseek_v3", {"rope_interleave": False}, '"rope_interleave" = false'),
        ("tiny-deepseek_v2", {"attention_bias": True}, '"attention_bias" is not supported where'),
        (
            "tiny-deepseek_v2",
            {"topk_method": "noaux_tc"},
            '"topk_method" must be "greedy" or "group_limited_greedy", got "noaux_tc"',
        ),
        (
            "tiny-glm4_moe_lite",
            {"mlp_layer_types": ["dense"]},
            '"mlp_layer_types" has 1 entries, "num_hidden_layers" is 3',
        ),
        ("tiny-glm4_moe_lite", {"mlp_layer_types": ["moe"] * 3}, "supported: dense, sparse"),
        (
            "tiny-phi3",
            {"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0]}},
            '"short_factor" must be a list of 8 numbers',
        ),
    ],
)
def test_wrong_field_of_a_family(
    tmp_path: Path, like: str, fields: dict[str, Any], message: str
) -> None:
    path = make_checkpoint(like, tmp_path / like)
    edit_config(path, **fields)
    load_error(path, "config.json", message)


@pytest.mark.parametrize(
    ("options", "field"),
    [({"dtype": "int8"}, "dtype"), ({"num_threads": 0}, "num_threads")],
)
def test_wrong_option(llama: Path, options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidConfig, match=field):
        testing.TestModel(str(llama), **options)


def test_a_failed_load_leaves_the_next_one_alone(llama: Path) -> None:
    tokens = random_tokens(20, 512, seed=1)
    expected = PagedModel(llama).forward([(PagedSequence(tokens), 20)])
    content = (llama / WEIGHTS).read_bytes()
    (llama / WEIGHTS).write_bytes(content[:-10])
    load_error(llama, "truncated")
    (llama / WEIGHTS).write_bytes(content)
    assert np.array_equal(PagedModel(llama).forward([(PagedSequence(tokens), 20)]), expected)
