"""The drafts of our heads: two sequences on one head, fed in chunks of unequal sizes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mlc_native._core import testing

PROMPT, POSITIONS, LENGTH = 5, 20, 4
NUM_TOKENS = PROMPT + POSITIONS + 1  # of a sequence: the row at a position takes the token behind
NUM_SEQUENCES = 2
_PAGES = ([5, 2, 0], [1, 7, 3])


class _Sequence:
    """The target's states, the pages, and what has been fed."""

    def __init__(self, tokens: Sequence[int], states: np.ndarray, pages: list[int]) -> None:
        self._tokens, self._states, self._pages = list(tokens), states, pages
        self._fed = 0

    def up_to(self, end: int) -> tuple[list[int], np.ndarray, int, list[int]]:
        """Feeds the rows that are missing in front of position ``end``."""
        begin, self._fed = self._fed, end
        states = np.ascontiguousarray(self._states[begin:end])
        return self._tokens[begin + 1 : end + 1], states, begin, self._pages


def propose_at_positions(
    folder: Path, target: Path, texts: Sequence[Sequence[int]], model_lib: str = ""
) -> tuple[list[int], list[list[list[int]]]]:
    """The streams of the target that the head in ``folder`` reads; and for each of POSITIONS
    positions behind the prompt, the LENGTH tokens that it guesses behind each of the texts."""
    model = testing.TestModel(str(target), "float32" if model_lib else "auto", model_lib=model_lib)
    model.allocate(32, 64, 32)
    head = testing.TestDraftHead(str(folder), model)
    head.allocate(8, 64, NUM_SEQUENCES)
    streams: list[int] = head.target_streams
    sequences = []
    for text, pages in zip(texts, _PAGES, strict=True):
        _, states = model.forward_states([(list(text), 0, [9, 4, 6])], streams)
        sequences.append(_Sequence(text, states, pages))
    prompts = [s.up_to(PROMPT - 2 * i) for i, s in enumerate(sequences)]
    assert head.propose(prompts, 0) == [[], []]
    ends = range(PROMPT + 1, PROMPT + 1 + POSITIONS)
    return streams, [head.propose([s.up_to(end) for s in sequences], LENGTH) for end in ends]
