"""prompt_logprobs, and echo with logprobs: what they say, and that nothing else changes it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from facades import ALL_FACADES, OPENAI_FACADES
from fake_model import EOS
from transformers import AutoModelForCausalLM

from mlc_native import AsyncMLCEngine, EngineConfig, MLCEngine, SyncMLCEngine
from mlc_native.errors import InvalidRequest
from mlc_native.protocol.debug_protocol import DebugConfig
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.serve import responses
from mlc_native.serve.logprobs import AnswerOffsets
from mlc_native.serve.prompt_logprobs import prompt_logprobs, text_offsets

MakeModel = Callable[..., str]
TEXT = "What is the capital of France? The capital of France is Paris, where 2 + 2 = 4."


def scored(num_top: int = 3, **fields: Any) -> GenerationConfig:
    """A greedy request that scores its prompt."""
    values = {"temperature": 0, "max_tokens": 4, "prompt_logprobs": num_top, **fields}
    return GenerationConfig(**values)


def sync_engine(model: str = "demo", **settings: Any) -> SyncMLCEngine:
    """An engine on the CPU in float32, which waits for each step."""
    config = EngineConfig(dtype="float32", verbose=False, **settings)
    return SyncMLCEngine(model, "cpu", engine_config=config)


# ---------------------------------------------------------------------------- the numbers are right


@pytest.fixture(scope="module")
def long_prompt() -> list[int]:
    """Some hundred tokens of text of the kind that the demo model knows."""
    tokenizer = sync_engine().tokenizer
    assert tokenizer is not None
    return tokenizer.encode(TEXT + " " + " ".join(f"{i} + {i} = {2 * i}." for i in range(20)))


@pytest.fixture(scope="module")
def reference(long_prompt: list[int]) -> list[dict[int, Any] | None]:
    """The scores of the long prompt, computed one token at a time."""
    engine = sync_engine(max_num_sequence=1, prefill_chunk_size=1)
    (result,) = engine.generate([long_prompt], scored()).prompt_logprobs
    assert result is not None
    return result


def test_they_are_those_of_transformers(
    long_prompt: list[int], reference: list[dict[int, Any] | None]
) -> None:
    engine = sync_engine()
    folder = engine.engine_config.model
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").float().eval()
    with torch.inference_mode():
        logits = model(torch.tensor([long_prompt])).logits[0]
    expected = torch.log_softmax(logits, dim=-1)
    assert len(reference) == len(long_prompt) > 200
    assert reference[0] is None
    for i, token in enumerate(long_prompt[1:], start=1):
        entry = reference[i]
        assert entry is not None
        row = expected[i - 1]
        assert next(iter(entry)) == token
        for token_id, scored_token in entry.items():
            assert scored_token.logprob == pytest.approx(row[token_id].item(), abs=2e-4)
        ranked = sorted((s.rank, t) for t, s in entry.items() if s.rank is not None)
        assert [rank for rank, _ in ranked] == [1, 2, 3]
        top = torch.topk(row, 4).values.tolist()
        # The same tokens, except where two are equally likely.
        for (_, token_id), value in zip(ranked, top, strict=False):
            assert row[token_id].item() == pytest.approx(value, abs=2e-4)


@pytest.mark.parametrize("chunk", [2, 3, 17, 63, 64, 65, 200, 512])
def test_the_chunk_changes_no_bit(
    chunk: int, long_prompt: list[int], reference: list[dict[int, Any] | None]
) -> None:
    engine = sync_engine(max_num_sequence=1, prefill_chunk_size=chunk)
    assert engine.generate([long_prompt], scored()).prompt_logprobs == [reference]


def test_neighbours_preemption_and_the_prefix_cache_change_no_bit(
    long_prompt: list[int], reference: list[dict[int, Any] | None]
) -> None:
    others = [long_prompt[i : i + 40] for i in range(0, 120, 20)]
    endless = DebugConfig(ignore_eos=True)
    plain = GenerationConfig(temperature=0, max_tokens=60, debug_config=endless)
    for cache in ("radix", "disable"):
        engine = sync_engine(
            max_num_sequence=8,
            prefill_chunk_size=48,
            max_total_sequence_length=len(long_prompt) + 16,
            max_single_sequence_length=len(long_prompt) + 8,
            prefix_cache_mode=cache,
        )
        engine.generate([long_prompt], plain.model_copy(update={"max_tokens": 1}))
        configs = [plain, scored(), plain, scored(max_tokens=50), plain, plain, scored()]
        result = engine.generate([*others, long_prompt], configs)
        assert engine.metrics()["num_preemptions"] > 0
        assert result.prompt_logprobs[-1] == reference
        assert [scores is None for scores in result.prompt_logprobs] == [
            config.prompt_logprobs is None for config in configs
        ]
        # A part of the long prompt that begins elsewhere has scores of its own.
        alone = engine.generate([others[1]], scored())
        assert result.prompt_logprobs[1] == alone.prompt_logprobs[0]


def test_the_prefix_cache_is_filled_and_not_read(demo: str, long_prompt: list[int]) -> None:
    with MLCEngine(demo, "cpu", engine_config=EngineConfig(verbose=False)) as engine:

        def cached_tokens(**fields: Any) -> int:
            response = engine.completions.create(prompt=long_prompt, max_tokens=1, **fields)
            assert response.usage is not None
            assert (response.choices[0].prompt_logprobs is None) == (not fields)
            return response.usage.prompt_tokens_details.cached_tokens

        options: dict[str, Any] = {"extra_body": {"prompt_logprobs": 0}}
        assert cached_tokens(**options) == 0
        assert cached_tokens() == len(long_prompt) - 1
        assert cached_tokens(**options) == 0


# ------------------------------------------------------------------------------------ every façade


@pytest.fixture(params=ALL_FACADES.values(), ids=ALL_FACADES.keys())
def facade(request: pytest.FixtureRequest, make_model: MakeModel, fake_lib: str) -> Any:
    made = request.param(make_model(answer="world", peak=3), model_lib=fake_lib)
    yield made
    made.audit()
    made.terminate()


@pytest.fixture(params=OPENAI_FACADES.values(), ids=OPENAI_FACADES.keys())
def openai(request: pytest.FixtureRequest, make_model: MakeModel, fake_lib: str) -> Any:
    made = request.param(make_model(answer="world", peak=3), model_lib=fake_lib)
    yield made
    made.audit()
    made.terminate()


@pytest.mark.both_step_kinds
def test_every_answer_gets_them_once(facade: Any) -> None:
    for n in (1, 3):
        answer = facade.generate("say wor", scored(n=n))
        assert answer.texts == ["ld"] * n
        (delivered,) = answer.scored_prompts
        assert len(delivered) == len("say wor")
    assert facade.generate("say wor", GenerationConfig(max_tokens=1)).scored_prompts == []


@pytest.mark.both_step_kinds
@pytest.mark.parametrize("value", [-1, 21, 2**40, 2**70, -(2**70)])
def test_a_number_out_of_range_is_refused(facade: Any, value: int) -> None:
    with pytest.raises(InvalidRequest, match=f'"prompt_logprobs".*{value}') as error:
        facade.generate("x", scored(value))
    assert error.value.field == "prompt_logprobs"
    if abs(value) < 2**63:
        assert "[0, 20]" in str(error.value)


@pytest.mark.parametrize("value", [1.5, "many", [1], {}, float("nan")])
def test_what_is_no_number_is_refused(openai: Any, value: Any) -> None:
    for call in (
        lambda: openai.complete(prompt="x", extra_body={"prompt_logprobs": value}),
        lambda: openai.chat(
            messages=[{"role": "user", "content": "x"}], extra_body={"prompt_logprobs": value}
        ),
    ):
        with pytest.raises(InvalidRequest) as error:
            call()
        assert error.value.field == "prompt_logprobs"


def test_answers_one_after_the_other_score_the_prompt_once(
    make_model: MakeModel, fake_lib: str
) -> None:
    config = EngineConfig(max_num_sequence=2, verbose=False)
    engine = SyncMLCEngine(make_model(peak=3), model_lib=fake_lib, engine_config=config)
    result = engine.generate(["some prompt"], scored(n=5, logprobs=True))
    assert len(result[0][0]) == 5
    assert engine.generate(["some prompt"], scored()).prompt_logprobs == result.prompt_logprobs
    assert engine.generate(["some prompt"], scored(n=5, max_tokens=0))[0] == [[""] * 5]


def test_a_batch_has_them(make_model: MakeModel, fake_lib: str) -> None:
    with MLCEngine(make_model(answer="world", peak=3), model_lib=fake_lib) as engine:
        first, second = engine.generate(["wox", "xyz"], prompt_logprobs=1, max_tokens=0)
        plain = engine.generate("wox", max_tokens=1)[0]
    assert first.text == second.text == ""
    assert first.prompt_logprobs is not None
    assert [entry and next(iter(entry)) for entry in first.prompt_logprobs] == [None, *b"ox"]
    assert plain.prompt_logprobs is None


@pytest.mark.parametrize("stream", [False, True])
def test_an_event_loop_does_not_make_the_scores(
    make_model: MakeModel, fake_lib: str, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    threads = []

    def recorded(*arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return prompt_logprobs(*arguments)

    async def ask() -> None:
        async with AsyncMLCEngine(make_model(peak=3), model_lib=fake_lib) as engine:
            arguments: dict[str, Any] = {"prompt": "wox", "max_tokens": 1, "stream": stream}
            arguments["extra_body"] = {"prompt_logprobs": 1}
            answer: Any = await engine.completions.create(**arguments)
            chunks = [chunk async for chunk in answer] if stream else [answer]
            assert len(chunks[0].choices[0].prompt_logprobs) == len("wox")

    monkeypatch.setattr(responses, "prompt_logprobs", recorded)
    asyncio.run(ask())
    assert len(threads) == 1
    assert threading.current_thread() not in threads


# ------------------------------------------------------------------------------- OpenAI's interface


def test_a_completion_has_them_by_token_id(openai: Any) -> None:
    body = {"prompt_logprobs": 2}
    response = openai.complete(prompt="wox", temperature=0, n=2, extra_body=body)
    for choice in response.choices:
        assert choice.text == "world"
        assert choice.logprobs is None
        first, second, third = choice.prompt_logprobs
        assert first is None
        # The model says "o" to "w".
        assert next(iter(second)) == ord("o")
        assert second[ord("o")].rank == 1
        assert second[ord("o")].decoded_token == "o"
        assert third[ord("x")].rank is None
        assert third[ord("r")].rank == 1
        assert third[ord("r")].logprob > third[ord("x")].logprob
        assert len(third) == 3
    assert json.loads(response.model_dump_json())["choices"][0]["prompt_logprobs"][0] is None


def test_a_chat_has_them(openai: Any) -> None:
    arguments: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}], "temperature": 0}
    arguments["extra_body"] = {"prompt_logprobs": 1}
    response = openai.chat(**arguments)
    assert len(response.prompt_logprobs) == response.usage.prompt_tokens
    assert response.prompt_logprobs[0] is None
    text = "".join(next(iter(e.values())).decoded_token for e in response.prompt_logprobs[1:])
    assert text == "ser: x\nassistant: "
    chunks = openai.chat(**arguments, stream=True)
    assert chunks[0].prompt_logprobs == response.prompt_logprobs
    assert all(chunk.prompt_logprobs is None for chunk in chunks[1:])
    assert openai.chat(messages=arguments["messages"]).prompt_logprobs is None


@pytest.mark.parametrize("prompt", ["wo€x", [*"wo€x".encode()]], ids=["text", "tokens"])
@pytest.mark.parametrize("max_tokens", [0, 1, 8])
@pytest.mark.parametrize("n", [1, 2])
def test_echo_covers_the_prompt(openai: Any, prompt: Any, max_tokens: int, n: int) -> None:
    arguments: dict[str, Any] = {"prompt": prompt, "max_tokens": max_tokens, "n": n}
    arguments |= {"temperature": 0, "echo": True, "logprobs": 2}
    response = openai.complete(**arguments)
    answer = "world"[:max_tokens]
    for choice in response.choices:
        assert choice.text == "wo€x" + answer
        logprobs = choice.logprobs
        assert logprobs.tokens == ["w", "o", *["\ufffd"] * 3, "x", *answer]
        assert logprobs.text_offset == [0, 1, 2, 3, 3, 3, *range(4, 4 + len(answer))]
        assert logprobs.token_logprobs[0] is None
        assert logprobs.top_logprobs[0] is None
        assert len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == 6 + len(answer)
        assert logprobs.top_logprobs[1]["o"] == logprobs.token_logprobs[1]
        assert all(len(top) == 2 for top in logprobs.top_logprobs[1:2])
        assert choice.prompt_logprobs is None
        assert choice.finish_reason == ("length" if max_tokens < 5 else "stop")
    assert response.usage.completion_tokens == n * (max_tokens if max_tokens < 5 else 6)
    assert response.usage.prompt_tokens == 6

    chunks = openai.complete(**arguments, stream=True)
    for index, choice in enumerate(response.choices):
        parts = [c for chunk in chunks for c in chunk.choices if c.index == index]
        assert parts[0].text == "wo€x"
        assert parts[0].finish_reason is None
        assert "".join(part.text for part in parts) == choice.text
        with_logprobs = [part.logprobs for part in parts if part.logprobs is not None]
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            joined = [value for logprobs in with_logprobs for value in getattr(logprobs, name)]
            assert joined == getattr(choice.logprobs, name)


def test_echo_and_prompt_logprobs_have_their_own_numbers(openai: Any) -> None:
    for echoed, of_prompt in ((1, 3), (3, 1), (0, 0)):
        response = openai.complete(
            prompt="xyz",
            max_tokens=0,
            echo=True,
            logprobs=echoed,
            extra_body={"prompt_logprobs": of_prompt},
        )
        choice = response.choices[0]
        assert choice.text == "xyz"
        assert [len(top) for top in choice.logprobs.top_logprobs[1:]] == [
            echoed + 1
        ] * 2  # and the token itself
        for entry in choice.prompt_logprobs[1:]:
            assert sum(token.rank is not None for token in entry.values()) == of_prompt


def test_echo_without_logprobs_does_not_score(openai: Any) -> None:
    response = openai.complete(prompt="xyz", max_tokens=0, echo=True)
    assert response.choices[0].text == "xyz"
    assert response.choices[0].logprobs is None
    assert openai.metrics()["num_steps"] == 0


def test_a_truncated_prompt_is_scored_from_where_it_begins(openai: Any) -> None:
    response = openai.complete(
        prompt="hello wox",
        max_tokens=0,
        echo=True,
        logprobs=1,
        extra_body={"truncate_prompt_tokens": 3},
    )
    assert response.choices[0].text == "hello wox"
    assert response.choices[0].logprobs.tokens == list("wox")
    assert response.choices[0].logprobs.text_offset == [6, 7, 8]


def test_text_offsets_of_tokens_that_the_text_does_not_show() -> None:
    assert text_offsets([b"<s>", b" Hello", b" world"], "Hello world") == [0, 0, 5]
    assert text_offsets([b"a", b"<|end|>", b"b"], "ab") == [0, 1, 1]
    assert text_offsets(["€".encode()[:1], "€".encode()[1:], b"x"], "€x") == [0, 1, 1]
    assert text_offsets([], "abc") == []
    assert text_offsets([b"x"], "") == [0]


def test_offsets_of_an_answer_whose_text_comes_in_pieces() -> None:
    offsets = AnswerOffsets(3)
    offsets.add_text("Hel")  # of a token whose rest is withheld
    offsets.add_text("lo ")
    assert [offsets.next(token) for token in (b" Hello", b"<|end|>", b" ")] == [3, 8, 8]
    assert offsets.next("€".encode()[:2]) == 9
    assert offsets.next(b"<|end|>") == 10
    offsets.add_text("€\ufffdx")
    assert offsets.next("€".encode()[2:]) == 10
    assert [offsets.next(token) for token in (b"\xff", b"x", b"")] == [10, 11, 12]


def test_the_end_of_the_sequence_in_a_prompt_has_a_score(openai: Any) -> None:
    response = openai.complete(prompt=[97, EOS, 98], max_tokens=0, echo=True, logprobs=0)
    logprobs = response.choices[0].logprobs
    assert response.choices[0].text == "ab"
    assert logprobs.tokens == ["a", "<|end|>", "b"]
    assert logprobs.text_offset == [0, 1, 1]
    assert None not in logprobs.token_logprobs[1:]
