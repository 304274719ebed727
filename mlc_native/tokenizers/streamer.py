"""Streaming text: bytes to valid UTF-8 piece by piece, and stop strings. Backed by C++."""

from __future__ import annotations

from mlc_native import _core
from mlc_native.tokenizers.tokenizers import Tokenizer


class TextStreamer(_core.TextStreamer):
    """Turns token ids into text as they come; one per sequence.

    ``put(token_ids) -> str`` returns the text that is certain: an incomplete character at the end
    is held back. ``finish() -> str`` returns the rest. The pieces together are the decoded whole,
    without the leading space that the tokenizer's decoder strips.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer.token_table)


class StopStrHandler(_core.StopStrHandler):
    """Finds the first of several stop strings in a stream of token ids; one per sequence.

    ``put(token_id) -> list[int]`` returns the ids that are certain not to belong to a stop string,
    ``finish() -> list[int]`` the ids still held back, ``stop_triggered`` tells whether one came.

    Raises:
        InvalidRequest: an empty stop string, or too many of them.
    """

    def __init__(self, stop_strs: list[str], tokenizer: Tokenizer) -> None:
        super().__init__(stop_strs, tokenizer.token_table)
