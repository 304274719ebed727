"""Another model in a running engine: what requests see, what fails, what stays behind."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import mlc_native
from mlc_native import AsyncMLCEngine, EngineConfig, MLCEngine, SyncMLCEngine
from mlc_native.errors import (
    EngineTerminatedError,
    InvalidConfig,
    InvalidRequest,
    LoadError,
    ModelNotLoaded,
)
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.serve import engine_requests
from mlc_native.serve.load_report import LoadReport

MakeModel = Callable[..., str]
pytestmark = pytest.mark.both_step_kinds
DEMO = str(Path(mlc_native.__file__).parent / "demo_model")
WAIT_S = 30
LONG: dict[str, Any] = {"max_tokens": -1, "extra_body": {"ignore_eos": True}}


@pytest.fixture
def engine(make_model: MakeModel, fake_lib: str) -> Iterator[MLCEngine]:
    with MLCEngine(make_model(answer="first"), model_lib=fake_lib) as made:
        yield made


def say(engine: MLCEngine) -> str:
    text: str = engine.completions.create(prompt="x").choices[0].text
    return text


def test_everything_switches(engine: MLCEngine, make_model: MakeModel, fake_lib: str) -> None:
    assert say(engine) == "first"
    second = make_model(answer="second", context_window_size=64, chat_template="{{ 'abcd' }}")
    engine.reload(second, EngineConfig(max_num_sequence=3), model_lib=fake_lib)
    assert say(engine) == "second"
    assert engine.model_name == second
    assert engine.engine_config.max_num_sequence == 3
    assert engine.max_input_sequence_length == 64
    chat = engine.chat.completions.create(messages=[{"role": "user", "content": "x"}])
    assert chat.usage is not None
    assert chat.usage.prompt_tokens == 4
    assert chat.model == second
    with pytest.raises(InvalidRequest, match="limit 64"):
        engine.completions.create(prompt="x" * 65)


def test_requests_of_the_old_model_are_aborted(make_model: MakeModel, fake_lib: str) -> None:
    endless = {"us_per_step": 1000, "cost": "sleep", "context_window_size": 1 << 20}
    with MLCEngine(make_model(**endless), model_lib=fake_lib) as engine:
        streams = [engine.completions.create(prompt="x", stream=True, **LONG) for _ in range(6)]
        next(streams[0])
        engine.reload(make_model(answer="second"), model_lib=fake_lib)
        for stream in streams:
            assert list(stream)[-1].choices[0].finish_reason == "abort"
        assert say(engine) == "second"


def test_what_is_wrong_by_itself_leaves_the_old_model(
    engine: MLCEngine, make_model: MakeModel, fake_lib: str, tmp_path: Path
) -> None:
    model = make_model()
    for wrong in (
        lambda: engine.reload(model, EngineConfig(max_num_sequence=0), model_lib=fake_lib),
        lambda: engine.reload(str(tmp_path / "missing"), model_lib=fake_lib),
        lambda: engine.reload(model, model_lib=str(tmp_path / "missing.so")),
    ):
        with pytest.raises((InvalidConfig, LoadError, FileNotFoundError)):
            wrong()
        assert say(engine) == "first"


def test_a_config_that_only_the_engine_refuses_leaves_the_old_model(
    engine: MLCEngine, make_model: MakeModel, fake_lib: str
) -> None:
    damaged = Path(make_model())
    (damaged / "generation_config.json").write_text("{")
    with pytest.raises(LoadError):
        engine.reload(str(damaged), model_lib=fake_lib)
    assert say(engine) == "first"


def test_a_load_that_fails_leaves_no_model(
    engine: MLCEngine, make_model: MakeModel, fake_lib: str
) -> None:
    bad = make_model(no_such_option=1)
    with pytest.raises(LoadError):
        engine.reload(bad, model_lib=fake_lib)
    for call in (
        lambda: say(engine),
        lambda: engine.metrics(),
        lambda: engine.tokenizer,
        lambda: engine.engine_config,
    ):
        with pytest.raises(ModelNotLoaded, match="No model is loaded") as error:
            call()
        assert error.value.field == "engine"
    engine.reset()
    engine.abort_all()
    engine.reload(make_model(answer="second"), model_lib=fake_lib)
    assert say(engine) == "second"


def test_unload(engine: MLCEngine, make_model: MakeModel, fake_lib: str) -> None:
    engine.unload()
    engine.unload()
    with pytest.raises(InvalidRequest, match="No model is loaded"):
        say(engine)
    engine.reload(make_model(answer="second"), model_lib=fake_lib)
    assert say(engine) == "second"


async def test_async_reload_and_unload(make_model: MakeModel, fake_lib: str) -> None:
    async with AsyncMLCEngine(make_model(answer="first"), model_lib=fake_lib) as engine:
        await engine.reload(make_model(answer="second"), model_lib=fake_lib)
        response = await engine.completions.create(prompt="x")
        assert response.choices[0].text == "second"
        await engine.unload()
        with pytest.raises(InvalidRequest, match="No model is loaded"):
            await engine.completions.create(prompt="x")


def test_sync_reload_and_unload(make_model: MakeModel, fake_lib: str) -> None:
    finals: list[str] = []

    def callback(outputs: list[Any]) -> None:
        finals.extend(output.request_id for output in outputs if output.is_final)

    engine = SyncMLCEngine(
        make_model(answer="first"), model_lib=fake_lib, request_stream_callback=callback
    )
    engine.add_request(engine.create_request("old", "x", GenerationConfig(max_tokens=99)))
    with pytest.raises(InvalidConfig):
        engine.reload(make_model(), EngineConfig(max_num_sequence=0), model_lib=fake_lib)
    assert not engine.empty()
    engine.reload(make_model(answer="second"), model_lib=fake_lib)
    assert finals == ["old"]
    assert engine.generate("x", GenerationConfig())[0] == [["second"]]
    engine.unload()
    with pytest.raises(InvalidRequest, match="No model is loaded"):
        engine.step()


def test_ctrl_c_behind_the_last_report_of_a_load_leaves_no_model(
    engine: MLCEngine, make_model: MakeModel, fake_lib: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine then has the new model, which requests for the old one must not reach."""

    def press(_self: LoadReport, done: int, total: int) -> None:
        if done == total:
            os.kill(os.getpid(), signal.SIGINT)

    second = make_model(answer="second", context_window_size=64, load_parts=3)
    with monkeypatch.context() as patch:
        patch.setattr(LoadReport, "__call__", press)
        with pytest.raises(KeyboardInterrupt):
            engine.reload(second, model_lib=fake_lib)
    with pytest.raises(ModelNotLoaded):
        say(engine)
    engine.reload(second, model_lib=fake_lib)
    assert say(engine) == "second"


