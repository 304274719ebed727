"""Reads the small files of a model folder. A damaged one becomes a LoadError that names it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mlc_native.errors import load_error


def read_text(path: Path) -> str:
    """The text of a file. Raises LoadError."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise load_error(str(path), f"{path} is damaged: {error}") from error


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file, which is empty if the file does not exist. Raises LoadError."""
    if not path.is_file():
        return {}
    try:
        fields = json.loads(read_text(path))
    except ValueError as error:
        raise load_error(str(path), f"{path} is damaged: {error}") from error
    if not isinstance(fields, dict):
        raise load_error(str(path), f"{path} is damaged: it must hold a JSON object")
    return fields


def token_text(fields: dict[str, Any], name: str) -> str | None:
    """A token such as ``bos_token`` in the fields of tokenizer_config.json; None if there is none.

    It is a text or a serialized AddedToken.
    """
    token = fields.get(name)
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None
