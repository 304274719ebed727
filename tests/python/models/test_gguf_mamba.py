"""GGUF files of families with Mamba-1 or Mamba-2: logits, tokens, and what is refused.

The oracles are those of test_gguf.py. What the files hold was compared with what llama.cpp's own
converter writes of the same folders.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from gguf_files import Metadata, write_gguf
from paged_driver import (
    PagedModel,
    PagedSequence,
    random_tokens,
    relative_error,
    transformers_logits,
)

from mlc_native import inspect_model
from mlc_native._core import LoadError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

PROMPT = random_tokens(100, 512, seed=11)
EXACT = [Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q5_0, Type.IQ4_NL, Type.Q4_1,
         Type.Q5_1]  # fmt: skip
# Rows of whole blocks; multipliers that are the same in floats of 32 and of 64 bits.
SIZES: dict[str, Any] = {"mamba_expand": 2, "mamba_d_head": 16, "residual_multiplier": 0.25,
                         "attention_multiplier": 0.125}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "tiny-granitemoehybrid_mamba": {**SIZES, "shared_intermediate_size": 96},
    "tiny-granitemoehybrid_moe": {
        **SIZES, "mamba_d_head": 8, "intermediate_size": 64, "shared_intermediate_size": 96,
        "attention_bias": True, "layer_types": ["attention", "mamba", "mamba", "mamba", "mamba"],
    },
    "tiny-bamba": {"mamba_expand": 2, "mamba_d_head": 4},
    "tiny-falcon_h1": {"mamba_rms_norm": True, "mamba_norm_before_gate": False},
    "tiny-mamba2": {},
    "tiny-mamba": {"intermediate_size": 192, "time_step_rank": 32, "use_bias": False},
    "tiny-falcon_mamba": {"time_step_rank": 32, "mixer_rms_eps": 1e-6},
    "tiny-jamba": {"mamba_dt_rank": 32},
    "tiny-jamba_dense": {"mamba_dt_rank": 32, "mamba_proj_bias": False},
    "tiny-nemotron_h": {},
    "tiny-nemotron_h_moe": {
        "moe_intermediate_size": 64, "moe_shared_expert_intermediate_size": 96,
        "layers_block_type": ["linear_attention", "moe", "full_attention", "moe", "moe"],
    },
}  # fmt: skip
# Of blocks of 256 columns; those of the others follow from FAMILIES.
WHOLE_BLOCKS: dict[str, dict[str, Any]] = {
    "tiny-falcon_h1": {"mamba_d_ssm": 256, "mamba_d_head": 32},
    "tiny-mamba2": {"head_dim": 96},
    "tiny-mamba": {"intermediate_size": 512, "time_step_rank": 256},
    "tiny-falcon_mamba": {"intermediate_size": 512, "time_step_rank": 256},
    "tiny-jamba": {"mamba_dt_rank": 256},
    "tiny-jamba_dense": {"mamba_dt_rank": 256},
    # Biases would decide the tokens.
    "tiny-nemotron_h": {"head_dim": 64, "mamba_head_dim": 32, "mlp_bias": False},
    "tiny-nemotron_h_moe": {
        "head_dim": 64, "mamba_head_dim": 16, "moe_intermediate_size": 256,
        "moe_shared_expert_intermediate_size": 512,
    },
}  # fmt: skip


def logits(path: Path) -> np.ndarray:
    model = PagedModel(path, "float32", quantization="off")
    return model.forward([(PagedSequence(PROMPT), len(PROMPT))], "all")


@pytest.mark.parametrize("like", FAMILIES)
def test_logits_are_those_of_the_folder_with_the_same_values(tmp_path: Path, like: str) -> None:
    turn = itertools.cycle(EXACT)
    source = make_checkpoint(like, tmp_path / "source", overrides=FAMILIES[like])
    file = write_gguf(source, tmp_path / "x.gguf", lambda _: next(turn),
                      floats=tmp_path / "floats")  # fmt: skip
    assert np.array_equal(logits(file), logits(tmp_path / "floats"))


def of_whole_blocks(like: str) -> dict[str, Any]:
    """Sizes that blocks of 256 columns divide."""
    sizes: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512}
    if like in WHOLE_BLOCKS:
        return FAMILIES[like] | sizes | WHOLE_BLOCKS[like]
    sizes |= {"mamba_d_head": FAMILIES[like]["mamba_d_head"] * 4, "shared_intermediate_size": 512}
    return FAMILIES[like] | sizes


@pytest.mark.parametrize("kind", [Type.F32, Type.Q8_0, Type.Q4_K], ids=lambda kind: kind.name)
@pytest.mark.parametrize("like", FAMILIES)
def test_tokens_are_those_of_transformers(tmp_path: Path, like: str, kind: Type) -> None:
    source = make_checkpoint(like, tmp_path / "source", overrides=of_whole_blocks(like), std=0.06)
    file = write_gguf(source, tmp_path / "x.gguf", lambda _: kind, floats=tmp_path / "floats",
                      centred=kind == Type.Q4_K)  # fmt: skip
    prompt = PROMPT[:70]
    tokens, found = PagedModel(file, "float32", quantization="off").generate(prompt, 32, 32)
    expected = transformers_logits(tmp_path / "floats", [*prompt, *tokens[:-1]])[len(prompt) - 1 :]
    assert relative_error(found, expected) < 1e-4
    assert tokens == expected.argmax(-1).tolist()
    assert len(set(tokens)) > 8


@pytest.mark.parametrize(("kind", "name"), [(Type.Q8_0, "q8"), (Type.Q4_K, "q4")])
@pytest.mark.parametrize("like", FAMILIES)
def test_codes_are_kept(tmp_path: Path, like: str, kind: Type, name: str) -> None:
    """Vectors that are columns, which are floats of 32 bits, say nothing of matrices."""
    source = make_checkpoint(like, tmp_path / "source", overrides=of_whole_blocks(like))
    found = inspect_model(write_gguf(source, tmp_path / "x.gguf", lambda _: kind))
    assert found["loads"]
    assert found["weight_format"] == f"{name} with float16"


def test_a_shared_block_is_as_large_as_the_only_one(tmp_path: Path) -> None:
    """Where the file says how large a block is, but not that it is the one of all rows."""
    sizes = {"intermediate_size": 72}
    source = make_checkpoint("tiny-granitemoehybrid_mamba", tmp_path / "s", overrides=sizes)
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32)
    rename(path, "granitehybrid.expert_shared_feed_forward_length")
    rename(path, "granitehybrid.expert_count")
    assert relative_error(logits(path), transformers_logits(source, PROMPT)) < 1e-4


def rename(path: Path, key: str) -> None:
    content = path.read_bytes()
    assert content.count(key.encode()) == 1
    path.write_bytes(content.replace(key.encode(), key.encode()[:-1] + b"_"))


MULTIPLIERS = {
    "all": {},
    "without-a-norm": {"mamba_rms_norm": False},
    "without-a-bias": {"mamba_conv_bias": False},
}


@pytest.mark.parametrize("variant", MULTIPLIERS)
def test_multipliers_are_applied_once(tmp_path: Path, variant: str) -> None:
    """The file has them in its matrices, the folder in its configuration."""
    sizes = FAMILIES["tiny-falcon_h1"] | MULTIPLIERS[variant]
    source = make_checkpoint("tiny-falcon_h1", tmp_path / "source", overrides=sizes)
    found = logits(write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32))
    assert relative_error(found, transformers_logits(source, PROMPT)) < 1e-4
    assert relative_error(found, logits(source)) < 1e-5


def test_a_head_that_is_tied_has_the_multiplier_of_embeddings(tmp_path: Path) -> None:
    """As for llama.cpp: the file has one tensor for both."""
    source = make_checkpoint("tiny-falcon_h1", tmp_path / "source",
                             overrides={"tie_word_embeddings": True})  # fmt: skip
    found = logits(write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32))
    assert relative_error(found * 0.4 / 3.0, transformers_logits(source, PROMPT)) < 1e-4


NEMOTRON = {
    "one-tensor-of-q-k-v": ("tiny-nemotron_h", {}, {"fused": True}),
    "layers-that-guess": (
        "tiny-nemotron_h_moe", {**FAMILIES["tiny-nemotron_h_moe"], "num_nextn_predict_layers": 1},
        {},
    ),
    "biases-of-layers-behind-the-first": (
        "tiny-nemotron_h", {"layers_block_type": ["full_attention", "linear_attention", "mlp"]}, {},
    ),
    "no-biases": ("tiny-nemotron_h", {"mlp_bias": False, "use_conv_bias": False}, {}),
    "no-feed-forward-blocks": (
        "tiny-nemotron_h", {"layers_block_type": ["linear_attention", "full_attention"]}, {},
    ),
    "experts-that-read-a-projection": (
        "tiny-nemotron_h_moe", {**FAMILIES["tiny-nemotron_h_moe"], "moe_latent_size": 32}, {},
    ),
    "weights-of-experts-as-they-are": (
        "tiny-nemotron_h_moe", {**FAMILIES["tiny-nemotron_h_moe"], "norm_topk_prob": False}, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("variant", NEMOTRON)
def test_blocks_are_those_of_the_folder(tmp_path: Path, variant: str) -> None:
    like, overrides, options = NEMOTRON[variant]
    source = make_checkpoint(like, tmp_path / "source", overrides=overrides)
    file = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32, floats=tmp_path / "floats",
                      **options)  # fmt: skip
    assert np.array_equal(logits(file), logits(tmp_path / "floats"))
    assert relative_error(logits(file), transformers_logits(tmp_path / "floats", PROMPT)) < 1e-4


def test_one_key_of_epsilon_counts_before_the_other(tmp_path: Path) -> None:
    """As for llama.cpp. NVIDIA's folders have both, with the same value."""
    source = make_checkpoint("tiny-nemotron_h", tmp_path / "source")
    metadata: Metadata = {"nemotron_h.attention.layer_norm_rms_epsilon": 0.25}
    file = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32, metadata=metadata,
                      floats=tmp_path / "floats")  # fmt: skip
    config = tmp_path / "floats" / "config.json"
    config.write_text(config.read_text().replace('epsilon": 1e-05', 'epsilon": 0.25'))
    assert np.array_equal(logits(file), logits(tmp_path / "floats"))


