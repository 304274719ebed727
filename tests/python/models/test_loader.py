"""Shapes of checkpoints on disk (shards, types, spellings, names) and what loading them costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from families import ALL, some_at_night
from paged_driver import (
    PagedModel,
    PagedSequence,
    random_tokens,
    reference_model,
    relative_error,
    transformers_logits,
)
from safetensors.torch import load_file, save_file

from mlc_native import MLCEngine, inspect_model
from mlc_native._core import testing

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from dense_shapes import TINY
from make_random_checkpoint import make_checkpoint
from model_shapes import SHAPES

WEIGHTS = "model.safetensors"
PROMPT = random_tokens(150, 512, seed=11)  # longer than every window


def logits(path: Path, dtype: str = "auto") -> np.ndarray:
    return PagedModel(path, dtype).forward([(PagedSequence(PROMPT), len(PROMPT))], "all")


def edit_config(path: Path, edit: dict[str, Any]) -> None:
    """Set fields of config.json; `...` deletes one."""
    config = json.loads((path / "config.json").read_text()) | edit
    config = {key: value for key, value in config.items() if value is not ...}
    (path / "config.json").write_text(json.dumps(config))


def rename_tensors(path: Path, rename: Any, extra: dict[str, torch.Tensor] | None = None) -> None:
    tensors = {rename(name): tensor for name, tensor in load_file(path / WEIGHTS).items()}
    save_file(tensors | (extra or {}), path / WEIGHTS, metadata={"format": "pt"})


@pytest.mark.parametrize("like", ["tiny-qwen3", "tiny-llama"])
def test_shards_are_the_single_file(tmp_path: Path, like: str) -> None:
    single = make_checkpoint(like, tmp_path / "single", seed=5)
    sharded = make_checkpoint(like, tmp_path / "sharded", seed=5, shards=4)
    assert len(list(sharded.glob("*.safetensors"))) == 4
    assert np.array_equal(logits(sharded), logits(single))


def test_index_of_shards_that_one_file_has_replaced(tmp_path: Path) -> None:
    """As `save_pretrained` leaves it; a file beside the shards is named, because it is not read."""
    path = make_checkpoint("tiny-qwen3", tmp_path / "model", shards=3)
    expected = logits(path)
    model = reference_model(path, "auto")
    save_file(load_file(path / "model-00001-of-00003.safetensors"), path / WEIGHTS)
    (unused,) = inspect_model(path)["unused"]
    assert unused == "all of model.safetensors, which the index does not name"
    (path / WEIGHTS).unlink()
    model.save_pretrained(path)
    assert sorted(file.name for file in path.glob("*.safetensors*")) == [
        WEIGHTS, f"{WEIGHTS}.index.json",
    ]  # fmt: skip
    assert np.array_equal(logits(path), expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_conversion_at_load_is_conversion_before(tmp_path: Path, dtype: str) -> None:
    full = make_checkpoint("tiny-qwen2", tmp_path / "full")
    half = make_checkpoint("tiny-qwen2", tmp_path / "half")
    tensors = {k: v.to(getattr(torch, dtype)) for k, v in load_file(half / WEIGHTS).items()}
    save_file(tensors, half / WEIGHTS, metadata={"format": "pt"})
    edit_config(half, {"dtype": dtype})
    converted = logits(full, dtype)
    assert np.array_equal(converted, logits(half))
    assert not np.array_equal(converted, logits(full))


def test_half_weights_as_float32(tmp_path: Path) -> None:
    """Widening is exact: the same as a checkpoint stored wide."""
    half = make_checkpoint("tiny-llama", tmp_path / "half", dtype="bfloat16")
    wide = make_checkpoint("tiny-llama", tmp_path / "wide")
    save_file({k: v.float() for k, v in load_file(half / WEIGHTS).items()}, wide / WEIGHTS)
    assert np.array_equal(logits(half, "float32"), logits(wide))


def test_auto_dtype_without_a_word_in_the_config(tmp_path: Path) -> None:
    path = make_checkpoint("tiny-llama", tmp_path / "m", dtype="bfloat16")
    expected = logits(path)
    edit_config(path, {"dtype": ...})
    assert np.array_equal(logits(path), expected)
    edit_config(path, {"torch_dtype": "bfloat16"})
    assert np.array_equal(logits(path), expected)


OLD_SPELLINGS: dict[str, dict[str, Any]] = {
    "tiny-llama": {
        "rope_parameters": ...,
        "rope_theta": 10000.0,
        "rope_scaling": {
            "type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
        "head_dim": ...,
    },
    "tiny-qwen2": {"rope_parameters": ..., "rope_theta": 10000, "layer_types": ...},
    "tiny-phi3": {"rope_parameters": ..., "rope_theta": 10000.0, "rope_scaling": None},
    "tiny-gemma2": {"rope_parameters": ..., "layer_types": ..., "hidden_act": "gelu"},
    "tiny-gemma3_text": {
        "rope_parameters": ...,
        "layer_types": ...,
        "sliding_window_pattern": 3,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": None,
    },
}


@pytest.mark.parametrize("like", OLD_SPELLINGS)
def test_config_as_older_transformers_wrote_it(tmp_path: Path, like: str) -> None:
    path = make_checkpoint(like, tmp_path / like)
    expected = logits(path)
    edit_config(path, OLD_SPELLINGS[like] | {"dtype": ..., "torch_dtype": "float32"})
    assert np.array_equal(logits(path), expected)


@pytest.mark.parametrize("like", ["tiny-cohere", "tiny-cohere2", "tiny-mixtral", "tiny-ernie4_5"])
def test_base_of_rope_that_the_config_leaves_out(tmp_path: Path, like: str) -> None:
    path = make_checkpoint(like, tmp_path / like)
    edit_config(path, {"rope_parameters": ...})
    assert relative_error(logits(path), transformers_logits(path, PROMPT)) < 1e-4


LONGROPE = {
    "rope_type": "longrope",
    "original_max_position_embeddings": 64,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.5],
    "long_factor": [1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 9.0],
}
LINEAR = {"rope_type": "linear", "factor": 4.0}
# Fields that mean something else in another family, or absent or null something else than 0.
READINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma-activation": ("tiny-gemma", {"hidden_act": "silu"}),
    "gemma-ignores-hidden_activation": ("tiny-gemma", {"hidden_activation": "silu"}),
    "gemma-gelu": ("tiny-gemma", {"hidden_act": "gelu"}),
    "gemma3-ignores-attention-cap": ("tiny-gemma3_text", {"attn_logit_softcapping": 5.0}),
    "gemma3-caps-logits": ("tiny-gemma3_text", {"final_logit_softcapping": 5.0}),
    "gemma3-scaling-and-ropes": ("tiny-gemma3_text", {"rope_scaling": LINEAR}),
    "gemma2-ignores-pattern": ("tiny-gemma2", {"layer_types": ..., "sliding_window_pattern": 3}),
    "olmo3-ignores-pattern": ("tiny-olmo3", {"layer_types": ..., "sliding_window_pattern": 2}),
    "mistral-layer_types": (
        "tiny-mistral",
        {"layer_types": ["full_attention", "sliding_attention", "full_attention"]},
    ),
    "gpt_oss-base-of-rope": ("tiny-gpt_oss", {"rope_parameters": LINEAR}),
    "gpt_oss-base-alone": ("tiny-gpt_oss", {"rope_parameters": ..., "rope_theta": 100.0}),
    "phi3-original-context": (
        "tiny-phi3",
        {"original_max_position_embeddings": ..., "rope_parameters": LONGROPE},
    ),
    "alpha": ("tiny-llama", {"rope_parameters": {**LINEAR, "rope_type": "dynamic", "alpha": 50.0}}),
    "mscales": ("tiny-llama", {"rope_parameters": {**LONGROPE, "long_mscale": 1.5}}),
    "cwm-windows": ("tiny-cwm", {"layer_types": ...}),
    "cwm-rope": ("tiny-cwm", {"rope_parameters": ...}),
    "granite_swa-windows": ("tiny-granite_swa", {"layer_types": ..., "layer_rope_theta": ...}),
    "granite-kinds-of-layers": (
        "tiny-granitemoehybrid_mamba",
        {"layer_types": ["mamba", "mamba", "attention", "mamba", "mamba"]},
    ),
    "granite-steps-without-limits": (
        "tiny-granitemoehybrid_mamba",
        {"time_step_limit": ..., "mamba_d_head": "auto"},
    ),
    "nemotron-h-pattern": (
        "tiny-nemotron_h",
        {"layers_block_type": ..., "hybrid_override_pattern": "-MM-*M--"},
    ),
    "nemotron-h-kinds-of-layers": (
        "tiny-nemotron_h_moe",
        {"layers_block_type": ["mamba", "moe", "attention", "mlp", "moe", "attention"]},
    ),
    "nemotron-h-two-lists": (
        "tiny-nemotron_h",
        {"hybrid_override_pattern": "M", "num_hidden_layers": 1},
    ),
    "vaultgemma-windows": (
        "tiny-vaultgemma",
        {"layer_types": ..., "attn_logit_softcapping": ..., "final_logit_softcapping": ...},
    ),
    "vaultgemma-no-caps": (
        "tiny-vaultgemma",
        {"attn_logit_softcapping": None, "final_logit_softcapping": None},
    ),
    "ministral-windows": ("tiny-ministral", {"layer_types": ...}),
    "gpt_neox-rope": (
        "tiny-gpt_neox",
        {"rope_parameters": ..., "rotary_pct": 0.5, "rotary_emb_base": 1000},
    ),
    "gpt_neox-part-of-rope": ("tiny-gpt_neox", {"rope_parameters": ..., "rope_theta": 5.0}),
    "phi-part-of-rope": (
        "tiny-phi",
        {"rope_parameters": {"rope_theta": 1e4}, "partial_rotary_factor": ...},
    ),
    "nanochat-cap": ("tiny-nanochat", {"final_logit_softcapping": ...}),
    "olmo-ignores-eps": ("tiny-olmo", {"layer_norm_eps": 0.3, "rms_norm_eps": 0.3}),
    "hyperclovax-scale": ("tiny-hyperclovax", {"attention_multiplier": None}),
    "minicpm3-scales": (
        "tiny-minicpm3",
        {"scale_emb": ..., "scale_depth": ..., "dim_model_base": ...},
    ),
    "minicpm3-no-scales": ("tiny-minicpm3", {"scale_depth": None, "dim_model_base": None}),
    "laguna-gates": ("tiny-laguna", {"gating": "per-head", "layer_types": ...}),
    "olmo_hybrid-rope": ("tiny-olmo_hybrid", {"rope_parameters": None}),
    "cohere2_moe-kinds-of-layers": (
        "tiny-cohere2_moe",
        {"layer_types": ..., "mlp_layer_types": ..., "first_k_dense_replace": 1},
    ),
    "mimo_v2_flash-hub": (
        "tiny-mimo_v2_flash",
        {
            "layer_types": ...,
            "rope_parameters": ...,
            "routed_scaling_factor": None,
            "sliding_window_size": 40,
            "sliding_window": 40,
            "swa_num_key_value_heads": 4,
            "swa_head_dim": 24,
            "swa_v_head_dim": 16,
            "swa_num_attention_heads": 4,
            "add_swa_attention_sink_bias": True,
            "add_full_attention_sink_bias": False,
        },
    ),
    "partial-rotary-null": (
        "tiny-glm",
        {"partial_rotary_factor": None, "rope_parameters": {"rope_theta": 1e4}},
    ),
}


@pytest.mark.parametrize("reading", READINGS)
def test_fields_are_read_as_transformers_reads_them(tmp_path: Path, reading: str) -> None:
    like, edit = READINGS[reading]
    path = make_checkpoint(like, tmp_path / like)
    edit_config(path, edit)
    assert relative_error(logits(path), transformers_logits(path, PROMPT)) < 1e-4


def test_words_of_python_for_numbers(tmp_path: Path) -> None:
    """Files of the hub have the word Infinity, which is no JSON."""
    path = make_checkpoint("tiny-bamba", tmp_path / "m")
    before = logits(path)
    file = path / "config.json"
    edit_config(path, {"time_step_limit": [0.0, float("inf")], "time_step_max": float("nan")})
    assert "Infinity]" in file.read_text().replace("\n", "").replace(" ", "")
    assert ": NaN" in file.read_text()
    (path / "generation_config.json").write_text('{"max_new_tokens": 7, "x": [-Infinity, NaN]}')
    assert np.array_equal(logits(path), before)
    sizes = {"max_num_sequence": 1, "max_total_sequence_length": 64, "num_threads": 1}
    with MLCEngine(str(path), **sizes) as engine:
        usage = engine.completions.create(prompt="a", ignore_eos=True).usage
        assert usage is not None
        assert usage.completion_tokens == 7


SIZES = {
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "moe_intermediate_size", "num_experts", "num_local_experts",
    "n_routed_experts", "moe_num_experts", "num_experts_per_tok", "moe_k", "n_shared_experts",
    "shared_expert_intermediate_size", "shared_intermediate_size", "n_group", "topk_group",
    "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "n_embd",
    "n_inner", "n_head", "n_layer", "ffn_dim", "ffn_hidden_size", "num_kv_heads", "rotary_dim",
    "num_heads", "num_layers", "n_heads", "n_layers", "d_model", "num_expert_group",
    "num_experts_per_token", "num_shared_experts",
}  # fmt: skip
OTHERS = {"architectures", "pad_token_id"}  # which may not be beyond the vocabulary
# Without head_dim transformers cannot make these, or makes matrices that do not fit together.
NEED_HEAD_DIM = {
    "tiny-ministral", "tiny-hunyuan_v1_dense", "tiny-hunyuan_v1_moe", "tiny-helium", "tiny-mamba2",
}  # fmt: skip
OF_SIZES = [
    name
    for name in ALL
    if "text_config" not in SHAPES[name] and name != "tiny-internlm3"  # whose folder is a Llama's
]

# Whose sizes are large where the file does not say.
LARGE = {
    "tiny-gemma3n_text", "tiny-gemma4_text", "tiny-gemma4_text-experts", "tiny-kimi_linear",
    "tiny-qwen3_5_moe_text",
}  # fmt: skip


@pytest.mark.parametrize("like", some_at_night(OF_SIZES, set(OF_SIZES) - LARGE))
def test_a_config_of_sizes_alone(
    tmp_path: Path, like: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What holds for all other fields is what transformers' class says."""
    kept = SIZES | {"model_type"} | ({"head_dim"} if like in NEED_HEAD_DIM else set())
    if like.startswith("tiny-granitemoehybrid") or like == "tiny-lfm2_moe":
        kept |= {"layer_types"}  # the default is another kind, or none
    if like == "tiny-mamba2":
        kept |= {"expand"}
    if like == "tiny-gpt_neo":
        kept |= {"attention_types"}  # the default is of 24 layers
    if like.startswith("tiny-jamba"):
        kept |= {"attn_layer_period", "attn_layer_offset"}  # the default is of more layers
    if like == "tiny-deepseek_v4":
        kept |= {"o_groups"}
    if like == "tiny-gemma3n_text":
        kept |= {"num_kv_shared_layers"}  # the default is of more than 15 layers
    if like.startswith("tiny-nemotron_h"):
        kept |= {"mamba_num_heads", "time_step_min"}
    if SHAPES[like].get("mamba_n_heads"):
        kept |= {"attn_layer_indices", "mamba_n_heads"}
    sizes = {k: v for k, v in SHAPES[like].items() if k in kept}
    if like == "tiny-deepseek_v4":
        sizes["vocab_size"] = 512  # as the prompt's
    monkeypatch.setitem(SHAPES, like, sizes)
    path = make_checkpoint(like, tmp_path / like)
    config = json.loads((path / "config.json").read_text())
    edit_config(path, {field: ... for field in config if field not in kept | OTHERS})
    assert relative_error(logits(path), transformers_logits(path, PROMPT)) < 1e-4


