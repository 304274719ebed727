"""Draft models with states: linear attention, short convolutions or Mamba-2.

A wrong draft changes no answer, so a wrong state would be seen nowhere. These tests let a model
guess for itself: each guess is then its most likely token, and from the tokens that the target has
drawn and their ranks follows how many guesses were made and how many were right. A draft model that
goes on from a state of other tokens guesses something else.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from paged_driver import random_tokens

from mlc_native import AsyncMLCEngine, EngineConfig, GenerationConfig, MLCEngine, SyncMLCEngine
from mlc_native.errors import InvalidConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

CHUNK = 32
NO_EOS = {"ignore_eos": True}
# With slots for 8 guesses of a few sequences.
SIZES: dict[str, Any] = {
    "max_num_sequence": 16,
    "max_total_sequence_length": 2048,
    "max_single_sequence_length": 512,
    "prefill_chunk_size": CHUNK,
    "num_threads": 1,
    "dtype": "float32",
    "deterministic": True,
}
CPU = {"device": "cpu"}
MODELS = ["tiny-qwen3_5_text", "tiny-qwen3_next", "tiny-lfm2", "tiny-granitemoehybrid_mamba",
          "tiny-bamba", "tiny-nemotron_h", "tiny-falcon_h1", "tiny-mamba2",
          "tiny-kimi_linear"]  # fmt: skip


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_checkpoint(request.param, tmp_path_factory.mktemp("model") / "model"))


@contextmanager
def engine_of(
    path: str, draft: str = "", place: dict[str, Any] = CPU, **more: Any
) -> Iterator[SyncMLCEngine]:
    settings = SIZES | more
    if draft:
        settings |= {"speculative_mode": "small_draft", "additional_models": [draft]}
    engine = SyncMLCEngine(path, engine_config=EngineConfig(**settings), **place)
    try:
        yield engine
    finally:
        engine.unload()


@dataclass
class Answers:
    """Of some prompts: the tokens of their answers, and whether each was the most likely one."""

    tokens: list[list[str]]
    is_first: list[list[bool]]
    drafted: int
    accepted: int


def spec_decode(engine: SyncMLCEngine) -> dict[str, int]:
    counts = dict.fromkeys(("num_failures", "num_draft_tokens", "num_accepted_tokens"), 0)
    return counts | engine.metrics().metrics.get("spec_decode", {})


def ask(engine: SyncMLCEngine, prompts: Sequence[list[int]], **options: Any) -> Answers:
    """Asks for all answers at once."""
    before = spec_decode(engine)
    config = {"max_tokens": 24, "temperature": 0, "seed": 5, **options}
    request = GenerationConfig(logprobs=True, top_logprobs=1, debug_config=NO_EOS, **config)
    found = [
        [json.loads(token) for token in answer[0]]
        for answer in engine.generate(prompts, request)[1]
    ]
    after = spec_decode(engine)
    assert after["num_failures"] == 0
    engine._engine().debug_call("audit_pages")
    return Answers(
        [[token["token"] for token in answer] for answer in found],
        [[token["logprob"] >= token["top_logprobs"][0]["logprob"] for token in answer]
         for answer in found],
        after["num_draft_tokens"] - before["num_draft_tokens"],
        after["num_accepted_tokens"] - before["num_accepted_tokens"],
    )  # fmt: skip


def count_guesses(is_first: list[bool], prompt: int, length: int) -> tuple[int, int]:
    """Guesses of a model for itself, and those that are right."""
    drafted = accepted = read = 0
    at = 1  # the first token comes with the prompt
    while at < len(is_first):
        unread = prompt + at - read
        if unread > CHUNK:
            read += CHUNK
            at += 1
            continue
        wanted = min(length, len(is_first) - at - 1)
        right = 0
        while right < wanted and is_first[at + right]:
            right += 1
        drafted += wanted
        accepted += right
        read = prompt + at + min(right, wanted - 1) if wanted > 0 else read
        at += right + 1
    return drafted, accepted


def check_counts(answers: Answers, prompts: Sequence[list[int]], length: int) -> None:
    counts = [
        count_guesses(is_first, len(prompt), length)
        for is_first, prompt in zip(answers.is_first, prompts, strict=True)
    ]
    assert answers.drafted == sum(drafted for drafted, _ in counts)
    assert answers.accepted == sum(accepted for _, accepted in counts)


@pytest.mark.parametrize("temperature", [0, 0.05, 0.1])
def test_guesses_go_on_from_the_state_of_what_was_right(model: str, temperature: float) -> None:
    """Alone and in batches; greedy, where every guess is right, and with some that are wrong."""
    drafted = accepted = 0
    found: list[list[list[list[str]]]] = []
    for draft in ("", model):
        found.append([])
        with engine_of(model, draft) as engine:
            for length in range(1, 9):
                # The draft model reads all of them in one forward.
                prompts = [random_tokens(2 + length // 2 + i, 200, seed=length) for i in range(3)]
                for some in (prompts[:1], prompts):
                    options = {"spec_draft_length": length} if draft else {}
                    answers = ask(engine, some, temperature=temperature, **options)
                    found[-1].append(answers.tokens)
                    if draft:
                        check_counts(answers, some, length)
                        drafted += answers.drafted
                        accepted += answers.accepted
    assert found[0] == found[1]
    assert accepted == drafted if temperature == 0 else 50 < accepted < drafted


def test_prompts_that_are_read_in_chunks(model: str) -> None:
    prompts = [random_tokens(length, 200, seed=length) for length in (31, 32, 33, 64, 95, 130)]
    with engine_of(model) as engine:
        plain = [ask(engine, [prompt], temperature=0.2).tokens for prompt in prompts]
    with engine_of(model, model) as engine:
        for prompt, tokens in zip(prompts, plain, strict=True):
            answers = ask(engine, [prompt], temperature=0.2, spec_draft_length=4)
            assert answers.tokens == tokens
            check_counts(answers, [prompt], 4)


def test_prompts_start_from_where_others_diverged(model: str) -> None:
    """The draft model reads the shared part of the first two and guesses meanwhile nothing."""
    shared = random_tokens(60, 200, seed=1)
    drafted = []
    with engine_of(model, model) as engine:
        for i in range(4):
            answers = ask(engine, [shared + random_tokens(10, 200, seed=10 + i)],
                          spec_draft_length=3)  # fmt: skip
            assert answers.accepted == answers.drafted
            drafted.append(answers.drafted)
    assert drafted == [15, 15, 17, 17]


def test_forks_begin_with_shared_states(model: str) -> None:
    """Prompts with a shared beginning, and several answers to each."""
    shared = random_tokens(40, 200, seed=2)
    prompts = [shared + random_tokens(6, 200, seed=i) for i in range(4)]
    options = {"max_tokens": 12, "temperature": 0.1, "n": 3, "seed": 3}
    found = []
    for draft in ("", model):
        with engine_of(model, draft) as engine:
            config = GenerationConfig(
                **options, debug_config=NO_EOS, spec_draft_length=3 if draft else None
            )
            found.append([engine.generate([prompt], config)[0] for prompt in prompts])
            found[-1].append(engine.generate(prompts, config)[0])
            engine._engine().debug_call("audit_pages")
            if draft:
                drafts = engine.metrics().metrics["spec_decode"]
                assert drafts["num_failures"] == 0 < drafts["num_accepted_tokens"]
    assert found[0] == found[1]


@pytest.mark.parametrize("of_draft", ["tiny-qwen3_5_text", "tiny-lfm2", "tiny-llama"])
def test_preempted_sequences_and_other_models(model: str, tmp_path: Path, of_draft: str) -> None:
    """Room for fewer tokens than the sequences have; drafts of a model that is mostly wrong."""
    draft = str(make_checkpoint(of_draft, tmp_path / "draft", seed=1))
    small = {"max_num_sequence": 4, "max_total_sequence_length": 160}
    small |= {"max_single_sequence_length": 160}
    prompts = [random_tokens(30, 200, seed=i) for i in range(6)]
    with engine_of(model, **small) as engine:
        plain = ask(engine, prompts, max_tokens=50)
    for path, by in ((model, draft), (model, model)):
        with engine_of(path, by, **small) as engine:
            answers = ask(engine, prompts, max_tokens=50, spec_draft_length=3)
            assert answers.tokens == plain.tokens
            assert engine.metrics().metrics["num_preemptions"] > 0
            if by == path:
                assert answers.accepted == answers.drafted > 100


def test_a_plain_model_may_have_such_a_draft_model(model: str, tmp_path: Path) -> None:
    path = str(make_checkpoint("tiny-llama", tmp_path / "plain"))
    prompts = [random_tokens(20, 200, seed=i) for i in range(3)]
    with engine_of(path) as engine:
        plain = ask(engine, prompts)
    with engine_of(path, model) as engine:
        answers = ask(engine, prompts, spec_draft_length=5)
    assert answers.tokens == plain.tokens
    assert answers.drafted > 0


@pytest.mark.emulated(slow=True)
@pytest.mark.parametrize("temperature", [0, 0.1])
@pytest.mark.parametrize("like", [m for m in MODELS if m not in ("tiny-bamba", "tiny-mamba2")])
def test_on_every_device(
    tmp_path: Path, device: dict[str, Any], like: str, temperature: float
) -> None:
    path = str(make_checkpoint(like, tmp_path / "model"))
    prompts = [random_tokens(5 + i, 200, seed=i) for i in range(2)]
    options = {"max_tokens": 14, "temperature": temperature}
    with engine_of(path, place=device) as engine:
        plain = ask(engine, prompts, **options)
    with engine_of(path, path, device) as engine:
        answers = ask(engine, prompts, spec_draft_length=3, **options)
    assert answers.tokens == plain.tokens
    check_counts(answers, prompts, 3)
    assert 0 < answers.accepted <= answers.drafted
    assert (answers.accepted == answers.drafted) == (temperature == 0)


async def test_cancelled_requests_give_their_states_back(model: str) -> None:
    drafting = {"speculative_mode": "small_draft", "additional_models": [model]}
    engine = AsyncMLCEngine(model, **drafting, **CPU, **SIZES)
    try:
        for i in range(6):
            stream = await engine.completions.create(
                prompt=random_tokens(20, 200, seed=i), max_tokens=60, stream=True, ignore_eos=True,
                extra_body={"spec_draft_length": 4},
            )  # fmt: skip
            async for _ in stream:
                break
            await stream.aclose()
        engine._debug_call_func_on_all_worker("audit_pages")
    finally:
        engine.terminate()


def test_states_of_the_draft_model_are_in_the_memory_plan(model: str) -> None:
    """With so many sequences that buffers are mostly states, both models need twice as much."""
    many = 1 << 30
    needed = []
    for draft in ({}, {"speculative_mode": "small_draft", "additional_models": [model]}):
        with pytest.raises(InvalidConfig, match="temporary buffer size") as error:
            MLCEngine(model, max_num_sequence=many, prefill_chunk_size=many, **draft)
        needed.append(float(str(error.value).split("temporary buffer size (")[1].split(" ")[0]))
    assert needed[1] == pytest.approx(2 * needed[0], rel=1e-3)
