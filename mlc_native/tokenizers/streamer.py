"""Streams text: token ids to valid UTF-8 piece by piece, and stop strings. Implemented in C++."""

from __future__ import annotations

from collections.abc import Sequence

from mlc_native import _core
from mlc_native.errors import invalid_request, shown
from mlc_native.tokenizers.tokenizers import Tokenizer


class TextStreamer(_core.TextStreamer):
    """Turns the token ids of one sequence into text, piece by piece.

    ``put(token_ids) -> str`` returns the text that is certain; an incomplete character at the end
    is held back. ``finish() -> str`` returns the rest. The pieces together are the decoded text,
    without the leading space that the tokenizer's decoder strips.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer.token_table)

    def put(self, token_ids: Sequence[int]) -> str:
        try:
            return super().put(token_ids)
        except TypeError:
            raise invalid_request(
                "token_ids", f'"token_ids" must be a list of token ids, got {shown(token_ids)}'
            ) from None


class StopStrHandler(_core.StopStrHandler):
    """Finds the first of several stop strings in the token ids of one sequence.

    ``put(token_id) -> list[int]`` returns the ids that certainly do not belong to a stop string,
    ``finish() -> list[int]`` returns the remaining ids, and ``stop_triggered`` tells whether a stop
    string was found.

    Raises:
        InvalidRequest: an empty stop string, or too many of them.
    """

    def __init__(self, stop_strs: list[str], tokenizer: Tokenizer) -> None:
        try:
            super().__init__(stop_strs, tokenizer.token_table)
        except TypeError:
            raise invalid_request(
                "stop_strs", f'"stop_strs" must be a list of texts, got {shown(stop_strs)}'
            ) from None

    def put(self, token_id: int) -> list[int]:
        try:
            return super().put(token_id)
        except TypeError:
            raise invalid_request(
                "token_id", f'"token_id" must be a token id, got {shown(token_id)}'
            ) from None