def test_a_sync_engine_whose_load_is_interrupted_has_no_model(
    make_model: MakeModel, fake_lib: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_args: Any) -> None:
        raise KeyboardInterrupt

    engine = SyncMLCEngine(make_model(answer="first"), model_lib=fake_lib)
    second = make_model(answer="second", context_window_size=64)
    with monkeypatch.context() as patch:
        patch.setattr(LoadReport, "finish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            engine.reload(second, model_lib=fake_lib)
    with pytest.raises(ModelNotLoaded):
        engine.generate("x", GenerationConfig())


def test_terminate_ends_a_load(
    engine: MLCEngine, make_model: MakeModel, fake_lib: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = threading.Event()
    report = LoadReport.__call__

    def note(self: LoadReport, done: int, total: int) -> None:
        loads.set()
        report(self, done, total)

    monkeypatch.setattr(LoadReport, "__call__", note)
    endless = make_model(load_parts=100_000, us_per_load_part=1000)  # 100 seconds
    with ThreadPoolExecutor(1) as pool:
        reload = pool.submit(engine.reload, endless, model_lib=fake_lib)
        assert loads.wait(WAIT_S)
        engine.terminate()
        with pytest.raises(EngineTerminatedError):
            reload.result(WAIT_S)


@pytest.mark.parametrize("change", ["unload", "reload", "terminate"])
def test_a_model_that_goes_while_a_request_is_prepared(
    engine: MLCEngine,
    make_model: MakeModel,
    fake_lib: str,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
) -> None:
    """What the engine says of a request for another model is no fault of the request."""
    short = make_model(context_window_size=64)
    check = engine_requests.check_generation_config

    def check_and_change(*args: Any, **keywords: Any) -> None:
        check(*args, **keywords)
        if change == "reload":
            engine.reload(short, model_lib=fake_lib)
        else:
            getattr(engine, change)()

    monkeypatch.setattr(engine_requests, "check_generation_config", check_and_change)
    error = EngineTerminatedError if change == "terminate" else ModelNotLoaded
    with pytest.raises(error) as raised:
        engine.completions.create(prompt="x" * 100)
    assert raised.value.status == 503


def test_a_prompt_is_pinned_in_its_own_model(
    engine: MLCEngine, make_model: MakeModel, fake_lib: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    token_ids = MLCEngine._token_ids

    def encode_and_reload(*args: Any, **keywords: Any) -> list[int]:
        monkeypatch.undo()
        result = token_ids(*args, **keywords)
        engine.reload(make_model(), model_lib=fake_lib)
        return result

    monkeypatch.setattr(MLCEngine, "_token_ids", staticmethod(encode_and_reload))
    with pytest.raises(ModelNotLoaded):
        engine.pin_prefix("x" * 40)
    assert engine.pinned_prefixes() == []


def test_requests_that_race_with_reloads(make_model: MakeModel, fake_lib: str) -> None:
    """No request is answered by another model than the one whose tokenizer and limits it saw."""
    models = {name: make_model(answer=name) for name in ("first", "second")}
    engine = MLCEngine(models["first"], model_lib=fake_lib)
    done = threading.Event()
    problems: list[str] = []
    num_answers = 0

    def ask() -> None:
        nonlocal num_answers
        while not done.is_set():
            try:
                response = engine.completions.create(prompt="x")
            except ModelNotLoaded:
                continue
            except InvalidRequest as error:
                problems.append(str(error))
                continue
            choice = response.choices[0]
            expected = next(name for name, path in models.items() if path == response.model)
            complete = choice.text == expected and choice.finish_reason == "stop"
            aborted = expected.startswith(choice.text) and choice.finish_reason == "abort"
            if not complete and not aborted:
                problems.append(f"{response.model}: {choice}")
            num_answers += 1

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(30):
        engine.reload(models["second" if i % 2 == 0 else "first"], model_lib=fake_lib)
    done.set()
    for thread in threads:
        thread.join(60)
    assert problems == []
    assert num_answers > 0
    engine.terminate()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def footprint() -> tuple[int, int]:
    """Threads and open files of this process."""
    gc.collect()
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def assert_footprint_at_most(threads: int, files: int) -> None:
    """A thread that was joined may be among those of the process for a moment longer."""
    deadline = time.monotonic() + WAIT_S
    while not all(now <= most for now, most in zip(footprint(), (threads, files), strict=True)):
        assert time.monotonic() < deadline, (footprint(), (threads, files))


def reload_fifty_times(engine: MLCEngine, models: list[tuple[str, EngineConfig]]) -> int:
    """Bytes by which the process grew over 50 reloads, each with requests in flight."""

    def once(i: int) -> None:
        streams = [engine.completions.create(prompt="x", stream=True, **LONG) for _ in range(3)]
        next(streams[0])
        model, config = models[i % 2]
        engine.reload(model, config)
        for stream in streams:
            assert list(stream)[-1].choices[0].finish_reason in ("abort", "length")

    for i in range(10):  # what is allocated once comes first
        once(i)
    before, resident = footprint(), resident_bytes()
    for i in range(50):
        once(i)
    assert_footprint_at_most(*before)
    return resident_bytes() - resident


def test_fifty_reloads_of_the_fake_model(make_model: MakeModel, fake_lib: str) -> None:
    """A million tokens of its cache take 4 MiB: one engine that stays behind would be seen."""
    endless = {"us_per_step": 200, "cost": "sleep", "context_window_size": 1 << 20}
    config = EngineConfig(
        model_lib=fake_lib, max_total_sequence_length=1 << 20, num_threads=1, max_num_sequence=2
    )
    models = [(make_model(**endless), config), (make_model(**endless), config)]
    with MLCEngine(models[0][0], engine_config=config) as engine:
        assert reload_fifty_times(engine, models) < 8 << 20


def test_fifty_reloads_of_the_demo_model() -> None:
    """Weights and cache of one engine are over 10 MB; 50 that stay behind would be 500."""
    config = EngineConfig(max_total_sequence_length=2048, num_threads=2)
    models = [(DEMO, config), (str(Path(DEMO) / "draft"), config)]
    with MLCEngine(DEMO, engine_config=config) as engine:
        assert reload_fifty_times(engine, models) < 32 << 20
