"""longrope: the long factors beyond the original context, through the engines, as transformers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paged_driver import PagedModel, PagedSequence, relative_error, transformers_logits

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

from mlc_native import EngineConfig, MLCEngine, SyncMLCEngine
from mlc_native.errors import InvalidConfig
from mlc_native.protocol.generation_config import GenerationConfig

ORIGINAL = 64
CONTEXT = 1024
PROMPT_LEN = 100
NUM_NEW = 12
FACTORS: dict[str, Any] = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.5],
    "long_factor": [1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 14.0, 20.0],
}


@pytest.fixture(scope="module")
def phi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    overrides = {"original_max_position_embeddings": ORIGINAL, "rope_parameters": FACTORS}
    return make_checkpoint("tiny-phi3", tmp_path_factory.mktemp("phi") / "m", overrides=overrides)


@pytest.fixture(scope="module")
def prompt() -> list[int]:
    return [int(token) for token in np.random.default_rng(3).integers(0, 250, PROMPT_LEN)]


def our_logits(path: Path, tokens: list[int], **arguments: Any) -> np.ndarray:
    model = PagedModel(path, **arguments)
    sequence = PagedSequence(tokens)
    return model.forward([(sequence, len(tokens))], "all")


def greedy_reference(path: Path, prompt: list[int]) -> list[int]:
    tokens = list(prompt)
    for _ in range(NUM_NEW):
        tokens.append(int(transformers_logits(path, tokens)[-1].argmax()))
    return tokens[len(prompt) :]


def test_long_sequences_have_the_long_factors(phi: Path, prompt: list[int]) -> None:
    reference = transformers_logits(phi, prompt)
    assert relative_error(our_logits(phi, prompt), reference) < 1e-4
    assert relative_error(our_logits(phi, prompt[:50]), reference[:50]) < 1e-4
    # The factors matter.
    assert (
        relative_error(our_logits(phi, prompt[:50]), transformers_logits(phi, prompt[:50])) > 1e-2
    )


def test_short_engines_have_the_short_factors(phi: Path, prompt: list[int]) -> None:
    short = prompt[:50]
    ours = our_logits(phi, short, longest_sequence=ORIGINAL)
    assert relative_error(ours, transformers_logits(phi, short)) < 1e-4


def test_engines_run_to_the_maximum(phi: Path, prompt: list[int]) -> None:
    expected = greedy_reference(phi, prompt)
    with MLCEngine(str(phi), "cpu") as engine:
        assert engine.engine_config.max_single_sequence_length == CONTEXT
        stream = engine._generate(prompt, GenerationConfig(temperature=0, max_tokens=NUM_NEW), "r")
        assert [token for batch in stream for token in batch[0].delta_token_ids] == expected
        whole = engine.completions.create(
            prompt=prompt, extra_body={"ignore_eos": True}, temperature=0
        )
        assert whole.usage is not None
        assert whole.usage.total_tokens == CONTEXT


def test_short_settings_choose_the_short_factors(phi: Path, prompt: list[int]) -> None:
    expected = greedy_reference(phi, prompt[:40])
    settings: list[dict[str, Any]] = [
        {"max_single_sequence_length": ORIGINAL},
        {"max_total_sequence_length": ORIGINAL},
    ]
    for fields in settings:
        engine = SyncMLCEngine(str(phi), "cpu", engine_config=EngineConfig(**fields))
        assert engine.max_input_sequence_length == ORIGINAL
        tokens: list[int] = []

        def collect(outputs: list[Any], tokens: list[int] = tokens) -> None:
            for output in outputs:
                tokens.extend(output.unpack()[1][0].delta_token_ids)

        engine.set_request_stream_callback(collect)
        config = GenerationConfig(temperature=0, max_tokens=NUM_NEW)
        engine.add_request(engine.create_request("r", prompt[:40], config))
        while not engine.empty():
            engine.step()
        assert tokens == expected


def test_a_length_beyond_the_maximum_is_refused(phi: Path) -> None:
    with pytest.raises(InvalidConfig, match=f"at most {CONTEXT} tokens"):
        MLCEngine(
            str(phi), "cpu", engine_config=EngineConfig(max_single_sequence_length=CONTEXT + 1)
        )
