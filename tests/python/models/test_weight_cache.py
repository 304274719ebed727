"""Packed weights on disk: mapped by the next start, made anew when they are wrong, never fatal."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paged_driver import random_tokens
from quantized_checkpoints import FORMATS, quantize_checkpoint

from mlc_native import SyncMLCEngine
from mlc_native._core import LoadError, testing
from mlc_native.serve.config import EngineConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

PROMPT = random_tokens(40, 512, seed=2)


class Start:
    """A model loaded with a cache: its logits, and whether its weights are a mapped file."""

    def __init__(self, path: Path, cache: Path | str = "", **options: str) -> None:
        model = testing.TestModel(str(path), weight_cache_dir=str(cache), **options)
        self.mapped = model.metadata["mapped_weight_bytes"] > 0
        assert model.metadata["mapped_weight_bytes"] in (0, model.metadata["weight_bytes"])
        model.allocate(8, 64, 1)
        self.logits = model.forward([(PROMPT, 0, [3, 1, 2])])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_checkpoint("tiny-llama", tmp_path / "model")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "below" / "cache"


def files(cache: Path) -> list[Path]:
    return sorted(cache.iterdir()) if cache.exists() else []


def inode(cache: Path) -> int:
    (file,) = files(cache)
    return file.stat().st_ino


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("quantization", ["", "q8", "q4"])
def test_same_bits_as_without(model: Path, cache: Path, dtype: str, quantization: str) -> None:
    options = {"dtype": dtype, "quantization": quantization}
    expected = Start(model, **options)
    first = Start(model, cache, **options)
    made = inode(cache)
    second = Start(model, cache, **options)
    assert not expected.mapped
    assert first.mapped
    assert second.mapped
    assert inode(cache) == made  # read, not written again
    assert np.array_equal(first.logits, expected.logits)
    assert np.array_equal(second.logits, expected.logits)


def test_of_a_quantized_checkpoint(model: Path, tmp_path: Path, cache: Path) -> None:
    form = FORMATS["compressed-int4-group"]
    quantize_checkpoint(model, tmp_path / "quantized", tmp_path / "floats", form)
    expected = Start(tmp_path / "quantized").logits
    for _ in range(2):
        assert np.array_equal(Start(tmp_path / "quantized", cache).logits, expected)


def test_whatever_decides_the_content_gets_a_file_of_its_own(model: Path, cache: Path) -> None:
    for options in ({}, {"dtype": "bfloat16"}, {"quantization": "q8"}, {"quantization": "q4"}):
        Start(model, cache, **options)
    assert len(files(cache)) == 4


def test_multipliers_that_are_a_part_of_matrices_decide_the_content(
    tmp_path: Path, cache: Path
) -> None:
    model = make_checkpoint("tiny-falcon_h1", tmp_path / "model")
    file = model / "config.json"
    for key in ('"key_multiplier": 0.7', '"key_multiplier": 0.9'):
        assert np.array_equal(Start(model, cache).logits, Start(model).logits)
        file.write_text(file.read_text().replace(key, '"key_multiplier": 0.9'))
    assert len(files(cache)) == 2


def test_narrower_panels_are_another_file(
    model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = []
    for isa in ("portable", ""):
        monkeypatch.setenv("MLC_NATIVE_ISA", isa)
        logits.append(Start(model, cache).logits)
        assert np.array_equal(Start(model, cache).logits, logits[-1])
    assert len(files(cache)) <= 2
    np.testing.assert_allclose(logits[0], logits[1], rtol=1e-3, atol=1e-3)


def test_a_changed_checkpoint_is_packed_again(model: Path, cache: Path, tmp_path: Path) -> None:
    old = Start(model, cache).logits
    make_checkpoint("tiny-llama", model, seed=1)
    new = Start(model, cache).logits
    assert not np.array_equal(old, new)
    assert np.array_equal(new, Start(model).logits)
    assert len(files(cache)) == 2
    # The same bytes elsewhere, with their time, are the same checkpoint.
    shutil.copytree(model, tmp_path / "copy")
    assert np.array_equal(Start(tmp_path / "copy", cache).logits, new)
    assert len(files(cache)) == 2
    os.utime(model / "model.safetensors")
    Start(model, cache)
    assert len(files(cache)) == 3


def test_models_of_the_same_size_and_time_are_told_apart(cache: Path, tmp_path: Path) -> None:
    """Images of containers may give all files one time."""
    model, other = (make_checkpoint("tiny-llama", tmp_path / f"{i}", seed=i) for i in range(2))
    for folder in (model, other):
        os.utime(folder / "model.safetensors", (1, 1))
    old = Start(model, cache).logits
    new = Start(other, cache).logits
    assert not np.array_equal(old, new)
    assert np.array_equal(new, Start(other).logits)
    assert np.array_equal(old, Start(model, cache).logits)
    assert len(files(cache)) == 2


BLOCK = 2 << 20  # bytes with a checksum of their own; the data begins at the second one
BLOCK_DAMAGES = ("first block", "last byte", "a checksum")


def flipped(content: bytes, at: int) -> bytes:
    """The content with one bit changed."""
    changed = bytearray(content)
    changed[at] ^= 4
    return bytes(changed)


@pytest.mark.parametrize(
    "damage", [*("empty", "truncated", "longer", "magic", "key", "foreign"), *BLOCK_DAMAGES]
)
def test_a_file_that_is_not_right_is_made_anew(
    model: Path, cache: Path, capfd: pytest.CaptureFixture[str], damage: str
) -> None:
    expected = Start(model, cache).logits
    (file,) = files(cache)
    content = file.read_bytes()
    file.write_bytes(
        {
            "empty": b"",
            "truncated": content[:-1],
            "longer": content + b"\0",
            "magic": b"M" + content[1:],
            "key": content.replace(b"modified 1", b"modified 2", 1),
            "foreign": b"?" * len(content),
            "first block": flipped(content, -len(content) + BLOCK),
            "last byte": flipped(content, -1),
            "a checksum": flipped(content, content.index(b"\0") + 1),
        }[damage]
    )
    capfd.readouterr()
    start = Start(model, cache)
    assert start.mapped
    assert np.array_equal(start.logits, expected)
    assert "damaged" in capfd.readouterr().err
    assert files(cache) == [file]
    assert file.read_bytes() == content
    Start(model, cache)
    assert capfd.readouterr().err == ""


@contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    """Writing beyond it fails, as on a full disk."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


