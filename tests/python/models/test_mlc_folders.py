"""MLC model folders: weights, logits, chat, and folders that are damaged."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlc_folders import CHAT_CONFIG, FAMILIES, INDEX, QUANTIZATIONS, make_mlc_folder
from paged_driver import (
    PagedModel,
    PagedSequence,
    random_tokens,
    relative_error,
    transformers_logits,
)
from quantized_checkpoints import WEIGHTS, load_file

from mlc_native import MLCEngine
from mlc_native._core import LoadError, testing

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

PROMPT = random_tokens(150, 512, seed=11)  # longer than every window
SHARD = "params_shard_1.bin"


def logits(path: Path, dtype: str = "float32") -> np.ndarray:
    model = PagedModel(path, dtype, quantization="off")
    return model.forward([(PagedSequence(PROMPT), len(PROMPT))], "all")


def make(
    tmp_path: Path, like: str = "tiny-llama", quantization: str = "q4f16_1", **options: Any
) -> tuple[Path, Path]:
    """The MLC folder, and the Hugging Face checkpoint with the values of its weights."""
    source = make_checkpoint(like, tmp_path / "source")
    make_mlc_folder(source, tmp_path / "mlc", tmp_path / "floats", quantization, **options)
    return tmp_path / "mlc", tmp_path / "floats"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(tmp_path)[0]


# ---- Values ----


@pytest.mark.parametrize("encode", [True, False])
@pytest.mark.parametrize("quantization", QUANTIZATIONS)
def test_every_weight_is_the_reference_bit_for_bit(
    tmp_path: Path, quantization: str, encode: bool
) -> None:
    path, floats = make(tmp_path, "tiny-qwen2", quantization, encode=encode)
    expected = load_file(floats / WEIGHTS)
    embeddings = expected["model.embed_tokens.weight"]
    ours = testing.read_weight(str(path), "model.embed_tokens.weight", *embeddings.shape)
    assert np.array_equal(ours, embeddings)
    for i in range(3):
        layer = f"model.layers.{i}."
        fused = {
            "self_attn.c_attn": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
            "self_attn.o_proj": ["self_attn.o_proj"],
            "mlp.gate_up_proj": ["mlp.gate_proj", "mlp.up_proj"],
            "mlp.down_proj": ["mlp.down_proj"],
        }
        for name, parts in fused.items():
            weight = np.concatenate([expected[f"{layer}{part}.weight"] for part in parts])
            ours = testing.read_weight(str(path), f"{layer}{name}.weight", *weight.shape)
            assert np.array_equal(ours, weight), name
    assert np.array_equal(logits(path), logits(floats))


@pytest.mark.parametrize("quantization", ["q0f32", "q3f16_1", "q4f16_1"])
@pytest.mark.parametrize("like", FAMILIES)
def test_logits_are_transformers(tmp_path: Path, like: str, quantization: str) -> None:
    path, floats = make(tmp_path, like, quantization)
    assert relative_error(logits(path), transformers_logits(floats, PROMPT)) < 1e-4


@pytest.mark.parametrize(
    ("quantization", "dtype"),
    [("q4f16_1", "float16"), ("q4bf16_1", "bfloat16"), ("q4f32_1", "float32")],
)
def test_runs_in_the_type_of_its_name(tmp_path: Path, quantization: str, dtype: str) -> None:
    path, _ = make(tmp_path, "tiny-llama", quantization)
    assert np.array_equal(logits(path, "auto"), logits(path, dtype))


@pytest.mark.parametrize("quantization", ["q4f16_1", "q4bf16_1", "q4f32_1", "q3f16_1"])
def test_4_bits_run_in_4_bits(tmp_path: Path, quantization: str) -> None:
    """Integers less 7 reach from -7 to 8, which only their negatives fit into; scales of q4f32_1
    are no float16 numbers, and groups of 40 are none of the kernels'."""
    path, floats = make(tmp_path, "tiny-llama", quantization, encode=False)
    model = PagedModel(path, "float32")
    got = model.forward([(PagedSequence(PROMPT), len(PROMPT))], "all")
    if quantization in ("q4f32_1", "q3f16_1"):
        assert np.array_equal(got, logits(floats))
        return
    # Rounded activations alone: no weight changes.
    assert 1e-6 < relative_error(got, logits(floats)) < 0.15
    size, off = (
        PagedModel(path, "float32", quantization=q).model.metadata["weight_bytes"]
        for q in ("", "off")
    )
    table = 512 * 64 * 4  # embeddings with an untied head are looked up as floats
    assert size - table < (off - table) / 6


def test_older_name_of_the_list_of_tensors(tmp_path: Path) -> None:
    path, floats = make(tmp_path, index="ndarray-cache.json", shards=1)
    assert np.array_equal(logits(path), logits(floats))


