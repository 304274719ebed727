"""The demo model of the package answers 20 questions at temperature 0, through every engine."""

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
    return {q: (answers[q], a) for q, a in EXPECTED.items() if answers[q].strip() != a}


@pytest.fixture(scope="module")
def engine() -> Any:
    with MLCEngine("demo") as made:
        yield made


def test_there_are_twenty_questions() -> None:
    assert len(EXPECTED) >= 20


def test_mlc_engine(engine: MLCEngine) -> None:
    answers = {}
    for question in EXPECTED:
        chunks = list(engine.chat.completions.create(messages=ask(question), stream=True, **GREEDY))
        answers[question] = "".join(str(chunk.choices[0].delta.content) for chunk in chunks)
        assert chunks[-1].choices[0].finish_reason == "stop", question
    assert differences(answers) == {}


def test_mlc_engine_from_many_threads(engine: MLCEngine) -> None:
    answers: dict[str, str] = {}

    def work(question: str) -> None:
        response = engine.chat.completions.create(messages=ask(question), **GREEDY)
        answers[question] = str(response.choices[0].message.content)

    threads = [threading.Thread(target=work, args=(question,)) for question in EXPECTED]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert differences(answers) == {}


async def test_async_engine() -> None:
    async with AsyncMLCEngine("demo", mode="server") as engine:

        async def answer(question: str) -> str:
            stream = await engine.chat.completions.create(
                messages=ask(question), stream=True, **GREEDY
            )
            return "".join([str(chunk.choices[0].delta.content) async for chunk in stream])

        answers = await asyncio.gather(*map(answer, EXPECTED))
    assert differences(dict(zip(EXPECTED, answers, strict=True))) == {}


@pytest.mark.parametrize("config", [None, EngineConfig(max_num_sequence=2, prefill_chunk_size=16)])
def test_sync_engine(config: EngineConfig | None) -> None:
    engine = SyncMLCEngine("demo", engine_config=config)
    assert engine.conv_template is not None
    prompts = [engine.conv_template.render(ask(question)) for question in EXPECTED]
    texts, logprobs = engine.generate(prompts, GenerationConfig(**GREEDY))
    assert logprobs == [None] * len(prompts)
    assert differences(dict(zip(EXPECTED, [text for (text,) in texts], strict=True))) == {}


def test_a_conversation_goes_on(engine: MLCEngine) -> None:
    messages = [*ask("What is 2 + 2?"), {"role": "assistant", "content": "2 + 2 = 4"}]
    messages += ask("What is the capital of France?")
    response = engine.chat.completions.create(messages=messages, **GREEDY)
    assert "Paris" in str(response.choices[0].message.content)


def test_logprobs_are_of_the_models_distribution(engine: MLCEngine) -> None:
    create = engine.chat.completions.create
    arguments: dict[str, Any] = {"messages": ask("Spell cat."), "logprobs": True, "max_tokens": 8}
    cold = create(**arguments, temperature=0, top_logprobs=5).choices[0]
    warm = create(
        **arguments, temperature=0.5, top_logprobs=5, logit_bias=None, top_p=0.1, seed=1
    ).choices[0]
    assert cold.message.content == warm.message.content
    assert cold.logprobs == warm.logprobs  # neither temperature nor truncation changes them
    assert cold.logprobs is not None
    assert all(entry.logprob <= 0 for entry in cold.logprobs.content)
    assert "".join(entry.token for entry in cold.logprobs.content) == cold.message.content


def test_seeded_sampling_repeats(engine: MLCEngine) -> None:
    arguments: dict[str, Any] = {"messages": ask("Tell me something."), "temperature": 1.5}
    arguments |= {"max_tokens": 30, "n": 3}
    first = engine.chat.completions.create(**arguments, seed=7)
    again = engine.chat.completions.create(**arguments, seed=7)
    assert [c.message.content for c in first.choices] == [c.message.content for c in again.choices]
    assert len({c.message.content for c in first.choices}) > 1
