"""min_tokens, allowed_token_ids, bad_words, no_repeat_ngram_size, skip_special_tokens,
include_stop_str_in_output and truncate_prompt_tokens, through every façade."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from facades import ALL_FACADES, OPENAI_FACADES, SyncFacade
from fake_model import EOS

from mlc_native import EngineConfig, MLCEngine, SyncMLCEngine
from mlc_native.errors import InvalidRequest
from mlc_native.protocol.generation_config import GenerationConfig, bad_word_tokens
from mlc_native.support.model_source import resolve_model
from mlc_native.tokenizers import Tokenizer

MakeModel = Callable[..., str]
pytestmark = pytest.mark.both_step_kinds
ANSWER = "abcabcabc"


def greedy(**fields: Any) -> GenerationConfig:
    """A greedy request of at most 12 tokens."""
    return GenerationConfig(**{"temperature": 0, "max_tokens": 12, **fields})


@pytest.fixture(params=ALL_FACADES.values(), ids=ALL_FACADES.keys())
def facade(request: pytest.FixtureRequest, make_model: MakeModel, fake_lib: str) -> Any:
    made = request.param(make_model(answer=ANSWER), model_lib=fake_lib)
    yield made
    made.audit()
    made.terminate()


def text(facade: Any, prompt: Any = "x", **fields: Any) -> tuple[str, str | None]:
    """The answer and its finish reason."""
    answer = facade.generate(prompt, greedy(**fields))
    return answer.texts[0], answer.finish_reasons[0]


# --------------------------------------------------------------------------------- min_tokens


def test_min_tokens_holds_back_the_end_of_sequence(facade: Any) -> None:
    assert text(facade) == (ANSWER, "stop")
    longer = facade.generate("x", greedy(min_tokens=11))
    assert len(longer.token_ids[0]) >= 11
    assert EOS not in longer.token_ids[0]
    assert longer.texts[0].startswith(ANSWER)
    # A minimum that the answer reaches anyway changes nothing.
    assert text(facade, min_tokens=9) == (ANSWER, "stop")


def test_min_tokens_holds_back_stop_tokens_and_stop_strings(facade: Any) -> None:
    assert text(facade, stop_token_ids=[ord("c")]) == ("ab", "stop")
    held_back, reason = text(facade, stop_token_ids=[ord("c")], min_tokens=4)
    assert held_back[:2] == "ab"
    assert held_back[2] != "c"
    assert len(held_back) >= 4
    assert text(facade, stop_strs=["c"]) == ("ab", "stop")
    assert text(facade, stop_strs=["c"], min_tokens=3) == ("abcab", "stop")
    assert text(facade, stop_strs=["c"], min_tokens=2) == ("ab", "stop")
    assert reason in ("stop", "length")


def test_min_tokens_out_of_range(facade: Any) -> None:
    with pytest.raises(InvalidRequest, match=r'"min_tokens" should be at least 0, got -1'):
        text(facade, min_tokens=-1)
    with pytest.raises(InvalidRequest, match=r'should be at most "max_tokens" \(12\), got 13'):
        text(facade, min_tokens=13)


# --------------------------------------------------------------- allowed_token_ids, bad_words


def test_allowed_token_ids(facade: Any) -> None:
    answer = facade.generate("x", greedy(allowed_token_ids=[ord("b"), ord("z"), ord("a")]))
    assert set(answer.texts[0]) <= {"a", "b", "z"}
    assert answer.texts[0][:2] == "ab"
    assert answer.finish_reasons[0] == "length"  # the end of the sequence is not allowed


def test_allowed_token_ids_out_of_range(facade: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"token ids in \[0, 257\), got 257"):
        text(facade, allowed_token_ids=[1, 257])
    with pytest.raises(ValueError, match="allowed_token_ids"):
        greedy(allowed_token_ids=[])


def test_a_bad_word_of_one_token_never_comes(facade: Any) -> None:
    answer, _ = text(facade, bad_words=["b"])
    assert answer[0] == "a"
    assert "b" not in answer


def test_a_bad_word_of_several_tokens_is_never_completed(facade: Any) -> None:
    answer, _ = text(facade, bad_words=["bca", [ord("a"), ord("b"), ord("d")]])
    assert answer.startswith("abc")  # the beginning of a bad word is none
    assert "bca" not in answer
    assert "abd" not in answer


def test_bad_words_out_of_range(facade: Any) -> None:
    with pytest.raises(InvalidRequest, match="no empty words"):
        text(facade, bad_words=[""])
    with pytest.raises(InvalidRequest, match=r"token ids in \[0, 257\), got 300"):
        text(facade, bad_words=[[1, 300]])


def test_bad_words_are_spelled_with_and_without_a_space() -> None:
    class Spelling:
        """Encodes a leading space into the first token."""

        def encode(self, text: str) -> list[int]:
            words = text.split(" ")
            return [len(word) + 100 * (i > 0) for i, word in enumerate(words) if word]

    tokenizer: Any = Spelling()
    assert bad_word_tokens(["abc"], tokenizer) == [[3], [103]]
    assert bad_word_tokens([" abc"], tokenizer) == [[3], [103]]
    with pytest.raises(InvalidRequest, match=r"no tokenizer\.json"):
        bad_word_tokens(["abc"], None)
    assert bad_word_tokens([[7]], None) == [[7]]


def test_no_sequence_of_tokens_comes_twice(facade: Any) -> None:
    prompt = [*b"xbcy"]
    tokens = prompt + facade.generate(prompt, greedy(no_repeat_ngram_size=2)).token_ids[0]
    assert len(tokens) > len(prompt) + 3
    assert tokens[4:6] == [*b"ab"]
    assert tokens[6] != ord("c")  # "bc" is in the prompt
    pairs = [*pairwise(tokens)]
    assert len(set(pairs)) == len(pairs)
    assert text(facade, no_repeat_ngram_size=100) == (ANSWER, "stop")
    with pytest.raises(InvalidRequest, match=r"should be at least 0 \(0 is off\), got -1"):
        text(facade, no_repeat_ngram_size=-1)


@pytest.mark.parametrize("size", [1, 2])
def test_no_repeat_ngram_size_is_that_of_transformers(size: int) -> None:
    transformers = pytest.importorskip("transformers")
    folder = resolve_model("demo")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    engine = SyncFacade(folder, dtype="float32", device="cpu", verbose=False)
    prompt = Tokenizer(folder).encode("Count to five. Count to five. Count")
    config = greedy(no_repeat_ngram_size=size, max_tokens=40)
    found = engine.generate(prompt, config).token_ids[0]
    inputs = transformers.BatchEncoding({"input_ids": [prompt]}, tensor_type="pt")
    wanted = model.generate(
        **inputs, max_new_tokens=40, do_sample=False, no_repeat_ngram_size=size
    )[0].tolist()
    plain = engine.generate(prompt, greedy(max_tokens=40)).token_ids[0]
    engine.terminate()
    assert prompt + found == wanted[: len(prompt) + len(found)]
    assert found != plain


@pytest.mark.parametrize("name", ["allowed_token_ids", "bad_words"])
def test_token_limits_and_a_grammar_contradict_each_other(facade: Any, name: str) -> None:
    values: dict[str, Any] = {"allowed_token_ids": [1], "bad_words": [[1]]}
    with pytest.raises(InvalidRequest, match=f'"{name}" cannot be combined with a response_format'):
        text(facade, **{name: values[name]}, response_format={"type": "regex", "regex": "a"})


# ------------------------------------------------------------------------------- text and stops


def test_skip_special_tokens(make_model: MakeModel, fake_lib: str) -> None:
    script = [*b"ab", EOS, *b"cd"]
    for make in ALL_FACADES.values():
        made = make(make_model(script=script), model_lib=fake_lib)
        config: dict[str, Any] = {"max_tokens": 5, "debug_config": {"ignore_eos": True}}
        assert text(made, **config)[0] == "abcd"
        assert text(made, **config, skip_special_tokens=False)[0] == "ab<|end|>cd"
        # The token that ends an answer is no part of it.
        assert text(made, skip_special_tokens=False) == ("ab", "stop")
        made.terminate()


def test_include_stop_str_in_output(facade: Any) -> None:
    assert text(facade, stop_strs=["bc"]) == ("a", "stop")
    assert text(facade, stop_strs=["bc"], include_stop_str_in_output=True) == ("abc", "stop")
    both: dict[str, Any] = {"include_stop_str_in_output": True, "stop_token_ids": [ord("b")]}
    answer = facade.generate("x", greedy(**both))
    assert (answer.texts[0], answer.token_ids[0]) == ("ab", [ord("a"), ord("b")])
    special = facade.generate("x", greedy(include_stop_str_in_output=True))
    assert (special.texts[0], special.token_ids[0][-1]) == (ANSWER, EOS)
    shown = greedy(include_stop_str_in_output=True, skip_special_tokens=False)
    assert facade.generate("x", shown).texts[0] == ANSWER + "<|end|>"


# ------------------------------------------------------------------------ truncate_prompt_tokens


def test_truncate_prompt_tokens(make_model: MakeModel, fake_lib: str) -> None:
    for make in ALL_FACADES.values():
        made = make(make_model(context_window_size=64), model_lib=fake_lib)
        short = text(made, "world")
        assert text(made, "hello world") != short
        assert text(made, "hello world", truncate_prompt_tokens=5) == short
        assert text(made, "world", truncate_prompt_tokens=50) == short
        # A prompt that is too long as it is.
        assert text(made, "x" * 100 + "world", truncate_prompt_tokens=5) == short
        with pytest.raises(InvalidRequest, match="should be at least 1, got 0"):
            text(made, truncate_prompt_tokens=0)
        made.terminate()


# ---------------------------------------------------------------------------------- every surface


@pytest.mark.parametrize("facade", OPENAI_FACADES.values())
def test_extra_body(facade: Any, make_model: MakeModel, fake_lib: str) -> None:
    made = facade(make_model(answer=ANSWER), model_lib=fake_lib)
    options: dict[str, Any] = {"min_tokens": 3, "bad_words": ["c"], "allowed_token_ids": [*b"abde"]}
    options |= {"skip_special_tokens": False, "include_stop_str_in_output": True}
    body = {**options, "truncate_prompt_tokens": 4}
    completion = made.complete(prompt="12345", max_tokens=8, temperature=0, extra_body=body)
    assert completion.usage.prompt_tokens == 4
    assert set(completion.choices[0].text) <= set("abde")
    message = {"role": "user", "content": "12345"}
    chat = made.chat(messages=[message], max_tokens=8, temperature=0, extra_body=body)
    assert chat.usage.prompt_tokens == 4
    assert set(chat.choices[0].message.content) <= set("abde")
    with pytest.raises(ValueError, match="max_tokens"):
        made.complete(prompt="x", max_tokens=2, extra_body={"min_tokens": 3})
    made.terminate()


# ------------------------------------------------------------------------------------ determinism

OPTIONS: list[dict[str, Any]] = [
    {},
    {"min_tokens": 9, "stop_token_ids": [*range(0, 256, 3)]},
    {"allowed_token_ids": [*range(40, 90)]},
    {"bad_words": [[byte] for byte in range(0, 256, 2)]},
    {"bad_words": [[first, second] for first in range(60, 90) for second in range(0, 256, 5)]},
    {"no_repeat_ngram_size": 1},
    {"bad_words": [[70], [71, 72]], "min_tokens": 4, "presence_penalty": 1.5},
]


def answers(model: str, fake_lib: str, together: bool, **settings: Any) -> list[list[int]]:
    """Tokens of a request for each of OPTIONS, two answers each."""
    config = EngineConfig(verbose=False, **settings)
    engine = SyncMLCEngine(model, model_lib=fake_lib, engine_config=config)
    prompts = [f"prompt number {i}" for i in range(len(OPTIONS))]
    configs = [
        GenerationConfig(**options, n=1, max_tokens=24, seed=i, temperature=2, top_p=0.95)
        for i, options in enumerate(OPTIONS)
    ]
    if together:
        texts, _ = engine.generate(prompts, configs)
    else:
        texts = [engine.generate(p, c)[0][0] for p, c in zip(prompts, configs, strict=True)]
    return [list(text[0].encode("utf-8", "surrogateescape")) for text in texts]


def test_answers_do_not_depend_on_the_batch(make_model: MakeModel, fake_lib: str) -> None:
    model = make_model(peak=3)
    alone = answers(model, fake_lib, together=False)
    assert len({tuple(answer) for answer in alone}) == len(OPTIONS)
    assert answers(model, fake_lib, together=True, max_num_sequence=6) == alone
    # Prompts in chunks, and too few pages for all: sequences are preempted and computed again.
    scarce = {"max_num_sequence": 6, "prefill_chunk_size": 6, "max_total_sequence_length": 96}
    assert answers(model, fake_lib, together=True, **scarce) == alone


def test_the_demo_model_obeys(demo: str, device: dict[str, Any]) -> None:
    engine = MLCEngine(demo, engine_config=EngineConfig(verbose=False), **device)
    question = [{"role": "user", "content": "What is 2 + 2?"}]

    def ask(**body: Any) -> Any:
        response = engine.chat.completions.create(
            messages=question, temperature=0, max_tokens=24, extra_body=body
        )
        return response.choices[0].message.content, response.usage.completion_tokens

    plain, length = ask()
    word = plain.split()[0]
    assert word not in ask(bad_words=[word])[0]
    assert ask(min_tokens=length + 4)[1] >= length + 4
    engine.terminate()
