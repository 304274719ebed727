"""GGUF files of Kimi Linear: logits, tokens, and what is refused.

The oracles are those of test_gguf.py. What the files hold is what llama.cpp's converter writes, by
its source; its own files have not been compared.
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

LIKE = "tiny-kimi_linear"
PROMPT = random_tokens(100, 512, seed=11)
EXACT = [Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q5_0, Type.IQ4_NL]
# Rows of whole blocks of 32 columns.
SIZES: dict[str, Any] = {
    "linear_head_dim": 32, "qk_nope_head_dim": 32, "kv_lora_rank": 64, "moe_intermediate_size": 64,
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "as-it-is": {},
    "keys-and-values-in-one-tensor": {"old_converter": True},
    "latents-of-queries": {"q_lora_rank": 32},
    "one-group-of-experts": {"n_group": 1, "topk_group": 1, "n_shared_experts": 1},
    "the-first-layer-attends": {
        "layer_types": ["full_attention"] * 2 + ["linear_attention"] * 3,
        "mlp_layer_types": ["dense"] * 2 + ["sparse"] * 3,
    },
}


def logits(path: Path) -> np.ndarray:
    model = PagedModel(path, "float32", quantization="off")
    return model.forward([(PagedSequence(PROMPT), len(PROMPT))], "all")


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_are_those_of_the_folder_with_the_same_values(tmp_path: Path, variant: str) -> None:
    turn = itertools.cycle(EXACT)
    source = make_checkpoint(LIKE, tmp_path / "source", overrides=SIZES | VARIANTS[variant])
    file = write_gguf(source, tmp_path / "x.gguf", lambda _: next(turn),
                      floats=tmp_path / "floats")  # fmt: skip
    assert np.array_equal(logits(file), logits(tmp_path / "floats"))


@pytest.mark.parametrize("kind", [Type.F32, Type.Q8_0], ids=lambda kind: kind.name)
def test_tokens_are_those_of_transformers(tmp_path: Path, kind: Type) -> None:
    source = make_checkpoint(LIKE, tmp_path / "source", overrides=SIZES)
    file = write_gguf(source, tmp_path / "x.gguf", lambda _: kind, floats=tmp_path / "floats")
    prompt = PROMPT[:70]
    tokens, found = PagedModel(file, "float32", quantization="off").generate(prompt, 32, 24)
    expected = transformers_logits(tmp_path / "floats", [*prompt, *tokens[:-1]])[len(prompt) - 1 :]
    assert relative_error(found, expected) < 1e-4
    assert tokens == expected.argmax(-1).tolist()
    assert len(set(tokens)) > 8


@pytest.mark.parametrize(
    ("kind", "name", "sizes"),
    [(Type.Q8_0, "q8", SIZES), (Type.Q4_0, "q4", SIZES)],
    ids=["Q8_0", "Q4_0"],
)
def test_codes_are_kept(tmp_path: Path, kind: Type, name: str, sizes: dict[str, Any]) -> None:
    source = make_checkpoint(LIKE, tmp_path / "source", overrides=sizes)
    found = inspect_model(write_gguf(source, tmp_path / "x.gguf", lambda _: kind))
    assert found["loads"]
    assert name in found["weight_format"]


KEYS = ["attention.head_count_kv", "kda.head_dim", "ssm.conv_kernel", "attention.key_length_mla",
        "attention.value_length_mla", "attention.kv_lora_rank", "rope.dimension_count",
        "expert_used_count"]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_a_key_whose_value_nothing_else_says_is_named(tmp_path: Path, key: str) -> None:
    source = make_checkpoint(LIKE, tmp_path / "source", overrides=SIZES)
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32)
    content = path.read_bytes()
    name = f"kimi-linear.{key}".encode()
    path.write_bytes(content.replace(name, name[:-1] + b"_", 1))
    with pytest.raises(LoadError, match="is missing") as error:
        PagedModel(path)
    assert error.value.field == f"kimi-linear.{key}"


@pytest.mark.parametrize(
    ("metadata", "field", "what"),
    [
        ({"attention.head_count_kv": [1, 0]}, "attention.head_count_kv", "2 entries for 5 layers"),
        ({"expert_gating_func": 1}, "expert_gating_func", "only 2"),
    ],
)
def test_what_is_refused(tmp_path: Path, metadata: Metadata, field: str, what: str) -> None:
    source = make_checkpoint(LIKE, tmp_path / "source", overrides=SIZES)
    named: Metadata = {f"kimi-linear.{key}": value for key, value in metadata.items()}
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32, metadata=named)
    with pytest.raises(LoadError, match=what) as error:
        PagedModel(path)
    assert error.value.field == f"kimi-linear.{field}"