def test_null_sizes_of_attention_follow_from_the_others(tmp_path: Path) -> None:
    """Whatever the family has when they are absent; here 8 heads of 128."""
    sizes = {"num_key_value_heads": 4, "head_dim": 16}
    path = make_checkpoint("tiny-seed_oss", tmp_path / "m", overrides=sizes)
    edit_config(path, dict.fromkeys(sizes))
    assert relative_error(logits(path), transformers_logits(path, PROMPT)) < 1e-4


@pytest.mark.parametrize(
    ("text", "absent"),
    [("ministral3", ["rope_parameters"]), ("mistral", ["rms_norm_eps", "sliding_window"])],
)
def test_defaults_are_those_of_the_text_model(tmp_path: Path, text: str, absent: list[str]) -> None:
    fields = {**TINY, "model_type": text, "head_dim": 16, "hidden_act": "silu"}
    path = make_checkpoint("tiny-mistral3", tmp_path / "m", overrides={"text_config": fields})
    config = json.loads((path / "config.json").read_text())
    for field in absent:
        del config["text_config"][field]
    (path / "config.json").write_text(json.dumps(config))
    assert relative_error(logits(path), transformers_logits(path, PROMPT)) < 1e-5


def test_text_of_mistral_4(tmp_path: Path) -> None:
    """Its folders have the architecture of Mistral 3's."""
    fields = {"text_config": dict(SHAPES["tiny-mistral4"])}
    path = make_checkpoint("tiny-mistral3", tmp_path / "m", overrides=fields)
    assert relative_error(logits(path), transformers_logits(path, PROMPT)) < 1e-4