def test_a_config_json_beside_it_decides(tmp_path: Path) -> None:
    """Then the folder is a Hugging Face checkpoint, and its weights are those in safetensors."""
    path, floats = make(tmp_path)
    for name in ("config.json", WEIGHTS):
        shutil.copy(tmp_path / "source" / name, path)
    assert np.array_equal(logits(path), logits(tmp_path / "source"))
    assert not np.array_equal(logits(path), logits(floats))


def test_context_window_of_the_folder(folder: Path) -> None:
    assert testing.TestModel(str(folder)).metadata["context_window_size"] == 1024
    edit_config(folder, lambda c: c.update(context_window_size=333))
    assert testing.TestModel(str(folder)).metadata["context_window_size"] == 333


# ---- Chat ----


def test_chat_with_the_conversation_template(folder: Path) -> None:
    with MLCEngine(str(folder)) as engine:
        assert engine.conv_template is not None
        prompt = engine.conv_template.render([{"role": "user", "content": "Hi"}])
        assert prompt == (
            "<|bos|><|im_start|>system\nBe kind.<|im_end|>\n"
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        )
        answer = engine.chat.completions.create(
            messages=[{"role": "user", "content": "Hi"}], max_tokens=5
        )
        assert engine.tokenizer is not None
        assert answer.usage.prompt_tokens == len(engine.tokenizer.encode(prompt))
        assert engine.conv_template.stop_strs == ("<|im_end|>",)
        defaults = engine._core.get_default_generation_config()
        assert (defaults.temperature, defaults.top_p, defaults.frequency_penalty) == (
            0.6,
            0.9,
            0.25,
        )


def test_template_of_the_authors_goes_first(folder: Path, tmp_path: Path) -> None:
    shutil.copy(tmp_path / "source" / "tokenizer_config.json", folder)
    with MLCEngine(str(folder)) as engine:
        assert engine.conv_template is not None
        prompt = engine.conv_template.render([{"role": "user", "content": "Hi"}])
        assert prompt == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        assert engine.conv_template.stop_strs == ("<|im_end|>",)


@pytest.mark.parametrize(
    ("eos", "stops", "expected"),
    [
        (2, [260], "260"),  # 2 is the converter's word for "unknown",
        ([260, 257], [2], "257 260"),  # and that of templates that serve many models
        (2, [2], "2"),
        (2, None, "2"),
        (None, [2, 260], "260"),
        (257, [260], "257 260"),
    ],
)
def test_tokens_that_end_an_answer(
    folder: Path, eos: object, stops: list[int] | None, expected: str
) -> None:
    """Each of the expected ones ends an answer, and the default 2 only where it is meant."""
    candidates = [2, 257, 260]
    template = {"roles": {"user": "", "assistant": ""}, "seps": [""], "stop_token_ids": stops or []}
    edit_config(folder, lambda c: c.update(eos_token_id=eos, conv_template=template))
    ending = []
    with MLCEngine(str(folder)) as engine:
        for token in candidates:
            answer = engine.completions.create(
                prompt=[5, 6, 7], max_tokens=1, logit_bias={str(token): 100.0}, temperature=0
            )
            if answer.choices[0].finish_reason == "stop":
                ending.append(str(token))
    assert " ".join(ending) == expected


# ---- Errors ----


def edit_json(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    fields = json.loads(path.read_text())
    edit(fields)
    path.write_text(json.dumps(fields))


def edit_config(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    edit_json(folder / CHAT_CONFIG, edit)


def edit_tensor(folder: Path, **fields: Any) -> str:
    """Set fields of the first tensor of the second shard; its name."""
    names = []

    def edit(index: dict[str, Any]) -> None:
        record = index["records"][1]["records"][0]
        names.append(record["name"])
        record.update(fields)

    edit_json(folder / INDEX, edit)
    return str(names[0])


def load_error(path: Path, *parts: str) -> None:
    with pytest.raises(LoadError) as error:
        testing.TestModel(str(path))
    for part in parts:
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"shape": [3]}, "needs"),
        ({"shape": [2**40, 2**40]}, "overflows"),
        ({"shape": [-1]}, '"shape"'),
        ({"shape": "x"}, '"shape"'),
        ({"shape": [2**63]}, '"shape"'),
        ({"shape": None}, '"shape"'),
        ({"byteOffset": 4}, "hole"),
        ({"byteOffset": 2**62}, "truncated"),
        ({"byteOffset": -4}, '"byteOffset"'),
        ({"byteOffset": 2**64}, '"byteOffset"'),
        ({"nbytes": 2**62}, "truncated"),
        ({"nbytes": 8}, "nbytes is 8"),
        ({"nbytes": None}, '"nbytes"'),
        ({"dtype": "float64"}, '"dtype"'),
        ({"dtype": "int8"}, "needs"),
        ({"dtype": None}, '"dtype"'),
        ({"format": "zip"}, '"format"'),
        ({"name": ""}, '"name"'),
        ({"name": 3}, '"name"'),
        ({"name": "model.norm.weight"}, "another file"),
        ({"name": "model.layers.0.extra.weight"}, "lacks"),
    ],
)
def test_wrong_record_of_a_tensor(folder: Path, fields: dict[str, Any], message: str) -> None:
    edit_tensor(folder, **fields)
    load_error(folder, message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dataPath": "../params_shard_1.bin"}, '"dataPath"'),
        ({"dataPath": "/etc/passwd"}, '"dataPath"'),
        ({"dataPath": ""}, '"dataPath"'),
        ({"dataPath": "missing.bin"}, "missing.bin"),
        ({"format": "zip"}, '"format"'),
        ({"nbytes": 5}, "bytes"),
        ({"records": 3}, '"records"'),
        ({"records": [3]}, '"records"'),
        ({"records": []}, "hole"),
    ],
)
def test_wrong_record_of_a_shard(folder: Path, fields: dict[str, Any], message: str) -> None:
    edit_json(folder / INDEX, lambda index: index["records"][1].update(fields))
    load_error(folder, message)


