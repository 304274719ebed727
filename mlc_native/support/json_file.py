"""Reads the small files of a model folder. A damaged one becomes a LoadError that names it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mlc_native.support.git_lfs import refuse_lfs_pointer
from mlc_native.support.regular_file import MAX_JSON_BYTES, damaged, has_file, read_bytes

# As in csrc/support/config_fields.h.
MAX_JSON_DEPTH = 128
MAX_JSON_VALUES = 4_000_000


def read_text(path: Path, max_bytes: int) -> str:
    """The text of a file, with every end of a line as \\n. Raises LoadError."""
    try:
        text = read_bytes(path, max_bytes).decode("utf-8")
        return text.replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise damaged(path, error) from error


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises LoadError, also if it is larger or deeper than allowed."""
    content = read_bytes(path, MAX_JSON_BYTES)
    # At most as many values, and not fewer except for those in texts.
    separators = sum(content.count(byte) for byte in (b",", b"[", b"{"))
    if separators > MAX_JSON_VALUES:
        raise damaged(path, f"it has more than {MAX_JSON_VALUES} values, which is the limit")
    try:
        fields = json.loads(content.decode("utf-8"))
        depth = _depth(fields) if separators > MAX_JSON_DEPTH else 0
    except RecursionError:
        depth = MAX_JSON_DEPTH + 1
    except ValueError as error:
        refuse_lfs_pointer(path)
        raise damaged(path, error) from error
    if depth > MAX_JSON_DEPTH:
        raise damaged(
            path, f"it is nested more than {MAX_JSON_DEPTH} levels deep, which is the limit"
        )
    if not isinstance(fields, dict):
        raise damaged(path, "it must hold a JSON object")
    return fields


def read_optional_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file, which is empty if the file does not exist. Raises LoadError."""
    return read_json_object(path) if has_file(path) else {}


def _depth(value: Any) -> int:
    """How many lists and objects lie within each other."""
    depth = 0
    level = [value]
    while level := [part for part in level if isinstance(part, (dict, list))]:
        depth += 1
        if depth > MAX_JSON_DEPTH:
            break
        level = [p for part in level for p in (part.values() if isinstance(part, dict) else part)]
    return depth


def token_text(fields: dict[str, Any], name: str) -> str | None:
    """A token such as ``bos_token`` in the fields of tokenizer_config.json; None if there is none.

    It is a text or a serialized AddedToken.
    """
    token = fields.get(name)
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None
