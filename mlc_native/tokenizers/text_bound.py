"""TextBound: how few tokens a text can have, from its size and without tokenizing it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mlc_native import _core

# Composition makes one character of at most three that it was decomposed into.
_SHRINKS = {"NFC": 4, "NFD": 1, "Prepend": 1}


class TextBound:
    """The bound of one tokenizer. Immutable.

    Attributes:
        most_bytes: no token stands for more bytes of a text; None if one may stand for any number,
            such as an unknown token for a run of unknown characters.
    """

    def __init__(self, most_bytes: int | None, *, counts_space: bool = True) -> None:
        """``counts_space``: no token takes all the white space around it."""
        self.most_bytes = most_bytes
        self._counts_space = counts_space

    @staticmethod
    def of_file(tokenizer_json: dict[str, Any], table: _core.TokenTable) -> TextBound:
        """``tokenizer_json`` is the content of tokenizer.json, and ``table`` was made from it."""
        shrinks = _most_shrinking(tokenizer_json)
        longest = max((len(table.bytes(token)) for token in range(table.size)), default=0)
        added = tokenizer_json.get("added_tokens") or []
        return TextBound(
            longest * shrinks if shrinks is not None and longest else None,
            counts_space=not any(token.get("lstrip") or token.get("rstrip") for token in added),
        )

    def num_bytes(self, text: str) -> int:
        """The bytes of a text that tokens must stand for."""
        counted = text if self._counts_space else "".join(text.split())
        return len(counted.encode("utf-8", "replace"))

    def least_tokens(self, text: str) -> int:
        """A number of tokens that the text has at least."""
        return 0 if self.most_bytes is None else -(-self.num_bytes(text) // self.most_bytes)


def _most_shrinking(tokenizer_json: dict[str, Any]) -> int | None:
    """By how much the normalizers may shorten a text at most; None if that is not known."""
    model = tokenizer_json.get("model") or {}
    splitters = list(_members(tokenizer_json.get("pre_tokenizer"), "pretokenizers"))
    is_byte_level = any(each.get("type") == "ByteLevel" for each in splitters)
    if not (is_byte_level and model.get("type") == "BPE") and not model.get("byte_fallback"):
        return None
    if any(each.get("behavior") == "Removed" for each in splitters):
        return None
    factor = 1
    for normalizer in _members(tokenizer_json.get("normalizer"), "normalizers"):
        kind = normalizer.get("type")
        if kind == "Replace":
            old, new = (normalizer.get("pattern") or {}).get("String"), normalizer.get("content")
            if old is None or new is None or len(old.encode()) > len(new.encode()):
                return None
        elif kind not in _SHRINKS:
            return None
        else:
            factor *= _SHRINKS[kind]
    return factor


def _members(component: Any, key: str) -> Iterator[dict[str, Any]]:
    """A component of a tokenizer, or the members of a sequence of them."""
    if not isinstance(component, dict):
        return
    members = component.get(key)
    if not isinstance(members, list):
        yield component
        return
    for member in members:
        yield from _members(member, key)
