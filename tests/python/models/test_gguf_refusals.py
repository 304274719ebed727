"""What a GGUF file may leave out, and what is refused by its name."""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from gguf_cases import FAMILIES, damaged, logits
from gguf_files import Metadata, write_gguf

from mlc_native import inspect_model

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint


def test_an_olmo_that_cuts_its_projections_is_refused(tmp_path: Path) -> None:
    source = make_checkpoint("tiny-olmo", tmp_path / "source")
    metadata: Metadata = {"olmo.attention.clamp_kqv": 8.0}
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32, metadata=metadata)
    damaged(path, "clip_qkv", "is not supported")


def without(path: Path, *keys: str) -> None:
    """With other names for the keys."""
    content = path.read_bytes()
    for key in keys:
        name = len(key).to_bytes(8, "little") + key.encode()
        assert content.count(name) == 1, key
        content = content.replace(name, name[:-1] + b"_")
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("like", "family"), [("tiny-glm", "chatglm"), ("tiny-ministral3", "mistral3")]
)
def test_sizes_without_a_key_follow_from_others(tmp_path: Path, like: str, family: str) -> None:
    """As for llama.cpp, some of whose converters leave them out."""
    source = make_checkpoint(
        like, tmp_path / "source", overrides={"num_key_value_heads": 4, "head_dim": 16}
    )
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32, floats=tmp_path / "floats")
    keys = ("key_length", "value_length", "head_count_kv")
    without(path, *(f"{family}.attention.{key}" for key in keys))
    assert np.array_equal(logits(path), logits(tmp_path / "floats"))


@pytest.mark.parametrize(
    ("like", "key"),
    [
        ("tiny-qwen2", "qwen2.context_length"),
        ("tiny-qwen2", "qwen2.attention.layer_norm_rms_epsilon"),
        ("tiny-starcoder2", "starcoder2.attention.layer_norm_epsilon"),
        ("tiny-glm", "chatglm.attention.head_count"),
        ("tiny-olmoe", "olmoe.expert_used_count"),
        ("tiny-qwen3_5_text", "qwen35.ssm.conv_kernel"),
        ("tiny-qwen3_5_text", "qwen35.ssm.state_size"),
        ("tiny-qwen3_5_moe_text", "qwen35moe.ssm.group_count"),
        ("tiny-qwen3_5_text", "qwen35.ssm.time_step_rank"),
        ("tiny-qwen3_5_moe_text", "qwen35moe.ssm.inner_size"),
    ],
)
def test_a_key_whose_value_nothing_else_says_is_named(tmp_path: Path, like: str, key: str) -> None:
    """The defaults of transformers are those of one model of the family."""
    source = make_checkpoint(like, tmp_path / "source")
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32)
    without(path, key)
    damaged(path, key, "is missing")


def test_a_number_may_be_a_list_of_the_same_for_each_layer(tmp_path: Path) -> None:
    """As the converter writes it of a Granite 4 without Mamba layers."""
    source = make_checkpoint("tiny-granite", tmp_path / "source")
    key = "granite.attention.head_count_kv"
    path = tmp_path / "x.gguf"
    write_gguf(source, path, lambda _: Type.F32, metadata={key: [2, 2, 2]})
    assert np.array_equal(logits(path), logits(source))
    write_gguf(source, path, lambda _: Type.F32, metadata={key: [2, 2, 1]})
    damaged(path, key, "is 2 in one layer and 1 in the next")


def test_experts_that_a_family_does_not_have_are_named(tmp_path: Path) -> None:
    source = make_checkpoint("tiny-mixtral", tmp_path / "source")
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"llama", b"qwen2"))
    damaged(path, "qwen2.expert_count", "experts of this family are not supported")
    source = make_checkpoint("tiny-minimax_m2", tmp_path / "sigmoid")
    path = write_gguf(source, tmp_path / "y.gguf", lambda _: Type.F32)
    content = path.read_bytes()
    key = b"minimax-m2.expert_gating_func"
    place = content.index(key) + len(key) + 4
    path.write_bytes(content[:place] + (1).to_bytes(4, "little") + content[place + 4 :])
    damaged(path, key.decode(), "= 1 is not supported for this family (only 2)")


def test_ropes_that_no_folder_has_are_named(tmp_path: Path) -> None:
    source = make_checkpoint("tiny-glm4", tmp_path / "glm4")
    key = "glm4.rope.dimension_sections"  # of a model with images, whose rows have another order
    path = tmp_path / "x.gguf"
    write_gguf(source, path, lambda _: Type.F32, metadata={key: [2, 1, 1, 0]})
    damaged(path, key, "is not supported for this family")
    source = make_checkpoint("tiny-llama", tmp_path / "llama")
    key = "llama.rope.scaling.factor"
    write_gguf(source, path, lambda _: Type.F32, metadata={key: 4.0})
    damaged(path, key, 'beside the tensor "rope_freqs.weight"')