def test_unused_and_missing_tensors(folder: Path) -> None:
    edit_json(folder / INDEX, lambda index: index["records"].pop(1))
    load_error(folder, "lacks tensors of LlamaForCausalLM")


def test_unused_tensor(folder: Path) -> None:
    (folder / "more.bin").write_bytes(b"1234")
    record = {"name": "extra", "shape": [1], "dtype": "float32", "nbytes": 4, "byteOffset": 0}
    shard = {"dataPath": "more.bin", "nbytes": 4, "records": [record]}
    edit_json(folder / INDEX, lambda index: index["records"].append(shard))
    load_error(folder, "does not use", "extra")


def test_truncated_shard(folder: Path) -> None:
    content = (folder / SHARD).read_bytes()
    (folder / SHARD).write_bytes(content[:-1])
    load_error(folder, SHARD, "truncated")


@pytest.mark.parametrize("name", [SHARD, INDEX])
def test_git_lfs_pointer(folder: Path, name: str) -> None:
    (folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\n")
    load_error(folder, name, "is a git-lfs pointer", "git lfs pull")


def test_missing_list_of_tensors(folder: Path) -> None:
    (folder / INDEX).unlink()
    load_error(folder, "holds no weights", INDEX, "ndarray-cache.json")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"records": {}}', '{"records": [[]]}', "\xff"])
@pytest.mark.parametrize("name", [INDEX, CHAT_CONFIG])
def test_damaged_json(folder: Path, name: str, text: str) -> None:
    (folder / name).write_bytes(text.encode("latin-1"))
    load_error(folder, name)


def test_random_damage_never_crashes(folder: Path) -> None:
    """Whatever the list of tensors says, loading ends with weights or with a LoadError."""
    text = (folder / INDEX).read_bytes()
    random = np.random.default_rng(3)
    refused = 0
    for _ in range(60):
        damaged = bytearray(text)
        for at in random.integers(0, len(text), 4):
            damaged[at] = random.choice(list(b'0123456789"[]{},:-x'))
        (folder / INDEX).write_bytes(damaged)
        try:
            testing.TestModel(str(folder))
        except LoadError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"quantization": "q4f16_ft"}, "q0f16, q0bf16, q0f32, q3f16_1, q4f16_1"),
        ({"quantization": None}, "q4f32_1"),
        ({"model_type": "rwkv6"}, "llama, mistral, qwen2, qwen3, gemma"),
        ({"model_config": {}}, '"vocab_size"'),
        ({"model_config": 3}, '"model_config"'),
        ({"context_window_size": "x"}, '"context_window_size"'),
    ],
)
def test_config_that_is_not_supported(folder: Path, fields: dict[str, Any], message: str) -> None:
    edit_config(folder, lambda config: config.update(fields))
    load_error(folder, CHAT_CONFIG, message)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_size", 0),
        ("context_window_size", "x"),
        ("position_embedding_base", "x"),
        ("num_key_value_heads", 3),
        ("head_dim", 15),
        ("rope_scaling", {"rope_type": "mrope"}),
    ],
)
def test_wrong_field_is_named_as_in_the_file(folder: Path, field: str, value: object) -> None:
    edit_config(folder, lambda config: config["model_config"].update({field: value}))
    load_error(folder, CHAT_CONFIG, "mrope" if field == "rope_scaling" else f'"{field}"')


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"conv_template": {"roles": {}, "seps": []}}, "seps"),
        ({"temperature": -1}, "temperature"),
        ({"eos_token_id": "x", "conv_template": None}, "eos_token_id"),
        ({"conv_template": "chatml"}, ""),
    ],
)
def test_engine_refuses_wrong_settings(folder: Path, fields: dict[str, Any], message: str) -> None:
    edit_config(folder, lambda config: config.update(fields))
    if not message:  # a name alone is no template, and no error
        with MLCEngine(str(folder)) as engine:
            assert engine.conv_template is None
        return
    with pytest.raises(LoadError, match=message):
        MLCEngine(str(folder))
