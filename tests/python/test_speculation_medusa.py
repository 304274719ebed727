"""Medusa in engines: heads that know an answer by heart guess it, and change nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from mlc_native import MLCEngine
from mlc_native._core import testing
from mlc_native.support.model_source import demo_model_folder

PROMPT = "one, two, three, four, five, one, two, three,"
HEADS = 3
ASKED: dict[str, Any] = {"prompt": PROMPT, "temperature": 0, "max_tokens": 60, "ignore_eos": True}


def engine_of(**settings: Any) -> MLCEngine:
    sizes = {"max_num_sequence": 8, "max_total_sequence_length": 2048, "num_threads": 1}
    return MLCEngine("demo", **{**sizes, **settings})


@pytest.fixture(scope="module")
def off() -> Iterator[MLCEngine]:
    engine = engine_of()
    yield engine
    engine.terminate()


@pytest.fixture(scope="module")
def medusa(off: MLCEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Heads that map each state of one answer to the token that follows 2, 3, ... tokens later."""
    assert off.tokenizer is not None
    prompt = off.tokenizer.encode(PROMPT)
    answer = off.generate(PROMPT, temperature=0, max_tokens=60, ignore_eos=True)[0].token_ids
    tokens = [*prompt, *answer]
    model = testing.TestModel(str(demo_model_folder()))
    pages = list(range(len(tokens) // 16 + 1))
    model.allocate(len(pages), len(tokens), 1)
    last_norm = model.metadata["num_layers"] + 1
    _, states = model.forward_states([(tokens, 0, pages)], [last_norm])
    known = torch.from_numpy(states).double()
    hidden, vocab = known.shape[1], model.metadata["vocab_size"]
    assert len(tokens) < hidden  # so that it can be told exactly
    tensors = {}
    for head in range(HEADS):
        follows = torch.tensor(tokens[2 + head :])
        wanted = torch.nn.functional.one_hot(follows, vocab).double()
        matrix = torch.linalg.pinv(known[: len(follows)]) @ wanted
        tensors[f"{head}.0.linear.weight"] = torch.zeros(hidden, hidden)
        tensors[f"{head}.0.linear.bias"] = torch.zeros(hidden)
        tensors[f"{head}.1.weight"] = matrix.T.float().contiguous()
    folder = tmp_path_factory.mktemp("medusa")
    (folder / "config.json").write_text(json.dumps({"medusa_num_heads": HEADS}))
    save_file(tensors, folder / "medusa_lm_head.safetensors")
    return folder


def test_every_guess_of_what_it_knows_is_right(off: MLCEngine, medusa: Path) -> None:
    expected = off.completions.create(**ASKED).choices[0].text
    engine = engine_of(
        speculative_mode="medusa", additional_models=[str(medusa)], spec_draft_length=6
    )
    try:
        assert engine.completions.create(**ASKED).choices[0].text == expected
        spec = engine.metrics()["spec_decode"]
        assert spec["num_drafts"] >= ASKED["max_tokens"] // (HEADS + 1) - 2
        assert len(spec["draft_count"]) == 1 + HEADS  # as many as it has heads
        assert spec["num_accepted_tokens"] >= 0.9 * spec["num_draft_tokens"]
        assert spec["num_failures"] == 0
    finally:
        engine.terminate()


def test_in_little_memory_and_chunks(off: MLCEngine, medusa: Path) -> None:
    asked = {
        **ASKED,
        "prompt": [PROMPT, "The capital of", "red blue", "2 + 2"],
        "n": 2,
        "temperature": 0.8,
        "seed": 3,
    }
    expected = [choice.text for choice in off.completions.create(**asked).choices]
    engine = engine_of(
        speculative_mode="auto",
        additional_models=[str(medusa)],
        max_total_sequence_length=256,
        prefill_chunk_size=16,
        spec_draft_length=3,
    )
    try:
        assert engine.engine_config.speculative_mode == "medusa"
        for _ in range(2):
            answer = engine.completions.create(**asked)
            assert [choice.text for choice in answer.choices] == expected
        metrics = engine.metrics()
        assert metrics["num_preemptions"] > 0
        assert metrics["spec_decode"]["num_draft_tokens"] > 0
        assert metrics["spec_decode"]["num_failures"] == 0
    finally:
        engine.terminate()
