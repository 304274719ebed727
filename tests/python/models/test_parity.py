"""The built-in decoders against `transformers`, on random tiny checkpoints of every family.

Prompts are longer than the sliding windows of the checkpoints (40 and 48 tokens) and than the
original context of the Llama-3 rope scaling (64), so that both matter.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from families import ALL, FAMILIES
from paged_driver import (
    PagedModel,
    PagedSequence,
    random_tokens,
    relative_error,
    transformers_logits,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from hub_names import HUB_NAMES
from make_random_checkpoint import make_checkpoint
from model_shapes import SHAPES

PROMPT_LEN = 300
NUM_NEW_TOKENS = 64
FP32_TOLERANCE = 1e-4

# Shapes that no panel, vector or page size divides; biases that no family has by default.
ODD_SIZES = {
    "vocab_size": 515,
    "hidden_size": 72,
    "intermediate_size": 150,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 12,
}
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    "biases": ("tiny-llama", {"attention_bias": True, "mlp_bias": True}),
    "odd-sizes": ("tiny-llama", {**ODD_SIZES, "attention_bias": True}),
    "odd-sizes-post-norm": ("tiny-olmo2", ODD_SIZES),
    "one-kv-head": ("tiny-qwen3", {"num_key_value_heads": 1}),
    "all-kv-heads": ("tiny-qwen2", {"num_key_value_heads": 4}),
    "tied": ("tiny-llama", {"tie_word_embeddings": True}),
    "untied": ("tiny-gemma2", {"tie_word_embeddings": False}),
    "mistral-no-window": ("tiny-mistral", {"sliding_window": None}),
    "qwen2-window": (
        "tiny-qwen2",
        {"use_sliding_window": True, "sliding_window": 37, "max_window_layers": 1},
    ),
    "phi3-window": ("tiny-phi3", {"sliding_window": 33}),
    "phi3-partial-rotary": (
        "tiny-phi3",
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
    ),
    "phi3-longrope": (
        "tiny-phi3",
        {
            "original_max_position_embeddings": 64,
            "rope_parameters": {
                "rope_type": "longrope",
                "short_factor": [1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.5],
                "long_factor": [4.0] * 8,
            },
        },
    ),
    "rope-linear": ("tiny-qwen2", {"rope_parameters": {"rope_type": "linear", "factor": 3.0}}),
    "rope-dynamic": ("tiny-qwen2", {"rope_parameters": {"rope_type": "dynamic", "factor": 3.0}}),
    "rope-yarn": (
        "tiny-qwen3",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 128,
            }
        },
    ),
    "rope-yarn-mscale": (
        "tiny-qwen3",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 64,
                "beta_fast": 20.0,
                "beta_slow": 2.0,
                "mscale": 1.2,
                "mscale_all_dim": 0.7,
                "truncate": False,
            }
        },
    ),
    "moe-renormalized": ("tiny-olmoe", {"norm_topk_prob": True}),
    "moe-alternating-window": (
        "tiny-qwen2_moe",
        {"use_sliding_window": True, "sliding_window": 37, "max_window_layers": 2},
    ),
    "moe-groups-of-one": ("tiny-glm4_moe", {"n_group": 1, "topk_group": 1, "use_qk_norm": False}),
    "moe-first-layers-dense": ("tiny-glm4_moe", {"first_k_dense_replace": 2}),
    "moe-every-second-of-ernie": (
        "tiny-ernie4_5_moe",
        {"moe_layer_interval": 2, "moe_layer_end_index": 3, "moe_num_shared_experts": 0},
    ),
    "granite-without-positions": ("tiny-granitemoehybrid", {"position_embedding_type": None}),
    "mamba-limits-of-steps": ("tiny-granitemoehybrid_mamba", {"time_step_limit": [0.01, 0.05]}),
    "mamba-in-all-layers-but-one": (
        "tiny-granitemoehybrid_moe",
        {
            **{"layer_types": ["mamba"] * 4 + ["attention"], "mamba_conv_bias": True},
            **{"position_embedding_type": "rope", "tie_word_embeddings": True},
        },
    ),
    "granite-4-experts-without-mamba": (
        "tiny-granitemoehybrid_moe",
        {"layer_types": ["attention"] * 5},
    ),
    "mamba-one-group-of-one-head": (
        "tiny-bamba",
        {"mamba_n_heads": 1, "mamba_d_head": "auto", "mamba_n_groups": 1, "mamba_d_conv": 2},
    ),
    "falcon-h1-biases": (
        "tiny-falcon_h1",
        {"attention_bias": True, "mlp_bias": True, "mamba_conv_bias": False},
    ),
    "falcon-h1-norm": (
        "tiny-falcon_h1",
        {
            **{"mamba_rms_norm": True, "mamba_norm_before_gate": False, "mamba_d_ssm": None},
            **{"mamba_d_head": "auto", "time_step_limit": [0.005, 0.05]},
            **{"tie_word_embeddings": True, "ssm_multipliers": None},
        },
    ),
    "nemotron-h-steps-with-limits": (  # transformers reads one field, NVIDIA's own code the other
        "tiny-nemotron_h",
        {"time_step_min": 0.02, "time_step_limit": [0.02, float("inf")]},
    ),
    "nemotron-h-attention-last": (
        "tiny-nemotron_h",
        {"layers_block_type": ["full_attention", "mlp", "linear_attention", "full_attention"]},
    ),
    "nemotron-h-without-mamba": (
        "tiny-nemotron_h",
        {"layers_block_type": ["mlp", "full_attention", "mlp", "full_attention", "mlp"]},
    ),
    "nemotron-h-experts-alone-behind-mamba": (
        "tiny-nemotron_h_moe",
        {
            **{"layers_block_type": ["full_attention", "linear_attention", "moe", "moe"]},
            **{"mlp_bias": True},
            **{"n_group": 1, "norm_topk_prob": False, "use_conv_bias": True},
        },
    ),
    "nemotron-h-latent-experts": ("tiny-nemotron_h_moe", {"moe_latent_size": 40}),
    "nemotron-h-latent-experts-with-biases": (
        "tiny-nemotron_h_moe",
        {
            **{"layers_block_type": ["linear_attention", "moe", "moe", "full_attention"]},
            **{"moe_latent_size": 72, "mlp_bias": True, "n_group": 1},
        },
    ),
    "scan-of-one": (
        "tiny-mamba",
        {
            **{"state_size": 1, "conv_kernel": 2, "time_step_rank": 1, "intermediate_size": 33},
            **{"use_bias": False, "use_conv_bias": False},
        },
    ),
    "scan-with-all-biases": (
        "tiny-falcon_mamba",
        {"use_bias": True, "use_conv_bias": True, "state_size": 33, "conv_kernel": 8},
    ),
    "jamba-attention-last": (
        "tiny-jamba",
        {
            **{"attn_layer_period": 3, "attn_layer_offset": 2, "expert_layer_period": 2},
            **{"expert_layer_offset": 0, "mamba_conv_bias": False, "head_dim": 24},
        },
    ),
    "jamba-attention-alone": ("tiny-jamba", {"attn_layer_period": 1, "attn_layer_offset": 0}),
    "moe-no-shared-expert": ("tiny-granitemoeshared", {"shared_intermediate_size": 0}),
    "moe-every-second-layer": (
        "tiny-qwen3_moe",
        {"decoder_sparse_step": 2, "mlp_only_layers": [], "norm_topk_prob": False},
    ),
    "moe-one-of-one": ("tiny-qwen3_moe", {"num_experts": 1, "num_experts_per_tok": 1}),
    "moe-all-of-them": ("tiny-qwen3_moe", {"num_experts": 5, "num_experts_per_tok": 5}),
    "moe-window": ("tiny-qwen3_moe", {"use_sliding_window": True, "sliding_window": 37}),
    "gemma3-linear": (
        "tiny-gemma3_text",
        {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            }
        },
    ),
}


@pytest.fixture(scope="module", params=FAMILIES)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(request.param, tmp_path_factory.mktemp("fp32") / request.param)


def check_generation(path: Path, chunk: int, num_tokens: int, num_threads: int = 1) -> None:
    """Greedy tokens are transformers', and every row that chose one is within the tolerance."""
    model = PagedModel(path, num_threads=num_threads)
    prompt = random_tokens(PROMPT_LEN, model.vocab_size, seed=1)
    tokens, logits = model.generate(prompt, chunk, num_tokens)
    # One forward over all of it; rows before a token depend on nothing that follows.
    reference = transformers_logits(path, prompt + tokens[:-1])[PROMPT_LEN - 1 :]
    for position in range(num_tokens):
        assert relative_error(logits[position], reference[position]) < FP32_TOLERANCE, position
    assert tokens == reference.argmax(-1).tolist()


