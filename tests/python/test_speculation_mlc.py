"""What MLC-LLM's tests of speculation do (test_serve_engine_spec.py), and answers are compared."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from mlc_native import EngineConfig, GenerationConfig, SyncMLCEngine
from mlc_native.serve import RequestStreamOutput, TokenData

NUM_REQUESTS = 10
MAX_TOKENS = 12


def engine_of(**settings: Any) -> SyncMLCEngine:
    config = EngineConfig(max_total_sequence_length=4096, num_threads=1, **settings)
    return SyncMLCEngine("demo", mode="server", engine_config=config)


@pytest.fixture(scope="module")
def off() -> Iterator[SyncMLCEngine]:
    engine = engine_of()
    yield engine
    engine.unload()


DRAFT_MODEL: dict[str, Any] = {
    "speculative_mode": "small_draft",
    "additional_models": ["demo-draft"],
}
EAGLE3: dict[str, Any] = {"speculative_mode": "eagle3", "additional_models": ["demo-eagle3"]}


@pytest.fixture(
    scope="module",
    params=[
        {**DRAFT_MODEL, "spec_draft_length": 0},
        {**DRAFT_MODEL, "spec_draft_length": 6},
        {"speculative_mode": "ngram", "spec_draft_length": 6},
        {"speculative_mode": "suffix", "spec_draft_length": 0},
        {**EAGLE3, "spec_draft_length": 0},
        {**EAGLE3, "spec_draft_length": 6},
        {"speculative_mode": "mtp", "additional_models": ["demo-mtp"], "spec_draft_length": 6},
    ],
    ids=[
        *("draft model-0", "draft model-6", "lookup-6", "suffix-0"),
        *("eagle3-0", "eagle3-6", "mtp-6"),
    ],
)
def on(request: pytest.FixtureRequest) -> Iterator[SyncMLCEngine]:
    engine = engine_of(**request.param)
    yield engine
    engine.unload()


def prompts_of(seed: int) -> list[list[int]]:
    """Prompts that begin with different tokens, so that none is in the prefix cache."""
    rng = random.Random(seed)
    pattern = [rng.randrange(100, 300) for _ in range(6)]
    return [[300 + 10 * seed + i, *pattern, *pattern[: 2 + i % 4]] for i in range(NUM_REQUESTS)]


def serve(
    engine: SyncMLCEngine, prompts: list[list[int]], generations: list[GenerationConfig]
) -> tuple[dict[str, list[list[int]]], dict[str, int]]:
    """The tokens of each request, and the step in which it ended; all are added at once."""
    answers: dict[str, list[list[int]]] = {}
    ended: dict[str, int] = {}
    step = 0

    def collect(outputs: list[RequestStreamOutput]) -> None:
        for output in outputs:
            request_id, deltas = output.unpack()
            sequences = answers.setdefault(request_id, [[] for _ in deltas])
            for sequence, delta in zip(sequences, deltas, strict=False):
                sequence.extend(delta.delta_token_ids)
            ended[request_id] = step

    engine.set_request_stream_callback(collect)
    for index, (prompt, generation) in enumerate(zip(prompts, generations, strict=True)):
        engine.add_request(engine.create_request(str(index), TokenData(prompt), generation))
    while not engine.empty():
        engine.step()
        step += 1
    return answers, ended


def config_of(max_tokens: int, **fields: Any) -> GenerationConfig:
    return GenerationConfig(max_tokens=max_tokens, **{"temperature": 0, "seed": 3, **fields})


def test_engine_basic(off: SyncMLCEngine, on: SyncMLCEngine) -> None:
    prompts = prompts_of(1)
    generations = [config_of(MAX_TOKENS)] * NUM_REQUESTS
    answers, ended = serve(on, prompts, generations)
    expected, ended_off = serve(off, prompts, generations)
    assert answers == expected
    assert all(ended[i] <= ended_off[i] for i in ended)
    assert max(ended.values()) <= NUM_REQUESTS + MAX_TOKENS - 1


def test_engine_continuous_batching_1(off: SyncMLCEngine, on: SyncMLCEngine) -> None:
    rng = random.Random(2)
    prompts = prompts_of(2)
    generations = [
        config_of(rng.randrange(1, 24), debug_config={"ignore_eos": True}) for _ in prompts
    ]
    answers, ended = serve(on, prompts, generations)
    assert answers == serve(off, prompts, generations)[0]
    for index, generation in enumerate(generations):
        assert generation.max_tokens is not None
        assert len(answers[str(index)][0]) == generation.max_tokens
        assert ended[str(index)] <= generation.max_tokens - 1


@pytest.mark.parametrize("fields", [{}, {"n": 3, "temperature": 0.9, "top_p": 0.9}])
def test_engine_generate(off: SyncMLCEngine, on: SyncMLCEngine, fields: dict[str, Any]) -> None:
    prompts = prompts_of(3)
    generations = [config_of(20, **fields)] * NUM_REQUESTS
    answers = serve(on, prompts, generations)[0]
    assert answers == serve(off, prompts, generations)[0]
    assert {len(sequences) for sequences in answers.values()} == {fields.get("n", 1)}


def test_engine_multi_round(off: SyncMLCEngine, on: SyncMLCEngine) -> None:
    prompts = prompts_of(4)
    generations = [config_of(MAX_TOKENS, debug_config={"ignore_eos": True})] * NUM_REQUESTS
    before = on.metrics()["prefill_tokens_sum"]
    answers = serve(on, prompts, generations)[0]
    first = on.metrics()["prefill_tokens_sum"]
    assert first - before == sum(map(len, prompts))
    second = [[*prompt, *answers[str(i)][0], 19] for i, prompt in enumerate(prompts)]
    assert serve(on, second, generations)[0] == serve(off, second, generations)[0]
    # The last token of an answer was never computed, and the token behind it is new.
    assert on.metrics()["prefill_tokens_sum"] - first == 2 * NUM_REQUESTS


def test_metrics(on: SyncMLCEngine) -> None:
    serve(on, prompts_of(5), [config_of(30, debug_config={"ignore_eos": True})] * NUM_REQUESTS)
    spec = on.metrics().metrics.get("spec_decode", {"draft_count": [], "accept_count": []})
    drafted, accepted = spec["draft_count"], spec["accept_count"]
    if on.engine_config.spec_draft_length > 0:  # otherwise it depends on times
        assert len(drafted) >= 2
        assert drafted[0] > 0
        assert accepted[1] > 0
    assert len(drafted) == len(accepted)
    assert drafted == sorted(drafted, reverse=True)
    assert accepted == sorted(accepted, reverse=True)
    assert accepted[:1] == drafted[:1]
    assert all(b <= a for a, b in zip(drafted, accepted, strict=True))
