"""The special tokens that a tokenizer puts around a text, such as the BOS of Llama and Gemma."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mlc_native.support.json_file import read_optional_json_object, token_text

if TYPE_CHECKING:
    import tokenizers


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of the tokens in front of a text and behind it."""

    front: tuple[int, ...] = ()
    back: tuple[int, ...] = ()

    def around(
        self, token_ids: Sequence[int], *, front: bool = True, back: bool = True
    ) -> list[int]:
        """``token_ids`` with the special tokens. Those that are there already are not repeated."""
        ids = list(token_ids)
        if front and tuple(ids[: len(self.front)]) != self.front:
            ids = [*self.front, *ids]
        if back and self.back and tuple(ids[-len(self.back) :]) != self.back:
            ids = [*ids, *self.back]
        return ids


def read_special_tokens(tokenizer: tokenizers.Tokenizer, folder: Path) -> SpecialTokens:
    """What the post-processor of tokenizer.json adds to a text.

    ``add_bos_token`` in tokenizer_config.json, if it is there, decides about ``bos_token``: True
    adds it to what the post-processor adds, False removes it. Raises LoadError for a damaged file.
    """
    special = _added_by_post_processor(tokenizer)
    config = read_optional_json_object(folder / "tokenizer_config.json")
    bos = token_text(config, "bos_token")
    bos_id = None if bos is None else tokenizer.token_to_id(bos)
    if bos_id is None:
        return special
    if config.get("add_bos_token") is True and bos_id not in special.front:
        return SpecialTokens((bos_id, *special.front), special.back)
    if config.get("add_bos_token") is False:
        return SpecialTokens(tuple(i for i in special.front if i != bos_id), special.back)
    return special


def _added_by_post_processor(tokenizer: tokenizers.Tokenizer) -> SpecialTokens:
    """Compares the ids of a text with and without special tokens."""
    text = "a"
    plain = tokenizer.encode(text, add_special_tokens=False).ids
    full = tokenizer.encode(text, add_special_tokens=True).ids
    if not plain:  # the vocabulary has no such text
        return SpecialTokens(tuple(full))
    for start in range(len(full) - len(plain) + 1):
        if full[start : start + len(plain)] == plain:
            return SpecialTokens(tuple(full[:start]), tuple(full[start + len(plain) :]))
    return SpecialTokens()
