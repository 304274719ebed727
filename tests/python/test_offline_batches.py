"""``engine.generate`` and lists of prompts: order, errors of single items, limits, cancelling."""

from __future__ import annotations

import asyncio
import io
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from facades import OPENAI_FACADES
from fake_model import VOCAB_SIZE

from mlc_native import AsyncMLCEngine, EngineConfig, GenerationConfig, GenerationResult, MLCEngine
from mlc_native.errors import (
    EngineRequestError,
    EngineTerminatedError,
    InvalidRequest,
    QueueFull,
)
from mlc_native.serve.data import TextData

MakeModel = Callable[..., str]
USER = {"role": "user", "content": "hi"}
SLOW = {"us_per_step": 2000, "cost": "sleep"}
ENDLESS: dict[str, Any] = {"max_tokens": -1, "ignore_eos": True}


@pytest.fixture(params=OPENAI_FACADES)
def facade(
    request: pytest.FixtureRequest, make_model: MakeModel, fake_lib: str
) -> Iterator[Callable[..., Any]]:
    """Makes engines of one kind and ends them after the test."""
    made: list[Any] = []

    def make(config: Any = None, **fake: Any) -> Any:
        kind = OPENAI_FACADES[request.param]
        made.append(kind(make_model(**fake), model_lib=fake_lib, engine_config=config))
        return made[-1]

    yield make
    for engine in made:
        engine.terminate()


def batch(engine: Any, prompts: Any, *arguments: Any, **options: Any) -> list[GenerationResult]:
    result = engine.engine.generate(prompts, *arguments, **options)
    return engine.run(result) if asyncio.iscoroutine(result) else result


# -------------------------------------------------------------------------------------- generate


def test_results_are_in_order_and_equal_single_requests(facade: Any) -> None:
    engine = facade(EngineConfig(max_num_sequence=3))
    prompts = [f"prompt {i}" for i in range(40)]
    lengths = [{"max_tokens": 1 + (7 * i) % 12} for i in range(40)]  # they end in another order
    results = batch(engine, prompts, lengths, ignore_eos=True)
    for prompt, settings, result in zip(prompts, lengths, results, strict=True):
        alone = engine.complete(prompt=prompt, ignore_eos=True, **settings)
        assert result.text == alone.choices[0].text
        assert bytes(result.token_ids).decode(errors="replace") == result.text
        assert result.prompt_token_ids == list(prompt.encode())
        assert result.usage is not None
        assert result.usage.completion_tokens == settings["max_tokens"] == len(result.token_ids)
        assert (result.finish_reason, result.error, result.logprobs) == ("length", None, None)
    assert len(engine.engine.state.bridge) == 0


def test_kinds_of_items(facade: Any) -> None:
    engine = facade(answer="Hi there")
    items: list[Any] = [
        "abc",
        [97, 98],
        TextData("abc"),
        [USER],
        {"prompt": "abc", "max_tokens": 2},
        {"messages": [USER], "max_tokens": 2},
    ]
    texts = [result.text for result in batch(engine, items)]
    assert texts == ["Hi there"] * 4 + ["Hi"] * 2
    chat = batch(engine, [[USER]])[0]
    assert chat.prompt_token_ids == list(b"user: hi\nassistant: ")
    assert batch(engine, iter(items))[3].text == "Hi there"


@pytest.mark.parametrize("single", ["abc", [97, 98, 99], [USER], {"prompt": "abc"}, TextData("a")])
def test_a_single_item_is_a_list_of_one(facade: Any, single: Any) -> None:
    (result,) = batch(facade(answer="Hi"), single)
    assert result.text == "Hi"


