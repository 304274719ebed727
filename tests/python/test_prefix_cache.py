"""The prefix cache from Python: usage, the same tokens with and without it, pins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mlc_native import AsyncMLCEngine, EngineConfig, MLCEngine
from mlc_native.errors import InvalidRequest
from mlc_native.protocol.debug_protocol import DebugConfig
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.serve.data import RequestStreamOutput, TokenData
from mlc_native.serve.sync_engine import SyncMLCEngine

# Room for pins in addition to the longest sequence.
CONFIG = EngineConfig(max_total_sequence_length=1024, max_single_sequence_length=256)
PROMPT = list(range(1, 51))
MakeModel = Callable[..., str]
pytestmark = pytest.mark.both_step_kinds


@pytest.fixture
def engine(make_model: MakeModel, fake_lib: str) -> Iterator[MLCEngine]:
    with MLCEngine(make_model(), model_lib=fake_lib, engine_config=CONFIG) as made:
        yield made


def complete(engine: MLCEngine, prompt: list[int]) -> int:
    """Serves a request; returns how many tokens of its prompt were cached."""
    usage = engine.completions.create(prompt=prompt, max_tokens=3).usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.extra is not None
    cached = usage.prompt_tokens_details.cached_tokens
    assert cached == usage.extra["cached_tokens"]
    assert cached + usage.extra["prefill_tokens"] == usage.prompt_tokens
    return cached


def test_usage_reports_cached_tokens(engine: MLCEngine) -> None:
    assert complete(engine, PROMPT) == 0
    assert complete(engine, PROMPT) == len(PROMPT) - 1
    assert complete(engine, [*PROMPT[:20], 99]) == 20
    metrics = engine.metrics()
    assert metrics["prefix_cache_hits"] == 2
    assert metrics["prefix_cache_tokens_saved"] == 69
    assert "mlc_native_prefix_cache_hits_total 2" in metrics.prometheus_text()


def test_requests_find_what_their_own_salt_has(engine: MLCEngine) -> None:
    def cached(salt: str | None) -> int:
        answer = engine.completions.create(prompt=PROMPT, max_tokens=3, cache_salt=salt)
        assert answer.usage is not None
        return answer.usage.prompt_tokens_details.cached_tokens

    for salt in (None, "a", "b"):
        assert cached(salt) == 0
    for salt in (None, "a", "b"):
        assert cached(salt) == len(PROMPT) - 1
    with pytest.raises(InvalidRequest, match="cache_salt"):
        cached("")


def test_pins_are_listed_and_stay(engine: MLCEngine) -> None:
    pin = engine.pin_prefix(PROMPT)
    assert engine.pin_prefix(PROMPT) == pin
    [pinned] = engine.pinned_prefixes()
    assert (pinned.id, pinned.num_tokens, pinned.num_pages) == (pin, 50, 4)
    for first in range(100, 110):
        complete(engine, [first, *range(1, 200)])
    assert complete(engine, PROMPT) == len(PROMPT) - 1
    engine.unpin_prefix(pin)
    assert engine.pinned_prefixes() == []
    with pytest.raises(InvalidRequest, match="pin"):
        engine.unpin_prefix(pin)


PINNED = {"debug_config": {"pinned_system_prompt": True}}


def test_a_pin_may_not_take_the_room_of_a_sequence(make_model: MakeModel, fake_lib: str) -> None:
    config = EngineConfig(max_total_sequence_length=256, max_single_sequence_length=256)
    with MLCEngine(make_model(), model_lib=fake_lib, engine_config=config) as engine:
        for pin in (
            lambda: engine.pin_prefix(PROMPT),
            lambda: engine.completions.create(prompt=PROMPT, extra_body=PINNED),
        ):
            with pytest.raises(InvalidRequest, match="50 tokens cannot be pinned") as error:
                pin()
            assert error.value.field == "prompt"
            assert "room for 0" in str(error.value)
        assert complete(engine, PROMPT) == 0


def test_a_pin_that_other_pins_leave_no_room_for_is_reported(
    make_model: MakeModel, fake_lib: str
) -> None:
    config = EngineConfig(max_total_sequence_length=256 + 64, max_single_sequence_length=256)
    with MLCEngine(make_model(), model_lib=fake_lib, engine_config=config) as engine:

        def pinned_tokens(prompt: list[int]) -> int:
            answer = engine.completions.create(prompt=prompt, max_tokens=2, extra_body=PINNED)
            assert answer.usage is not None
            assert answer.usage.extra is not None
            return int(answer.usage.extra["pinned_tokens"])

        assert pinned_tokens(PROMPT) == 50
        assert pinned_tokens([9, *PROMPT]) == 0
        with pytest.raises(InvalidRequest, match="8 pages would be pinned, at most 4"):
            engine.pin_prefix([9, *PROMPT])
        assert [pin.num_tokens for pin in engine.pinned_prefixes()] == [50]


@pytest.mark.parametrize("mode", ["local", "interactive", "server"])
def test_every_mode_has_room_for_pins(mode: Any, make_model: MakeModel, fake_lib: str) -> None:
    with MLCEngine(make_model(), model_lib=fake_lib, mode=mode) as engine:
        engine.pin_prefix(PROMPT)
        answer = engine.completions.create(prompt=[9, *PROMPT], max_tokens=2, extra_body=PINNED)
        assert answer.usage is not None
        assert answer.usage.extra is not None
        assert answer.usage.extra["pinned_tokens"] == 51
        assert len(engine.pinned_prefixes()) == 2


def test_a_prompt_of_the_demo_model_is_pinned() -> None:
    with MLCEngine("demo") as engine:
        pin = engine.pin_prefix("You are a patient teacher.")
        [pinned] = engine.pinned_prefixes()
        assert pinned.id == pin
        engine.unpin_prefix(pin)


def test_pins_of_the_async_engine(make_model: MakeModel, fake_lib: str) -> None:
    async def run() -> None:
        model = make_model()
        async with AsyncMLCEngine(model, model_lib=fake_lib, engine_config=CONFIG) as engine:
            pin = await engine.pin_prefix(PROMPT)
            assert [pinned.id for pinned in await engine.pinned_prefixes()] == [pin]
            await engine.unpin_prefix(pin)
            assert await engine.pinned_prefixes() == []

    asyncio.run(run())


def test_pins_of_the_sync_engine(make_model: MakeModel, fake_lib: str) -> None:
    engine = SyncMLCEngine(make_model(), model_lib=fake_lib, engine_config=CONFIG)
    pin = engine.pin_prefix(PROMPT)
    assert engine.pinned_prefixes()[0].num_tokens == 50
    engine.reset()
    assert engine.pinned_prefixes() == []
    with pytest.raises(InvalidRequest):
        engine.unpin_prefix(pin)


PROMPTS = [[first, *range(20, 20 + 9 * first)] for first in range(1, 11)]
EIGHT = GenerationConfig(temperature=0, max_tokens=8)


def prefilled(engine: SyncMLCEngine, prompts: list[list[int]], generation: GenerationConfig) -> int:
    """Serves prompts; returns how many of their tokens were computed."""
    before = engine.metrics()["prefill_tokens_sum"]
    engine.generate(prompts, generation)
    return int(engine.metrics()["prefill_tokens_sum"] - before)


def test_mlc_llms_counts_with_a_pinned_prompt(make_model: MakeModel, fake_lib: str) -> None:
    """MLC-LLM's test_engine_system_prompt, whose texts are another number of tokens here."""
    config = EngineConfig(
        max_total_sequence_length=4096,
        max_single_sequence_length=1024,
        prefix_cache_max_num_recycling_seqs=5,
    )
    engine = SyncMLCEngine(make_model(), model_lib=fake_lib, mode="local", engine_config=config)
    pinned = GenerationConfig(
        temperature=0, max_tokens=8, debug_config=DebugConfig(pinned_system_prompt=True)
    )
    system = list(range(200, 230))
    assert prefilled(engine, [system], pinned) == len(system)
    assert prefilled(engine, PROMPTS, EIGHT) == sum(map(len, PROMPTS))
    assert prefilled(engine, [[*system, 1, 2, 3]], EIGHT) == 3
    assert prefilled(engine, PROMPTS[:4], EIGHT) == sum(map(len, PROMPTS[:4]))  # evicted


