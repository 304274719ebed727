"""Draft heads of the demo model in engines: the same answers in fewer steps, in every situation."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlc_native import MLCEngine
from mlc_native.errors import InvalidConfig, LoadError
from mlc_native.support.model_source import demo_model_folder

QUESTIONS = json.loads((Path(__file__).parent / "data" / "demo_questions.json").read_text())
HEADS: dict[str, dict[str, Any]] = {
    "eagle3": {"speculative_mode": "eagle3", "additional_models": ["demo-eagle3"]},
    "mtp": {"speculative_mode": "mtp", "additional_models": ["demo-mtp"]},
}


def engine_of(**settings: Any) -> MLCEngine:
    sizes = {"max_num_sequence": 8, "max_total_sequence_length": 2048, "num_threads": 1}
    return MLCEngine("demo", **{**sizes, **settings})


@pytest.fixture(scope="module")
def off() -> Iterator[MLCEngine]:
    engine = engine_of()
    yield engine
    engine.terminate()


@pytest.fixture(scope="module", params=list(HEADS.values()), ids=list(HEADS))
def on(request: pytest.FixtureRequest) -> Iterator[MLCEngine]:
    engine = engine_of(spec_draft_length=3, **request.param)
    yield engine
    engine.terminate()


def counted(engine: MLCEngine) -> tuple[int, int, int]:
    """Steps, guesses, and guesses that were right."""
    metrics = engine.metrics()
    spec = metrics.metrics.get("spec_decode", {})
    return (
        metrics["num_steps"],
        spec.get("num_draft_tokens", 0),
        spec.get("num_accepted_tokens", 0),
    )


def test_questions_one_by_one(off: MLCEngine, on: MLCEngine) -> None:
    asked: dict[str, Any] = {"max_tokens": 40, "temperature": 0}
    counts = []
    texts = []
    for engine in (off, on):
        before = counted(engine)
        chats = [[{"role": "user", "content": question["question"]}] for question in QUESTIONS]
        texts.append([engine.generate([chat], **asked)[0].text for chat in chats])
        counts.append([b - a for a, b in zip(before, counted(engine), strict=True)])
    assert texts[1] == texts[0]
    (steps_off, *_), (steps_on, guesses, right) = counts
    assert steps_on <= 0.6 * steps_off
    assert right >= 0.6 * guesses > 0


def test_a_conversation_of_several_rounds(off: MLCEngine, on: MLCEngine) -> None:
    """Each round prefills the new tokens only, and the head knows the rounds before."""
    rounds = ["What is your name?", "Count to five.", "What is 3 plus 4?", "Spell cat."]
    told: list[list[Any]] = []
    for engine in (off, on):
        engine.reset()
        messages: list[Any] = []
        told.append([])
        before = counted(engine)
        for question in rounds:
            messages.append({"role": "user", "content": question})
            answer = engine.chat.completions.create(messages=messages, max_tokens=40, temperature=0)
            text = answer.choices[0].message.content
            messages.append({"role": "assistant", "content": text})
            assert answer.usage is not None
            details = answer.usage.prompt_tokens_details
            assert details is not None
            told[-1].append((text, answer.usage.prompt_tokens, details.cached_tokens))
    assert told[1] == told[0]
    assert all(cached > 0 for _, _, cached in told[1][1:])
    _, guesses, right = (b - a for a, b in zip(before, counted(on), strict=True))
    assert right >= 0.5 * guesses > 0


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())
def test_with_little_memory(off: MLCEngine, head: dict[str, Any]) -> None:
    """Sequences are preempted and go on; prompts are prefilled in chunks."""
    asked: dict[str, Any] = {
        "prompt": [
            "one, two, three, four, five, six, seven,",
            "The capital of",
            "red blue",
            "2 + 2",
        ],
        "n": 2,
        "temperature": 0.8,
        "seed": 3,
        "max_tokens": 60,
        "ignore_eos": True,
    }
    expected = [choice.text for choice in off.completions.create(**asked).choices]
    engine = engine_of(
        max_total_sequence_length=256, prefill_chunk_size=16, spec_draft_length=3, **head
    )
    try:
        for _ in range(2):
            answer = engine.completions.create(**asked)
            assert [choice.text for choice in answer.choices] == expected
        metrics = engine.metrics()
        assert metrics["num_preemptions"] > 0
        assert metrics["spec_decode"]["num_draft_tokens"] > 0
        assert metrics["spec_decode"]["num_failures"] == 0
    finally:
        engine.terminate()


@pytest.mark.emulated(slow=True)
def test_every_device(device: dict[str, Any]) -> None:
    """A head runs where its model runs, and changes no answer there."""
    asked: dict[str, Any] = {
        "prompt": "The capital of France is",
        "max_tokens": 8,
        "temperature": 0,
    }
    told = []
    # Without the prefix cache, which leaves other rows to compute.
    for head in ({}, HEADS["eagle3"], HEADS["mtp"]):
        length = {"spec_draft_length": 2} if head else {}
        engine = engine_of(prefix_cache_mode="disable", **length, **head, **device)
        try:
            told.append(engine.completions.create(logprobs=2, **asked).choices[0])
            assert (counted(engine)[1] > 0) == bool(head)
        finally:
            engine.terminate()
    assert told[1] == told[0]
    assert told[2] == told[0]


@pytest.mark.parametrize(
    ("models", "mode"),
    [
        (["demo-eagle3"], "eagle3"),
        (["demo-mtp"], "mtp"),
        (["demo-draft"], "small_draft"),
        ([], "ngram"),
    ],
)
def test_auto_takes_what_there_is(models: list[str], mode: str) -> None:
    engine = engine_of(speculative_mode="auto", additional_models=models)
    try:
        assert engine.engine_config.speculative_mode == mode
    finally:
        engine.terminate()


def test_wrong_heads_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r'"eagle".* is for "eagle3"') as error:
        engine_of(speculative_mode="eagle", additional_models=["demo-eagle3"])
    assert error.value.field == "speculative_mode"
    with pytest.raises(LoadError, match="holds no draft head"):
        engine_of(speculative_mode="mtp")
    with pytest.raises(LoadError, match="holds no draft head"):
        engine_of(speculative_mode="eagle3", additional_models=["demo-draft"])
    with pytest.raises(LoadError, match="eagle3"):
        engine_of(speculative_mode="small_draft", additional_models=["demo-eagle3"])
    other = tmp_path / "head"
    shutil.copytree(demo_model_folder("demo-eagle3"), other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "vocab_size": 3000}))
    with pytest.raises(LoadError, match=r"vocab_size.*3000.*2048"):
        engine_of(speculative_mode="eagle3", additional_models=[str(other)])


def test_a_head_with_another_tokenizer_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "head"
    shutil.copytree(demo_model_folder("demo-eagle3"), other)
    tokenizer = json.loads((demo_model_folder() / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    (first, second) = (token for token, i in vocabulary.items() if i in (700, 900))
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(InvalidConfig, match="another tokenizer than the model: token 700"):
        engine_of(speculative_mode="eagle3", additional_models=[str(other)])
