"""Requests that end within 10 tokens of a limit, on the demo model.

Near the capacity an engine may spin forever, or decode without a sequence (mlc-llm#3057).
tests/cpp/near_capacity_test.cc has all combinations on the fake model. Here the limits come from
the configuration and the model's context window, and every answer is the beginning of the one that
an engine with enough room gives. With guesses, nothing is different.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from facades import Answer, StepFacade

from mlc_native import EngineConfig
from mlc_native.errors import InvalidRequest
from mlc_native.protocol.debug_protocol import DebugConfig
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.serve.data import TokenData

NEAR = 10  # tokens
CHUNK = 16
# (max_total_sequence_length, max_single_sequence_length): the pages bind, the sequence binds.
LIMITS = [(64, 100), (128, 50), (128, 33)]
GUESSES: dict[str, dict[str, Any]] = {
    "no guesses": {},
    "ngram": {"speculative_mode": "ngram", "prompt_lookup_min": 1},
    "small_draft": {"speculative_mode": "small_draft", "additional_models": ["demo-draft"]},
    "eagle3": {"speculative_mode": "eagle3", "additional_models": ["demo-eagle3"]},
}


@pytest.fixture(scope="module")
def roomy(device: dict[str, Any]) -> Iterator[StepFacade]:
    engine = StepFacade("demo", **device)
    yield engine
    engine.terminate()


@pytest.fixture(scope="module", params=GUESSES)
def guesses(request: pytest.FixtureRequest) -> dict[str, Any]:
    return GUESSES[request.param]


@pytest.fixture(scope="module", params=LIMITS, ids=lambda x: f"total {x[0]} single {x[1]}")
def limited(
    request: pytest.FixtureRequest, guesses: dict[str, Any], device: dict[str, Any]
) -> Iterator[tuple[StepFacade, int]]:
    """An engine and the longest sequence that it serves, in tokens."""
    total, single = request.param
    config = EngineConfig(
        max_total_sequence_length=total,
        max_single_sequence_length=single,
        max_num_sequence=4,
        prefill_chunk_size=CHUNK,
        spec_draft_length=4 if guesses else 0,
        **guesses,
    )
    engine = StepFacade("demo", engine_config=config, **device)
    yield engine, min(total, single)
    spec = engine.metrics().metrics.get("spec_decode", {})
    assert spec.get("num_failures", 0) == 0
    assert (spec.get("num_drafts", 0) > 0) == bool(guesses)
    engine.terminate()


def prompt(length: int, salt: int = 0) -> TokenData:
    return TokenData([5 + (i * 7 + salt * 13) % 200 for i in range(length)])


def greedy(max_tokens: int, n: int = 1) -> GenerationConfig:
    debug = DebugConfig(ignore_eos=True)
    return GenerationConfig(temperature=0, max_tokens=max_tokens, n=n, debug_config=debug)


def expected_tokens(longest: int, prompt_length: int, max_tokens: int) -> int:
    """A prompt of the greatest length still gets one token."""
    room = max(1, longest - prompt_length)
    return room if max_tokens < 0 else min(room, max_tokens)


def run(facade: StepFacade, requests: dict[str, tuple[TokenData, GenerationConfig]]) -> None:
    """Serves the requests together; fails when that takes more steps than it can."""
    engine = facade.engine
    for name, (tokens, config) in requests.items():
        facade.answers[name] = Answer()
        engine.add_request(engine.create_request(name, tokens, config))
    num_steps = 0
    while not engine.empty():
        engine.step()
        num_steps += 1
        assert num_steps < 1000, "spins"
    facade.audit()


@pytest.mark.parametrize("n", [1, 3])
def test_a_request_alone_ends_at_its_limit(
    limited: tuple[StepFacade, int], roomy: StepFacade, n: int
) -> None:
    facade, longest = limited
    for length in (longest - NEAR, longest - 1, longest):
        reference = roomy.generate(prompt(length), greedy(NEAR + 2)).token_ids[0]
        for max_tokens in (-1, 0, 1, 2, NEAR - 1, NEAR, NEAR + 1):
            run(facade, {"r": (prompt(length), greedy(max_tokens, n))})
            answer = facade.answers["r"]
            expected = reference[: expected_tokens(longest, length, max_tokens)]
            assert answer.num_finals == 1
            assert answer.token_ids == [expected] * n, (length, max_tokens)
            assert answer.finish_reasons == ["length"] * n


def test_two_requests_compete_for_the_last_page(
    limited: tuple[StepFacade, int], roomy: StepFacade
) -> None:
    facade, longest = limited
    for first in (longest // 2, longest - NEAR, longest):
        for second in (1, longest // 2 + 1, longest - 1):
            lengths = {"first": (first, 1), "second": (second, 2)}
            run(facade, {k: (prompt(*lengths[k]), greedy(-1)) for k in lengths})
            for name, (length, salt) in lengths.items():
                size = expected_tokens(longest, length, -1)
                expected = roomy.generate(prompt(length, salt), greedy(size)).token_ids
                assert facade.answers[name].token_ids == expected, (first, second)
                assert facade.answers[name].finish_reasons == ["length"]


def test_a_prompt_that_is_too_long_is_refused(limited: tuple[StepFacade, int]) -> None:
    facade, longest = limited
    for excess in range(1, NEAR + 1):
        with pytest.raises(InvalidRequest, match=str(longest)):
            facade.engine.create_request("r", prompt(longest + excess), greedy(1))


def test_the_context_window_ends_an_answer(roomy: StepFacade) -> None:
    longest = roomy.engine.max_input_sequence_length
    for length in (longest - NEAR, longest - 1, longest):
        answer: Any = roomy.generate(prompt(length), greedy(-1))
        assert [len(ids) for ids in answer.token_ids] == [expected_tokens(longest, length, -1)]
        assert answer.finish_reasons == ["length"]
