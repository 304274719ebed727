"""generation_config.json of a model is the default of every request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from facades import ALL_FACADES, OPENAI_FACADES

from mlc_native.errors import InvalidConfig
from mlc_native.protocol.generation_config import GenerationConfig

MakeModel = Callable[..., str]
USER = [{"role": "user", "content": "x"}]


@pytest.fixture
def with_defaults(make_model: MakeModel) -> Callable[..., str]:
    """with_defaults(fields, ...) is a model with this generation_config.json."""

    def make(fields: dict[str, Any], **fake: Any) -> str:
        model = make_model(**fake)
        (Path(model) / "generation_config.json").write_text(json.dumps(fields))
        return model

    return make


Made = Callable[..., Any]


@pytest.fixture(params=ALL_FACADES)
def any_engine(request: pytest.FixtureRequest, fake_lib: str) -> Iterator[Made]:
    yield from _make(ALL_FACADES[request.param], fake_lib)


@pytest.fixture(params=OPENAI_FACADES)
def openai_engine(request: pytest.FixtureRequest, fake_lib: str) -> Iterator[Made]:
    yield from _make(OPENAI_FACADES[request.param], fake_lib)


def _make(facade: Any, fake_lib: str) -> Iterator[Made]:
    engines: list[Any] = []

    def make(model: str, **settings: Any) -> Any:
        engines.append(facade(model, model_lib=fake_lib, **settings))
        return engines[-1]

    yield make
    for engine in engines:
        engine.terminate()


def test_sampling_defaults_of_openai(with_defaults: Callable[..., str], any_engine: Made) -> None:
    fields = {"max_new_tokens": 3, "do_sample": False, "eos_token_id": ord("e")}
    model = with_defaults(fields, answer="abcdef")
    assert any_engine(model).generate("x", GenerationConfig()).texts == ["abc"]
    engine = any_engine(model, sampling_defaults="openai")
    assert engine.generate("x", GenerationConfig()).texts == ["abcd"]
    with pytest.raises(InvalidConfig, match='"sampling_defaults" must be one of "model" or'):
        any_engine(model, sampling_defaults="x")


def test_max_new_tokens(with_defaults: Callable[..., str], any_engine: Made) -> None:
    engine = any_engine(with_defaults({"max_new_tokens": 3}, answer="abcdef"))
    answer = engine.generate("x", GenerationConfig())
    assert (answer.texts, answer.finish_reasons) == (["abc"], ["length"])
    answer = engine.generate("x", GenerationConfig(max_tokens=5))
    assert (answer.texts, answer.finish_reasons) == (["abcde"], ["length"])
    answer = engine.generate("x", GenerationConfig(max_tokens=-1))
    assert (answer.texts, answer.finish_reasons) == (["abcdef"], ["stop"])


def test_max_new_tokens_of_openai_requests(
    with_defaults: Callable[..., str], openai_engine: Made
) -> None:
    engine = openai_engine(with_defaults({"max_new_tokens": 3}, answer="abcdef"))
    assert engine.chat(messages=USER).choices[0].message.content == "abc"
    assert engine.complete(prompt="x").choices[0].text == "abc"
    assert engine.complete(prompt="x", max_tokens=4).choices[0].text == "abcd"


def test_min_new_tokens(with_defaults: Callable[..., str], any_engine: Made) -> None:
    engine = any_engine(with_defaults({"min_new_tokens": 4, "max_new_tokens": 6}, answer="ab"))
    assert len(engine.generate("x", GenerationConfig()).token_ids[0]) >= 4
    assert engine.generate("x", GenerationConfig(min_tokens=0, max_tokens=1)).texts == ["a"]


@pytest.mark.parametrize("do_sample", [None, True, False])
def test_do_sample(
    with_defaults: Callable[..., str], any_engine: Made, do_sample: bool | None
) -> None:
    """With a peak of 1 most draws at temperature 1 differ; greedy answers never do."""
    fields = {} if do_sample is None else {"do_sample": do_sample, "temperature": 1.0}
    engine = any_engine(with_defaults(fields, peak=1))

    def texts(**more: Any) -> set[str]:
        answers = [
            engine.generate("x", GenerationConfig(max_tokens=12, seed=seed, **more)).texts[0]
            for seed in range(4)
        ]
        return set(answers)

    assert (len(texts()) == 1) is (do_sample is False)
    assert len(texts(temperature=1.0)) > 1
    assert len(texts(temperature=0.0)) == 1
