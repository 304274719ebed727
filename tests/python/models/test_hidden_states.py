"""Hidden states of the built-in decoders against transformers, and the forwards that give them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from families import FAMILIES
from paged_driver import PagedModel, random_tokens, relative_error
from torch_drafts import target_states

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

TOLERANCE = 1e-4
LENGTH = 60


@pytest.mark.parametrize("family", FAMILIES)
def test_every_stream(family: str, tmp_path: Path) -> None:
    """All streams of all rows are those of transformers, in any order and for any rows."""
    path = make_checkpoint(family, tmp_path / family)
    model = PagedModel(path).model
    tokens = random_tokens(LENGTH, model.metadata["vocab_size"], seed=1)
    pages = [7, 3, 11, 2]
    streams = list(range(model.metadata["num_layers"] + 2))
    logits, states = model.forward_states([(tokens, 0, pages)], streams)
    reference = target_states(path, tokens, streams).numpy()
    hidden = model.metadata["hidden_size"]
    for stream in streams:
        columns = slice(stream * hidden, (stream + 1) * hidden)
        assert relative_error(states[:, columns], reference[:, columns]) < TOLERANCE, stream

    assert np.array_equal(logits, model.forward([(tokens, 0, pages)], "last"))
    rows = [0, 17, LENGTH - 1]
    _, some = model.forward_states([(tokens, 0, pages)], [2, 0], rows=rows)
    expected = [states[rows, 2 * hidden : 3 * hidden], states[rows, :hidden]]
    assert np.array_equal(some, np.concatenate(expected, axis=1))


def test_states_of_chunks_in_a_batch(tmp_path: Path) -> None:
    """The same bits for any chunking and in any company, with logits of some rows only."""
    path = make_checkpoint("tiny-qwen3", tmp_path / "qwen3")
    model = PagedModel(path).model
    streams = [1, 3, 4]
    texts = [random_tokens(30, 512, seed=2), random_tokens(30, 512, seed=3)]
    alone = [model.forward_states([(text, 0, [4, 5])], streams)[1] for text in texts]
    first = [(texts[0][:13], 0, [8, 9]), (texts[1][:20], 0, [12, 1])]
    second = [(texts[0][13:], 13, [8, 9]), (texts[1][20:], 20, [12, 1])]
    _, before = model.forward_states(first, streams, logits="none")
    _, after = model.forward_states(second, streams, logits="last")
    assert np.array_equal(np.concatenate([before[:13], after[:17]]), alone[0])
    assert np.array_equal(np.concatenate([before[13:], after[17:]]), alone[1])
