"""MLCEngine, AsyncMLCEngine and SyncMLCEngine on the fake model: the same behaviour on each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from facades import ALL_FACADES, OPENAI_FACADES, Answer, AsyncFacade, SyncFacade
from fake_model import EOS
from prometheus_client.parser import text_string_to_metric_families
from tokenizers import Tokenizer, decoders, normalizers

from mlc_native import AsyncMLCEngine, EngineConfig, MLCEngine
from mlc_native.errors import EngineRequestError, InvalidRequest
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.serve.data import TextData, TokenData

USER = [{"role": "user", "content": "hi"}]
MakeModel = Callable[..., str]
pytestmark = pytest.mark.both_step_kinds


class Engines:
    """Makes engines of one kind and ends them after the test."""

    def __init__(self, facade: Any, make_model: MakeModel, fake_lib: str) -> None:
        self._facade = facade
        self._make_model = make_model
        self._fake_lib = fake_lib
        self._made: list[Any] = []

    def __call__(self, config: EngineConfig | None = None, **fake: Any) -> Any:
        model = self._make_model(**fake)
        made = self._facade(model, model_lib=self._fake_lib, engine_config=config)
        self._made.append(made)
        return made

    def end(self) -> None:
        for made in self._made:
            made.terminate()


@pytest.fixture(params=ALL_FACADES)
def any_engine(
    request: pytest.FixtureRequest, make_model: MakeModel, fake_lib: str
) -> Iterator[Engines]:
    engines = Engines(ALL_FACADES[request.param], make_model, fake_lib)
    yield engines
    engines.end()


@pytest.fixture(params=OPENAI_FACADES)
def openai_engine(
    request: pytest.FixtureRequest, make_model: MakeModel, fake_lib: str
) -> Iterator[Engines]:
    engines = Engines(OPENAI_FACADES[request.param], make_model, fake_lib)
    yield engines
    engines.end()


# ---------------------------------------------------------------------------------- all three


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


# ---------------------------------------------------------------------------- OpenAI's interface


def test_chat_completion(openai_engine: Engines) -> None:
    response = openai_engine(answer="Hi there").chat(messages=USER, n=2, request_id="r1")
    assert response.id == "r1"
    assert response.object == "chat.completion"
    assert [c.index for c in response.choices] == [0, 1]
    for choice in response.choices:
        assert (choice.message.role, choice.message.content) == ("assistant", "Hi there")
        assert choice.finish_reason == "stop"
        assert choice.logprobs is None
    assert response.usage.prompt_tokens == len("user: hi\nassistant: ")
    assert response.usage.completion_tokens == 2 * (len("Hi there") + 1)
    assert response.usage.total_tokens == (
        response.usage.prompt_tokens + response.usage.completion_tokens
    )


def test_chat_stream(openai_engine: Engines) -> None:
    engine = openai_engine(answer="Hi there")
    chunks = engine.chat(messages=USER, stream=True, stream_options={"include_usage": True})
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].id.startswith("chatcmpl-")
    *deltas, last = chunks
    assert all(c.delta.role == "assistant" for chunk in deltas for c in chunk.choices)
    assert "".join(c.delta.content for chunk in deltas for c in chunk.choices) == "Hi there"
    reasons = [c.finish_reason for chunk in deltas for c in chunk.choices]
    assert reasons[-1] == "stop"
    assert set(reasons[:-1]) <= {None}
    assert last.choices == []
    assert last.usage.completion_tokens == len("Hi there") + 1
    assert all(chunk.usage is None for chunk in deltas)


def test_stream_without_usage(openai_engine: Engines) -> None:
    chunks = openai_engine(answer="Hi").chat(messages=USER, stream=True)
    assert all(chunk.choices for chunk in chunks)


def test_chat_logprobs(openai_engine: Engines) -> None:
    engine = openai_engine(answer="Hé")
    response = engine.chat(messages=USER, logprobs=True, top_logprobs=2)
    content = response.choices[0].logprobs.content
    assert [c.bytes for c in content][:3] == [[b] for b in "Hé".encode()]
    assert all(len(c.top_logprobs) == 2 for c in content)
    chunks = engine.chat(messages=USER, logprobs=True, top_logprobs=2, stream=True)
    streamed = [c for ch in chunks if (lp := ch.choices[0].logprobs) for c in lp.content]
    assert streamed == content


def test_a_suffix_is_refused(openai_engine: Engines) -> None:
    engine = openai_engine(answer="world")
    with pytest.raises(InvalidRequest, match='"suffix" is not supported') as error:
        engine.complete(prompt="hello ", suffix="!")
    assert error.value.field == "suffix"
    assert engine.complete(prompt="hello ", suffix=None).choices[0].text == "world"


def test_completion_echo_logprobs(openai_engine: Engines) -> None:
    engine = openai_engine(answer="world")
    arguments: dict[str, Any] = {"prompt": "hello ", "echo": True, "logprobs": 2}
    response = engine.complete(**arguments)
    choice = response.choices[0]
    assert choice.text == "hello world"
    assert choice.logprobs.tokens[:11] == list("hello world")
    assert choice.logprobs.text_offset[:11] == [*range(11)]
    assert all(len(top) <= 3 for top in choice.logprobs.top_logprobs[1:])
    assert len(choice.logprobs.token_logprobs) == len(choice.logprobs.tokens)
    chunks = engine.complete(**arguments, stream=True)
    assert "".join(c.text for chunk in chunks for c in chunk.choices) == "hello world"
    tokens = [t for ch in chunks if (lp := ch.choices[0].logprobs) for t in lp.tokens]
    assert tokens == choice.logprobs.tokens


def test_completion_offsets_count_characters(openai_engine: Engines) -> None:
    """Tokens of one byte: a character belongs to the one with its first byte."""
    engine = openai_engine(answer="a€é!")
    arguments: dict[str, Any] = {"prompt": "€ ", "echo": True, "logprobs": 1}
    choice = engine.complete(**arguments).choices[0]
    assert choice.text == "€ a€é!"
    assert choice.logprobs.text_offset == [0, 1, 1, 1, 2, 3, 4, 4, 4, 5, 5]
    chunks = engine.complete(**arguments, stream=True)
    parts = [lp for chunk in chunks if (lp := chunk.choices[0].logprobs)]
    assert [offset for lp in parts for offset in lp.text_offset] == choice.logprobs.text_offset


def test_completion_echo_of_token_ids(openai_engine: Engines) -> None:
    response = openai_engine(answer="c").complete(prompt=[97, 98], echo=True)
    assert response.choices[0].text == "abc"
    assert response.id.startswith("cmpl-")


@pytest.mark.parametrize("token", [-1, 1 << 40])
@pytest.mark.parametrize("echo", [False, True])
def test_a_prompt_of_no_token_is_refused_by_its_name(
    openai_engine: Engines, token: int, echo: bool
) -> None:
    with pytest.raises(InvalidRequest, match=rf"\[0, 2\^31\), got {token}") as error:
        openai_engine(answer="c").complete(prompt=[97, token], echo=echo)
    assert error.value.field == "prompt"


def test_extra_body(openai_engine: Engines) -> None:
    engine = openai_engine(answer="abc")
    response = engine.chat(
        messages=USER, extra_body={"ignore_eos": True, "max_completion_tokens": 6, "top_k": 1}
    )
    assert response.choices[0].finish_reason == "length"
    assert response.usage.completion_tokens == 6
    debug = {"debug_config": {"ignore_eos": True}}
    response = engine.complete(prompt="x", max_tokens=5, extra_body=debug)
    assert response.usage.completion_tokens == 5


def test_query_engine_metrics(openai_engine: Engines) -> None:
    engine = openai_engine()
    engine.complete(prompt="abc", max_tokens=4)
    (chunk,) = engine.chat(
        messages=USER,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"debug_config": {"special_request": "query_engine_metrics"}},
    )
    assert chunk.usage.extra["completion_tokens_sum"] == 4


def test_tools_reach_the_template(openai_engine: Engines) -> None:
    template = "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}"
    template += (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments.x }}"
    )
    template += "{% endfor %}{% endfor %}|"
    engine = openai_engine(chat_template=template, answer="ok")
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 12}'}}
    messages = [*USER, {"role": "assistant", "tool_calls": [call]}]
    messages += [{"role": "tool", "tool_call_id": "1", "content": "3"}]
    tools = [{"type": "function", "function": {"name": "f"}}]
    response = engine.chat(messages=messages, tools=tools)
    assert response.usage.prompt_tokens == len("f12|")
    assert response.choices[0].message.content == "ok"


def test_text_parts_of_a_message(openai_engine: Engines) -> None:
    engine = openai_engine(chat_template="{{ messages[0].content }}", answer="ok")
    parts = [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]
    response = engine.chat(messages=[{"role": "user", "content": parts}])
    assert response.usage.prompt_tokens == 3


def test_an_error_comes_after_the_chunks_before_it(openai_engine: Engines) -> None:
    engine = openai_engine(answer="abcB", poison_token=ord("B"))
    with pytest.raises(EngineRequestError):
        engine.chat(messages=USER)
    with pytest.raises(EngineRequestError):
        engine.complete(prompt="x", stream=True)
    assert engine.complete(prompt="x", max_tokens=2).choices[0].text == "ab"


def test_reset_ends_requests_and_clears_metrics(openai_engine: Engines) -> None:
    engine = openai_engine()
    engine.complete(prompt="abc", max_tokens=4)
    engine.engine.reset()
    assert engine.metrics()["completion_tokens_sum"] == 0
    assert engine.complete(prompt="abc", max_tokens=4).usage.completion_tokens == 4


def test_tracing(make_model: MakeModel, fake_lib: str) -> None:
    with MLCEngine(make_model(), model_lib=fake_lib, enable_tracing=True) as engine:
        engine.completions.create(prompt="abc", max_tokens=4, request_id="traced")
        assert engine.state.trace_recorder is not None
        events = json.loads(engine.state.trace_recorder.dump_json())
    mine = [e for e in events if e["tid"] == "traced"]
    assert any("tokenization" in e["name"] for e in mine)
    assert sum(e["ph"] == "B" for e in mine) == sum(e["ph"] == "E" for e in mine) > 0


# ---------------------------------------------------------------- abort, concurrency, isolation

SLOW = {"us_per_step": 2000, "cost": "sleep"}
LONG = {"max_tokens": 2000, "extra_body": {"ignore_eos": True}}


@pytest.fixture
def engine(make_model: MakeModel, fake_lib: str) -> Iterator[MLCEngine]:
    """A slow MLCEngine: its answers last long enough to interfere with."""
    with MLCEngine(make_model(**SLOW), model_lib=fake_lib, mode="server") as made:
        yield made


@pytest.fixture
async def async_engine(make_model: MakeModel, fake_lib: str) -> Any:
    async with AsyncMLCEngine(make_model(**SLOW), model_lib=fake_lib, mode="server") as made:
        yield made


# However a request is aborted, its consumer gets the final output.
def test_abort_ends_the_iterator(engine: MLCEngine) -> None:
    stream = engine.completions.create(prompt="abc", stream=True, request_id="r", **LONG)
    first = next(stream)
    assert first.choices[0].finish_reason is None
    engine.abort("r")
    rest = list(stream)
    assert rest[-1].choices[0].finish_reason == "abort"
    engine.abort("r")  # gone: ignored
    assert engine.metrics()["num_aborts"] == 1


async def test_async_abort_ends_the_iterator(async_engine: AsyncMLCEngine) -> None:
    stream = await async_engine.chat.completions.create(
        messages=USER, stream=True, request_id="r", **LONG
    )
    await anext(stream)
    await async_engine.abort("r")
    rest = [chunk async for chunk in stream]
    assert rest[-1].choices[0].finish_reason == "abort"


def test_closing_a_stream_aborts_its_request(engine: MLCEngine) -> None:
    stream = engine.completions.create(prompt="abc", stream=True, request_id="r", **LONG)
    next(stream)
    stream.close()
    assert engine.metrics()["num_running_requests"] == 0
    assert engine.metrics()["num_aborts"] == 1
    assert len(engine.state.bridge) == 0


def test_dropping_a_stream_aborts_its_request(engine: MLCEngine) -> None:
    stream = engine.completions.create(prompt="abc", stream=True, **LONG)
    next(stream)
    del stream
    assert engine.metrics()["num_running_requests"] == 0
    stream = engine.completions.create(prompt="abc", stream=True, **LONG)  # never started
    del stream
    assert engine.metrics()["num_running_requests"] == 0
    assert engine.metrics()["num_aborts"] == 2


async def test_cancelling_a_task_aborts_its_request(async_engine: AsyncMLCEngine) -> None:
    task = asyncio.create_task(async_engine.completions.create(prompt="abc", **LONG))
    while (await async_engine.metrics())["num_running_requests"] == 0:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    metrics = await async_engine.metrics()
    assert (metrics["num_running_requests"], metrics["num_aborts"]) == (0, 1)


async def test_leaving_an_async_stream_aborts_its_request(async_engine: AsyncMLCEngine) -> None:
    stream = await async_engine.completions.create(prompt="abc", stream=True, **LONG)
    async for _ in stream:
        break
    await stream.aclose()
    assert (await async_engine.metrics())["num_running_requests"] == 0


# The second caller is refused and nothing happens to the first.
def test_a_duplicate_id_leaves_the_first_alone(engine: MLCEngine) -> None:
    stream = engine.completions.create(
        prompt="abc", stream=True, request_id="r", max_tokens=30, extra_body={"ignore_eos": True}
    )
    next(stream)
    with pytest.raises(InvalidRequest, match='"r"') as error:
        engine.completions.create(prompt="abc", request_id="r")
    assert error.value.field == "request_id"
    assert list(stream)[-1].choices[0].finish_reason == "length"
    assert engine.completions.create(prompt="abc", request_id="r", max_tokens=1).id == "r"


# Whoever asks again until the id is free gets an answer of its own.
def test_an_id_that_was_given_up_comes_again(engine: MLCEngine) -> None:
    for _ in range(10):
        stream = engine.completions.create(prompt="abc", stream=True, request_id="r", **LONG)
        next(stream)
        stream.close()
        answer = None
        while answer is None:
            with contextlib.suppress(InvalidRequest):
                answer = engine.completions.create(
                    prompt="abc", request_id="r", max_tokens=2, extra_body={"ignore_eos": True}
                )
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 2


async def test_a_duplicate_async_id_leaves_the_first_alone(async_engine: AsyncMLCEngine) -> None:
    stream = await async_engine.completions.create(
        prompt="abc", stream=True, request_id="r", max_tokens=30, extra_body={"ignore_eos": True}
    )
    with pytest.raises(InvalidRequest):
        await async_engine.completions.create(prompt="abc", request_id="r")
    chunks = [chunk async for chunk in stream]
    assert chunks[-1].choices[0].finish_reason == "length"


# W11
def test_metrics_during_a_stream_take_nothing_from_it(engine: MLCEngine) -> None:
    stream = engine.completions.create(prompt="abc", stream=True, max_tokens=20)
    texts = [next(stream).choices[0].text]
    assert engine.metrics()["num_running_requests"] == 1
    texts += [chunk.choices[0].text for chunk in stream]
    alone = engine.completions.create(prompt="abc", max_tokens=20)
    assert "".join(texts) == alone.choices[0].text


def test_many_threads_on_one_engine(make_model: MakeModel, fake_lib: str) -> None:
    with MLCEngine(make_model(), model_lib=fake_lib, mode="server") as engine:
        prompts = [f"prompt {i}" for i in range(32)]
        config = {"max_tokens": 40, "extra_body": {"ignore_eos": True}}
        expected = [engine.completions.create(prompt=p, **config).choices[0].text for p in prompts]
        results: dict[int, str] = {}

        def work(i: int) -> None:
            stream = engine.completions.create(prompt=prompts[i], stream=True, **config)
            results[i] = "".join(chunk.choices[0].text for chunk in stream)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert [results[i] for i in range(len(prompts))] == expected
        engine._debug_call_func_on_all_worker("audit_pages")


# W10
def test_one_engine_many_event_loops(make_model: MakeModel, fake_lib: str) -> None:
    engine = AsyncMLCEngine(make_model(), model_lib=fake_lib, mode="server")

    async def ask(prompt: str) -> str:
        chunks = await engine.completions.create(prompt=prompt, stream=True, max_tokens=20)
        return "".join([chunk.choices[0].text async for chunk in chunks])

    async def main() -> list[str]:
        return list(await asyncio.gather(*[ask(f"p{i}") for i in range(8)]))

    expected = asyncio.run(main())
    assert asyncio.run(main()) == expected  # a second loop, after the first was closed
    results: list[list[str]] = []
    threads = [
        threading.Thread(target=lambda: results.append(asyncio.run(main()))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert results == [expected] * 4
    engine.terminate()


def test_a_loop_that_closes_early_harms_no_request(make_model: MakeModel, fake_lib: str) -> None:
    engine = AsyncMLCEngine(make_model(**SLOW), model_lib=fake_lib, mode="server")
    kept: list[Any] = []

    async def abandon() -> None:
        stream = await engine.completions.create(prompt="abc", stream=True, **LONG)
        kept.append(stream._stream if hasattr(stream, "_stream") else stream)
        await anext(stream)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(abandon())
    loop.close()  # without shutdown_asyncgens: the stream is still there

    async def ask() -> Any:
        return await engine.completions.create(prompt="xyz", max_tokens=10)

    assert asyncio.run(ask()).usage.completion_tokens == 10
    while asyncio.run(engine.metrics())["num_running_requests"]:
        pass
    engine.terminate()


def test_engines_in_one_process_are_independent(make_model: MakeModel, fake_lib: str) -> None:
    first = MLCEngine(make_model(answer="first"), model_lib=fake_lib)
    second = MLCEngine(make_model(answer="second"), model_lib=fake_lib)
    streams = [
        e.completions.create(prompt="x", stream=True, request_id="same") for e in (first, second)
    ]
    texts = ["".join(c.choices[0].text for c in stream) for stream in streams]
    assert texts == ["first", "second"]
    first.terminate()
    assert second.completions.create(prompt="x").choices[0].text == "second"
    second.terminate()


def test_more_requests_than_fit_are_all_answered(make_model: MakeModel, fake_lib: str) -> None:
    config = EngineConfig(max_num_sequence=4, max_total_sequence_length=128)
    with MLCEngine(make_model(), model_lib=fake_lib, engine_config=config) as engine:
        arguments = {"max_tokens": 60, "extra_body": {"ignore_eos": True}}
        streams = [
            engine.completions.create(prompt=f"prompt {i}", stream=True, **arguments)
            for i in range(12)
        ]
        texts = ["".join(c.choices[0].text for c in stream) for stream in streams]
        for i in range(12):
            alone = engine.completions.create(prompt=f"prompt {i}", **arguments)
            assert alone.choices[0].text == texts[i]


@pytest.mark.parametrize("facade", [SyncFacade, AsyncFacade])
def test_terminate_ends_open_streams(facade: Any, make_model: MakeModel, fake_lib: str) -> None:
    made = facade(make_model(**SLOW), model_lib=fake_lib)
    answers: list[Answer] = []
    config = GenerationConfig(max_tokens=2000, debug_config={"ignore_eos": True})
    thread = threading.Thread(target=lambda: answers.append(made.generate("abc", config)))
    thread.start()
    while made.metrics()["num_running_requests"] == 0:
        pass
    made.engine.terminate()
    thread.join(60)
    assert not thread.is_alive()
    assert answers[0].finish_reasons == ["abort"]
    made.terminate()