@pytest.mark.parametrize("chunk", [16, 64, 512])
def test_logits_and_greedy_tokens(checkpoint: Path, chunk: int) -> None:
    check_generation(checkpoint, chunk, NUM_NEW_TOKENS)


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants(tmp_path: Path, variant: str) -> None:
    like, overrides = VARIANTS[variant]
    check_generation(make_checkpoint(like, tmp_path / like, overrides=overrides), 64, 8, 2)


# Without those whose hub names transformers writes itself.
@pytest.mark.parametrize(
    "family",
    [name for name in ALL if SHAPES[name]["model_type"] in HUB_NAMES.keys() - {"deepseek_v4"}],
)
def test_experts_in_one_tensor(tmp_path: Path, family: str) -> None:
    check_generation(make_checkpoint(family, tmp_path / family, hub_names=False), 64, 8, 2)


def test_portable_kernels(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What machines without a vector ISA of ours compute."""
    monkeypatch.setenv("MLC_NATIVE_ISA", "portable")
    check_generation(checkpoint, 64, 8)


def test_every_prompt_row(checkpoint: Path) -> None:
    model = PagedModel(checkpoint)
    prompt = random_tokens(PROMPT_LEN, model.vocab_size, seed=2)
    logits = model.forward([(PagedSequence(prompt), PROMPT_LEN)], "all")
    assert relative_error(logits, transformers_logits(checkpoint, prompt)) < FP32_TOLERANCE


def test_bitwise_alone_batched_chunked_threaded(checkpoint: Path) -> None:
    """The same bits alone, among 7 others in changing company, for any chunk and thread count."""
    lengths = [PROMPT_LEN, 1, 15, 16, 17, 130, 64, 33]
    alone = PagedModel(checkpoint, num_threads=1)
    prompts = [random_tokens(n, alone.vocab_size, seed=n) for n in lengths]
    expected = [alone.generate(prompt, 512, 24) for prompt in prompts]

    batched = PagedModel(checkpoint, num_threads=2)
    sequences = [PagedSequence(list(prompt)) for prompt in prompts]
    rows: list[list[np.ndarray]] = [[] for _ in prompts]
    while any(len(r) < 24 for r in rows):
        # Prompts advance in chunks of 23 rows alongside the decoding rows of the others.
        work = [
            (s, min(23, len(s.tokens) - s.kv_len))
            for s, r in zip(sequences, rows, strict=True)
            if len(r) < 24
        ]
        logits = batched.forward(work)
        for (sequence, _), row in zip(work, logits, strict=True):
            if sequence.kv_len < len(sequence.tokens):
                continue
            sequence.tokens.append(int(row.argmax()))
            rows[sequences.index(sequence)].append(row)
    for i, (tokens, logits) in enumerate(expected):
        assert sequences[i].tokens[lengths[i] :] == tokens
        assert np.array_equal(np.stack(rows[i]), logits), f"sequence {i}"


def test_copied_pages_continue_bitwise(checkpoint: Path) -> None:
    model = PagedModel(checkpoint)
    original = PagedSequence(random_tokens(70, model.vocab_size, seed=3))
    model.prefill(original, 512)
    fork = PagedSequence([*original.tokens, 5], kv_len=70)
    fork.pages = [model.free.pop() for _ in original.pages]
    model.model.copy_pages(list(zip(original.pages, fork.pages, strict=True)))
    original.tokens.append(9)
    theirs = model.forward([(original, 1)])
    ours = model.forward([(fork, 1)])
    straight = model.prefill(PagedSequence(list(fork.tokens)), 512)
    assert np.array_equal(ours[0], straight)
    assert not np.array_equal(theirs, ours)


def test_asked_rows_are_those_of_all(checkpoint: Path) -> None:
    model = PagedModel(checkpoint)
    prompts = [random_tokens(n, model.vocab_size, seed=n) for n in (20, 3, 50)]
    everything = model.forward([(PagedSequence(p), len(p)) for p in prompts], "all")
    last = model.forward([(PagedSequence(p), len(p)) for p in prompts], "last")
    assert np.array_equal(last, everything[[19, 22, 72]])
    assert model.forward([(PagedSequence(prompts[0]), 20)], "none").shape == (0, model.vocab_size)


# Keys and values are stored in the weights' type, the reference keeps them in float32. What that
# rounds off may be enough for another choice of experts, and so for wholly other rows.
@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 4e-3), ("bfloat16", 3e-2)])
@pytest.mark.parametrize("family", FAMILIES)
def test_half_checkpoints(tmp_path: Path, family: str, dtype: str, tolerance: float) -> None:
    path = make_checkpoint(family, tmp_path / family, dtype=dtype)
    model = PagedModel(path)
    prompt = random_tokens(100, model.vocab_size, seed=4)
    logits = model.forward([(PagedSequence(prompt), 100)], "all")
    reference = transformers_logits(path, prompt)
    errors = np.abs(logits - reference).max(-1) / np.abs(reference).max()  # of each row
    text = SHAPES[family].get("text_config", SHAPES[family])
    # A small difference may choose another expert; linear attention divides by the length of keys,
    # and transformers' own bfloat16 then differs more than ours does.
    is_sharp = any("experts" in field or field.startswith("linear_") for field in text)
    assert np.quantile(errors, 0.5 if is_sharp else 1.0) < tolerance
