"""The demo model of the package answers its questions at temperature 0, through every engine."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from mlc_native import AsyncMLCEngine, EngineConfig, MLCEngine, SyncMLCEngine
from mlc_native.protocol.generation_config import GenerationConfig

DATA = Path(__file__).parent / "data" / "demo_questions.json"
QUESTIONS: list[dict[str, str]] = json.loads(DATA.read_text())
EXPECTED = {entry["question"]: entry["answer"] for entry in QUESTIONS}
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 100}


def ask(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


def differences(answers: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Question -> (answer, expected) for each wrong answer."""
    return {q: (a, EXPECTED[q]) for q, a in answers.items() if a.strip() != EXPECTED[q]}


@pytest.fixture(scope="module")
def engine(device: dict[str, Any]) -> Any:
    # Others of this module need room on the same device.
    with MLCEngine("demo", mode="local", **device) as made:
        yield made


@pytest.fixture(scope="module")
def questions(is_emulated: bool) -> list[str]:
    return list(EXPECTED)[: 2 if is_emulated else None]


def test_there_are_twenty_questions() -> None:
    assert len(EXPECTED) >= 20


@pytest.mark.emulated
def test_mlc_engine(engine: MLCEngine, questions: list[str]) -> None:
    answers = {}
    for question in questions:
        chunks = list(engine.chat.completions.create(messages=ask(question), stream=True, **GREEDY))
        answers[question] = "".join(str(chunk.choices[0].delta.content) for chunk in chunks)
        assert chunks[-1].choices[0].finish_reason == "stop", question
    assert differences(answers) == {}


@pytest.mark.emulated
def test_mlc_engine_from_many_threads(engine: MLCEngine, questions: list[str]) -> None:
    answers: dict[str, str] = {}

    def work(question: str) -> None:
        response = engine.chat.completions.create(messages=ask(question), **GREEDY)
        answers[question] = str(response.choices[0].message.content)

    threads = [threading.Thread(target=work, args=(question,)) for question in questions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert set(answers) == set(questions)
    assert differences(answers) == {}


@pytest.mark.emulated
async def test_async_engine(device: dict[str, Any], questions: list[str]) -> None:
    async with AsyncMLCEngine("demo", mode="server", **device) as engine:

        async def answer(question: str) -> str:
            stream = await engine.chat.completions.create(
                messages=ask(question), stream=True, **GREEDY
            )
            return "".join([str(chunk.choices[0].delta.content) async for chunk in stream])

        answers = await asyncio.gather(*map(answer, questions))
    assert differences(dict(zip(questions, answers, strict=True))) == {}


@pytest.mark.emulated(slow=True)
@pytest.mark.hangs_after(900)
@pytest.mark.parametrize(
    "config",
    [
        EngineConfig(),
        EngineConfig(max_num_sequence=2, prefill_chunk_size=16),
        EngineConfig(max_num_sequence=8, dtype="float32"),
    ],
    ids=["default", "small", "float32"],
)
def test_sync_engine(device: dict[str, Any], config: EngineConfig, questions: list[str]) -> None:
    asked = list(EXPECTED) if config.dtype == "float32" else questions
    engine = SyncMLCEngine("demo", engine_config=config, **device)
    assert engine.conv_template is not None
    prompts = [engine.conv_template.render(ask(question)) for question in asked]
    texts, logprobs = engine.generate(prompts, GenerationConfig(**GREEDY))
    assert logprobs == [None] * len(prompts)
    engine.unload()
    assert differences(dict(zip(asked, [text for (text,) in texts], strict=True))) == {}


@pytest.mark.emulated(slow=True)
def test_a_conversation_goes_on(engine: MLCEngine) -> None:
    messages = [*ask("What is 2 + 2?"), {"role": "assistant", "content": "2 + 2 = 4"}]
    messages += ask("What is the capital of France?")
    response = engine.chat.completions.create(messages=messages, **GREEDY)
    assert "Paris" in str(response.choices[0].message.content)


@pytest.mark.emulated
def test_logprobs_are_of_the_models_distribution(engine: MLCEngine, is_cpu: bool) -> None:
    create = engine.chat.completions.create
    arguments: dict[str, Any] = {"messages": ask("Spell cat."), "logprobs": True, "max_tokens": 8}
    cold = create(**arguments, temperature=0, top_logprobs=5).choices[0]
    warm = create(
        **arguments, temperature=0.5, top_logprobs=5, logit_bias=None, top_p=0.1, seed=1
    ).choices[0]
    assert cold.message.content == warm.message.content
    assert cold.logprobs is not None
    assert warm.logprobs is not None
    # Neither temperature nor truncation changes them. A GPU computes a token after a prefix hit,
    # as in the second answer, in another order than in a prefill.
    assert cold.logprobs == warm.logprobs or not is_cpu
    for one, other in zip(cold.logprobs.content, warm.logprobs.content, strict=True):
        assert (one.token, one.logprob) == (other.token, pytest.approx(other.logprob, abs=0.05))
    assert all(entry.logprob <= 0 for entry in cold.logprobs.content)
    assert "".join(entry.token for entry in cold.logprobs.content) == cold.message.content


@pytest.mark.emulated(slow=True)
def test_seeded_sampling_repeats(engine: MLCEngine, is_cpu: bool) -> None:
    arguments: dict[str, Any] = {"messages": ask("Tell me something."), "temperature": 1.5}
    arguments |= {"max_tokens": 30, "n": 3}
    first, second, third = (
        [c.message.content for c in engine.chat.completions.create(**arguments, seed=7).choices]
        for _ in range(3)
    )
    # On a GPU a hit of the prefix cache, as in all but the first, may change bits.
    assert first == second or not is_cpu
    assert second == third
    assert len(set(second)) > 1
