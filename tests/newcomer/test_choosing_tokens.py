"""Newcomer tasks: sampling options, seeds, stops and log probabilities."""

from __future__ import annotations

import math
from typing import Any

from mlc_native import GenerationConfig, MLCEngine

FRANCE: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
STORY: list[Any] = [{"role": "user", "content": "Tell me a story."}]


def content(engine: MLCEngine, messages: list[Any], **options: Any) -> str:
    answer = engine.chat.completions.create(messages=messages, **options)
    return answer.choices[0].message.content or ""


def test_seed(engine: MLCEngine) -> None:
    """The same seed gives the same answer, others differ."""
    hot = {"temperature": 1.5, "max_tokens": 16}
    assert content(engine, STORY, seed=7, **hot) == content(engine, STORY, seed=7, **hot)
    assert len({content(engine, STORY, seed=seed, **hot) for seed in range(4)}) > 1


def test_several_choices(engine: MLCEngine) -> None:
    """`n` answers to one question."""
    answer = engine.chat.completions.create(messages=STORY, n=3, seed=1, max_tokens=4)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]


def test_more_choices_than_the_engine_runs_at_once() -> None:
    """`n` above the number of sequences waits instead of failing."""
    with MLCEngine("demo", max_num_sequence=2) as engine:
        answer = engine.chat.completions.create(messages=STORY, n=5, max_tokens=2)
    assert len(answer.choices) == 5


def test_options_beyond_openai(engine: MLCEngine) -> None:
    """vLLM's options are keywords here; `extra_body`, as OpenAI's library sends them, works too."""
    as_keywords = content(
        engine, FRANCE, top_k=1, min_p=0.1, repetition_penalty=1.0, temperature=1.5
    )
    in_extra_body = content(engine, FRANCE, extra_body={"top_k": 1}, temperature=1.5)
    assert as_keywords == in_extra_body == content(engine, FRANCE, temperature=0)


def test_openai_penalties(engine: MLCEngine) -> None:
    """A forbidding penalty changes an answer that repeats itself."""
    plain = content(engine, STORY, temperature=0, max_tokens=24)
    other = content(
        engine, STORY, temperature=0, max_tokens=24, presence_penalty=2, frequency_penalty=2.0
    )
    assert plain != other


def test_stop_string(engine: MLCEngine) -> None:
    """The answer ends in front of the stop string."""
    answer = engine.chat.completions.create(messages=FRANCE, temperature=0, stop="Paris")
    assert "Paris" not in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    assert "Paris" not in content(engine, FRANCE, temperature=0, stop=["Paris", "London"])


def test_stop_token_ids(engine: MLCEngine) -> None:
    """vLLM's `stop_token_ids`."""
    [token] = engine.generate(["a"], max_tokens=1, ignore_eos=True, temperature=0)[0].token_ids
    result = engine.generate(["a"], max_tokens=8, stop_token_ids=[token], temperature=0)[0]
    assert result.finish_reason == "stop"


def test_ignore_eos(engine: MLCEngine) -> None:
    """A benchmark wants answers of one length."""
    answer = engine.chat.completions.create(messages=FRANCE, max_tokens=60, ignore_eos=True)
    assert answer.usage.completion_tokens == 60


def test_min_tokens(engine: MLCEngine) -> None:
    """vLLM's `min_tokens`: the answer does not end before."""
    answer = engine.chat.completions.create(messages=FRANCE, min_tokens=40, temperature=0)
    assert answer.usage.completion_tokens >= 40


def test_logit_bias(engine: MLCEngine) -> None:
    """A bias of -100 forbids a token."""
    free = engine.generate(["The"], max_tokens=1, temperature=0, ignore_eos=True)[0].token_ids
    bias = {str(free[0]): -100}
    bound = engine.generate(["The"], max_tokens=1, temperature=0, ignore_eos=True, logit_bias=bias)
    assert bound[0].token_ids != free


def test_logprobs_of_a_chat(engine: MLCEngine) -> None:
    """OpenAI's shape: an entry for each token with its alternatives."""
    answer = engine.chat.completions.create(
        messages=FRANCE, logprobs=True, top_logprobs=3, max_tokens=4, temperature=0
    )
    entries = answer.choices[0].logprobs.content
    assert len(entries) == answer.usage.completion_tokens
    for entry in entries:
        assert entry.token == entry.top_logprobs[0].token
        assert len(entry.top_logprobs) == 3
        assert 0 < math.exp(entry.logprob) <= 1


def test_logprobs_of_a_completion(engine: MLCEngine) -> None:
    """The older shape: `logprobs` is a number, and the answer has parallel lists."""
    answer = engine.completions.create(prompt="Paris is", logprobs=2, max_tokens=3)
    logprobs = answer.choices[0].logprobs
    assert "".join(logprobs.tokens) == answer.choices[0].text
    assert len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == len(logprobs.tokens)


def test_score_a_text(engine: MLCEngine) -> None:
    """lm-evaluation-harness scores a text with echo, logprobs and no new tokens."""
    answer = engine.completions.create(prompt="Paris is big", echo=True, logprobs=1, max_tokens=0)
    logprobs = answer.choices[0].logprobs
    assert answer.choices[0].text == "Paris is big"
    assert logprobs.token_logprobs[0] is None
    assert all(value <= 0 for value in logprobs.token_logprobs[1:])


def test_prompt_logprobs(engine: MLCEngine) -> None:
    """vLLM's `prompt_logprobs` of an offline batch."""
    ids = engine.tokenizer.encode("Paris is big")
    [result] = engine.generate(["Paris is big"], prompt_logprobs=1, max_tokens=1)
    assert len(result.prompt_logprobs) == len(ids)
    assert result.prompt_logprobs[0] is None


def test_one_config_for_many_requests(engine: MLCEngine) -> None:
    """What SamplingParams is in vLLM: an object or a dict."""
    config = GenerationConfig(temperature=0, max_tokens=3)
    by_object = engine.generate(["Paris is"], config)
    by_dict = engine.generate(["Paris is"], {"temperature": 0, "max_tokens": 3})
    by_keywords = engine.generate(["Paris is"], temperature=0, max_tokens=3)
    assert by_object[0].token_ids == by_dict[0].token_ids == by_keywords[0].token_ids
