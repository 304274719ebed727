"""The files of a model folder that are read in Python: regular, and within limits."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_native.conversation import load_chat_template
from mlc_native.errors import LoadError
from mlc_native.protocol.mlc_chat_config import MLCChatConfig
from mlc_native.serve.model_setup import load_tokenizer
from mlc_native.support.git_lfs import refuse_lfs_pointer
from mlc_native.support.json_file import (
    MAX_JSON_DEPTH,
    MAX_JSON_VALUES,
    read_json_object,
    read_optional_json_object,
    read_text,
)
from mlc_native.support.regular_file import MAX_JSON_BYTES, MAX_TEMPLATE_BYTES, read_bytes


def a_folder(path: Path) -> None:
    path.mkdir()


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as unix:
        os.chdir(path.parent)
        unix.bind(path.name)


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


# A FIFO without a writer and a device without an end would hang the test.
@pytest.mark.parametrize("make", [a_folder, a_socket, a_device, a_fifo])
def test_only_regular_files_are_read(
    tmp_path: Path, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # and back
    path = tmp_path / "x"
    make(path)
    kind = make.__name__.replace("_", " ").replace("fifo", "FIFO")
    for read in (
        lambda: read_bytes(path, 10),
        lambda: read_text(path, 10),
        lambda: read_json_object(path),
        lambda: read_optional_json_object(path),
    ):
        with pytest.raises(LoadError, match=f"x is damaged: it is {kind}, must be a regular"):
            read()
    refuse_lfs_pointer(path)


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]
)
def test_every_file_of_a_folder_is_opened_so(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)

    def load() -> None:
        config = MLCChatConfig.from_folder(tmp_path)
        load_tokenizer(tmp_path, config)
        load_chat_template(tmp_path)

    with pytest.raises(LoadError, match=rf"{name} is damaged: it is a FIFO"):
        load()


def test_sizes_are_limited(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"0123456789")
    assert read_bytes(path, 10) == b"0123456789"
    with pytest.raises(LoadError, match="it has 10 bytes, allowed are 9"):
        read_bytes(path, 9)
    os.truncate(path, MAX_JSON_BYTES + 1)
    with pytest.raises(LoadError, match=f"allowed are {MAX_JSON_BYTES}"):
        read_json_object(path)
    template = tmp_path / "chat_template.jinja"
    template.write_text("x" * (MAX_TEMPLATE_BYTES + 1))
    with pytest.raises(LoadError, match=f"chat_template.jinja.*allowed are {MAX_TEMPLATE_BYTES}"):
        load_chat_template(tmp_path)


def test_depth_and_values_are_limited(tmp_path: Path) -> None:
    path = tmp_path / "x.json"

    def read(text: str) -> object:
        path.write_text(text)
        return read_json_object(path)

    lists = MAX_JSON_DEPTH - 1
    assert read('{"a":' + "[" * lists + "]" * lists + "}")
    for depth in (lists + 1, 5000, 1_000_000):
        with pytest.raises(LoadError, match="nested more than 128 levels deep, which is the limit"):
            read('{"a":' + "[" * depth + "]" * depth + "}")
        with pytest.raises(LoadError, match="nested more than 128 levels deep, which is the limit"):
            read('{"a":' * (depth + 1) + "0" + "}" * (depth + 1))
    with pytest.raises(LoadError, match="more than 4000000 values"):
        read('{"a":[' + "0," * MAX_JSON_VALUES + "0]}")
    with pytest.raises(LoadError, match="is damaged"):
        read('{"a":' + "9" * 10_000 + "}")  # more digits than Python reads
    with pytest.raises(LoadError, match="must hold a JSON object"):
        read("[]")
    assert read_optional_json_object(tmp_path / "absent.json") == {}


def test_ends_of_lines_are_those_of_a_text_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a\r\nb\rc\n")
    assert read_text(path, 100) == path.read_text() == "a\nb\nc\n"


# ------------------------------------------------------------------------------- any content at all

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    [
        *MLCChatConfig.model_fields,
        *("text_config", "max_position_embeddings", "chat_template", "bos_token", "eos_token"),
    ]
)


def readers(folder: Path) -> list[Callable[[], object]]:
    """What reads the fields of a folder's files in Python."""
    return [
        lambda: MLCChatConfig.from_folder(folder),
        lambda: load_chat_template(folder),
        lambda: read_text(folder / "config.json", MAX_TEMPLATE_BYTES),
    ]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    content=st.binary(max_size=64)
    | st.dictionaries(FIELDS, VALUES, max_size=6).map(lambda fields: json.dumps(fields).encode())
)
def test_any_content_is_read_or_a_load_error(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        for file in ("config.json", "tokenizer_config.json", "chat_template.json"):
            (Path(name) / file).write_bytes(content)
        for read in readers(Path(name)):
            with suppress(LoadError):
                read()
