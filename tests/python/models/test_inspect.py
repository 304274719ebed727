"""``mlc-native inspect`` and ``pack``: what a folder holds; packed weights ahead of time."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from quantized_checkpoints import FORMATS, quantize_checkpoint

from mlc_native import inspect_model
from mlc_native._core import testing
from mlc_native.cli.main import main
from mlc_native.errors import LoadError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint


def edit_config(path: Path, **changes: Any) -> None:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, **changes}))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_checkpoint("tiny-llama", tmp_path / "model")


@pytest.mark.parametrize(
    ("choice", "options"),
    [
        ("auto", {}),
        ("float32", {"dtype": "float32", "quantization": "off"}),
        ("bfloat16", {"dtype": "bfloat16", "quantization": "off"}),
        ("q8", {"quantization": "q8"}),
        ("q6", {"quantization": "q6"}),
        ("q4", {"quantization": "q4"}),
    ],
)
def test_it_foretells_what_a_load_takes(model: Path, choice: str, options: dict[str, str]) -> None:
    found = inspect_model(model)
    metadata = testing.TestModel(str(model), **options).metadata
    assert found["loads"]
    assert found["problems"] == []
    assert found["memory"][choice] == metadata["weight_bytes"]
    assert (
        found["kv_bytes_per_token"] == testing.TestModel(str(model)).metadata["kv_bytes_per_token"]
    )
    elements = (each["count"] * math.prod(each["shape"]) for each in found["matrices"])
    assert found["num_parameters"] == sum(elements)


def test_experts(tmp_path: Path) -> None:
    """The tensors of experts are one kind."""
    model = make_checkpoint("tiny-qwen3_moe", tmp_path / "model")
    found = inspect_model(model)
    decoder = found["decoder"]
    (matrix,) = [each for each in found["matrices"] if each["name"].endswith("*.down_proj.weight")]
    assert matrix["name"] == "model.layers.*.mlp.experts.*.down_proj.weight"
    assert matrix["count"] == decoder["layers_with_experts"] * decoder["num_experts"]
    assert 0 < decoder["experts_per_token"] < decoder["num_experts"]
    assert found["memory"]["auto"] == testing.TestModel(str(model)).metadata["weight_bytes"]


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_quantized_matrices(model: Path, tmp_path: Path, name: str) -> None:
    quantize_checkpoint(model, tmp_path / "quantized", tmp_path / "floats", FORMATS[name])
    found = inspect_model(tmp_path / "quantized")
    assert found["loads"], found["problems"]
    (matrix,) = [
        each for each in found["matrices"] if each["name"].endswith("*.mlp.down_proj.weight")
    ]
    assert "+" in matrix["stored"]  # integers and scales


def test_kinds_of_tensors(model: Path) -> None:
    found = inspect_model(model)
    (matrix,) = [each for each in found["matrices"] if each["name"].endswith("q_proj.weight")]
    assert matrix["name"] == "model.layers.*.self_attn.q_proj.weight"
    assert matrix["count"] == found["decoder"]["num_layers"]
    assert matrix["shape"][1] == found["decoder"]["hidden_size"]
    assert matrix["stored"] == "F32"
    assert matrix["loads_as"] == "float32"
    assert sum(each["count"] for each in found["matrices"]) == found["num_tensors"]


def test_why_a_family_does_not_load(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit_config(model, architectures=["NoSuchForCausalLM"])
    found = inspect_model(model)
    assert not found["loads"]
    assert found["architecture"] == "NoSuchForCausalLM"
    assert "NoSuchForCausalLM is not supported" in found["problems"][0]
    assert found["num_tensors"] == sum(each["count"] for each in found["matrices"])
    assert main(["inspect", str(model)]) == 1
    assert "does not load" in capsys.readouterr().out


def test_all_problems_are_named(model: Path) -> None:
    edit_config(model, architectures=["NoSuchForCausalLM"])
    (model / "model.safetensors").write_bytes(b"short")
    problems = inspect_model(model)["problems"]
    assert len(problems) == 2
    assert "truncated" in problems[1]


def test_a_missing_tensor(model: Path) -> None:
    edit_config(model, num_hidden_layers=9)
    (problem,) = inspect_model(model)["problems"]
    assert "lacks tensors" in problem


def test_no_model_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LoadError, match=r"no config\.json"):
        inspect_model(tmp_path)
    assert main(["inspect", str(tmp_path)]) == 1
    assert f"{tmp_path} is not a model folder: it has no config.json" in capsys.readouterr().err


def test_the_command(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(model), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == inspect_model(model)
    assert main(["inspect", str(model)]) == 0
    shown = capsys.readouterr().out
    assert "LlamaForCausalLM, loads on the CPU" in shown
    assert "memory of the weights: auto " in shown
    assert "model.layers.*.mlp.down_proj.weight" in shown


# ------------------------------------------------------------------------------------ large folders


def sparse_folder(
    path: Path, num_shards: int, num_layers: int, sizes: tuple[int, int, int] = (2048, 8192, 32000)
) -> int:
    """Writes a folder of shards whose data is holes. Returns its size in bytes."""
    hidden, ffn, vocab = sizes
    config = {
        **{"architectures": ["LlamaForCausalLM"], "hidden_size": hidden, "vocab_size": vocab},
        **{"intermediate_size": ffn, "num_hidden_layers": num_layers, "head_dim": 128},
        **{"num_attention_heads": hidden // 128, "num_key_value_heads": 8},
        **{"torch_dtype": "bfloat16", "rms_norm_eps": 1e-5},
        **{"tie_word_embeddings": False, "max_position_embeddings": 131072, "hidden_act": "silu"},
    }
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    shapes = {"model.embed_tokens.weight": [vocab, hidden], "lm_head.weight": [vocab, hidden]}
    shapes["model.norm.weight"] = [hidden]
    for layer in range(num_layers):
        prefix = f"model.layers.{layer}."
        for name, rows in {"q": hidden, "k": 1024, "v": 1024, "o": hidden}.items():
            shapes[f"{prefix}self_attn.{name}_proj.weight"] = [rows, hidden]
        shapes[prefix + "mlp.gate_proj.weight"] = [ffn, hidden]
        shapes[prefix + "mlp.up_proj.weight"] = [ffn, hidden]
        shapes[prefix + "mlp.down_proj.weight"] = [hidden, ffn]
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{prefix}{name}.weight"] = [hidden]
    weight_map, total = {}, 0
    names = list(shapes)
    for shard in range(num_shards):
        file = f"model-{shard + 1:05}-of-{num_shards:05}.safetensors"
        header, end = {}, 0
        for name in names[shard::num_shards]:
            begin, end = end, end + 2 * shapes[name][0] * (shapes[name] + [1])[1]
            header[name] = {"dtype": "BF16", "shape": shapes[name], "data_offsets": [begin, end]}
            weight_map[name] = file
        text = json.dumps(header).encode()
        with (path / file).open("wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            out.truncate(8 + len(text) + end)
        total += 8 + len(text) + end
    index = path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    return total


def test_a_large_folder_is_not_read(tmp_path: Path) -> None:
    """30 GB that are holes: reading them would take many seconds of CPU."""
    size = sparse_folder(tmp_path / "large", 12, 16, (8192, 28672, 128256))
    assert size > 30e9
    begin = time.process_time()
    found = inspect_model(tmp_path / "large")
    assert time.process_time() - begin < 2
    assert found["loads"], found["problems"]
    assert found["file_bytes"] == size
    assert found["memory"]["bfloat16"] > 0.99 * size
    assert found["memory"]["q4"] < 0.4 * size


def test_shards_that_are_missing_are_all_named(tmp_path: Path) -> None:
    sparse_folder(tmp_path / "large", 5, 1)
    for shard in (2, 4):
        (tmp_path / "large" / f"model-{shard:05}-of-00005.safetensors").unlink()
    (problem,) = inspect_model(tmp_path / "large")["problems"]
    assert "2 of the 5 files" in problem
    assert "model-00002-of-00005.safetensors, model-00004-of-00005.safetensors" in problem


def test_a_shard_that_the_index_does_not_name(tmp_path: Path) -> None:
    folder = tmp_path / "large"
    sparse_folder(folder, 2, 1)
    (folder / "model-00003-of-00003.safetensors").write_bytes(b"")
    (unused,) = inspect_model(folder)["unused"]
    assert unused == "all of model-00003-of-00003.safetensors, which the index does not name"
    with pytest.raises(LoadError, match=r"model-00003-of-00003\.safetensors"):
        testing.TestModel(str(folder), strict_weights=True)


def test_a_tensor_in_two_shards(tmp_path: Path) -> None:
    folder = tmp_path / "large"
    sparse_folder(folder, 2, 1)
    first = folder / "model-00001-of-00002.safetensors"
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    copy = "copy-of-00001.safetensors"
    os.link(first, folder / copy)
    index["weight_map"]["model.embed_tokens.weight"] = copy
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    problems = inspect_model(folder)["problems"]
    assert "is in another file too, " in problems[0]
    assert copy in problems[0]
    assert first.name in problems[0]


def test_shards_without_an_index(tmp_path: Path) -> None:
    folder = tmp_path / "large"
    sparse_folder(folder, 2, 1)
    (folder / "model.safetensors.index.json").unlink()
    (problem,) = inspect_model(folder)["problems"]
    assert "model-00001-of-00002.safetensors" in problem
    assert "index is missing" in problem


# --------------------------------------------------------------------------------------------- pack


def test_pack_writes_what_the_next_load_maps(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "packed"
    command = ["pack", str(model), str(out), "--quantization", "q8"]
    assert main(command) == 0
    path = Path(capsys.readouterr().out.strip())
    before = path.stat()
    loaded = testing.TestModel(str(model), weight_cache_dir=str(out), quantization="q8")
    assert loaded.metadata["mapped_weight_bytes"] == loaded.metadata["weight_bytes"]
    assert main(command) == 0
    assert "was there already" in capsys.readouterr().err
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert list(out.iterdir()) == [path]


def test_pack_says_why_it_cannot_write(
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["pack", str(model), str(tmp_path / "file" / "below")]) == 1
    assert "cannot be used as a folder" in capsys.readouterr().err
    assert caplog.messages == []  # once


PEAK = """
import json, sys
from mlc_native import _core
from mlc_native._core import testing

def kib(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))

model, cache = sys.argv[1], sys.argv[2]
before = kib("VmHWM")
loaded = testing.TestModel(model, weight_cache_dir=cache)
print(json.dumps([kib("VmHWM") - before, loaded.metadata["weight_bytes"] >> 10]))
"""


@pytest.mark.parametrize("cached", [False, True])
def test_weights_are_never_held_twice(tmp_path: Path, cached: bool) -> None:
    """Of 370 MB, which is much more than all else that a load takes."""
    sparse_folder(tmp_path / "model", 2, 1)
    arguments = [str(tmp_path / "model"), str(tmp_path / "cache") if cached else ""]
    child = subprocess.run(
        [sys.executable, "-c", PEAK, *arguments], capture_output=True, text=True, check=True
    )
    peak, packed = json.loads(child.stdout)
    assert packed > 300 << 10
    assert peak < packed * 1.3 + (64 << 10)