def damaged(path: Path, field: str, *parts: str) -> None:
    with pytest.raises(LoadError) as error:
        PagedModel(path)
    message = str(error.value)
    assert all(part in message for part in parts), message
    assert error.value.field == field


NAMES = {
    "tiny-granitemoehybrid_mamba": "granitehybrid",
    "tiny-falcon_h1": "falcon-h1",
    "tiny-nemotron_h": "nemotron_h",
    "tiny-nemotron_h_moe": "nemotron_h_moe",
}
SSM_KEYS = ["ssm.inner_size", "ssm.time_step_rank", "ssm.group_count", "ssm.state_size",
            "ssm.conv_kernel"]  # fmt: skip
LAYER_KEYS = ["attention.head_count_kv", "block_count", "embedding_length"]
EXPERT_KEYS = ["expert_count", "expert_used_count", "expert_feed_forward_length",
               "expert_shared_feed_forward_length"]  # fmt: skip
KEYS = [
    *(("tiny-granitemoehybrid_mamba", key) for key in [*LAYER_KEYS, *SSM_KEYS]),
    *(("tiny-falcon_h1", key) for key in SSM_KEYS),
    *(
        ("tiny-nemotron_h", key)
        for key in [*LAYER_KEYS[:2], *SSM_KEYS, "feed_forward_length", "context_length",
                    "attention.layer_norm_epsilon"]
    ),
    *(("tiny-nemotron_h_moe", key) for key in EXPERT_KEYS),
]  # fmt: skip


