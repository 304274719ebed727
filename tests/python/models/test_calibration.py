"""``mlc-native pack --calibrate``: weights that are rounded for what a text makes of them."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from gguf_files import write_gguf
from quantized_checkpoints import FORMATS, quantize_checkpoint

from mlc_native import EngineConfig, MLCEngine, _core
from mlc_native._core import testing
from mlc_native.cli.main import main
from mlc_native.errors import InvalidConfig, LoadError

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tools")]
from common import DEMO, make_checkpoint  # noqa: E402
from fidelity import (  # noqa: E402
    Precision,
    Reference,
    compare,
    held_out_texts,
    logits,
    random_texts,
)
from paged_driver import PagedModel  # noqa: E402

TOKENS = 512  # of tiny checkpoints


def pack(
    model: Path,
    out: Path,
    tokens: Sequence[int] | None,
    num_threads: int = 2,
    quantization: str | None = "q4",
) -> _core.PackedFile:
    config = EngineConfig(
        model=str(model),
        weight_cache_dir=str(out),
        quantization=quantization,
        dtype="float32",
        num_threads=num_threads,
    )
    return _core.pack_model(config.engine_json(), None, None, tokens)


def random_tokens(model: Path, count: int = TOKENS, seed: int = 1) -> list[int]:
    return random_texts(model, count, seed)[0].tokens


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Text of the demo model, of about 1,000 tokens."""
    path = tmp_path / "text.txt"
    path.write_text("What is the capital of France?\nThe capital of France is Paris.\n" * 60)
    return path


# --------------------------------------------------------------------------------- what it is for


@functools.cache
def precision(name: str) -> dict[str, float]:
    """Figures of the demo model on text that it was not calibrated on."""
    quantization, _, calibrated = name.partition(", ")
    chosen = Precision(name, quantization=quantization, calibrated=bool(calibrated))
    texts = held_out_texts(num_documents=24, num_long=1)
    expected = demo_logits()
    model = chosen.model(DEMO, 2)
    figures = compare((logits(model, text) for text in texts), expected, texts)
    return {"divergence": figures.divergence, "error": figures.error}


@functools.cache
def demo_logits() -> list[np.ndarray]:
    reference = Reference(DEMO)
    return [reference.logits(text) for text in held_out_texts(num_documents=24, num_long=1)]


def test_the_demo_models_divergence_falls() -> None:
    assert precision("q4, calibrated")["divergence"] < 0.5 * precision("q4")["divergence"]
    assert precision("q4, calibrated")["error"] < 0.7 * precision("q4")["error"]


def test_embeddings_that_are_also_the_head_are_rounded_for_its_inputs() -> None:
    """In 4 bits, where it matters: with the head rounded plainly, 0.70 of the divergence stays."""
    assert precision("q4.5, calibrated")["divergence"] < 0.62 * precision("q4.5")["divergence"]


STRUCTURES = {
    "separate": ("tiny-llama", {}),
    "fused": ("tiny-phi3", {}),
    "tied": ("tiny-qwen2", {}),
    "parallel": ("tiny-cohere", {}),
    "experts": ("tiny-qwen3_moe", {"num_experts": 4, "num_experts_per_tok": 4}),
    "joined experts": ("tiny-gpt_oss", {"num_local_experts": 4, "num_experts_per_tok": 4}),
    "shared expert": ("tiny-qwen2_moe", {"num_experts": 4, "num_experts_per_tok": 4}),
    "experts beside": ("tiny-gemma4_text-experts", {"num_experts": 4, "top_k_experts": 4}),
    "inputs of layers": ("tiny-gemma4_text", {"hidden_size_per_layer_input": 24}),
}


@pytest.mark.parametrize("structure", STRUCTURES)
def test_every_structure(structure: str, tmp_path: Path) -> None:
    """Of random inputs to random weights, some error can be made up for."""
    like, overrides = STRUCTURES[structure]
    model = make_checkpoint(like, tmp_path / "model", overrides=overrides)
    texts = random_texts(model, 200, seed=4)
    expected = [Reference(model).logits(text) for text in texts]
    errors = []
    for tokens in (None, random_tokens(model, 2048)):
        packed = pack(model, tmp_path / "out", tokens)
        assert packed.num_not_reached == 0
        loaded = PagedModel(model, "float32", 2, "q4", weight_cache_dir=str(tmp_path / "out"))
        errors.append(compare((logits(loaded, text) for text in texts), expected, texts).error)
    plain, calibrated = errors
    assert calibrated < 0.97 * plain


