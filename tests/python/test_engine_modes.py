"""The modes: what an engine takes by default, what it refuses, and requests beyond its capacity."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from facades import ALL_FACADES, OPENAI_FACADES

from mlc_native import EngineConfig, MLCEngine
from mlc_native.errors import InvalidConfig, InvalidRequest
from mlc_native.protocol.generation_config import GenerationConfig

pytestmark = pytest.mark.both_step_kinds
MakeModel = Callable[..., str]
Made = Callable[..., Any]
CONTEXT = 16384


@pytest.fixture(params=ALL_FACADES)
def any_engine(request: pytest.FixtureRequest, fake_lib: str) -> Iterator[Made]:
    """any_engine(model, mode=, **config) makes an engine."""
    engines: list[Any] = []

    def make(model: str, mode: str | None = None, **config: Any) -> Any:
        arguments: dict[str, Any] = {} if mode is None else {"mode": mode}
        engines.append(
            ALL_FACADES[request.param](
                model, model_lib=fake_lib, engine_config=EngineConfig(**config), **arguments
            )
        )
        return engines[-1]

    yield make
    for engine in engines:
        engine.terminate()


def test_the_default_takes_many_long_sequences(make_model: MakeModel, any_engine: Made) -> None:
    config = any_engine(make_model(context_window_size=CONTEXT)).engine.engine_config
    assert config.mode == "auto"
    assert config.max_num_sequence == 128
    assert config.max_single_sequence_length == CONTEXT
    assert config.max_total_sequence_length > 4 * CONTEXT
    assert config.max_queue_length == -1


def test_modes_keep_their_meaning(make_model: MakeModel, any_engine: Made) -> None:
    model = make_model(context_window_size=CONTEXT)
    local = any_engine(model, "local").engine.engine_config
    assert (local.max_num_sequence, local.max_single_sequence_length) == (4, 8192)
    interactive = any_engine(model, "interactive").engine.engine_config
    assert interactive.max_num_sequence == 1
    assert interactive.max_single_sequence_length == CONTEXT
    server = any_engine(model, "server").engine.engine_config
    assert (server.max_num_sequence, server.max_queue_length) == (128, 16 * 128)


@pytest.mark.parametrize(
    ("mode", "config", "words"),
    [
        (None, {}, ["the context of the model"]),
        ("local", {}, ['mode "local"', 'mode "auto"', "max_total_sequence_length"]),
        (None, {"max_single_sequence_length": 64}, ["max_single_sequence_length", str(CONTEXT)]),
        ("server", {"max_total_sequence_length": 64}, ["max_total_sequence_length", "server"]),
    ],
)
def test_a_prompt_that_is_too_long_names_what_limits_it(
    make_model: MakeModel,
    any_engine: Made,
    mode: str | None,
    config: dict[str, int],
    words: list[str],
) -> None:
    engine = any_engine(make_model(context_window_size=CONTEXT), mode, **config)
    limit = engine.engine.max_input_sequence_length
    with pytest.raises(InvalidRequest, match=f"{limit + 1} tokens in total") as error:
        engine.generate([97] * (limit + 1), GenerationConfig(max_tokens=1))
    assert all(word in str(error.value) for word in [str(limit), *words])


def test_a_length_beyond_the_model_is_refused(make_model: MakeModel, any_engine: Made) -> None:
    model = make_model(context_window_size=CONTEXT)
    with pytest.raises(InvalidConfig, match=f"at most {CONTEXT} tokens") as error:
        any_engine(model, max_single_sequence_length=CONTEXT + 1)
    assert error.value.field == "max_single_sequence_length"
    with pytest.raises(InvalidConfig, match='at most 8192 tokens in mode "local"'):
        any_engine(model, "local", max_single_sequence_length=8193)
    longest = any_engine(model, "interactive", max_single_sequence_length=8193)
    assert longest.engine.max_input_sequence_length == 8193


def test_a_length_that_is_cut_is_reported_once(
    make_model: MakeModel, any_engine: Made, caplog: pytest.LogCaptureFixture
) -> None:
    model = make_model(context_window_size=CONTEXT)
    lengths = {"max_single_sequence_length": 256, "max_total_sequence_length": 128}
    with caplog.at_level(logging.WARNING, "mlc_native"):
        engine = any_engine(model, **lengths)
    assert engine.engine.engine_config.max_single_sequence_length == 128
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1
    assert '"max_single_sequence_length" is 128 instead of 256' in warnings[0]
    caplog.clear()
    with caplog.at_level(logging.WARNING, "mlc_native"):
        any_engine(model, max_single_sequence_length=256)
    assert not caplog.records


@pytest.mark.parametrize("name", ALL_FACADES)
@pytest.mark.parametrize(
    ("given", "dtype", "kv_cache_dtype"),
    [
        ({}, "bfloat16", "bfloat16"),
        ({"dtype": "float32"}, "float32", "float32"),
        ({"kv_cache_dtype": "int8"}, "bfloat16", "int8"),
    ],
)
def test_the_formats_in_effect_are_shown(
    name: str, given: dict[str, Any], dtype: str, kv_cache_dtype: str
) -> None:
    made: Any = ALL_FACADES[name]("demo", device="cpu", engine_config=EngineConfig(**given))
    config = made.engine.engine_config
    made.terminate()
    assert (config.dtype, config.kv_cache_dtype) == (dtype, kv_cache_dtype)


def test_threads_that_park_give_the_same_answer() -> None:
    answers = []
    for mode in ("spin", "park"):
        with MLCEngine("demo", device="cpu", num_threads=2, cpu_idle_mode=mode) as engine:
            assert engine.engine_config.cpu_idle_mode == mode
            answers.append(engine.completions.create(prompt="Once", max_tokens=20, seed=1))
    assert answers[0].choices[0].text == answers[1].choices[0].text
    with pytest.raises(InvalidConfig, match=r'"cpu_idle_mode" must be one of "spin" or "park"'):
        MLCEngine("demo", device="cpu", cpu_idle_mode="burn")


# ------------------------------------------------------------------ more answers than sequences


@pytest.mark.parametrize("capacity", [1, 2, 3])
@pytest.mark.parametrize("cache", ["radix", "disable"])
def test_answers_beyond_the_capacity_wait(
    make_model: MakeModel, any_engine: Made, capacity: int, cache: str
) -> None:
    """They are those of an engine that runs all at once."""
    model = make_model(peak=2)
    config = GenerationConfig(n=7, max_tokens=9, seed=5, logprobs=True)
    roomy = any_engine(model).generate("hello", config)
    assert len(set(roomy.texts)) > 1
    scarce = any_engine(model, max_num_sequence=capacity, prefix_cache_mode=cache)
    answer = scarce.generate("hello", config)
    assert answer.texts == roomy.texts
    assert answer.logprobs == roomy.logprobs
    assert answer.finish_reasons == ["length"] * 7
    assert answer.num_finals == 1
    scarce.audit()


def test_waiting_answers_with_few_pages(make_model: MakeModel, any_engine: Made) -> None:
    model = make_model(peak=2)
    config = GenerationConfig(n=9, max_tokens=40, seed=5)
    roomy = any_engine(model).generate("hello", config)
    scarce = any_engine(model, max_num_sequence=4, max_total_sequence_length=96)
    assert scarce.generate("hello", config).texts == roomy.texts
    scarce.audit()


def test_too_many_answers_are_refused(make_model: MakeModel, any_engine: Made) -> None:
    engine = any_engine(make_model(), max_num_sequence=2)
    with pytest.raises(InvalidRequest, match=r'"n" must be in \[1, 1024\], got 1025'):
        engine.generate("x", GenerationConfig(n=1025, max_tokens=1))


@pytest.mark.parametrize("name", OPENAI_FACADES)
def test_openai_requests_beyond_the_capacity(
    make_model: MakeModel, fake_lib: str, name: str
) -> None:
    engine: Any = OPENAI_FACADES[name](
        make_model(answer="ok"), model_lib=fake_lib, engine_config=EngineConfig(max_num_sequence=2)
    )
    try:
        response = engine.chat(messages=[{"role": "user", "content": "x"}], n=5)
        assert [choice.message.content for choice in response.choices] == ["ok"] * 5
        assert response.usage.prompt_tokens == len("user: x\nassistant: ")
        assert response.usage.completion_tokens == 5 * 3
        chunks = engine.complete(prompt="x", n=5, stream=True)
        texts = [""] * 5
        for chunk in chunks:
            for choice in chunk.choices:
                texts[choice.index] += choice.text
        assert texts == ["ok"] * 5
        engine.audit()
    finally:
        engine.terminate()
