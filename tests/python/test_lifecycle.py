"""Beginning and end of engines: failed starts, collection, interpreter exit, fork, signals."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlc_native import AsyncMLCEngine, MLCEngine, SyncMLCEngine
from mlc_native._stream_bridge import StreamBridge
from mlc_native.serve import engine_base, model_setup

MakeModel = Callable[..., str]
pytestmark = pytest.mark.both_step_kinds
SLOW = {"us_per_step": 2000, "cost": "sleep"}
HERE = Path(__file__).parent


def engine_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("mlc-native")]


def engines_alive() -> set[int]:
    """Identities of all engine objects; of other tests, too, as long as something holds them.

    A C++ engine is not seen by the garbage collector; its bridge is, which it keeps alive.
    """
    gc.collect()
    kinds = (MLCEngine, AsyncMLCEngine, StreamBridge)
    return {id(o) for o in gc.get_objects() if type(o) in kinds}


def run_script(body: str, *arguments: str, expect: int = 0, warning: str = "") -> str:
    """Runs a script in an interpreter of its own; it must end in time. On stderr, it may say
    only what the expression ``warning`` matches."""
    script = "import sys\n" + textwrap.dedent(body)
    root = str(HERE.parents[1])
    path = os.pathsep.join([str(HERE), root, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == expect, done.stderr
    assert re.fullmatch(warning, done.stderr), done.stderr
    return done.stdout


# -------------------------------------------------------------------------------- failed starts


class PlannedError(Exception):
    pass


STEPS = {
    "check the config": (model_setup, "check_engine_config"),
    "find the models": (model_setup, "resolve_models"),
    "what the models say": (model_setup.MLCChatConfig, "from_folder"),
    "the tokenizer": (model_setup, "load_tokenizer"),
    "the device": (model_setup, "detect_device"),
    "the state": (engine_base, "EngineState"),
    "the C++ engine": (engine_base, "StreamBridge"),
    "the two loops": (engine_base.MLCEngineBase, "_start_threads"),
    "load": (engine_base.MLCEngineBase, "_load"),
    "the final config": (engine_base.EngineConfig, "from_json"),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("cls", [MLCEngine, AsyncMLCEngine])
def test_a_failing_step_leaves_nothing_behind(
    cls: Any, step: str, make_model: MakeModel, fake_lib: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model()
    before = threading.active_count()
    others = engines_alive()

    def fail(*_args: Any, **_kwargs: Any) -> Any:
        raise PlannedError(step)

    with monkeypatch.context() as patch:
        patch.setattr(*STEPS[step], fail)
        with pytest.raises(PlannedError):
            cls(model, model_lib=fake_lib)
    assert threading.active_count() == before
    assert not engines_alive() - others
    with MLCEngine(model, model_lib=fake_lib) as engine:
        assert engine.completions.create(prompt="x", max_tokens=1).usage is not None


def test_a_failing_load_of_the_sync_engine(make_model: MakeModel, fake_lib: str) -> None:
    model = make_model()
    (Path(model) / "config.json").write_text('{"fake": {"vocab_size": "x"}, "eos_token_id": 0}')
    with pytest.raises(RuntimeError):
        SyncMLCEngine(model, model_lib=fake_lib)


# ------------------------------------------------------------------------- terminate, collection


@pytest.mark.parametrize("cls", [MLCEngine, AsyncMLCEngine])
def test_the_loops_are_daemon_threads_and_end(
    cls: Any, make_model: MakeModel, fake_lib: str
) -> None:
    engine = cls(make_model(), model_lib=fake_lib)
    threads = engine_threads()
    assert len(threads) == 2
    assert all(thread.daemon for thread in threads)
    engine.terminate()
    assert not any(thread.is_alive() for thread in threads)
    engine.terminate()


@pytest.mark.parametrize("cls", [MLCEngine, AsyncMLCEngine])
def test_a_dropped_engine_ends(cls: Any, make_model: MakeModel, fake_lib: str) -> None:
    engine = cls(make_model(), model_lib=fake_lib)
    reference = weakref.ref(engine)
    del engine
    assert reference() is None  # at once, without the garbage collector
    assert not engine_threads()


def test_a_dropped_sync_engine_ends(make_model: MakeModel, fake_lib: str) -> None:
    class Owner:
        def __init__(self, model: str) -> None:
            self.engine = SyncMLCEngine(
                model, model_lib=fake_lib, request_stream_callback=self.callback
            )

        def callback(self, outputs: Any) -> None:
            pass

    owner = Owner(make_model())
    reference = weakref.ref(owner.engine)
    del owner
    gc.collect()
    assert reference() is None


def test_an_open_stream_keeps_its_engine(make_model: MakeModel, fake_lib: str) -> None:
    stream = MLCEngine(make_model(answer="still here"), model_lib=fake_lib).completions.create(
        prompt="x", stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in stream) == "still here"
    del stream
    assert not engine_threads()


def test_terminate_on_a_thread_of_its_own(make_model: MakeModel, fake_lib: str) -> None:
    """The last reference may die in a callback, on the stream-back thread."""
    engine = MLCEngine(make_model(), model_lib=fake_lib)
    ended = threading.Event()

    class Trap:
        def call_soon_threadsafe(self, *_args: Any) -> None:
            engine.terminate()
            ended.set()

    channel = engine.state.bridge.open_async("r", Trap())
    core = engine._core
    core.add_request(core.create_request("r", [1], core.get_default_generation_config()))
    assert ended.wait(60)
    assert channel.request_id == "r"


# ------------------------------------------------------------------------------ interpreter exit

EXIT = """
from mlc_native import AsyncMLCEngine, MLCEngine, SyncMLCEngine
from mlc_native.protocol.generation_config import GenerationConfig
model, lib = sys.argv[1:]
LONG = dict(max_tokens=-1, extra_body={"ignore_eos": True})
"""


@pytest.mark.parametrize(
    "body",
    [
        "engine = MLCEngine(model, model_lib=lib)",
        """
        engine = MLCEngine(model, model_lib=lib)
        stream = engine.completions.create(prompt="x", stream=True, **LONG)
        next(stream)
        """,
        """
        import asyncio
        engine = AsyncMLCEngine(model, model_lib=lib)
        async def main():
            global stream
            stream = await engine.completions.create(prompt="x", stream=True, **LONG)
            await anext(stream)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        loop.close()
        """,
        """
        import threading
        engine = MLCEngine(model, model_lib=lib)
        started = threading.Event()
        def consume():
            for _ in engine.completions.create(prompt="x", stream=True, **LONG):
                started.set()
        threading.Thread(target=consume, daemon=True).start()
        started.wait()
        """,
        """
        engine = SyncMLCEngine(model, model_lib=lib, request_stream_callback=print)
        engine.add_request(engine.create_request("r", "x", GenerationConfig()))
        """,
        """
        engine = MLCEngine(model, model_lib=lib)
        engine.cycle = engine
        stream = engine.completions.create(prompt="x", stream=True, **LONG)
        engine.terminate()
        """,
    ],
    ids=["idle", "open stream", "open async stream", "daemon consumer", "sync engine", "cycle"],
)
def test_interpreter_exit(body: str, make_model: MakeModel, fake_lib: str) -> None:
    script = EXIT + textwrap.dedent(body) + "\nprint('end of program')\n"
    assert run_script(script, make_model(**SLOW), fake_lib) == "end of program\n"


@pytest.mark.parametrize(
    "body",
    [
        """
        engine = AsyncMLCEngine(model, model_lib=lib)
        work = lambda: engine.reload(endless, model_lib=lib)
        """,
        "work = lambda: AsyncMLCEngine.create(endless, model_lib=lib)",
    ],
    ids=["reload", "create"],
)
def test_interpreter_exit_ends_a_load(body: str, make_model: MakeModel, fake_lib: str) -> None:
    begin = """
    import asyncio, pathlib
    from mlc_native.serve.load_report import LoadReport
    model, lib, endless = sys.argv[1:]
    from mlc_native import AsyncMLCEngine
    """
    end = """
    async def main():
        loop, loads = asyncio.get_running_loop(), asyncio.Event()
        report = LoadReport.__call__
        def note(self, done, total):
            loop.call_soon_threadsafe(loads.set)
            LoadReport.__call__ = report
            report(self, done, total)
        LoadReport.__call__ = note
        task = asyncio.create_task(work())
        await loads.wait()
    asyncio.run(main())
    print('end of program')
    """
    script = "".join(textwrap.dedent(part) for part in (begin, body, end))
    endless = make_model(load_parts=1_000_000, us_per_load_part=1000)  # 1,000 seconds
    assert run_script(script, make_model(), fake_lib, endless) == "end of program\n"


def test_exit_status_of_the_program_is_kept(make_model: MakeModel, fake_lib: str) -> None:
    script = EXIT + "engine = MLCEngine(model, model_lib=lib)\nsys.exit(3)\n"
    run_script(script, make_model(), fake_lib, expect=3)


SUBINTERPRETER = """
try:
    import _interpreters as interpreters
    other = interpreters.create("legacy")  # as mod_wsgi makes them; others CPython refuses
