"""MLCEngine, AsyncMLCEngine and SyncMLCEngine on the fake model: the same behaviour on each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from facades import ALL_FACADES, OPENAI_FACADES, USER, Answer, Engines, MakeModel
from fake_model import EOS
from prometheus_client.parser import text_string_to_metric_families
from tokenizers import Tokenizer, decoders, normalizers

from mlc_native import EngineConfig
from mlc_native.errors import EngineRequestError
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.serve.data import TextData, TokenData

pytestmark = pytest.mark.both_step_kinds


@pytest.fixture(params=ALL_FACADES)
def any_engine(
    request: pytest.FixtureRequest, make_model: MakeModel, fake_lib: str
) -> Iterator[Engines]:
    engines = Engines(ALL_FACADES[request.param], make_model, fake_lib)
    yield engines
    engines.end()


def test_generates_until_the_end_token(any_engine: Engines) -> None:
    answer = any_engine(answer="Héllo, wörld 🤔!").generate("q", GenerationConfig())
    assert answer.texts == ["Héllo, wörld 🤔!"]
    assert bytes(answer.token_ids[0]).decode() == "Héllo, wörld 🤔!"
    assert answer.finish_reasons == ["stop"]
    assert answer.num_finals == 1


@pytest.mark.parametrize(
    "prompt",
    [
        "ab",
        [97, 98],
        TextData("ab"),
        TokenData([97, 98]),
        [TextData("a"), TokenData([98])],
        ["a", [98]],
    ],
    ids=range(6),
)
def test_kinds_of_prompts(any_engine: Engines, prompt: Any) -> None:
    engine = any_engine()
    config = GenerationConfig(max_tokens=8)
    assert engine.generate(prompt, config, "1") == engine.generate("ab", config, "2")


def test_n_sequences(any_engine: Engines) -> None:
    engine = any_engine(peak=4)
    config = GenerationConfig(n=3, max_tokens=6, temperature=1.0, seed=5)
    answer = engine.generate("abc", config)
    assert len(answer.texts) == 3
    assert len({tuple(ids) for ids in answer.token_ids}) > 1  # each draws for itself
    assert all(len(ids) == 6 for ids in answer.token_ids)
    assert answer.finish_reasons == ["length"] * 3
    assert engine.generate("abc", config, "again").token_ids == answer.token_ids


def test_max_tokens_zero_is_an_empty_answer(any_engine: Engines) -> None:
    answer = any_engine().generate("abc", GenerationConfig(max_tokens=0, n=2))
    assert answer.texts == ["", ""]
    assert answer.finish_reasons == ["length", "length"]
    assert answer.num_finals == 1


def test_unlimited_ends_at_the_context(any_engine: Engines) -> None:
    engine = any_engine(EngineConfig(max_single_sequence_length=64), context_window_size=64)
    answer = engine.generate([1] * 10, GenerationConfig(max_tokens=-1))
    assert len(answer.token_ids[0]) == 54
    assert answer.finish_reasons == ["length"]


def prepend_spaces(model: str) -> None:
    """Gives a model folder a tokenizer that puts a space before each text, as Llama-2's does."""
    path = Path(model) / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.normalizer = normalizers.Prepend(" ")
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteLevel(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.save(str(path))


@pytest.mark.parametrize("facade", OPENAI_FACADES.values())
def test_only_a_turn_of_a_chat_loses_its_first_space(
    facade: Any, make_model: MakeModel, fake_lib: str
) -> None:
    model = make_model(answer=" one two")
    prepend_spaces(model)
    made = facade(model, model_lib=fake_lib)
    assert made.chat(messages=USER).choices[0].message.content == "one two"
    assert made.complete(prompt="zero").choices[0].text == " one two"
    assert made.complete(prompt="zero", echo=True).choices[0].text == "zero one two"
    assert made.generate("zero", GenerationConfig()).texts == [" one two"]
    made.terminate()


def test_stop_string_keeps_the_text_before_it(any_engine: Engines) -> None:
    answer = any_engine(answer="Hello, world!").generate(
        "q", GenerationConfig(stop_strs=["o, w", "ld"])
    )
    assert answer.texts == ["Hell"]
    assert answer.finish_reasons == ["stop"]


def test_stop_token_and_ignore_eos(any_engine: Engines) -> None:
    engine = any_engine(answer="abcdef")
    answer = engine.generate("q", GenerationConfig(stop_token_ids=[ord("d")]), "1")
    assert (answer.texts, answer.finish_reasons) == (["abc"], ["stop"])
    config = GenerationConfig(max_tokens=10, debug_config={"ignore_eos": True})
    answer = engine.generate("q", config, "2")
    assert answer.finish_reasons == ["length"]
    assert answer.token_ids == [[*b"abcdef", EOS, *b"abc"]]


def test_logprobs(any_engine: Engines) -> None:
    config = GenerationConfig(max_tokens=4, logprobs=True, top_logprobs=3)
    answer = any_engine().generate("abc", config)
    contents = [json.loads(s) for s in answer.logprobs[0]]
    assert len(contents) == 4
    for content, token_id in zip(contents, answer.token_ids[0], strict=True):
        assert content["bytes"] == [token_id]
        assert len(content["top_logprobs"]) == 3
        assert content["logprob"] == content["top_logprobs"][0]["logprob"]


def test_an_error_ends_one_request_and_not_the_engine(any_engine: Engines) -> None:
    engine = any_engine(poison_token=66)
    with pytest.raises((EngineRequestError, RuntimeError), match=r"poison|fail|error"):
        engine.generate("aBc", GenerationConfig(max_tokens=4), "bad")
    answer = engine.generate("abc", GenerationConfig(max_tokens=4), "good")
    assert answer.finish_reasons == ["length"]
    engine.audit()


def test_metrics(any_engine: Engines) -> None:
    engine = any_engine()
    engine.generate("abc", GenerationConfig(max_tokens=4, n=2))
    metrics = engine.metrics()
    assert metrics["prompt_tokens_sum"] == 3
    assert metrics["completion_tokens_sum"] == 8
    assert metrics["kv_pages_used"] == 0
    families = {f.name: f for f in text_string_to_metric_families(metrics.prometheus_text())}
    assert families["mlc_native_completion_tokens_sum"].samples[0].value == 8
    assert families["mlc_native_completion_tokens_sum"].type == "counter"
    assert families["mlc_native_kv_pages_used"].type == "gauge"
    ttft = families["mlc_native_ttft_s"]
    assert ttft.type == "histogram"
    assert {s.value for s in ttft.samples if s.labels.get("le") == "+Inf"} == {1}
    finished = families["mlc_native_finished_requests"].samples
    assert {s.labels["reason"]: s.value for s in finished} == {"length": 1}
    by_size = families["mlc_native_decode_time_by_batch_size_count"].samples
    assert {s.labels["batch_size"] for s in by_size} == {"2"}


def test_engine_config_is_completed_and_the_given_one_untouched(any_engine: Engines) -> None:
    given = EngineConfig(max_num_sequence=3)
    engine = any_engine(given).engine
    assert engine.engine_config.max_num_sequence == 3
    assert engine.engine_config.max_total_sequence_length > 0
    assert engine.max_input_sequence_length == min(
        engine.engine_config.max_single_sequence_length,
        engine.engine_config.max_total_sequence_length,
    )
    assert given == EngineConfig(max_num_sequence=3)


def test_same_tokens_on_every_facade(make_model: MakeModel, fake_lib: str) -> None:
    model = make_model(peak=4)
    config = GenerationConfig(max_tokens=20, temperature=0.9, seed=3, n=2)
    answers: list[Answer] = []
    for facade in ALL_FACADES.values():
        engine = facade(model, model_lib=fake_lib)
        answers.append(engine.generate("hello", config))
        engine.terminate()
    assert answers[0] == answers[1] == answers[2]
