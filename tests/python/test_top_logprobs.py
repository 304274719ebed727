"""top_logprobs of completions: by text, with the sampled token, and none lost to an equal text."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from facades import OPENAI_FACADES

pytest.importorskip("transformers")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from make_random_checkpoint import make_checkpoint

NUM_TOP = 5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Half of its tokens have no text, and a quarter are bytes that are no text by themselves."""
    return str(make_checkpoint("tiny-llama", tmp_path_factory.mktemp("top") / "m"))


@pytest.fixture(params=OPENAI_FACADES)
def engine(request: pytest.FixtureRequest, model: str) -> Iterator[Any]:
    made: Any = OPENAI_FACADES[request.param](model, device="cpu")
    yield made
    made.terminate()


def entries(engine: Any, **fields: Any) -> Iterator[tuple[str, float, dict[str, float]]]:
    extra = {"ignore_eos": True}
    response = engine.complete(prompt="abc", logprobs=NUM_TOP, extra_body=extra, **fields)
    logprobs = response.choices[0].logprobs
    return zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True)


def test_tokens_of_equal_text_are_kept(engine: Any) -> None:
    num_equal = 0
    for token, logprob, top in entries(engine, max_tokens=30, temperature=0):
        assert len(top) == NUM_TOP
        assert top[token] == logprob == max(top.values())
        num_equal += sum(name.startswith("token_id:") for name in top)
    assert num_equal > 0


def test_the_sampled_token_is_among_them(engine: Any) -> None:
    num_unlikely = 0
    for token, logprob, top in entries(engine, max_tokens=30, temperature=3.0, seed=1):
        assert top[token] == logprob
        better = [value for value in top.values() if value > logprob]
        assert len(top) == NUM_TOP + (len(better) == NUM_TOP)
        num_unlikely += len(better) == NUM_TOP
    assert num_unlikely > 0


def test_the_same_numbers_as_in_a_chat(engine: Any) -> None:
    """There, the alternatives are a list, and their objects have no further fields."""
    messages = [{"role": "user", "content": "x"}]
    chat = engine.chat(
        messages=messages, logprobs=True, top_logprobs=NUM_TOP, max_tokens=8, temperature=0
    )
    rendered = engine.engine.conv_template.render(messages)
    response = engine.complete(prompt=rendered, logprobs=NUM_TOP, max_tokens=8, temperature=0)
    by_text = response.choices[0].logprobs.top_logprobs
    content = chat.choices[0].logprobs.content
    assert [[top.logprob for top in item.top_logprobs] for item in content] == [
        list(top.values()) for top in by_text
    ]
    assert set(content[0].model_dump()) == {"token", "logprob", "bytes", "top_logprobs"}
