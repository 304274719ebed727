"""GPT-2, GPT-BigCode, GPT-Neo, OPT, GPT-J, CodeGen, Falcon, BLOOM and MPT: how the hub has them,
learned positions, biases by distance, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from damaged_models import WEIGHTS, edit_config, load_error
from paged_driver import PagedModel, PagedSequence, random_tokens, transformers_logits
from safetensors.torch import load_file, save_file

from mlc_native import EngineConfig, MLCEngine
from mlc_native.errors import InvalidConfig, InvalidRequest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

PROMPT = random_tokens(90, 512, seed=8)
POSITIONS = {
    "tiny-gpt2": ("transformer.wpe.weight", 0, "n_positions"),
    "tiny-gpt_bigcode": ("transformer.wpe.weight", 0, "n_positions"),
    "tiny-gpt_neo": ("transformer.wpe.weight", 0, "max_position_embeddings"),
    "tiny-opt": ("model.decoder.embed_positions.weight", 2, "max_position_embeddings"),
}


def logits(path: Path, *chunks: int, **options: Any) -> np.ndarray:
    """Of the prompt in chunks of these sizes, and what is left of it."""
    model, sequence = PagedModel(path, **options), PagedSequence(PROMPT)
    sizes = [*chunks, len(PROMPT) - sum(chunks)]
    return np.concatenate([model.forward([(sequence, size)], "all") for size in sizes])


def rename(path: Path, old: str, new: str, **added: torch.Tensor) -> None:
    tensors = load_file(path / WEIGHTS)
    renamed = {n.replace(old, new, 1) if n.startswith(old) else n: t for n, t in tensors.items()}
    save_file(renamed | added, path / WEIGHTS)


@pytest.mark.parametrize(
    ("like", "old", "buffers"),
    [
        ("tiny-gpt2", "transformer.", {"h.0.attn.bias": torch.ones(1, 1, 8, 8)}),
        ("tiny-gpt_bigcode", "transformer.", {"h.1.attn.bias": torch.ones(8, 8, dtype=torch.bool)}),
        ("tiny-gptj", "transformer.", {"h.0.attn.masked_bias": torch.tensor(-1e9)}),
        ("tiny-codegen", "transformer.", {"h.2.attn.causal_mask": torch.ones(1, 1, 8, 8)}),
        ("tiny-gpt_neo", "transformer.", {"h.0.attn.attention.bias": torch.ones(1, 1, 8, 8)}),
        ("tiny-falcon", "transformer.", {}),
        ("tiny-bloom", "transformer.", {}),
        ("tiny-mpt", "transformer.", {}),
        ("tiny-opt", "model.", {}),
    ],
)
def test_names_without_the_prefix_and_masks(
    tmp_path: Path,
    like: str,
    old: str,
    buffers: dict[str, torch.Tensor],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As older files of the hub have them: all of GPT-2's."""
    path = make_checkpoint(like, tmp_path / "m")
    expected = logits(path)
    rename(path, old, "", **buffers)
    assert np.array_equal(logits(path), expected)
    MLCEngine(str(path), "cpu", engine_config=EngineConfig(strict_weights=True)).terminate()
    assert not [r for r in caplog.records if r.levelname == "WARNING"]


def test_names_of_the_first_falcons(tmp_path: Path) -> None:
    """With fields that transformers no longer knows."""
    path = make_checkpoint("tiny-falcon_new", tmp_path / "m")
    expected = logits(path)
    edit_config(path, num_attention_heads=..., num_hidden_layers=..., num_kv_heads=...,
                n_head=4, n_layer=3, n_head_kv=2, activation=..., ffn_hidden_size=160)  # fmt: skip
    assert np.array_equal(logits(path), expected)


@pytest.mark.parametrize("like", POSITIONS)
def test_each_token_has_the_row_of_its_position(tmp_path: Path, like: str) -> None:
    """Another row changes the tokens from its position on; the first rows of OPT are of none."""
    name, first, _ = POSITIONS[like]
    path = make_checkpoint(like, tmp_path / "m")
    expected = logits(path)
    for chunks in ([1], [40, 3], [89]):
        assert np.array_equal(logits(path, *chunks), expected)
    tensors = load_file(path / WEIGHTS)
    for position in (-first, 0, 1, 57):
        row = tensors[name][first + position].clone()
        tensors[name][first + position] += 1
        save_file(tensors, path / WEIGHTS)
        got = logits(path, 40, 3)
        begin = position if position >= 0 or first == 0 else len(PROMPT)
        assert np.array_equal(got[:begin], expected[:begin])
        assert all((a != b).any() for a, b in zip(got[begin:], expected[begin:], strict=True))
        tensors[name][first + position] = row


@pytest.mark.parametrize(
    ("like", "overrides"),
    [
        ("tiny-bloom", {"n_head": 8}),
        ("tiny-bloom", {"n_head": 1}),
        ("tiny-mpt", {"n_heads": 12}),
        ("tiny-mpt", {"attn_config": {"softmax_scale": 0.4}}),
    ],
)
def test_slopes_of_any_number_of_heads(
    tmp_path: Path, like: str, overrides: dict[str, Any]
) -> None:
    path = make_checkpoint(like, tmp_path / "m", overrides=overrides)
    got = logits(path)
    expected = transformers_logits(path, PROMPT)
    assert np.abs(got - expected).max() < 1e-5 * np.abs(expected).max()
    for chunks in ([1], [40, 3], [89]):
        assert np.array_equal(logits(path, *chunks), got)


