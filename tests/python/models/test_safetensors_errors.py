"""Damaged weight files and indices of shards: each is a LoadError that names what is wrong."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damaged_models import NORM, WEIGHTS, load_error
from paged_driver import PagedModel, PagedSequence
from safetensors.torch import load_file, save_file

from mlc_native._core import testing

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

INDEX = "model.safetensors.index.json"


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
