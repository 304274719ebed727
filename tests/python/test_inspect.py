"""``inspect_model`` and ``mlc-native inspect``: what they say is what a load finds."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from mlc_native import EngineConfig, MLCEngine, inspect_model
from mlc_native.cli.main import main
from mlc_native.errors import LoadError

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from make_random_checkpoint import make_checkpoint

WEIGHTS = "model.safetensors"


def parts_of(report: dict[str, Any]) -> dict[str, Any]:
    return {part["kind"]: part for part in report["parts"]}


@pytest.mark.parametrize("quantization", [None, "q4"])
def test_the_sizes_are_those_of_a_load(quantization: str | None) -> None:
    report = inspect_model("demo")
    config = EngineConfig(quantization=quantization, max_num_sequence=1)
    with MLCEngine("demo", engine_config=config) as engine:
        summary = json.loads(engine._debug_call_func_on_all_worker("load_summary"))
        assert report["num_parameters"] == summary["num_parameters"]
        assert report["weight_bytes"][quantization or "auto"] == summary["weight_bytes"]
        in_memory = report["kv_bytes_per_token"]["bfloat16"] * summary["kv_tokens"]
        assert summary["kv_bytes"] == in_memory
    assert report["errors"] == []
    assert report["has_tokenizer"]
    assert report["has_chat_template"]


def test_parts_are_all_that_is_stored(tmp_path: Path) -> None:
    report = inspect_model(make_checkpoint("tiny-qwen3", tmp_path / "m", shards=3))
    parts = parts_of(report)
    assert sum(part["stored_bytes"] for part in parts.values()) == report["stored"]["bytes"]
    assert sum(part["tensors"] for part in parts.values()) == report["stored"]["tensors"]
    assert sum(part["parameters"] for part in parts.values()) == report["num_parameters"]
    assert report["stored"]["files"] == 3
    assert parts["attention.qkv"]["stored_as"] == {"F32": 3 * report["num_layers"]}
    assert parts["mlp.down"]["loads_as"]["q8"] == "q8"
    assert "q4" in parts["mlp.down"]["loads_as"]["q4"]
    assert parts["vectors"]["loads_as"]["q4"] == "float32"


def without(path: Path, name: str) -> None:
    tensors = load_file(path / WEIGHTS)
    del tensors[name]
    save_file(tensors, path / WEIGHTS)


def test_what_is_wrong_is_among_the_errors(tmp_path: Path) -> None:
    path = make_checkpoint("tiny-llama", tmp_path / "m")
    missing = "model.layers.1.mlp.down_proj.weight"
    without(path, missing)
    report = inspect_model(path)
    assert [error["field"] for error in report["errors"]] == [missing]
    assert report["architecture"] == "LlamaForCausalLM"

    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"architectures": ["SoonForCausalLM"]}))
    report = inspect_model(path)
    assert "SoonForCausalLM" in report["errors"][0]["message"]
    assert report["architecture"] is None
    assert report["stored"]["tensors"] > 0

    (path / WEIGHTS).write_bytes((path / WEIGHTS).read_bytes()[:-1])
    assert len(inspect_model(path)["errors"]) == 2
    with pytest.raises(LoadError):
        inspect_model(tmp_path / "nothing")


def write_sparse(path: Path, shapes: dict[str, list[int]]) -> int:
    """A file of tensors with nothing but a header on the disk. Returns the bytes of the tensors."""
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 2
        for extent in shape:
            size *= extent
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    return end


def test_a_large_folder_is_not_read(tmp_path: Path) -> None:
    """30 GB of which only the headers are on the disk."""
    hidden, ffn, layers, vocab = 5120, 25600, 40, 151936
    shapes = {"model.embed_tokens.weight": [vocab, hidden], "lm_head.weight": [vocab, hidden]}
    shapes["model.norm.weight"] = [hidden]
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{prefix}{name}.weight"] = [hidden]
        for name in ("q_proj", "o_proj"):
            shapes[f"{prefix}self_attn.{name}.weight"] = [hidden, hidden]
        for name in ("k_proj", "v_proj"):
            shapes[f"{prefix}self_attn.{name}.weight"] = [1024, hidden]
        for name in ("gate_proj", "up_proj"):
            shapes[f"{prefix}mlp.{name}.weight"] = [ffn, hidden]
        shapes[f"{prefix}mlp.down_proj.weight"] = [hidden, ffn]
    config = {
        **{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"},
        **{"hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers},
        **{"num_attention_heads": 40, "num_key_value_heads": 8, "vocab_size": vocab},
        **{"rms_norm_eps": 1e-5, "torch_dtype": "bfloat16"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    stored = write_sparse(tmp_path / WEIGHTS, shapes)
    report = inspect_model(tmp_path)
    assert stored > 30e9
    assert report["stored"]["bytes"] == stored
    assert stored <= report["weight_bytes"]["auto"] < 1.01 * stored
    assert report["weight_bytes"]["q4"] < 0.35 * stored
    assert report["errors"] == []
    assert not report["has_tokenizer"]


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "demo"]) == 0
    text = capsys.readouterr().out
    assert "LlamaForCausalLM, 4 layers" in text
    assert text.endswith("It can be loaded.\n")
    assert main(["inspect", "demo", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == inspect_model("demo")
    path = make_checkpoint("tiny-llama", tmp_path / "m")
    without(path, "model.norm.weight")
    assert main(["inspect", str(path)]) == 1
    assert "model.norm.weight" in capsys.readouterr().out
    assert main(["inspect", str(tmp_path / "nothing")]) == 1
    assert "nothing" in capsys.readouterr().err
