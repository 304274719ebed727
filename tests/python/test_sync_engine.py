"""SyncMLCEngine: generate in all its forms, steps one by one, the callback, ``_ffi``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mlc_native import EngineConfig, SyncMLCEngine
from mlc_native.errors import EngineRequestError, InvalidRequest
from mlc_native.protocol.debug_protocol import DebugConfig
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.serve.data import RequestStreamOutput, TextData, TokenData

MakeModel = Callable[..., str]
MakeEngine = Callable[..., SyncMLCEngine]


@pytest.fixture
def make_engine(make_model: MakeModel, fake_lib: str) -> MakeEngine:
    """make_engine(config=None, callback=None, **fake)."""

    def make(config: Any = None, callback: Any = None, **fake: Any) -> SyncMLCEngine:
        return SyncMLCEngine(
            make_model(**fake),
            model_lib=fake_lib,
            mode="server",
            engine_config=config,
            request_stream_callback=callback,
        )

    return make


@pytest.mark.parametrize(
    ("prompts", "num_prompts"),
    [
        ("ab", 1),
        (["ab", "ab"], 2),
        ([97, 98], 1),
        ([[97, 98], [97, 98]], 2),
        ([[TextData("a"), TokenData([98])]], 1),
        ([[TextData("ab")], [TokenData([97, 98])], [TextData("a"), TextData("b")]], 3),
    ],
    ids=range(6),
)
def test_generate(make_engine: MakeEngine, prompts: Any, num_prompts: int) -> None:
    texts, logprobs = make_engine(answer="Hello!").generate(prompts, GenerationConfig(n=2))
    assert texts == [["Hello!", "Hello!"]] * num_prompts
    assert logprobs == [None] * num_prompts


@pytest.mark.parametrize("config", [GenerationConfig(), []])
def test_no_prompts_have_no_answers(make_engine: MakeEngine, config: Any) -> None:
    assert make_engine().generate([], config) == ([], [])


def test_an_empty_answer_comes_while_its_request_is_added(make_engine: MakeEngine) -> None:
    texts, _ = make_engine().generate(["a", "b"], GenerationConfig(max_tokens=0, n=2))
    assert texts == [["", ""], ["", ""]]


def test_generate_with_logprobs_and_a_config_each(make_engine: MakeEngine) -> None:
    engine = make_engine()
    configs = [
        GenerationConfig(n=3, max_tokens=4, logprobs=True, top_logprobs=2),
        GenerationConfig(max_tokens=2),
    ]
    texts, logprobs = engine.generate(["a", "b"], configs)
    assert [len(group) for group in texts] == [3, 1]
    assert logprobs[1] is None
    assert logprobs[0] is not None
    assert [len(entries) for entries in logprobs[0]] == [4, 4, 4]
    assert len(json.loads(logprobs[0][0][0])["top_logprobs"]) == 2
    with pytest.raises(InvalidRequest, match="2 generation configs for 1 prompts"):
        engine.generate("a", configs)


@pytest.mark.parametrize("prompts", ["", [""], [[]], ["ok", ""], [[300]], 5, [5.0]])
def test_generate_refuses_all_or_nothing(make_engine: MakeEngine, prompts: Any) -> None:
    engine = make_engine(answer="x")
    with pytest.raises(InvalidRequest):
        engine.generate(prompts, GenerationConfig())
    assert engine.empty()
    assert engine.generate("ok", GenerationConfig())[0] == [["x"]]


def test_callback_is_restored_also_on_error(make_engine: MakeEngine) -> None:
    seen: list[RequestStreamOutput] = []
    engine = make_engine(callback=seen.extend, poison_token=66)
    callback = engine.get_request_stream_callback()
    engine.generate("abc", GenerationConfig(max_tokens=2))
    assert engine.get_request_stream_callback() is callback
    with pytest.raises(EngineRequestError):
        engine.generate(["abc", "B"], GenerationConfig(max_tokens=2))
    assert engine.get_request_stream_callback() is callback
    assert seen == []
    assert engine.empty()


def test_an_interrupted_generate_leaves_no_request(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    steps = iter(range(3))
    real_step = engine.step

    def step() -> None:
        if next(steps, None) is None:
            raise KeyboardInterrupt
        real_step()

    with monkeypatch.context() as patch:
        patch.setattr(engine, "step", step)
        with pytest.raises(KeyboardInterrupt):
            engine.generate(["a", "b"], GenerationConfig(max_tokens=100))
    assert engine.empty()
    assert engine.get_request_stream_callback() is None
    assert engine.metrics()["num_aborts"] == 2
    assert len(engine.generate("a", GenerationConfig(max_tokens=3))[0]) == 1


def drain(engine: SyncMLCEngine) -> None:
    while not engine.empty():
        engine.step()


def run_to_the_end(engine: SyncMLCEngine, finished_at: dict[str, int], step: int = 0) -> None:
    while not engine.empty():
        engine.step()
        step += 1
        for request_id in engine_finished(engine):
            finished_at.setdefault(request_id, step)


def engine_finished(engine: Any) -> list[str]:
    finished: list[str] = engine.finished
    engine.finished = []
    return finished


def recording(engine: Any) -> Any:
    """Lets ``engine.finished`` collect the ids of requests as they finish."""
    engine.finished = []

    def callback(outputs: list[RequestStreamOutput]) -> None:
        for output in outputs:
            request_id, group = output.unpack()
            if all(delta.finish_reason for delta in group) and not output.is_final:
                engine.finished.append(request_id)

    engine.set_request_stream_callback(callback)
    return engine


@pytest.mark.parametrize("prefill_mode", ["hybrid", "chunked"])
def test_added_together_a_request_finishes_at_its_mth_step(
    make_engine: MakeEngine, prefill_mode: Any
) -> None:
    engine = recording(make_engine(EngineConfig(prefill_mode=prefill_mode)))
    lengths = [3, 7, 1, 12, 5, 5, 9, 2]
    for i, m in enumerate(lengths):
        config = GenerationConfig(max_tokens=m, debug_config={"ignore_eos": True})
        engine.add_request(engine.create_request(str(i), f"prompt {i}", config))
    finished_at: dict[str, int] = {}
    run_to_the_end(engine, finished_at)
    assert finished_at == {str(i): m for i, m in enumerate(lengths)}


def test_hybrid_prefill_never_stalls_decoding(make_engine: MakeEngine) -> None:
    engine = recording(make_engine(EngineConfig(prefill_mode="hybrid")))
    lengths = [9, 4, 11, 2, 6]
    finished_at: dict[str, int] = {}
    for i, m in enumerate(lengths):  # one more request before each step
        config = GenerationConfig(max_tokens=m, debug_config={"ignore_eos": True})
        engine.add_request(engine.create_request(str(i), f"prompt {i}", config))
        engine.step()
        for request_id in engine_finished(engine):
            finished_at[request_id] = i + 1
    run_to_the_end(engine, finished_at, step=len(lengths))
    assert finished_at == {str(i): i + m for i, m in enumerate(lengths)}


def test_outputs_of_a_step_come_in_one_call(make_engine: MakeEngine) -> None:
    calls: list[list[str]] = []
    engine = make_engine(callback=lambda outputs: calls.append([o.request_id for o in outputs]))
    for name in "abc":
        engine.add_request(engine.create_request(name, name, GenerationConfig(max_tokens=4)))
    engine.step()
    assert [sorted(call) for call in calls] == [["a", "b", "c"]]


def test_a_raising_callback_comes_out_of_step(make_engine: MakeEngine) -> None:
    def raise_once(_outputs: Any) -> None:
        engine.set_request_stream_callback(None)
        raise ValueError("planned")

    engine = make_engine(callback=raise_once)
    engine.add_request(engine.create_request("r", "abc", GenerationConfig(max_tokens=5)))
    with pytest.raises(ValueError, match="planned"):
        drain(engine)
    drain(engine)
    assert engine.metrics()["kv_pages_used"] == 0
    assert engine.metrics()["completion_tokens_sum"] == 5


def test_abort_and_duplicate_ids(make_engine: MakeEngine) -> None:
    seen: list[Any] = []
    engine = make_engine(callback=lambda outputs: seen.extend(o.unpack() for o in outputs))
    request = engine.create_request("r", "abc", GenerationConfig(max_tokens=50))
    engine.add_request(request)
    engine.step()
    with pytest.raises(InvalidRequest):
        engine.add_request(request)
    engine.abort_request("r")
    engine.abort_request("never heard of")
    assert engine.empty()
    *_, (_, [abort]), (_, [usage]) = seen
    assert abort.finish_reason == "abort"
    assert json.loads(usage.request_final_usage_json_str)["prompt_tokens"] == 3
    engine.add_request(request)  # the id is free again
    engine.reset()
    assert engine.empty()


def test_requests_are_described(make_engine: MakeEngine) -> None:
    engine = make_engine()
    config = GenerationConfig(max_tokens=5, temperature=0.5)
    request = engine.create_request("r", [TextData("a"), TokenData([98])], config)
    assert (request.id, request.prompt_len) == ("r", 2)
    assert request.inputs == [[97, 98]]
    assert request.generation_config.temperature == 0.5
    assert request.generation_config.seed is not None


def test_ffi_names(make_engine: MakeEngine) -> None:
    engine = make_engine(answer="x")
    seen: list[str] = []
    ffi = engine._ffi
    assert set(ffi) == {
        *("init", "add_request", "abort_request", "step", "reset", "json_metrics"),
        *("get_request_stream_callback", "set_request_stream_callback", "create_request"),
    }
    ffi["set_request_stream_callback"](lambda outs: seen.extend(o.request_id for o in outs))
    ffi["add_request"](ffi["create_request"]("r", "abc", GenerationConfig()))
    while not engine.empty():
        ffi["step"]()
    assert set(seen) == {"r"}
    assert json.loads(ffi["json_metrics"]())["prompt_tokens_sum"] == 3
    ffi["reset"]()
    assert json.loads(ffi["json_metrics"]())["prompt_tokens_sum"] == 0


def test_tracing(make_model: MakeModel, fake_lib: str) -> None:
    engine = SyncMLCEngine(make_model(), model_lib=fake_lib, enable_tracing=True)
    engine.generate("abc", GenerationConfig(max_tokens=3))
    assert engine.trace_recorder is not None
    events = json.loads(engine.trace_recorder.dump_json())
    assert {"B", "E"} <= {event["ph"] for event in events}


def test_only_answers_that_run_hold_the_prompt() -> None:
    """n may be large, and the prompt long: what waits and what has ended takes no memory for it."""
    engine = SyncMLCEngine(
        "demo", "cpu", engine_config=EngineConfig(max_num_sequence=2, verbose=False)
    )
    prompt, num_tokens, n = [10 + i % 50 for i in range(100)], 4, 20
    endless = DebugConfig(ignore_eos=True)
    config = GenerationConfig(n=n, max_tokens=num_tokens, temperature=0, debug_config=endless)
    answers: list[list[int]] = [[] for _ in range(n)]

    def collect(outputs: list[RequestStreamOutput]) -> None:
        for output in outputs:
            for answer, delta in zip(answers, output.unpack()[1], strict=False):
                answer += delta.delta_token_ids

    engine.set_request_stream_callback(collect)
    engine.add_request(engine.create_request("many", prompt, config))
    most = 0
    while not engine.empty():
        state = json.loads(engine._engine().debug_call("dump_state"))
        most = max(most, sum(entry["num_tokens"] for entry in state["requests"]["many"]))
        engine._engine().debug_call("audit_pages")
        engine.step()
    # That of the root, and one for each sequence that runs.
    assert most <= 3 * (len(prompt) + num_tokens)
    assert len(answers[0]) == num_tokens
    assert answers == [answers[0]] * n
