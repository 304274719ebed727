"""Damaged and wrong model folders: each is a LoadError that names what is wrong, never a crash."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from paged_driver import PagedModel, PagedSequence, random_tokens
from safetensors.torch import load_file, save_file

from mlc_native._core import InvalidConfig, LoadError, testing

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
NORM = "model.norm.weight"
Q_PROJ = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return make_checkpoint("tiny-llama", tmp_path / "llama")


def load_error(path: Path, *parts: str, **options: Any) -> None:
    """Loading raises LoadError and its message contains all `parts`."""
    with pytest.raises(LoadError) as error:
        testing.TestModel(str(path), **options)
    for part in parts:
        assert part in str(error.value)


# ---- The file format, byte by byte ----


def read_file(path: Path) -> tuple[dict[str, Any], bytes]:
    content = (path / WEIGHTS).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def write_file(path: Path, header: dict[str, Any] | bytes, data: bytes) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    (path / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + data)


def edit_header(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    header, data = read_file(path)
    edit(header)
    write_file(path, header, data)


def test_rewritten_file_loads(llama: Path) -> None:
    """What the helpers above write is read: the errors below come from the damage alone."""
    edit_header(llama, lambda header: None)
    testing.TestModel(str(llama))


def test_header_of_odd_length_loads(llama: Path) -> None:
    """Data that is not aligned to its element size is legal."""
    expected = PagedModel(llama).forward([(PagedSequence([1, 2, 3]), 3)])
    header, data = read_file(llama)
    for padding in range(4):
        text = json.dumps(header).encode()
        text += b" " * ((1 - len(text)) % 4 + padding)
        write_file(llama, text, data)
        assert np.array_equal(PagedModel(llama).forward([(PagedSequence([1, 2, 3]), 3)]), expected)


@pytest.mark.parametrize("size", [0, 7, 8, 100])
def test_truncated_header(llama: Path, size: int) -> None:
    content = (llama / WEIGHTS).read_bytes()
    (llama / WEIGHTS).write_bytes(content[:size])
    load_error(llama, WEIGHTS, "truncated")


def test_truncated_data(llama: Path) -> None:
    content = (llama / WEIGHTS).read_bytes()
    (llama / WEIGHTS).write_bytes(content[:-1])
    load_error(llama, WEIGHTS, "truncated")


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 100_000_001])
def test_header_length_beyond_the_file(llama: Path, length: int) -> None:
    content = (llama / WEIGHTS).read_bytes()
    (llama / WEIGHTS).write_bytes(struct.pack("<Q", length) + content[8:])
    load_error(llama, WEIGHTS, "header length", str(length))


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{", b'{"a": }', b"\xff\xfe{}", b'{"\xff": 1}', b'{"a": 1e999}']
)
def test_header_that_is_no_json_object(llama: Path, text: bytes) -> None:
    write_file(llama, text, b"")
    load_error(llama, WEIGHTS, "header")


def test_deeply_nested_header(llama: Path) -> None:
    write_file(llama, b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b"")
    load_error(llama, WEIGHTS, "nested too deeply")


def test_duplicate_tensor(llama: Path) -> None:
    header, data = read_file(llama)
    text = json.dumps(header)[:-1] + f', "{NORM}": {json.dumps(header[NORM])}}}'
    write_file(llama, text.encode(), data)
    load_error(llama, NORM, "twice")


def test_duplicate_field(llama: Path) -> None:
    header, data = read_file(llama)
    text = json.dumps(header).replace('"dtype": "F32"', '"dtype": "F32", "dtype": "F32"', 1)
    write_file(llama, text.encode(), data)
    load_error(llama, "dtype", "twice")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("data_offsets", [8, 4], "data_offsets"),
        ("data_offsets", [0, 2**62], "data_offsets"),
        ("data_offsets", [0], "data_offsets"),
        ("data_offsets", [-4, 0], "data_offsets"),
        ("data_offsets", [0.0, 256.0], "data_offsets"),
        ("data_offsets", "0", "data_offsets"),
        ("shape", [65], "needs 260 bytes, data_offsets give 256"),
        ("shape", [2**33, 2**33], "overflows"),
        ("shape", [2**63, 2], "overflows"),
        ("shape", [-64], "shape"),
        ("shape", None, "shape"),
        ("dtype", "F31", 'unknown dtype "F31"'),
        ("dtype", 7, "dtype"),
    ],
)
def test_wrong_header_field(llama: Path, field: str, value: object, message: str) -> None:
    edit_header(llama, lambda header: header[NORM].update({field: value}))
    load_error(llama, NORM, message)


@pytest.mark.parametrize("field", ["dtype", "shape", "data_offsets"])
def test_absent_header_field(llama: Path, field: str) -> None:
    edit_header(llama, lambda header: header[NORM].pop(field))
    load_error(llama, NORM, field)


def test_entry_that_is_no_object(llama: Path) -> None:
    edit_header(llama, lambda header: header.update({NORM: 3}))
    load_error(llama, NORM)


def test_overlapping_tensors(llama: Path) -> None:
    """Both have the right size; the file ends where the data ends."""
    header, data = read_file(llama)
    by_offset = sorted(
        (name for name in header if name != "__metadata__"),
        key=lambda name: header[name]["data_offsets"],
    )
    first, second = by_offset[0], by_offset[1]
    begin, end = header[second]["data_offsets"]
    header[second]["data_offsets"] = [begin - 4, end - 4]
    write_file(llama, header, data)
    load_error(llama, second, f'overlaps "{first}"')


def test_hole_between_tensors(llama: Path) -> None:
    header, data = read_file(llama)
    end = max(h["data_offsets"][1] for name, h in header.items() if name != "__metadata__")
    last = next(name for name, h in header.items() if h.get("data_offsets", [0, 0])[1] == end)
    begin = header[last]["data_offsets"][0]
    header[last]["data_offsets"] = [begin + 4, end + 4]
    write_file(llama, header, data + b"\0\0\0\0")
    load_error(llama, last, "hole")


def test_bytes_after_the_last_tensor(llama: Path) -> None:
    header, data = read_file(llama)
    write_file(llama, header, data + b"\0\0\0\0")
    load_error(llama, WEIGHTS, "hole", "4 bytes")


# ---- Tensors against the configuration ----


def edit_tensors(path: Path, edit: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(path / WEIGHTS)
    edit(tensors)
    save_file(tensors, path / WEIGHTS, metadata={"format": "pt"})


def test_missing_tensors_are_all_named(llama: Path) -> None:
    def edit(tensors: dict[str, torch.Tensor]) -> None:
        del tensors[NORM], tensors[Q_PROJ]

    edit_tensors(llama, edit)
    load_error(llama, "LlamaForCausalLM", NORM, Q_PROJ)


def test_many_missing_tensors_are_counted(llama: Path) -> None:
    edit_config(llama, num_hidden_layers=5)
    load_error(llama, "model.layers.3.self_attn.q_proj.weight", "and 10 more")


def test_missing_head_when_not_tied(llama: Path) -> None:
    edit_tensors(llama, lambda tensors: tensors.pop("lm_head.weight"))
    load_error(llama, "lm_head.weight")


def test_unused_tensors_are_named(llama: Path) -> None:
    edit_tensors(llama, lambda t: t.update({"model.layers.3.extra": torch.zeros(2)}))
    load_error(llama, "does not use", "model.layers.3.extra")


def test_bias_that_the_configuration_denies(llama: Path) -> None:
    edit_tensors(llama, lambda t: t.update({Q_PROJ.replace("weight", "bias"): torch.zeros(64)}))
    load_error(llama, "does not use", "q_proj.bias")


def test_wrong_shape_gives_both(llama: Path) -> None:
    edit_tensors(llama, lambda t: t.update({Q_PROJ: torch.zeros(64, 48)}))
    load_error(llama, Q_PROJ, "[64, 48]", "[64, 64]")


def test_transposed_matrix(llama: Path) -> None:
    name = "model.layers.0.mlp.down_proj.weight"
    edit_tensors(llama, lambda t: t.update({name: t[name].T.contiguous()}))
    load_error(llama, name, "[160, 64]", "[64, 160]")


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.int8])
def test_weights_of_a_type_that_is_no_weight(llama: Path, dtype: torch.dtype) -> None:
    edit_tensors(llama, lambda t: t.update({NORM: t[NORM].to(dtype)}))
    load_error(llama, NORM, "F32, BF16 or F16")


# ---- Experts ----

EXPERTS = "model.layers.0.mlp.experts"


@pytest.fixture
def moe(tmp_path: Path) -> Path:
    return make_checkpoint("tiny-qwen3_moe", tmp_path / "moe")


@pytest.fixture
def joined_moe(tmp_path: Path) -> Path:
    return make_checkpoint("tiny-qwen3_moe", tmp_path / "joined", hub_names=False)


@pytest.mark.parametrize("name", ["0.gate_proj.weight", "7.down_proj.weight", "11.up_proj.weight"])
def test_missing_part_of_an_expert(moe: Path, name: str) -> None:
    edit_tensors(moe, lambda tensors: tensors.pop(f"{EXPERTS}.{name}"))
    load_error(moe, "Qwen3MoeForCausalLM", f"{EXPERTS}.{name}")


def test_fewer_experts_than_the_configuration_asks_for(moe: Path) -> None:
    edit_config(moe, num_local_experts=13)
    load_error(moe, f"{EXPERTS}.12.gate_proj.weight", "and 1 more")


def test_experts_that_the_configuration_denies(moe: Path) -> None:
    name = f"{EXPERTS}.12.up_proj.weight"
    edit_tensors(moe, lambda t: t.update({name: torch.zeros(48, 64)}))
    load_error(moe, "does not use", name)


def test_expert_of_a_wrong_shape(moe: Path) -> None:
    name = f"{EXPERTS}.3.down_proj.weight"
    edit_tensors(moe, lambda t: t.update({name: t[name].T.contiguous()}))
    load_error(moe, name, "[48, 64]", "[64, 48]")


def test_joined_experts_of_a_wrong_shape(joined_moe: Path) -> None:
    name = f"{EXPERTS}.gate_up_proj"
    edit_tensors(joined_moe, lambda t: t.update({name: t[name][:11].clone()}))
    load_error(joined_moe, name, "[11, 96, 64]", "[12, 96, 64]")


def test_missing_tensor_of_all_experts(joined_moe: Path) -> None:
    edit_tensors(joined_moe, lambda tensors: tensors.pop(f"{EXPERTS}.down_proj"))
    load_error(joined_moe, f"{EXPERTS}.down_proj")


@pytest.mark.parametrize(
    ("like", "fields", "message"),
    [
        (
            "tiny-qwen3_moe",
            {"num_local_experts": 0},
            '"num_local_experts" must be an integer in [1, 1024]',
        ),
        ("tiny-qwen3_moe", {"num_local_experts": 1025}, '"num_local_experts" must be'),
        ("tiny-qwen3_moe", {"num_experts_per_tok": 13}, "must be an integer in [1, 12], got 13"),
        ("tiny-qwen3_moe", {"moe_intermediate_size": -1}, '"moe_intermediate_size" must be'),
        ("tiny-qwen3_moe", {"mlp_only_layers": [-1]}, '"mlp_only_layers"'),
        ("tiny-qwen3_moe", {"decoder_sparse_step": 0}, '"decoder_sparse_step" must be'),
        ("tiny-qwen2_moe", {"shared_expert_intermediate_size": -3}, "shared_expert_intermediate"),
        ("tiny-olmoe", {"clip_qkv": 8.0}, '"clip_qkv" is not supported'),
    ],
)
def test_wrong_field_of_experts(
    tmp_path: Path, like: str, fields: dict[str, Any], message: str
) -> None:
    path = make_checkpoint(like, tmp_path / like)
    edit_config(path, **fields)
    load_error(path, "config.json", message)


# ---- Shards ----


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return make_checkpoint("tiny-llama", tmp_path / "sharded", shards=3)


def edit_index(path: Path, edit: Callable[[dict[str, str]], None]) -> None:
    index = json.loads((path / INDEX).read_text())
    edit(index["weight_map"])
    (path / INDEX).write_text(json.dumps(index))


def test_missing_shard(sharded: Path) -> None:
    (sharded / "model-00002-of-00003.safetensors").unlink()
    load_error(sharded, "model-00002-of-00003.safetensors", "missing")


@pytest.mark.parametrize("name", ["../a.safetensors", "/etc/passwd", "a/b", "..", "", "a\\b"])
def test_index_that_leaves_the_folder(sharded: Path, name: str) -> None:
    edit_index(sharded, lambda weight_map: weight_map.update({NORM: name}))
    load_error(sharded, NORM, "not the name of a file in this folder")


def test_index_that_promises_a_tensor(sharded: Path) -> None:
    edit_index(sharded, lambda m: m.update({"model.ghost": m[NORM]}))
    load_error(sharded, "model.ghost", "lacks")


def test_tensor_in_two_shards(sharded: Path) -> None:
    first, last = "model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"
    tensors = load_file(sharded / first)
    doubled = load_file(sharded / last)
    name = next(iter(tensors))
    doubled[name] = tensors[name]
    save_file(doubled, sharded / last)
    load_error(sharded, name, "another file")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "is not valid JSON"),
        ("[]", "is not a JSON object"),
        ("{}", "weight_map"),
        ('{"weight_map": {}}', "weight_map"),
        ('{"weight_map": [1]}', "weight_map"),
    ],
)
def test_damaged_index(sharded: Path, text: str, wrong: str) -> None:
    (sharded / INDEX).write_text(text)
    load_error(sharded, INDEX, wrong)


def test_index_value_that_is_no_string(sharded: Path) -> None:
    edit_index(sharded, lambda m: m.update({NORM: 3}))  # type: ignore[dict-item]
    load_error(sharded, NORM)


# ---- Folder and configuration ----


def edit_config(path: Path, **fields: object) -> None:
    """Set fields of config.json; `...` deletes one."""
    config = json.loads((path / "config.json").read_text()) | fields
    config = {key: value for key, value in config.items() if value is not ...}
    (path / "config.json").write_text(json.dumps(config))


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
    edit_config(llama, architectures=["MambaForCausalLM"])
    load_error(llama, "MambaForCausalLM", "LlamaForCausalLM", "Gemma2ForCausalLM", "Olmo2")


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
        ({"hidden_act": "relu"}, '"hidden_act" must be one of silu'),
        ({"attention_bias": 1}, '"attention_bias"'),
        ({"is_causal": False}, '"is_causal" = false is not supported'),
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


@pytest.mark.parametrize(
    ("like", "fields", "message"),
    [
        ("tiny-gemma2", {"layer_types": ["full_attention"]}, '"layer_types" has 1 entries'),
        ("tiny-gemma2", {"layer_types": ["chunked_attention"] * 4}, "chunked_attention"),
        ("tiny-gemma2", {"sliding_window": None}, '"sliding_window"'),
        ("tiny-gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
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