def test_experts_that_no_token_chooses_are_rounded_plainly(tmp_path: Path) -> None:
    shape = {"num_experts": 64, "num_experts_per_tok": 1, "num_hidden_layers": 2}
    model = make_checkpoint("tiny-qwen3_moe", tmp_path / "model", overrides=shape)
    few = random_tokens(model, 8) * 40
    packed = pack(model, tmp_path / "few", few)
    assert packed.num_not_reached > 0
    assert packed.num_calibration_tokens == len(few)
    loaded = PagedModel(model, "float32", 2, "q4", weight_cache_dir=str(tmp_path / "few"))
    plain = PagedModel(model, "float32", 2, "q4")
    for text in random_texts(model, 100, seed=5):  # of other tokens
        ours, theirs = logits(loaded, text), logits(plain, text)
        assert np.isfinite(ours).all()
        assert np.linalg.norm(ours - theirs) < 0.5 * np.linalg.norm(theirs)


# ----------------------------------------------------------------------------------------- the file


@pytest.mark.parametrize("like", ["tiny-llama", "tiny-qwen3_moe"])
def test_the_same_bytes_with_any_number_of_threads(like: str, tmp_path: Path) -> None:
    model = make_checkpoint(like, tmp_path / "model")
    tokens = random_tokens(model)
    contents = []
    for threads in (1, 2, 5):
        packed = pack(model, tmp_path / str(threads), tokens, threads)
        contents.append((Path(packed.path).name, Path(packed.path).read_bytes()))
    assert contents[0] == contents[1] == contents[2]


