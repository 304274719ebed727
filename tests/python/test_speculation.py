"""Speculation on the demo model: the same answers, in fewer steps."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlc_native import MLCEngine
from mlc_native.errors import InvalidConfig, InvalidRequest
from mlc_native.protocol.prediction import MAX_PREDICTION_CHARS
from mlc_native.support.model_source import demo_model_folder

QUESTIONS = json.loads((Path(__file__).parent / "data" / "demo_questions.json").read_text())

REPEATED = "one, two, three, four, five, one, two, three, four, five, one, two,"
PROMPTS = [REPEATED, "The capital of France is", "red blue red blue red", "2 + 2 ="]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "nucleus": {"temperature": 0.8, "top_p": 0.9},
    "top_k": {"temperature": 1.3, "top_k": 20, "min_p": 0.02},
    "penalties": {"temperature": 0.7, "frequency_penalty": 0.6, "repetition_penalty": 1.2},
    "logit_bias": {"temperature": 0.9, "logit_bias": {5: 3.0, 40: -5.0}},
    "stop": {"temperature": 0, "stop": ["ee, fo", " blue red bl", "Paris"]},
    "bad_words": {"temperature": 0, "bad_words": ["three", "red blue"]},
    "no_repeat": {"temperature": 0, "no_repeat_ngram_size": 4},
    "logprobs": {"temperature": 0.8, "logprobs": 3},
    "n": {"temperature": 0.8, "n": 3},
    "ignore_eos": {"temperature": 0, "ignore_eos": True},
    "one": {"temperature": 0, "max_tokens": 1},
    "two": {"temperature": 0, "max_tokens": 2},
    "regex": {
        "temperature": 0.8,
        "response_format": {"type": "regex", "regex": r"( (one|two|three|four),){2,9}"},
    },
    "json": {
        "temperature": 0.8,
        "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}},
    },
    "constraint": {
        "temperature": 0.8,
        "debug_config": {"grammar_execution_mode": "constraint"},
        "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}},
    },
}


def engine_of(**settings: Any) -> MLCEngine:
    return MLCEngine(
        "demo", max_num_sequence=8, max_total_sequence_length=2048, num_threads=1, **settings
    )


@pytest.fixture(scope="module")
def off() -> Iterator[MLCEngine]:
    engine = engine_of()
    yield engine
    engine.terminate()


LOOKUP: dict[str, Any] = {"speculative_mode": "ngram"}
DRAFT_MODEL: dict[str, Any] = {
    "speculative_mode": "small_draft",
    "additional_models": ["demo-draft"],
}
EAGLE3: dict[str, Any] = {"speculative_mode": "eagle3", "additional_models": ["demo-eagle3"]}
MTP: dict[str, Any] = {"speculative_mode": "mtp", "additional_models": ["demo-mtp"]}


@pytest.fixture(
    scope="module",
    params=[
        LOOKUP,
        {**LOOKUP, "spec_draft_length": 4, "prefill_chunk_size": 16},
        {"speculative_mode": "suffix"},
        DRAFT_MODEL,
        {**DRAFT_MODEL, "spec_draft_length": 4, "prefill_chunk_size": 16},
        EAGLE3,
        {**MTP, "spec_draft_length": 4, "prefill_chunk_size": 16},
    ],
    ids=["lookup", "lookup-4", "suffix", "draft model", "draft model-4", "eagle3", "mtp-4"],
)
def on(request: pytest.FixtureRequest) -> Iterator[MLCEngine]:
    engine = engine_of(**request.param)
    yield engine
    engine.terminate()


def answers(engine: MLCEngine, **fields: Any) -> Any:
    """All that must be equal of the answers to the prompts, in one batch."""
    asked = {"max_tokens": 48, "seed": 7, **fields}
    response = engine.completions.create(prompt=PROMPTS, **asked)
    assert response.usage is not None
    return [
        [
            (choice.text, choice.finish_reason, choice.logprobs and choice.logprobs.model_dump())
            for choice in response.choices
        ],
        (response.usage.prompt_tokens, response.usage.completion_tokens),
    ]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_answers_are_those_without(off: MLCEngine, on: MLCEngine, options: dict[str, Any]) -> None:
    assert answers(on, **options) == answers(off, **options)


def test_text_that_repeats_takes_fewer_steps(off: MLCEngine, on: MLCEngine) -> None:
    asked: dict[str, Any] = {
        "extra_body": {"spec_draft_length": 4},  # otherwise it depends on times
        "prompt": "1, 2, 3, 4, 5, 6, 1, 2, 3, 4,",
        "temperature": 0,
        "max_tokens": 120,
        "ignore_eos": True,
    }
    steps = []
    for engine in (off, on):
        before = engine.metrics()["num_steps"]
        response = engine.completions.create(**asked)
        steps.append(engine.metrics()["num_steps"] - before)
    assert steps[1] <= 0.9 * steps[0]
    assert response.usage is not None
    assert response.usage.extra is not None
    extra = response.usage.extra
    assert 10 < extra["accepted_draft_tokens"] <= extra["draft_tokens"]
    assert extra["num_drafts"] <= extra["draft_tokens"]
    histogram = extra["acceptance_histogram"]
    assert sum(histogram) == extra["num_drafts"]
    accepted = sum(length * count for length, count in enumerate(histogram))
    assert accepted == extra["accepted_draft_tokens"]
    assert response.usage.completion_tokens_details is None
    spec = on.metrics()["spec_decode"]
    assert len(spec["draft_count"]) == len(spec["accept_count"])
    assert spec["accept_len"]["accept_len{step=1}"] > 1


def test_a_request_can_do_without(on: MLCEngine) -> None:
    response = on.completions.create(
        prompt=REPEATED, temperature=0, max_tokens=20, extra_body={"speculative": False}
    )
    assert response.usage is not None
    assert "num_drafts" not in (response.usage.extra or {})
    limited = on.completions.create(
        prompt=REPEATED, temperature=0, max_tokens=20, extra_body={"spec_draft_length": 1}
    )
    assert limited.usage is not None
    assert limited.usage.extra is not None
    assert limited.usage.extra["draft_tokens"] == limited.usage.extra["num_drafts"]
    assert limited.choices[0].text == response.choices[0].text


@pytest.mark.parametrize("as_parts", [False, True])
def test_a_prediction_is_followed_without_a_mode(off: MLCEngine, as_parts: bool) -> None:
    asked: dict[str, Any] = {
        "extra_body": {"spec_draft_length": 8},
        "prompt": "The quick brown fox",
        "temperature": 0,
        "max_tokens": 60,
        "ignore_eos": True,
    }
    alone = off.completions.create(**asked)
    text = alone.choices[0].text
    middle = len(text) // 2
    changed = text[:middle] + " zebra" + text[middle:]
    content: Any = changed
    if as_parts:
        parts = (changed[:middle], changed[middle:])
        content = [{"type": "text", "text": part} for part in parts]
    before = off.metrics()["num_steps"]
    response = off.completions.create(prediction={"type": "content", "content": content}, **asked)
    assert response.choices[0].text == text
    assert off.metrics()["num_steps"] - before <= 30
    assert response.usage is not None
    details = response.usage.completion_tokens_details
    assert details is not None
    assert details.accepted_prediction_tokens is not None
    assert details.accepted_prediction_tokens >= 30
    assert details.rejected_prediction_tokens is not None
    num_tokens = len(off.tokenizer.encode(changed)) if off.tokenizer is not None else 0
    total = details.accepted_prediction_tokens + details.rejected_prediction_tokens
    assert total <= num_tokens


@pytest.mark.parametrize("content", ["", "x", "abc " * 20_000])
def test_predictions_of_any_length(off: MLCEngine, content: str) -> None:
    asked: dict[str, Any] = {"prompt": "2 + 2 =", "temperature": 0, "max_tokens": 8}
    expected = off.completions.create(**asked).choices[0].text
    prediction = {"type": "content", "content": content}
    assert off.completions.create(prediction=prediction, **asked).choices[0].text == expected


@pytest.mark.parametrize(
    "prediction",
    [
        "text",
        {"type": "content"},
        {"type": "other", "content": "x"},
        {"type": "content", "content": 3},
        {"type": "content", "content": [{"type": "image", "text": "x"}]},
        {"type": "content", "content": "x" * (MAX_PREDICTION_CHARS + 1)},
    ],
    ids=["a text", "no content", "type", "number", "part", "too long"],
)
def test_a_wrong_prediction_is_refused(off: MLCEngine, prediction: Any) -> None:
    with pytest.raises(InvalidRequest, match="prediction"):
        off.completions.create(prompt="x", max_tokens=1, prediction=prediction)


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("additional_models", {"speculative_mode": "medusa"}),
        ("additional_models", {"speculative_mode": "small_draft"}),
        ("additional_models", {**DRAFT_MODEL, "additional_models": ["demo-draft"] * 2}),
        ("spec_draft_length", {"spec_draft_length": 3}),
        ("spec_draft_length", {"speculative_mode": "ngram", "spec_draft_length": 11}),
        ("spec_tree_width", {"speculative_mode": "ngram", "spec_tree_width": 2}),
        ("prompt_lookup_min", {"speculative_mode": "ngram", "prompt_lookup_min": 6}),
        ("suffix_cache_bytes", {"speculative_mode": "suffix", "suffix_cache_bytes": 4095}),
        ("additional_models", {"speculative_mode": "ngram", "additional_models": ["demo-draft"]}),
    ],
)
def test_wrong_settings_are_refused(field: str, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match=field):
        engine_of(**settings)


def test_a_draft_model_with_another_tokenizer_is_refused(tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    shutil.copytree(demo_model_folder("demo-draft"), draft)
    tokenizer = json.loads((draft / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    (first, second) = (token for token, i in vocabulary.items() if i in (700, 900))
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (draft / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(InvalidConfig, match="another tokenizer than the model: token 700") as error:
        engine_of(**{**DRAFT_MODEL, "additional_models": [str(draft)]})
    assert error.value.field == "additional_models"


@pytest.mark.emulated
def test_every_device(device: dict[str, Any], demo: str) -> None:
    asked: dict[str, Any] = {"prompt": REPEATED, "temperature": 0.5, "seed": 3, "max_tokens": 12}
    asked |= {"logprobs": 2, "ignore_eos": True, "extra_body": {"spec_draft_length": 4}}
    # Without the prefix cache, which leaves other rows to compute.
    with MLCEngine(demo, prefix_cache_mode="disable", **device) as engine:
        alone = engine.completions.create(**asked)
        content = alone.choices[0].text[1:]
        predicted = engine.completions.create(
            prediction={"type": "content", "content": content}, **asked
        )
    assert predicted.choices == alone.choices
    assert predicted.usage is not None
    details = predicted.usage.completion_tokens_details
    assert details is not None
    assert details.accepted_prediction_tokens is not None
    assert details.accepted_prediction_tokens > 0


def test_the_questions_of_the_demo_model(off: MLCEngine) -> None:
    chats = [[{"role": "user", "content": question["question"]}] for question in QUESTIONS]
    engine = engine_of(**DRAFT_MODEL, spec_draft_length=4)
    try:
        asked: dict[str, Any] = {"max_tokens": 40, "temperature": 0}
        alone = [result.text for result in off.generate(chats, **asked)]
        assert [result.text for result in engine.generate(chats, **asked)] == alone
        spec = engine.metrics()["spec_decode"]
        assert spec["num_accepted_tokens"] >= 0.5 * spec["num_draft_tokens"] > 0
    finally:
        engine.terminate()


def test_answers_are_remembered_for_their_salt() -> None:
    engine = engine_of(speculative_mode="suffix", spec_draft_length=8)
    try:
        asked: dict[str, Any] = {
            "prompt": "The quick brown fox",
            "temperature": 0.8,
            "seed": 3,
            "max_tokens": 60,
            "ignore_eos": True,
        }

        def accepted(salt: str) -> int:
            response = engine.completions.create(**asked, extra_body={"cache_salt": salt})
            assert response.usage is not None
            texts.add(response.choices[0].text)
            return int((response.usage.extra or {}).get("accepted_draft_tokens", 0))

        texts: set[str] = set()
        first = accepted("a")
        assert accepted("a") >= 45  # it said the same before
        assert accepted("b") == first
        assert accepted("a") >= 45
        assert len(texts) == 1
    finally:
        engine.terminate()


# The grammar of an answer with reasoning: any text, and behind a mark what the format says.
AFTER_REASONING = 'root ::= [a-z ]{8,20} "</think>" "{\\"n\\": " [0-9]{3,4} "}"'


@pytest.mark.parametrize("mode", ["constraint", "jump_forward"])
@pytest.mark.parametrize("is_right", [True, False])
def test_a_grammar_that_starts_within_a_guess(off: MLCEngine, mode: str, is_right: bool) -> None:
    asked: dict[str, Any] = {
        "prompt": "The quick brown fox",
        "temperature": 0,
        "max_tokens": 60,
        "response_format": {"type": "grammar", "grammar": AFTER_REASONING},
        "debug_config": {"grammar_execution_mode": mode},
    }
    text = off.completions.create(**asked).choices[0].text
    reasoning, mark, answer = text.partition("</think>")
    assert mark
    assert answer
    content = text if is_right else reasoning + mark + "not what may follow"
    response = off.completions.create(
        **asked,
        prediction={"type": "content", "content": content},
        extra_body={"spec_draft_length": 10},
    )
    assert response.choices[0].text == text
    assert response.usage is not None
    assert response.usage.extra is not None
    assert response.usage.extra["accepted_draft_tokens"] >= 3


def test_forced_text_is_guessed(off: MLCEngine) -> None:
    engine = engine_of(speculative_mode="ngram", spec_draft_length=8)
    try:
        asked: dict[str, Any] = {
            "prompt": "A record:",
            "temperature": 0,
            "max_tokens": 60,
            "response_format": {
                "type": "regex",
                "regex": r'\{"identifier": [0-9], "availability": (true|false)\}',
            },
            "debug_config": {"grammar_execution_mode": "constraint"},
        }
        alone = off.completions.create(**asked)
        response = engine.completions.create(**asked)
        assert response.choices[0].text == alone.choices[0].text
        assert response.usage is not None
        assert alone.usage is not None
        assert response.usage.completion_tokens == alone.usage.completion_tokens
        extra = response.usage.extra
        assert extra is not None
        assert extra["accepted_draft_tokens"] >= 0.4 * response.usage.completion_tokens
    finally:
        engine.terminate()


def test_wrong_guesses_leave_no_warnings(off: MLCEngine, capfd: pytest.CaptureFixture[str]) -> None:
    """XGrammar logs each token that it is asked for and does not have, such as ends of lines in
    JSON."""
    answer = off.completions.create(
        prompt=REPEATED,
        prediction={"type": "content", "content": '{"name":\n\t"Anna",\n\t"age":\n31\n}'},
        debug_config={"grammar_execution_mode": "constraint"},
        max_tokens=40,
        temperature=0,
        response_format=OPTIONS["json"]["response_format"],
        extra_body={"spec_draft_length": 10},
    )
    assert answer.usage is not None
    assert answer.usage.extra is not None
    assert answer.usage.extra["accepted_draft_tokens"] > 0
    assert "Warning" not in capfd.readouterr().err


def test_a_wrong_length_of_a_request_is_refused(off: MLCEngine) -> None:
    with pytest.raises(InvalidRequest, match="spec_draft_length"):
        off.completions.create(prompt="x", max_tokens=1, extra_body={"spec_draft_length": 11})