except ImportError:
    import _xxsubinterpreters as interpreters
    other = interpreters.create(isolated=False)
if sys.argv[1] == "after":
    import mlc_native._core
interpreters.run_string(other, '''
try:
    from mlc_native import MLCEngine
    MLCEngine("demo").terminate()
except ImportError as error:
    print(error, flush=True)
''')
"""


@pytest.mark.parametrize("when", ["first", "after"])
def test_a_subinterpreter_is_refused(when: str) -> None:
    """Its engine would wait for ever, whether or not the main interpreter has one."""
    said = run_script(SUBINTERPRETER, when)
    assert said.startswith("mlc_native runs in the main interpreter of a process")


# ------------------------------------------------------------------------------------------ fork


# What Python itself says of fork where there are threads, from 3.12 on.
FORK_WARNING = (
    r"(<string>:\d+: DeprecationWarning: This process \(pid=\d+\) is multi-threaded, "
    r"use of fork\(\) may lead to deadlocks in the child\.\n)?"
)


@pytest.mark.parametrize("cls", ["MLCEngine", "SyncMLCEngine"])
def test_fork(cls: str, make_model: MakeModel, fake_lib: str) -> None:
    body = f"""
    import os, gc
    engine = {cls}(model, model_lib=lib)
    def use(engine):
        if isinstance(engine, SyncMLCEngine):
            return engine.generate("x", GenerationConfig(max_tokens=2))[0][0][0]
        return engine.completions.create(prompt="x", max_tokens=2).choices[0].text
    before = use(engine)
    open_stream = None
    if isinstance(engine, MLCEngine):
        open_stream = engine.completions.create(prompt="x", stream=True, **LONG)
        next(open_stream)
    child = os.fork()
    if child == 0:
        try:
            use(engine)
        except Exception as error:
            print(type(error).__name__, "forked" in str(error), flush=True)
        try:
            engine.reset()
        except Exception as error:
            print(type(error).__name__, flush=True)
        if open_stream is not None:
            try:
                next(open_stream)
            except Exception as error:
                print(type(error).__name__, flush=True)
            open_stream.close()
            engine.terminate()
        del engine
        gc.collect()
        own = {cls}(model, model_lib=lib)  # one of its own works
        print(use(own) == before, flush=True)
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    print("child", status, flush=True)
    if open_stream is not None:
        open_stream.close()
    print("parent", use(engine) == before)
    """
    script = EXIT + textwrap.dedent(body)
    written = run_script(script, make_model(**SLOW), fake_lib, warning=FORK_WARNING)
    output = written.split("\n")
    refused = ["EngineTerminatedError True", "EngineTerminatedError"]
    refused += ["EngineTerminatedError"] * (cls == "MLCEngine")
    assert output == [*refused, "True", "child 0", "parent True", ""]


def test_multiprocessing_fork(make_model: MakeModel, fake_lib: str) -> None:
    body = """
    import multiprocessing
    engine = MLCEngine(model, model_lib=lib)
    def work(queue):
        try:
            engine.completions.create(prompt="x", max_tokens=2)
        except RuntimeError as error:
            queue.put(type(error).__name__)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    print(queue.get(), flush=True)
    process.join()
    print(process.exitcode, engine.completions.create(prompt="x", max_tokens=2).usage.total_tokens)
    """
    output = run_script(EXIT + textwrap.dedent(body), make_model(), fake_lib)
    assert output == "EngineTerminatedError\n0 3\n"


# --------------------------------------------------------------------------------------- signals


def test_ctrl_c_reaches_a_waiting_thread(make_model: MakeModel, fake_lib: str) -> None:
    body = """
    import os, signal, threading
    engine = MLCEngine(model, model_lib=lib)
    stream = engine.completions.create(prompt="x", stream=True, **LONG)
    next(stream)
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        for _ in stream:
            pass
    except KeyboardInterrupt:
        print("interrupted")
    print(engine.metrics()["num_running_requests"])
    print(engine.completions.create(prompt="x", max_tokens=2).usage.total_tokens)
    """
    output = run_script(EXIT + textwrap.dedent(body), make_model(**SLOW), fake_lib)
    assert output == "interrupted\n0\n3\n"