def test_sizes_of_latent_attention_are_named(tmp_path: Path) -> None:
    overrides = FAMILIES["tiny-deepseek_v2"]
    source = make_checkpoint("tiny-deepseek_v2", tmp_path / "source", overrides=overrides)
    path = tmp_path / "x.gguf"
    key = "deepseek2.attention.temperature_scale"  # of Mistral Large 3, which has yarn
    write_gguf(source, path, lambda _: Type.F32, metadata={key: 0.1})
    damaged(path, key, 'deepseek2.rope.scaling.type = "yarn" alone')
    write_gguf(source, path, lambda _: Type.F32)
    good = path.read_bytes()
    key = "deepseek2.attention.key_length_mla"
    path.write_bytes(good.replace(key.encode(), key.replace("_mla", "_xyz").encode()))
    damaged(path, key, "is missing")
    key = "deepseek2.attention.kv_lora_rank"
    path.write_bytes(good.replace(key.encode(), key.replace("rank", "xxxx").encode()))
    damaged(path, key, "is missing")


@pytest.mark.parametrize(
    ("key", "value", "field", "what"),
    [
        ("inner_size", 161, "qwen35.ssm.inner_size", "= 161 must be a multiple of qwen35.ssm.time"),
        ("time_step_rank", 0, "qwen35.ssm.time_step_rank", "= 0 must be at least 1"),
        ("group_count", 3, "linear_num_value_heads", 'a multiple of "linear_num_key_heads" = 3'),
        ("group_count", 1 << 31, "linear_num_key_heads", "[1, 1024]"),
        ("state_size", 64, "model.layers.0.linear_attn.conv1d.weight", "of 4 value heads"),
        ("state_size", 22, "model.layers.0.linear_attn.in_proj_qkv.weight", "asks for [248, 64]"),
        ("conv_kernel", 3, "model.layers.0.linear_attn.conv1d.weight", "shape [256, 1, 4]"),
    ],
)
def test_sizes_of_linear_attention_are_named(
    tmp_path: Path, key: str, value: int, field: str, what: str
) -> None:
    source = make_checkpoint("tiny-qwen3_5_text", tmp_path / "source")
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32,
                      metadata={f"qwen35.ssm.{key}": value})  # fmt: skip
    damaged(path, field, what)


def test_a_rate_of_decay_that_grows_is_named(tmp_path: Path) -> None:
    source = make_checkpoint("tiny-qwen3_5_text", tmp_path / "source")
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32)
    (tensor,) = [t for t in gguf.GGUFReader(path).tensors if t.name == "blk.1.ssm_a"]
    content = bytearray(path.read_bytes())
    content[tensor.data_offset : tensor.data_offset + 4] = np.float32(0.5).tobytes()
    path.write_bytes(content)
    damaged(path, "model.layers.1.linear_attn.A_log", "has 0.5", "not below 0")


def test_scales_of_nvfp4(tmp_path: Path) -> None:
    source = make_checkpoint("tiny-qwen2", tmp_path / "source")
    path = write_gguf(
        source, tmp_path / "x.gguf", lambda name: Type.NVFP4 if "attn_q" in name else Type.F32
    )
    assert inspect_model(path)["unused"] == []
    (scale,) = [t for t in gguf.GGUFReader(path).tensors if t.name == "blk.1.attn_q.scale"]
    content = path.read_bytes()
    for wrong in (np.inf, np.nan):
        place = scale.data_offset
        path.write_bytes(content[:place] + np.float32(wrong).tobytes() + content[place + 4 :])
        damaged(path, "blk.1.attn_q.scale", "not finite")
    name = b"blk.1.attn_q.scale"
    place = content.index(name) + len(name) + 4  # behind the number of dimensions: the first one
    path.write_bytes(content[:place] + (2).to_bytes(8, "little") + content[place + 8 :])
    damaged(path, "blk.1.attn_q.scale", "2 scales for 1 matrices")


def test_what_is_not_supported_is_named(tmp_path: Path) -> None:
    source = make_checkpoint("tiny-qwen2", tmp_path / "source",
                             overrides={"hidden_size": 256, "intermediate_size": 256})  # fmt: skip
    path = tmp_path / "x.gguf"
    write_gguf(source, path, lambda _: Type.F32)
    content = path.read_bytes()

    def replace(old: bytes, new: bytes) -> None:
        assert old in content
        assert len(old) == len(new)
        path.write_bytes(content.replace(old, new, 1))

    replace(b"qwen2", b"qwen9")
    damaged(path, "general.architecture", '"qwen9" is not supported', "qwen2, qwen2moe")
    replace(b"blk.1.attn_k.weight", b"blk.1.attn_x.weight")
    name = "model.layers.1.self_attn.k_proj.weight"
    damaged(path, name, "lacks tensors of Qwen2ForCausalLM", name)
    replace(b"qwen2.embedding_length", b"qwen2.embedding_lengtx")
    damaged(path, "hidden_size", "config.json", "got nothing")
    # Of the type Q8_K, whose tensor needs fewer bytes than are there.
    place = content.index(b"blk.0.attn_k.weight") + len(b"blk.0.attn_k.weight") + 4 + 16
    path.write_bytes(content[:place] + (15).to_bytes(4, "little") + content[place + 4 :])
    damaged(path, "model.layers.0.self_attn.k_proj.weight", "dtype Q8_K", "Q8_0, Q4_0, Q5_0")