def test_names_without_the_outer_module(tmp_path: Path) -> None:
    path = make_checkpoint("tiny-qwen3", tmp_path / "m")
    expected = logits(path)
    rename_tensors(path, lambda name: name.removeprefix("model."))
    assert np.array_equal(logits(path), expected)


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_text_part_of_a_vision_model(tmp_path: Path, prefix: str) -> None:
    path = make_checkpoint("tiny-gemma3_text", tmp_path / "m")
    expected = logits(path)
    rename_tensors(
        path,
        lambda name: prefix + name.removeprefix("model."),
        {"vision_tower.x": torch.zeros(3), "multi_modal_projector.y": torch.zeros(2, dtype=int)},
    )
    config = json.loads((path / "config.json").read_text())
    config.pop("tie_word_embeddings")
    outer = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": config}
    (path / "config.json").write_text(json.dumps(outer))
    assert np.array_equal(logits(path), expected)


def test_stored_head_of_a_tied_model(tmp_path: Path) -> None:
    """Equal to the embeddings: tied all the same. Different: it is the head, as in transformers."""
    path = make_checkpoint("tiny-qwen3", tmp_path / "m")
    expected = logits(path)
    tensors = load_file(path / WEIGHTS)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, path / WEIGHTS)
    tied_bytes = testing.TestModel(str(path)).metadata["weight_bytes"]
    assert np.array_equal(logits(path), expected)
    tensors["lm_head.weight"][7] *= 2
    save_file(tensors, path / WEIGHTS)
    different = logits(path)
    assert np.array_equal(different[:, 7], 2 * expected[:, 7])
    assert np.array_equal(np.delete(different, 7, axis=1), np.delete(expected, 7, axis=1))
    assert testing.TestModel(str(path)).metadata["weight_bytes"] > tied_bytes