def test_it_is_used_without_a_flag(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "packed"
    command = ["pack", "demo", str(out), "--quantization", "q4", "--calibrate", str(text)]
    assert main(command) == 0
    shown = capsys.readouterr()
    (path,) = out.iterdir()
    assert shown.out == f"{path}\n"
    used, of = re.search(r"calibrated on (\d+) of (\d+) tokens\n", shown.err).groups()
    assert 256 <= int(used) <= int(of) < int(used) + 4
    assert shown.err.rstrip().endswith(" s")  # the time
    loaded = testing.TestModel(str(DEMO), weight_cache_dir=str(out), quantization="q4")
    assert loaded.metadata["mapped_weight_bytes"] == loaded.metadata["weight_bytes"]
    config = EngineConfig(weight_cache_dir=str(out), quantization="q4", verbose=False)
    with MLCEngine("demo", engine_config=config) as engine:
        assert "q4 and q8 with bfloat16, calibrated on " in repr(engine)
        assert engine.engine_config.quantization == "q4"
    assert list(out.iterdir()) == [path]
    stamp = path.stat()
    assert main(command) == 0
    assert "was there already" in capsys.readouterr().err
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (stamp.st_ino, stamp.st_mtime_ns)


def test_another_text_replaces_it(tmp_path: Path) -> None:
    model = make_checkpoint("tiny-llama", tmp_path / "model")
    out = tmp_path / "out"
    first = pack(model, out, random_tokens(model))
    content = Path(first.path).read_bytes()
    second = pack(model, out, random_tokens(model, seed=2))
    assert second.path == first.path
    assert not second.was_there
    assert Path(first.path).read_bytes() != content
    assert pack(model, out, random_tokens(model, seed=2)).was_there
    assert not pack(model, out, random_tokens(model)).was_there


def test_plain_weights_are_another_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = make_checkpoint("tiny-llama", tmp_path / "model")
    out, tokens = tmp_path / "out", random_tokens(model)
    first = pack(model, out, tokens)
    logs: list[str] = []
    config = EngineConfig(model=str(model), weight_cache_dir=str(out), quantization="q4",
                          dtype="float32", num_threads=1)  # fmt: skip
    plain = _core.pack_model(config.engine_json(), None, lambda _level, line: logs.append(line))
    assert plain.path != first.path
    assert not plain.was_there
    assert any("has calibrated weights of this model" in line for line in logs)
    assert pack(model, out, tokens).was_there


def damaged(content: bytes, damage: str) -> bytes:
    if damage == "key":
        return content.replace(b"packing ", b"packinG ", 1)
    if damage == "line":
        return content.replace(b"calibrated on ", b"calibrateD on ", 1)
    changed = bytearray(content)
    changed[-1 if damage == "last byte" else content.index(b"calibrated on") + 14] ^= 4
    return bytes(changed) if damage != "empty" else b""


@pytest.mark.parametrize("damage", ["key", "line", "number", "last byte", "empty"])
def test_a_damaged_file_is_not_used(
    damage: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = make_checkpoint("tiny-llama", tmp_path / "model")
    out = tmp_path / "out"
    options = {"dtype": "float32", "quantization": "q4"}

    def forward(folder: Path | str) -> np.ndarray:
        loaded = testing.TestModel(str(model), weight_cache_dir=str(folder), **options)
        loaded.allocate(4, 32, 1)
        return loaded.forward([(list(range(20)), 0, [0, 1])])

    file = Path(pack(model, out, random_tokens(model)).path)
    calibrated = forward(out)
    content = file.read_bytes()
    file.write_bytes(damaged(content, damage))
    capfd.readouterr()
    plain = forward(out)
    assert "used without calibration" in capfd.readouterr().err
    assert not np.array_equal(plain, calibrated)
    assert np.array_equal(plain, forward(""))
    assert not pack(model, out, random_tokens(model)).was_there
    assert file.read_bytes() == content
    assert np.array_equal(forward(out), calibrated)


# ------------------------------------------------------------------------------------------- errors


def empty(path: Path) -> None:
    path.write_text("")


def short(path: Path) -> None:
    path.write_text("What is the capital of France?")


def binary(path: Path) -> None:
    path.write_bytes(b"\xff\xfe" * 1000)


@pytest.mark.parametrize(
    ("spoil", "options", "message"),
    [
        (os.remove, (), "text.txt: No such file or directory"),
        (empty, (), '"calibrate" must be a text of at least 256 tokens, got 0'),
        (short, (), '"calibrate" must be a text of at least 256 tokens, got '),
        (binary, (), '"calibrate" must be a file of UTF-8'),
        (None, ("--quantization", "off"), '"quantization" must be "q4", "q6", "q8" or'),
    ],
    ids=["missing", "empty", "short", "binary", "off"],
)
def test_what_cannot_be_calibrated_on(
    spoil: Callable[[Path], None] | None,
    options: tuple[str, ...],
    message: str,
    text: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if spoil is not None:
        spoil(text)
    command = ["pack", "demo", str(tmp_path / "packed"), "--calibrate", str(text)]
    status = 1 if spoil is os.remove else 2
    assert main([*command, *(options or ("--quantization", "q4"))]) == status
    assert message in capsys.readouterr().err
    assert not list((tmp_path / "packed").glob("*"))


def test_errors_are_typed(tmp_path: Path) -> None:
    model = make_checkpoint("tiny-llama", tmp_path / "model")
    with pytest.raises(InvalidConfig, match="at least 256 tokens, got 255") as short_text:
        pack(model, tmp_path / "out", [1] * 255)
    assert short_text.value.field == "calibrate"
    with pytest.raises(InvalidConfig, match=r"tokens in \[0, 512\), got 512"):
        pack(model, tmp_path / "out", [1, 512] * 200)
    with pytest.raises(InvalidConfig, match='must be "q4", "q6", "q8" or') as format_error:
        pack(model, tmp_path / "out", [1] * 300, quantization=None)
    assert format_error.value.field == "quantization"


def test_integers_are_refused(tmp_path: Path) -> None:
    model = make_checkpoint("tiny-llama", tmp_path / "model")
    form = FORMATS["compressed-int4-group"]
    quantize_checkpoint(model, tmp_path / "quantized", tmp_path / "floats", form)
    file = write_gguf(model, tmp_path / "x.gguf", lambda _name: Type.Q8_0)
    for path in (tmp_path / "quantized", file):
        with pytest.raises(LoadError, match="is quantized already") as error:
            pack(path, tmp_path / "out", [1] * 300)
        assert error.value.field is not None
        assert error.value.field.endswith("weight")
    floats = write_gguf(model, tmp_path / "y.gguf", lambda _name: Type.F32)
    assert pack(floats, tmp_path / "out", [1, 2, 3] * 100).num_calibration_tokens == 300


def test_a_long_text_is_used_from_beginning_to_end(tmp_path: Path) -> None:
    model = make_checkpoint("tiny-llama", tmp_path / "model")
    tokens = random_tokens(model, 9000)
    first = pack(model, tmp_path / "out", tokens)
    assert 7680 < first.num_calibration_tokens <= 8192
    for at in (0, -1024):
        tokens[at : at + 1000] = [7] * 1000
        assert not pack(model, tmp_path / "out", tokens).was_there