@pytest.fixture
def mixture(tmp_path: Path) -> Path:
    """A model whose experts take 24 of its 25 MB."""
    shape = {"num_hidden_layers": 2, "mlp_only_layers": [], "moe_intermediate_size": 512}
    return make_checkpoint("tiny-qwen3_moe", tmp_path / "mixture", overrides=shape)


def test_experts_are_checked_before_they_are_used(
    mixture: Path, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = Start(mixture, cache).logits
    assert np.array_equal(Start(mixture, cache).logits, expected)
    (file,) = files(cache)
    content = file.read_bytes()
    middle = len(content) // 2 // BLOCK * BLOCK
    file.write_bytes(flipped(content, middle + 12345))
    capfd.readouterr()
    used = testing.TestModel(str(mixture), weight_cache_dir=str(cache))
    assert used.metadata["mapped_weight_bytes"] > used.metadata["expert_weight_bytes"] > 3 * BLOCK
    used.allocate(8, 64, 1)
    with pytest.raises(LoadError, match="is damaged in the 2 MiB at block") as error:
        used.forward([(PROMPT, 0, [3, 1, 2])])
    assert error.value.field == "weight_cache_dir"
    assert capfd.readouterr().err.count("is damaged") == 1
    assert files(cache) == []
    assert np.array_equal(Start(mixture, cache).logits, expected)
    assert files(cache)[0].read_bytes() == content


def test_unused_damage_is_found_all_the_same(
    mixture: Path, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """By the thread that checks what no forward has asked for."""
    Start(mixture, cache)
    (file,) = files(cache)
    content = file.read_bytes()
    file.write_bytes(flipped(content, len(content) // 2))
    used = testing.TestModel(str(mixture), weight_cache_dir=str(cache))
    deadline = time.monotonic() + 240
    while files(cache) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert files(cache) == []
    assert used.metadata["mapped_weight_bytes"] > 0
    while "is damaged" not in (err := capfd.readouterr().err) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "is damaged" in err


def test_damage_behind_the_experts_is_packed_anew_at_once(
    mixture: Path, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = Start(mixture, cache).logits
    (file,) = files(cache)
    content = file.read_bytes()
    file.write_bytes(flipped(content, -1))  # of the final norm
    capfd.readouterr()
    assert np.array_equal(Start(mixture, cache).logits, expected)
    assert "packed anew" in capfd.readouterr().err
    assert files(cache)[0].read_bytes() == content


def test_a_full_disk_is_a_warning(
    model: Path, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with file_size_limit(2_200_000):
        start = Start(model, cache)
    assert not start.mapped
    assert np.array_equal(start.logits, Start(model).logits)
    assert "cannot be written" in capfd.readouterr().err
    assert files(cache) == []  # nothing half-written is left


def test_a_folder_that_cannot_be_made_is_a_warning(
    model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    start = Start(model, tmp_path / "file" / "cache")
    assert not start.mapped
    assert np.array_equal(start.logits, Start(model).logits)
    assert "weight_cache_dir" in capfd.readouterr().err


CUT_SHORT = """
import os, sys
import numpy as np
from mlc_native._core import LoadError, testing

model, cache, prompt = sys.argv[1], sys.argv[2], [int(i) for i in sys.argv[3].split()]
used = testing.TestModel(model, weight_cache_dir=cache)
used.allocate(8, 64, 1)
assert used.metadata["mapped_weight_bytes"] > 0
before = used.forward([(prompt, 0, [3, 1, 2])])
(file,) = os.scandir(cache)
os.truncate(file.path, int(sys.argv[4]))
assert np.array_equal(used.forward([(prompt, 0, [3, 1, 2])]), before)
again = testing.TestModel(model, weight_cache_dir=cache)
again.allocate(8, 64, 1)
assert np.array_equal(again.forward([(prompt, 0, [3, 1, 2])]), before)
print("the same")
"""


@pytest.mark.parametrize("size", [0, BLOCK, BLOCK + 4096])
def test_a_file_that_is_cut_short_while_it_is_used(model: Path, cache: Path, size: int) -> None:
    Start(model, cache)
    arguments = [str(model), str(cache), " ".join(map(str, PROMPT)), str(size)]
    child = subprocess.run(
        [sys.executable, "-c", CUT_SHORT, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (child.returncode, child.stdout) == (0, "the same\n"), child.stderr
    assert "another process opens it for writing" in child.stderr
    assert "is damaged" in child.stderr


def world_writable_folder(cache: Path) -> None:
    cache.chmod(0o777)


def world_writable_file(cache: Path) -> None:
    files(cache)[0].chmod(0o666)


def foreign_folder(cache: Path) -> None:
    os.chown(cache, 54321, -1)


def foreign_file(cache: Path) -> None:
    os.chown(files(cache)[0], 54321, -1)


def fifo(cache: Path) -> None:
    (file,) = files(cache)
    file.unlink()
    os.mkfifo(file)


def link_elsewhere(cache: Path) -> None:
    (file,) = files(cache)
    file.symlink_to(file.rename(cache.parent / "elsewhere"))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (world_writable_folder, "cache: is not used, because every user may write to it"),
        (world_writable_file, ".weights: is not used, because every user may write to it"),
        (foreign_folder, "cache: is not used, because it belongs to user 54321"),
        (foreign_file, ".weights: is not used, because it belongs to user 54321"),
        (fifo, "is a FIFO, must be a regular file"),
        (link_elsewhere, "is a symbolic link, must be a regular file"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_cannot_be_trusted_is_not_used(
    model: Path, cache: Path, capfd: pytest.CaptureFixture[str], make: Callable, reason: str
) -> None:
    expected = Start(model, cache).logits
    if "foreign" in make.__name__ and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    make(cache)
    capfd.readouterr()
    start = Start(model, cache)
    assert np.array_equal(start.logits, expected)
    assert reason in capfd.readouterr().err
    assert start.mapped == ("folder" not in make.__name__)  # a file is replaced


def test_a_new_folder_is_for_its_owner_alone(model: Path, cache: Path) -> None:
    old = os.umask(0)
    try:
        Start(model, cache)
    finally:
        os.umask(old)
    assert cache.stat().st_mode & 0o777 == 0o700
    assert files(cache)[0].stat().st_mode & 0o777 == 0o644


def test_many_first_starts_at_once(model: Path, cache: Path) -> None:
    expected = Start(model).logits
    with ThreadPoolExecutor(8) as pool:
        starts = list(pool.map(lambda _: Start(model, cache), range(16)))
    assert all(np.array_equal(start.logits, expected) for start in starts)
    assert len(files(cache)) == 1


def test_through_the_engine(model: Path, cache: Path) -> None:
    for _ in range(2):
        config = EngineConfig(weight_cache_dir=str(cache), verbose=False)
        SyncMLCEngine(str(model), device="cpu", engine_config=config)
        assert len(files(cache)) == 1


def test_a_file_that_is_deleted_stays_mapped(model: Path, cache: Path) -> None:
    Start(model, cache)
    mapped = testing.TestModel(str(model), weight_cache_dir=str(cache))
    shutil.rmtree(cache)
    mapped.allocate(8, 64, 1)
    assert np.array_equal(mapped.forward([(PROMPT, 0, [3, 1, 2])]), Start(model).logits)


def start_engine(model: Path, cache: Path, **options: Any) -> None:
    config = EngineConfig(weight_cache_dir=str(cache), verbose=False, **options)
    SyncMLCEngine(str(model), device="cpu", engine_config=config).unload()


def test_the_file_that_was_used_longest_ago_makes_room(model: Path, cache: Path) -> None:
    start_engine(model, cache)
    (floats,) = files(cache)
    start_engine(model, cache, quantization="q8")
    (q8,) = set(files(cache)) - {floats}
    stamp = floats.stat().st_mtime_ns
    for time_ns, file in enumerate((floats, q8), start=1):
        os.utime(file, ns=(time_ns, file.stat().st_mtime_ns))
    start_engine(model, cache)  # uses the older one
    assert floats.stat().st_mtime_ns == stamp
    limit = floats.stat().st_size + q8.stat().st_size
    start_engine(model, cache, quantization="q4", weight_cache_bytes=limit)
    assert floats in files(cache)
    assert q8 not in files(cache)
    assert len(files(cache)) == 2
    assert sum(file.stat().st_size for file in files(cache)) <= limit


def test_a_file_beyond_the_limit_is_not_written(
    model: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start_engine(model, cache)
    before = files(cache)
    start_engine(model, cache, quantization="q8", weight_cache_bytes=1000)
    assert '"weight_cache_bytes" = 1000' in caplog.text
    assert files(cache) == before


def test_files_of_processes_with_the_same_number_stay(model: Path, cache: Path) -> None:
    """They are written by processes in other containers that share the folder."""
    Start(model, cache)
    (file,) = files(cache)
    file.unlink()
    others = [file.with_name(f"{file.name}.{os.getpid()}-{i}") for i in range(1000)]
    for other in others:
        other.write_bytes(b"part")
    assert Start(model, cache).mapped
    assert set(files(cache)) == {file, *others}


def test_what_a_killed_process_has_left_is_removed(model: Path, cache: Path) -> None:
    cache.mkdir(parents=True)
    names = ("0.weights.123-0", "0.weights.123-1", "0.weights.123-2", "other.123-0")
    abandoned, used, young, foreign = (cache / name for name in names)
    for file in (abandoned, used, young, foreign):
        file.write_bytes(b"part")
        if file != young:
            os.utime(file, (1, 1))
    with used.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert Start(model, cache).mapped
    assert not abandoned.exists()
    assert {used, young, foreign} < set(files(cache))