def test_rotary_buffers_of_old_checkpoints_are_ignored(tmp_path: Path) -> None:
    path = make_checkpoint("tiny-llama", tmp_path / "m")
    expected = logits(path)
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    rename_tensors(path, lambda name: name, {name: torch.zeros(8)})
    assert np.array_equal(logits(path), expected)


def test_metadata(tmp_path: Path) -> None:
    path = make_checkpoint("tiny-llama", tmp_path / "m", dtype="bfloat16")
    metadata = testing.TestModel(str(path)).metadata
    assert metadata["vocab_size"] == 512
    assert metadata["context_window_size"] == 1024
    assert metadata["kv_bytes_per_token"] == 2 * 3 * 2 * 16 * 2  # k+v, layers, heads, dim, bytes
    stored = sum(t.numel() * 2 for t in load_file(path / WEIGHTS).values())
    assert stored <= metadata["weight_bytes"] <= 1.1 * stored
    assert metadata["workspace_bytes_per_sequence"] == 512 * 4
    phi = make_checkpoint(
        "tiny-phi3",
        tmp_path / "phi3",
        overrides={
            "original_max_position_embeddings": 256,
            "rope_parameters": {
                "rope_type": "longrope",
                "short_factor": [1.0] * 8,
                "long_factor": [4.0] * 8,
            },
        },
    )
    assert testing.TestModel(str(phi)).metadata["context_window_size"] == 1024
    short = testing.TestModel(str(phi), longest_sequence=256)
    assert short.metadata["context_window_size"] == 256


