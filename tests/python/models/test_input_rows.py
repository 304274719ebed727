"""Rows in place of tokens: greedy tokens are those of transformers with the same inputs_embeds.

A prompt is tokens, rows, tokens. It runs alone in one chunk, and beside others in chunks of 16 and
behind a prefix that is cached; every way must give the same tokens.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from families import some_at_night, vocab_size
from paged_driver import reference_model
from test_engine_parity import NUM_NEW_TOKENS, Driver

from mlc_native import _core
from mlc_native.errors import InvalidRequest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

# Multipliers within and behind the module of embeddings, positions that are added, layers with
# states, experts.
EVERY_RUN = ("tiny-llama", "tiny-gemma3_text", "tiny-granite", "tiny-gpt2", "tiny-falcon_h1")
OTHERS = (
    "tiny-afmoe", "tiny-cohere2", "tiny-deepseek_v3", "tiny-gemma", "tiny-lfm2", "tiny-mamba2",
    "tiny-minicpm3", "tiny-phi3", "tiny-qwen2", "tiny-qwen3", "tiny-qwen3_5_text", "tiny-qwen3_moe",
)  # fmt: skip
NUM_ROWS = 30


@dataclass
class Mixed:
    """A prompt whose tokens from ``at`` on stand for rows."""

    tokens: list[int]
    at: int
    rows: np.ndarray

    @property
    def images(self) -> list[tuple[int, np.ndarray]]:
        """As ``create_request`` takes them."""
        return [(self.at, self.rows)]

    def answer(self, driver: Driver) -> list[int]:
        """What the engine says, alone."""
        (answer,) = answers(driver, [self])
        return answer


def answers(driver: Driver, prompts: Sequence[Any]) -> list[list[int]]:
    """What the engine says to all of them at once; each has ``tokens`` and ``images``."""
    config = _core.GenerationConfig()
    config.temperature = 0.0
    config.max_tokens = NUM_NEW_TOKENS
    config.ignore_eos = True
    for i, prompt in enumerate(prompts):
        driver.tokens[str(i)] = [[]]
        request = driver.engine.create_request(
            str(i), prompt.tokens, config, embeddings=prompt.images
        )
        driver.engine.add_request(request)
    while not driver.engine.empty():
        driver.engine.step()
    driver.finals.clear()
    driver.engine.debug_call("audit_pages")
    return [driver.tokens[str(i)][0] for i in range(len(prompts))]


@torch.inference_mode()
def expected(model: torch.nn.Module, prompt: Mixed, answer: list[int]) -> list[int]:
    """The greedy token of transformers after the prompt, and after each token of the answer."""
    tokens = torch.tensor([[*prompt.tokens, *answer[:-1]]])
    inputs = model.get_input_embeddings()(tokens)
    if model.config.model_type == "falcon_h1":  # which multiplies before
        inputs *= model.config.embedding_multiplier
    inputs[0, prompt.at : prompt.at + len(prompt.rows)] = torch.from_numpy(prompt.rows)
    logits = model(inputs_embeds=inputs, use_cache=False).logits[0, len(prompt.tokens) - 1 :]
    return logits.argmax(-1).tolist()


@pytest.fixture(scope="module", params=some_at_night((*EVERY_RUN, *OTHERS), every_push=EVERY_RUN))
def checkpoint(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    path = tmp_path_factory.mktemp("checkpoint") / request.param
    return request.param, make_checkpoint(request.param, path)


def make_prompts(like: str, model: torch.nn.Module, count: int) -> list[Mixed]:
    generator = torch.Generator().manual_seed(11)
    table = model.get_input_embeddings()(torch.arange(vocab_size(like))).detach()
    prompts = []
    for i in range(count):
        length = NUM_ROWS + 20 + 7 * i
        tokens = torch.randint(0, vocab_size(like), (length,), generator=generator).tolist()
        rows = torch.randn((NUM_ROWS, table.shape[1]), generator=generator) * table.std()
        prompts.append(Mixed(tokens, 5 + i, rows.numpy()))
    return prompts


def test_tokens_are_those_of_transformers(checkpoint: tuple[str, Path]) -> None:
    like, path = checkpoint
    model = reference_model(path, torch.float32)
    prompts = make_prompts(like, model, 3)
    whole = Driver(path, max_total_sequence_length=2048, prefill_chunk_size=512)
    alone = [prompt.answer(whole) for prompt in prompts]
    for prompt, answer in zip(prompts, alone, strict=True):
        assert len(answer) == NUM_NEW_TOKENS
        assert expected(model, prompt, answer) == answer
    assert prompts[0].answer(whole) == alone[0]  # most of it is cached
    chunks = Driver(path, max_total_sequence_length=2048, prefill_chunk_size=16)
    assert answers(chunks, prompts) == alone


def test_rows_of_embeddings_are_tokens(tmp_path: Path) -> None:
    path = make_checkpoint("tiny-llama", tmp_path / "tiny-llama")
    model = reference_model(path, torch.float32)
    (prompt,) = make_prompts("tiny-llama", model, 1)
    replaced = torch.tensor(prompt.tokens[prompt.at : prompt.at + NUM_ROWS])
    prompt.rows = model.get_input_embeddings()(replaced).detach().numpy()
    driver = Driver(path, max_total_sequence_length=2048, prefill_chunk_size=512)
    assert prompt.answer(driver) == driver.run([prompt.tokens])[0]


@pytest.mark.parametrize(
    ("at", "num_rows", "missing", "message"),
    [
        (8, 3, 0, "3 rows from 8 on of 10 tokens"),
        (-1, 3, 0, "3 rows from -1 on of 10 tokens"),
        (2, 3, 1, "numbers per row, the model's hidden size, got"),
        (2, 0, 0, "at least 1 row, got 0"),
    ],
)
def test_refusals(tmp_path: Path, at: int, num_rows: int, missing: int, message: str) -> None:
    path = make_checkpoint("tiny-llama", tmp_path / "tiny-llama")
    driver = Driver(path, max_total_sequence_length=512, prefill_chunk_size=512)
    size = driver.engine.request_limits().input_size
    rows = np.zeros((num_rows, size - missing), dtype=np.float32)
    with pytest.raises(InvalidRequest, match=message):
        driver.engine.create_request(
            "a", list(range(10)), _core.GenerationConfig(), embeddings=[(at, rows)]
        )


def test_rows_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    path = make_checkpoint("tiny-llama", tmp_path / "tiny-llama")
    driver = Driver(path, max_total_sequence_length=512, prefill_chunk_size=512)
    rows = np.zeros((3, driver.engine.request_limits().input_size), dtype=np.float32)
    rows[1, 5] = np.nan
    with pytest.raises(InvalidRequest, match="must be finite, row 1 is not"):
        driver.engine.create_request(
            "a", list(range(10)), _core.GenerationConfig(), embeddings=[(2, rows)]
        )
