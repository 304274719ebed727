"""Greedy tokens of the whole engine equal transformers' in fp32, for every family.

The same prompts run alone, in a batch of 8, with chunks of 16, 64 and 512 tokens, on 1, 2 and 3
threads, three answers at once, behind a prefix that is cached, with weights of a weight cache, and
with so few pages that sequences are preempted and recomputed; every way must give the same tokens.
That these are transformers' is known without generating there, which takes ten times as long: one
forward over a prompt and its answer shows that each token has the greatest logit after those before
it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from families import FAMILIES, vocab_size
from paged_driver import reference_model

from mlc_native import _core

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

PROMPT_LENGTHS = (300, 17, 64, 1, 33, 100, 16, 128)  # tokens; page and chunk edges among them
NUM_NEW_TOKENS = 64


@dataclass
class Reference:
    path: Path
    prompts: list[list[int]]
    tokens: list[list[int]]  # [prompt][NUM_NEW_TOKENS], greedy, of the engine for each one alone


@pytest.fixture(scope="module", params=FAMILIES)
def reference(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Reference:
    path = make_checkpoint(request.param, tmp_path_factory.mktemp("checkpoint") / request.param)
    generator = torch.Generator().manual_seed(7)
    prompts = [
        torch.randint(0, vocab_size(request.param), (length,), generator=generator).tolist()
        for length in PROMPT_LENGTHS
    ]
    driver = Driver(path, max_total_sequence_length=4096, prefill_chunk_size=512)
    return Reference(path, prompts, [driver.run([prompt])[0] for prompt in prompts])


@torch.inference_mode()
def greedy_after(model: torch.nn.Module, prompt: list[int], answer: list[int]) -> list[int]:
    """The greedy token after the prompt and after each token of the answer but the last."""
    tokens = torch.tensor([[*prompt, *answer[:-1]]])
    logits = model(tokens, use_cache=False).logits[0, len(prompt) - 1 :]
    return logits.argmax(-1).tolist()


class Driver:
    """Runs prompts through one engine and collects each one's tokens."""

    def __init__(self, path: Path, **settings: object) -> None:
        self.tokens: dict[str, list[list[int]]] = {}  # [request][answer]
        self.finals: list[str] = []
        config = {
            "model": str(path),
            "dtype": "float32",
            "num_threads": 2,
            "max_num_sequence": 8,
            "max_single_sequence_length": 512,
            "verbose": False,
            **settings,
        }
        self.engine = _core.Engine.create(json.dumps(config), "cpu", self.receive)

    def receive(self, outputs: list[_core.RequestStreamOutput]) -> None:
        for output in outputs:
            assert output.error_message == ""
            if output.is_final:
                self.finals.append(output.request_id)
            answers = self.tokens[output.request_id]
            assert len(output.group) in (0, len(answers))  # none: only the usage
            for tokens, delta in zip(answers, output.group, strict=False):
                tokens += delta.token_ids

    def run(self, prompts: list[list[int]]) -> list[list[int]]:
        """The tokens of one answer to each prompt."""
        return [tokens for (tokens,) in self.answers(prompts)]

    def answers(self, prompts: list[list[int]], n: int = 1) -> list[list[list[int]]]:
        """The tokens of n answers to each prompt."""
        config = _core.GenerationConfig()
        config.n = n
        config.temperature = 0.0
        config.max_tokens = NUM_NEW_TOKENS
        config.ignore_eos = True
        ids = [str(i) for i in range(len(prompts))]
        for request_id, prompt in zip(ids, prompts, strict=True):
            self.tokens[request_id] = [[] for _ in range(n)]
            self.engine.add_request(self.engine.create_request(request_id, prompt, config))
        while not self.engine.empty():
            self.engine.step()
        assert sorted(self.finals) == sorted(ids)
        self.finals.clear()
        self.engine.debug_call("audit_pages")
        return [self.tokens[request_id] for request_id in ids]


def test_alone(reference: Reference) -> None:
    model = reference_model(reference.path, torch.float32)
    for prompt, answer in zip(reference.prompts, reference.tokens, strict=True):
        assert len(answer) == NUM_NEW_TOKENS
        assert greedy_after(model, prompt, answer) == answer


@pytest.mark.parametrize("prefill_mode", ["hybrid", "chunked"])
@pytest.mark.parametrize("chunk_size", [16, 64, 512])
def test_batch_of_8(reference: Reference, chunk_size: int, prefill_mode: str) -> None:
    driver = Driver(
        reference.path,
        max_total_sequence_length=4096,
        prefill_chunk_size=chunk_size,
        prefill_mode=prefill_mode,
    )
    assert driver.run(reference.prompts) == reference.tokens


def test_forced_preemption(reference: Reference) -> None:
    needed = sum(length + NUM_NEW_TOKENS for length in PROMPT_LENGTHS)
    driver = Driver(reference.path, max_total_sequence_length=512, prefill_chunk_size=64)
    assert needed > 2 * 512
    assert driver.run(reference.prompts) == reference.tokens
    assert metric(driver, "num_preemptions") > 0


def metric(driver: Driver, name: str) -> int:
    return int(json.loads(driver.engine.json_metrics())[name])


def test_thread_counts_agree(reference: Reference) -> None:
    for num_threads in (1, 3):
        driver = Driver(reference.path, num_threads=num_threads, max_total_sequence_length=4096)
        assert driver.run(reference.prompts[:3]) == reference.tokens[:3]


def test_three_answers(reference: Reference) -> None:
    driver = Driver(reference.path, max_total_sequence_length=4096, prefill_chunk_size=64)
    answers = driver.answers(reference.prompts[:2], n=3)
    assert answers == [[tokens] * 3 for tokens in reference.tokens[:2]]


def test_cached_prefixes(reference: Reference) -> None:
    """The second time, and as the history of a longer prompt."""
    driver = Driver(reference.path, max_total_sequence_length=4096)
    assert driver.run(reference.prompts[:2]) == reference.tokens[:2]
    assert metric(driver, "prefix_cache_hits") == 0
    assert driver.run(reference.prompts[:2]) == reference.tokens[:2]
    turns = [p + t[:40] for p, t in zip(reference.prompts[:2], reference.tokens[:2], strict=True)]
    continued = [tokens[: NUM_NEW_TOKENS - 40] for tokens in driver.run(turns)]
    assert continued == [tokens[40:] for tokens in reference.tokens[:2]]
    assert metric(driver, "prefix_cache_hits") >= 3


def test_cached_weights(reference: Reference, tmp_path: Path) -> None:
    for _ in range(2):  # which packs, and which maps
        driver = Driver(reference.path, weight_cache_dir=str(tmp_path / "packed"),
                        max_total_sequence_length=4096)  # fmt: skip
        assert driver.run(reference.prompts[:2]) == reference.tokens[:2]
    assert list((tmp_path / "packed").iterdir())


@pytest.fixture(autouse=True)
def single_threaded_reference() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