@pytest.mark.parametrize(("library", "name"), [("numpy", "array"), ("torch", "tensor")])
def test_arrays_are_prompts(facade: Any, library: str, name: str) -> None:
    """As in ``completions.create``."""
    make = getattr(pytest.importorskip(library), name)
    engine = facade(peak=4)
    ids = [[97, 98], [99, 100]]
    expected = [result.text for result in batch(engine, ids, temperature=0, max_tokens=4)]
    for items in (make(ids), [make(each) for each in ids]):
        results = batch(engine, items, temperature=0, max_tokens=4)
        assert [result.prompt_token_ids for result in results] == ids
        assert [result.text for result in results] == expected
    (single,) = batch(engine, make(ids[0]), temperature=0, max_tokens=4)
    assert single.text == expected[0]
    if library == "numpy":  # its integers are integers
        assert batch(engine, [list(make(ids[0]))], max_tokens=1)[0].prompt_token_ids == ids[0]
    with pytest.raises(InvalidRequest) as refused:
        batch(engine, make(5))
    assert refused.value.field == "prompts"
    assert batch(engine, make(ids[:0])) == []


def test_nothing_gives_nothing(facade: Any) -> None:
    engine = facade()
    assert batch(engine, []) == batch(engine, ()) == batch(engine, iter(())) == []


def test_a_bad_item_fails_alone(facade: Any) -> None:
    engine = facade(answer="ok")
    bad: list[Any] = [
        *("", b"abc", None, 5, [VOCAB_SIZE], [1 << 70], "\ud800", [None], "x" * 100_000),
        *([{"role": "judge", "content": "x"}], [{"content": "x"}], {"prompt": 5}),
        *({"messages": []}, {"messages": 5}, {"prompt": "x", "max_tokens": "many"}, {"x": 1}, {}),
        {"prompt": "x", "temperature": -1},
    ]
    items = [item for each in bad for item in ("fine", each)]
    results = batch(engine, items)
    assert [result.text for result in results[::2]] == ["ok"] * len(bad)
    for item, result in zip(bad, results[1::2], strict=True):
        assert isinstance(result.error, InvalidRequest), item
        assert result.error.field
        assert (result.text, result.token_ids, result.finish_reason) == ("", [], "error")
        assert (result.choices, result.usage) == ([], None)
    assert len(engine.engine.state.bridge) == 0


def test_an_error_of_the_engine_keeps_the_text_before_it(facade: Any) -> None:
    engine = facade(answer="abcB", poison_token=ord("B"))
    results = batch(engine, ["x", "y"])
    for result in results:
        assert isinstance(result.error, EngineRequestError)
        assert (result.text, result.finish_reason) == ("abcB"[: len(result.text)], "error")
    assert batch(engine, "x", max_tokens=2)[0].text == "ab"


def test_n_answers_logprobs_and_seeds(facade: Any) -> None:
    engine = facade(peak=4)
    config = GenerationConfig(n=3, max_tokens=5, temperature=1.0, seed=1, logprobs=True)
    (first,), (again,) = batch(engine, ["abc"], config), batch(engine, ["abc"], config)
    assert [c.text for c in first.choices] == [c.text for c in again.choices]
    assert len({c.text for c in first.choices}) > 1
    for choice in first.choices:
        assert choice.logprobs is not None
        assert len(choice.logprobs) == len(choice.token_ids) == 5
    other = batch(engine, ["abc"], config, seed=2)[0]  # a keyword takes precedence
    assert [c.text for c in other.choices] != [c.text for c in first.choices]


def test_a_config_may_be_a_dict_and_its_stops_count(facade: Any) -> None:
    engine = facade(answer="Hello, world")
    assert batch(engine, "x", {"stop_strs": [", "]})[0].text == "Hello"
    assert batch(engine, "x", stop=", ")[0].text == "Hello"
    assert batch(engine, "x", {"max_tokens": 3}, max_tokens=4)[0].text == "Hell"