def test_mlc_llms_counts_of_a_second_round(make_model: MakeModel, fake_lib: str) -> None:
    """MLC-LLM's test_engine_multi_round: the last token of an answer, which was not computed."""
    config = EngineConfig(max_total_sequence_length=4096, max_single_sequence_length=1024)
    engine = SyncMLCEngine(make_model(), model_lib=fake_lib, mode="server", engine_config=config)
    answers: dict[str, list[int]] = {}

    def collect(outputs: list[RequestStreamOutput]) -> None:
        for output in outputs:
            request_id, [delta] = output.unpack()
            answers.setdefault(request_id, []).extend(delta.delta_token_ids)

    engine.set_request_stream_callback(collect)
    for index, prompt in enumerate(PROMPTS):
        engine.add_request(engine.create_request(str(index), TokenData(prompt), EIGHT))
    while not engine.empty():
        engine.step()
    assert engine.metrics()["prefill_tokens_sum"] == sum(map(len, PROMPTS))
    second = [[*prompt, *answers[str(i)], 19] for i, prompt in enumerate(PROMPTS)]
    assert {len(new) - len(old) for old, new in zip(PROMPTS, second, strict=True)} == {9}
    assert prefilled(engine, second, EIGHT) == 2 * len(PROMPTS)


@pytest.mark.emulated(slow=True)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_hit_never_changes_a_token_of_the_demo_model(
    device: dict[str, Any], demo: str, is_cpu: bool, temperature: float
) -> None:
    prompts = ["The cache remembers", "The cache remembers what", "The cache is"]
    generation = GenerationConfig(temperature=temperature, seed=5, n=2, max_tokens=20)

    def answers(mode: str, rounds: int) -> list[list[list[str]]]:
        config = EngineConfig(prefix_cache_mode=mode)  # type: ignore[arg-type]
        engine = SyncMLCEngine(demo, engine_config=config, **device)
        served = [engine.generate(prompts, generation)[0] for _ in range(rounds)]
        assert (engine.metrics()["prefix_cache_hits"] > 0) == (mode == "radix")
        engine.unload()
        return served

    [cold] = answers("disable", 1)
    first, second, third = answers("radix", 3)
    assert second == third
    # On a GPU the last token of a prompt is computed in another order after a hit.
    assert first == second == cold or not is_cpu


@pytest.mark.emulated
def test_a_second_round_of_a_chat_computes_only_what_is_new(
    device: dict[str, Any], demo: str
) -> None:
    with MLCEngine(demo, **device) as engine:
        messages = [{"role": "user", "content": "What is a page?"}]
        for round_number in range(3):
            response = engine.chat.completions.create(messages=messages, max_tokens=8)
            assert response.usage is not None
            assert response.usage.prompt_tokens_details is not None
            cached = response.usage.prompt_tokens_details.cached_tokens
            assert (cached > 0) == (round_number > 0)
            reply = response.choices[0].message.content
            messages += [
                {"role": "assistant", "content": str(reply)},
                {"role": "user", "content": "And then?"},
            ]