PEAK_SCRIPT = """
import sys
from mlc_native._core import testing
def status(key):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(key)) * 1024
testing.TestModel(sys.argv[1])  # whatever the first load of any model costs once
before = status("VmRSS")
with open("/proc/self/clear_refs", "w") as f:
    f.write("5")  # VmHWM starts again from here
model = testing.TestModel(sys.argv[2], dtype=sys.argv[3], num_threads=2)
print(status("VmHWM") - before, model.metadata["weight_bytes"])
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads Linux' /proc")
@pytest.mark.parametrize(("stored", "loaded"), [("bfloat16", "auto"), ("float32", "bfloat16")])
def test_peak_memory_while_loading(tmp_path: Path, stored: str, loaded: str) -> None:
    """At most 1.25 times the weights, whatever type is stored; the embeddings are half of them."""
    tiny = make_checkpoint("tiny-qwen3", tmp_path / "tiny")
    sizes = {
        "vocab_size": 100_000,
        "hidden_size": 512,
        "intermediate_size": 2048,
        "num_hidden_layers": 12,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 64,
    }
    path = make_checkpoint("tiny-qwen3", tmp_path / "big", dtype=stored, overrides=sizes)
    result = subprocess.run(
        [sys.executable, "-c", PEAK_SCRIPT, str(tiny), str(path), loaded],
        capture_output=True,
        text=True,
        check=True,
    )
    peak, weights = map(int, result.stdout.split())
    assert weights > 150e6
    assert peak <= 1.25 * weights