@pytest.mark.parametrize(
    ("config", "options", "field"),
    [
        (None, {"temperature": -1}, "temperature"),
        (None, {"temperature": "hot"}, "temperature"),
        (5, {}, "generation_config"),
        ({"max_token": 5}, {}, "max_token"),
        ([{}, {}], {}, "generation_config"),
        (None, {"stop_token_ids": [VOCAB_SIZE]}, "stop_token_ids"),
    ],
)
def test_wrong_settings_fail_the_call(facade: Any, config: Any, options: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        batch(facade(), ["a"], config, **options)
    assert error.value.field == field


def test_an_unknown_option_is_named(facade: Any) -> None:
    with pytest.raises(TypeError, match="'temprature'; did you mean 'temperature'"):
        batch(facade(), ["a"], temprature=1)
    with pytest.raises(InvalidRequest, match="prompts"):
        batch(facade(), 5)


def test_a_full_queue_makes_the_feeder_wait(facade: Any) -> None:
    config = EngineConfig(max_num_sequence=1, max_queue_length=1)
    engine = facade(config, us_per_step=30_000, cost="sleep")  # 90 ms per request
    results = batch(engine, [f"p{i}" for i in range(8)], max_tokens=3, ignore_eos=True)
    assert [len(result.token_ids) for result in results] == [3] * 8
    assert engine.metrics()["num_queue_full"] > 0


def test_others_are_served_alongside(facade: Any) -> None:
    """A batch leaves at most as many requests waiting as it has running."""
    engine = facade(EngineConfig(max_num_sequence=4))
    seen: list[int] = []

    def prompts() -> Iterator[str]:
        for i in range(100):
            seen.append(len(engine.engine.state.bridge))
            yield f"p{i}"

    assert len(batch(engine, prompts(), max_tokens=2)) == 100
    assert max(seen) <= 8


@pytest.mark.slow
def test_ten_thousand_prompts_cost_their_results(make_model: MakeModel, fake_lib: str) -> None:
    with MLCEngine(make_model(), model_lib=fake_lib, mode="server") as engine:
        options: Any = {"max_tokens": 1, "ignore_eos": True, "progress": False}

        def peak_of(count: int) -> tuple[float, int]:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            results = engine.generate((f"p{i}" for i in range(count)), **options)
            assert all(result.finish_reason == "length" for result in results)
            after, peak = tracemalloc.get_traced_memory()
            return (after - before) / count, peak - after

        tracemalloc.start()
        try:
            peak_of(100)  # warms caches up
            kept_few, passing_few = peak_of(1000)
            kept_many, passing_many = peak_of(10_000)
        finally:
            tracemalloc.stop()
        assert kept_many < 1.5 * kept_few
        assert passing_many < passing_few + 1_000_000  # what is in flight does not grow


def test_an_exception_of_the_callers_generator_aborts_the_rest(
    make_model: MakeModel, fake_lib: str
) -> None:
    def prompts() -> Iterator[str]:
        yield "a"
        raise KeyError("mine")

    with MLCEngine(make_model(**SLOW), model_lib=fake_lib) as engine:
        with pytest.raises(KeyError, match="mine"):
            engine.generate(prompts(), **ENDLESS)
        assert engine.metrics()["num_running_requests"] == 0
        assert engine.metrics()["num_aborts"] == 1
        assert len(engine.state.bridge) == 0


async def test_cancelling_a_batch_aborts_it(make_model: MakeModel, fake_lib: str) -> None:
    model = make_model(**SLOW, context_window_size=1 << 20)
    async with AsyncMLCEngine(model, model_lib=fake_lib) as engine:
        task = asyncio.create_task(engine.generate(["a", "b"], **ENDLESS))
        while (await engine.metrics())["num_running_requests"] < 2:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while (await engine.metrics())["num_running_requests"]:
            await asyncio.sleep(0)
        assert (await engine.metrics())["num_aborts"] == 2
        assert (await engine.generate("x", max_tokens=2))[0].error is None


def test_terminate_ends_a_batch(facade: Any) -> None:
    engine = facade(**SLOW, context_window_size=1 << 20)
    made = engine.engine

    def prompts() -> Iterator[str]:
        yield "a"
        made.terminate()
        yield "b"

    with pytest.raises(EngineTerminatedError):
        batch(engine, prompts(), **ENDLESS)


def test_the_progress_bar(
    make_model: MakeModel, fake_lib: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MLCEngine(make_model(answer="Hi"), model_lib=fake_lib) as engine:
        for progress, is_shown in ((None, False), (False, False), (True, True)):
            stderr = io.StringIO()  # no terminal
            monkeypatch.setattr(sys, "stderr", stderr)
            engine.generate(["a", "b"], progress=progress)
            assert ("2/2" in stderr.getvalue()) == is_shown
            assert ("tokens/s" in stderr.getvalue()) == is_shown


def test_without_a_progress_bar_there_is_no_thread_for_it(
    make_model: MakeModel, fake_lib: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tqdm starts one, which stays, when its first bar is made, also for a bar that is disabled."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setitem(sys.modules, "tqdm", None)  # importing it is an error
    with MLCEngine(make_model(answer="Hi"), model_lib=fake_lib) as engine:
        assert engine.generate("a")[0].text == "Hi"
        assert engine.generate("a", progress=False)[0].text == "Hi"


# ------------------------------------------------------------------------- completions of a list


@pytest.mark.parametrize("prompts", [["ab", "cd", "ef"], [[97, 98], [99, 100], [101, 102]]])
def test_a_list_of_prompts(facade: Any, prompts: Any) -> None:
    engine = facade(peak=4)
    arguments: Any = {"max_tokens": 6, "n": 2, "seed": 3, "ignore_eos": True, "temperature": 1.0}
    response = engine.complete(prompt=prompts, request_id="r", **arguments)
    assert response.id == "r"
    assert [choice.index for choice in response.choices] == list(range(6))
    alone = [engine.complete(prompt=prompt, **arguments) for prompt in prompts]
    expected = [choice.text for each in alone for choice in each.choices]
    assert [choice.text for choice in response.choices] == expected
    assert response.usage.completion_tokens == 36
    assert response.usage.prompt_tokens == 6

    usage = {"include_usage": True}
    chunks = engine.complete(prompt=prompts, stream=True, stream_options=usage, **arguments)
    texts = [""] * 6
    *deltas, last = chunks
    for chunk in deltas:
        (choice,) = chunk.choices  # one per chunk
        texts[choice.index] += choice.text
    assert texts == expected
    assert (last.choices, last.usage.completion_tokens) == ([], 36)
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_list_of_prompts_with_echo(facade: Any) -> None:
    engine = facade(answer="!")
    response = engine.complete(prompt=["ab", "cd"], echo=True)
    assert [choice.text for choice in response.choices] == ["ab!", "cd!"]
    texts = ["", ""]
    for chunk in engine.complete(prompt=["ab", "cd"], echo=True, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == ["ab!", "cd!"]


def test_one_bad_prompt_refuses_the_list(facade: Any) -> None:
    engine = facade(answer="x")
    for prompts in (["ab", ""], [[97], [VOCAB_SIZE]], [[97], "ab"], [None], [["ab"]]):
        for stream in (False, True):
            with pytest.raises(InvalidRequest):
                engine.complete(prompt=prompts, stream=stream)
    assert engine.metrics()["num_waiting_requests"] == 0
    assert len(engine.engine.state.bridge) == 0


def test_a_list_that_the_queue_cannot_hold_leaves_nothing(facade: Any) -> None:
    engine = facade(EngineConfig(max_num_sequence=1, max_queue_length=2), **SLOW)
    with pytest.raises(QueueFull):
        engine.complete(prompt=["abc"] * 50, **ENDLESS)
    while engine.metrics()["num_running_requests"] + engine.metrics()["num_waiting_requests"]:
        pass
    assert len(engine.engine.state.bridge) == 0


def test_abort_ends_all_prompts_of_a_call(make_model: MakeModel, fake_lib: str) -> None:
    model = make_model(**SLOW, context_window_size=1 << 20)
    with MLCEngine(model, model_lib=fake_lib) as engine:
        with engine.completions.create(
            prompt=["a", "b", "c"], stream=True, request_id="r", **ENDLESS
        ) as chunks:
            next(chunks)
            engine.abort("r")
            ends = [c.finish_reason for chunk in chunks for c in chunk.choices if c.finish_reason]
        assert ends == ["abort"] * 3


def test_closing_the_stream_of_a_list_aborts_it(make_model: MakeModel, fake_lib: str) -> None:
    model = make_model(**SLOW, context_window_size=1 << 20)
    with MLCEngine(model, model_lib=fake_lib) as engine:
        with engine.completions.create(prompt=["a", "b"], stream=True, **ENDLESS) as chunks:
            next(chunks)
        assert engine.metrics()["num_running_requests"] == 0
        assert list(chunks) == []


def test_an_engine_error_in_a_list_ends_the_call(facade: Any) -> None:
    engine = facade(poison_token=66)
    with pytest.raises(EngineRequestError):
        engine.complete(prompt=["abc", "aBc"], max_tokens=400, ignore_eos=True)
    while engine.metrics()["num_running_requests"]:
        pass
    assert len(engine.engine.state.bridge) == 0


# ---------------------------------------------------------------------------- reasoning and calls

TOOL = {"type": "function", "function": {"name": "time"}}


def test_chats_have_reasoning_and_calls(facade: Any) -> None:
    call = '<tool_call>{"name": "time"}</tool_call>'
    answer = f"<think>Hm.</think>So.{call}"
    engine = facade(
        answer=answer,
        chat_template="{% if tools %}<tool_call><think>{% endif %}{{ messages[0].content }}",
    )
    chat, prompt, cut = batch(
        *(engine, [{"messages": [USER], "tools": [TOOL]}, "abc", [USER]]),
        [{"n": 2}, {}, {"max_tokens": 9}],
    )
    assert (chat.text, chat.finish_reason) == (answer, "tool_calls")
    assert (chat.reasoning_content, chat.content) == ("Hm.", "So.")
    assert [(each.function.name, each.function.arguments) for each in chat.tool_calls] == [
        ("time", "{}")
    ]
    assert all(choice.message.tool_calls for choice in chat.choices)
    details = chat.usage.completion_tokens_details
    assert details.reasoning_tokens == 2 * len("<think>Hm.</think>")
    assert (prompt.text, prompt.content, prompt.finish_reason) == (answer, answer, "stop")
    assert (prompt.reasoning_content, prompt.tool_calls) == (None, None)
    assert (cut.reasoning_content, cut.content, cut.finish_reason) == ("Hm", "", "length")


# --------------------------------------------------------------------------------- token ids


def test_token_ids_on_request(facade: Any) -> None:
    engine = facade(answer="Hi")
    response = engine.complete(prompt="abc", return_token_ids=True)
    assert response.choices[0].token_ids == list(b"Hi")
    assert response.choices[0].prompt_token_ids == list(b"abc")
    response = engine.chat(messages=[USER], return_token_ids=True)
    assert response.choices[0].token_ids == list(b"Hi")
    assert response.prompt_token_ids == list(b"user: hi\nassistant: ")
    for chunks in (
        engine.complete(prompt="abc", return_token_ids=True, stream=True),
        engine.chat(messages=[USER], return_token_ids=True, stream=True),
    ):
        assert [i for chunk in chunks for i in chunk.choices[0].token_ids] == list(b"Hi")
    usage = {"stream_options": {"include_usage": True}}
    for echo in (False, True):
        chunks = engine.complete(
            prompt=["abc", "x"], return_token_ids=True, stream=True, n=2, echo=echo, **usage
        )
        choices = [choice for chunk in chunks for choice in chunk.choices]
        for index, prompt in enumerate([b"abc", b"abc", b"x", b"x"]):
            ids = [each.prompt_token_ids for each in choices if each.index == index]
            assert ids == [list(prompt), *[None] * (len(ids) - 1)]
    chunks = engine.chat(messages=[USER], return_token_ids=True, stream=True, n=2, **usage)
    ids = [chunk.prompt_token_ids for chunk in chunks]
    assert ids == [list(b"user: hi\nassistant: "), *[None] * (len(ids) - 1)]
    assert engine.complete(prompt="abc").choices[0].token_ids is None
    assert engine.chat(messages=[USER]).prompt_token_ids is None