@pytest.mark.parametrize(("like", "key"), KEYS)
def test_a_key_whose_value_nothing_else_says_is_named(tmp_path: Path, like: str, key: str) -> None:
    source = make_checkpoint(like, tmp_path / "source")
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32)
    rename(path, f"{NAMES[like]}.{key}")
    damaged(path, f"{NAMES[like]}.{key}", "is missing")


GRANITE = "tiny-granitemoehybrid_mamba"
NO_MULTIPLE = "must be a multiple of {}.ssm.time_step_rank = 8"


@pytest.mark.parametrize(
    ("like", "key", "value", "part"),
    [
        (GRANITE, "attention.head_count_kv", [0, 0, 2], "has 3 entries for 5 layers"),
        (GRANITE, "attention.head_count_kv", [0] * 5, "has no layer with attention"),
        (GRANITE, "attention.head_count_kv", [0, 2, 1, 0, 0],
         "differs among layers with attention"),
        (GRANITE, "ssm.inner_size", 190, NO_MULTIPLE),
        (GRANITE, "ssm.inner_size", 96, "must be a multiple of {}.embedding_length = 64"),
        ("tiny-falcon_h1", "ssm.inner_size", 97, NO_MULTIPLE),
        ("tiny-nemotron_h", "ssm.inner_size", 190, NO_MULTIPLE),
        ("tiny-nemotron_h", "ssm.time_step_rank", 0, "= 0 must be at least 1"),
        ("tiny-nemotron_h", "block_count", 0, "= 0 must be in [1, 65536]"),
        ("tiny-nemotron_h", "nextn_predict_layers", 8, "= 8 must be in [0, 7]"),
        ("tiny-nemotron_h", "attention.head_count_kv", [0] * 8, "has no layer with attention"),
        ("tiny-nemotron_h", "feed_forward_length", [160] * 7, "has 7 entries for 8 layers"),
        ("tiny-nemotron_h", "feed_forward_length", [160, 0, 0, 96, 0, 0, 160, 160],
         "differs among layers with a feed-forward block"),
        ("tiny-nemotron_h", "feed_forward_length", [160, 0, 0, 160, 160, 0, 160, 160],
         "gives layer 4 a feed-forward block, and {}.attention.head_count_kv gives it attention"),
        ("tiny-nemotron_h", "expert_count", 4, "experts of this family are not supported"),
        ("tiny-nemotron_h_moe", "expert_gating_func", 1, "= 1 is not supported"),
    ],
)  # fmt: skip
def test_sizes_that_do_not_fit_are_named(
    tmp_path: Path, like: str, key: str, value: Any, part: str
) -> None:
    source = make_checkpoint(like, tmp_path / "source")
    name = NAMES[like]
    metadata: Metadata = {f"{name}.{key}": value}
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32, metadata=metadata)
    damaged(path, f"{name}.{key}", part.format(name))
