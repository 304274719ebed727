"""GGUF files of Granite 4 H and Bamba: logits, tokens, and what is refused. The oracles are
test_gguf.py's."""

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
    sizes = {"hidden_size": 256, "shared_intermediate_size": 512, "intermediate_size": 512,
             "mamba_d_head": FAMILIES[like]["mamba_d_head"] * 4}  # fmt: skip
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


def damaged(path: Path, field: str, *parts: str) -> None:
    with pytest.raises(LoadError) as error:
        PagedModel(path)
    message = str(error.value)
    assert all(part in message for part in parts), message
    assert error.value.field == field


KEYS = ["attention.head_count_kv", "block_count", "embedding_length", "ssm.inner_size",
        "ssm.time_step_rank", "ssm.group_count", "ssm.state_size", "ssm.conv_kernel"]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_a_key_whose_value_nothing_else_says_is_named(tmp_path: Path, key: str) -> None:
    source = make_checkpoint("tiny-granitemoehybrid_mamba", tmp_path / "source")
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32)
    rename(path, f"granitehybrid.{key}")
    damaged(path, f"granitehybrid.{key}", "is missing")


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("attention.head_count_kv", [0, 0, 2], "has 3 entries for 5 layers"),
        ("attention.head_count_kv", [0] * 5, "has no layer with attention"),
        ("attention.head_count_kv", [0, 2, 1, 0, 0], "differs among layers with attention"),
        ("ssm.inner_size", 190, "must be a multiple of granitehybrid.ssm.time_step_rank = 8"),
        ("ssm.inner_size", 96, "must be a multiple of granitehybrid.embedding_length = 64"),
    ],
)
def test_sizes_that_do_not_fit_are_named(tmp_path: Path, key: str, value: Any, part: str) -> None:
    source = make_checkpoint("tiny-granitemoehybrid_mamba", tmp_path / "source")
    metadata: Metadata = {f"granitehybrid.{key}": value}
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32, metadata=metadata)
    damaged(path, f"granitehybrid.{key}", part)