@pytest.mark.parametrize("like", POSITIONS)
def test_the_context_ends_with_the_table(tmp_path: Path, like: str) -> None:
    name, first, field = POSITIONS[like]
    path = make_checkpoint(like, tmp_path / "m", overrides={field: 96})
    model = PagedModel(path)
    assert model.model.metadata["context_window_size"] == 96
    tokens = random_tokens(96, 512, seed=9)
    whole = model.forward([(PagedSequence(tokens), 96)], "all")
    reference = transformers_logits(path, tokens)
    assert np.abs(whole - reference).max() < 1e-4 * np.abs(reference).max()
    with pytest.raises(InvalidConfig, match=r"max_single_sequence_length.*96"):
        MLCEngine(str(path), "cpu", engine_config=EngineConfig(max_single_sequence_length=97))
    with MLCEngine(str(path), "cpu") as engine:
        assert engine.engine_config.max_single_sequence_length == 96
        with pytest.raises(InvalidRequest, match="96"):
            engine.completions.create(prompt="a" * 97, max_tokens=1)
        usage = engine.completions.create(prompt="a" * 90, max_tokens=50, ignore_eos=True).usage
        assert usage is not None
        assert usage.total_tokens == 96
    rows = load_file(path / WEIGHTS)[name].shape[0]
    edit_config(path, **{field: 97})
    load_error(path, name, f"[{rows}, 64], the configuration asks for [{97 + first}, 64]")


@pytest.mark.parametrize(
    ("like", "fields", "message"),
    [
        ("tiny-opt", {"do_layer_norm_before": False}, "norms of the residual behind the blocks"),
        ("tiny-opt", {"word_embed_proj_dim": 32}, "projections of the embeddings"),
        ("tiny-opt", {"layer_norm_elementwise_affine": False}, "norms without weights"),
        ("tiny-opt", {"_remove_final_layer_norm": True}, "logits without a norm"),
        ("tiny-opt", {"activation_function": "quick_gelu"}, '"activation_function" must be one of'),
        ("tiny-gpt2", {"scale_attn_weights": False}, "scores that are not scaled"),
        ("tiny-gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scaled by their layer"),
        ("tiny-gpt2", {"add_cross_attention": True}, "an encoder"),
        ("tiny-gpt2", {"n_embd": 0}, '"n_embd" must be an integer in [1,'),
        ("tiny-gpt2", {"n_head": 5}, '"n_head" must be a divisor of "hidden_size" = 64'),
        ("tiny-gptj", {"rotary_dim": 64}, '"rotary_dim" must be an integer in [1, 16]'),
        ("tiny-codegen", {"n_embd": 6, "n_head": 3}, '"n_embd" must be a multiple of 4'),
        ("tiny-gpt_neo", {"attention_types": [[["global", "local"], 2]]}, "not of the 3 layers"),
        ("tiny-gpt_neo", {"attention_types": [[["global", "near"], 1]]}, '"global" and "local"'),
        ("tiny-gpt_neo", {"attention_types": [["local", 3]]}, '"global" and "local"'),
        ("tiny-gpt_neo", {"window_size": 0}, '"window_size" must be an integer in [1,'),
        ("tiny-falcon", {"alibi": True}, "biases by distance that are rounded to bfloat16"),
        ("tiny-bloom", {"apply_residual_connection_post_layernorm": True}, "give the residual"),
        ("tiny-mpt", {"no_bias": False}, "biases"),
        ("tiny-mpt", {"expansion_ratio": 2}, "feed-forward blocks of another size"),
        ("tiny-mpt", {"logit_scale": "inv_sqrt_d_model"}, "a scale of the logits"),
        ("tiny-mpt", {"attn_config": {"alibi": False}}, "learned positions"),
        ("tiny-mpt", {"attn_config": {"qk_ln": True}}, "norms of q and k"),
        ("tiny-mpt", {"attn_config": {"prefix_lm": True}}, "in both directions over prompts"),
        ("tiny-mpt", {"attn_config": {"clip_qkv": 6}}, '"clip_qkv" is not supported'),
        ("tiny-mpt", {"attn_config": {"attn_type": "grouped"}}, "another kind of attention"),
        ("tiny-mpt", {"attn_config": {"alibi_bias_max": 0}}, '"alibi_bias_max" must be'),
        ("tiny-mpt", {"attn_config": [1]}, '"attn_config" must be a JSON object'),
        (
            "tiny-falcon_new",
            {"num_ln_in_parallel_attn": 3},
            '"num_ln_in_parallel_attn" must be an integer in [1, 2]',
        ),
    ],
)
def test_what_is_refused(tmp_path: Path, like: str, fields: dict[str, Any], message: str) -> None:
    path = make_checkpoint(like, tmp_path / "m")
    edit_config(path, **fields)
    load_error(path, message)


@pytest.mark.parametrize("like", ["tiny-gpt2", "tiny-opt", "tiny-falcon_new", "tiny-gptj"])
@pytest.mark.parametrize(("quantization", "tolerance"), [("q8", 0.05), ("q4", 0.2)])
def test_fewer_bits_are_near(
    tmp_path: Path, like: str, quantization: str, tolerance: float
) -> None:
    path = make_checkpoint(like, tmp_path / "m")
    expected = logits(path)
    got = logits(path, 50, quantization=quantization)
    assert np.abs(got - expected).max() < tolerance * np.abs(expected).max()
