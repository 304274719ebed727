"""What hosts do to engines: an ending, of an engine that is at some point of its life.

Each situation is a process of its own. It must end in time, with the status that its ending asks
for, say nothing on stderr that a crash would say, and every consumer of a stream that is left must
get a final output or a typed error.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from fake_model import find_fake_model_lib, write_model

from hostile.frame import PATIENCE, Case, HostileClass

TIMEOUT_S = 60

# Defines: engine; seen, an event that is set once a stream has begun; ends, what became of each
# consumer; settle(), which waits for the consumers and checks their ends; run(), which calls what
# may be a coroutine.
HEAD = """
import asyncio, gc, os, signal, sys, threading, time
from mlc_native import AsyncMLCEngine, EngineConfig, MLCEngine, SyncMLCEngine
from mlc_native.errors import MLCNativeError
from mlc_native.protocol.generation_config import GenerationConfig

model, library = sys.argv[1:]
ends, consumers, seen = [], [], threading.Event()
CONFIG = EngineConfig(max_num_sequence=4, max_total_sequence_length=4096, verbose=False)
KINDS = {"sync": MLCEngine, "async": AsyncMLCEngine, "stepped": SyncMLCEngine}
FIELDS = {"prompt": [1, 2, 3], "max_tokens": 3000, "stream": True, "ignore_eos": True}

def make(kind):
    extra = {"request_stream_callback": lambda outputs: seen.set()} if kind == "stepped" else {}
    return KINDS[kind](model, model_lib=library, engine_config=CONFIG, **extra)

def consume(stream):
    last = None
    for chunk in stream:
        seen.set()
        last = chunk.choices[0].finish_reason or last
    return last

async def consume_async(engine):
    last = None
    async for chunk in await engine.completions.create(**FIELDS):
        seen.set()
        last = chunk.choices[0].finish_reason or last
    return last

def follow(engine):
    try:
        if isinstance(engine, AsyncMLCEngine):
            ends.append(asyncio.run(consume_async(engine)))
        else:
            ends.append(consume(engine.completions.create(**FIELDS)))
    except MLCNativeError as error:
        ends.append(type(error).__name__)
    finally:
        seen.set()

def start(engine, count=1):
    for i in range(count):
        if isinstance(engine, SyncMLCEngine):
            config = GenerationConfig(max_tokens=3000)
            engine.add_request(engine.create_request(f"r{i}", [1, 2, 3], config))
        else:
            consumers.append(threading.Thread(target=follow, args=(engine,), daemon=True))
            consumers[-1].start()
    if isinstance(engine, SyncMLCEngine):
        engine.step()
    assert seen.wait(50)

def settle():
    for consumer in consumers:
        consumer.join(50)
        assert not consumer.is_alive(), "a consumer still waits"
    assert len(ends) == len(consumers) and None not in ends, ends

def finish():
    if not isinstance(engine, SyncMLCEngine):  # which has nothing that must be ended
        engine.terminate()
    settle()

def run(function, *arguments, **keywords):
    result = function(*arguments, **keywords)
    return asyncio.run(result) if asyncio.iscoroutine(result) else result
"""

MOMENTS = {
    "new": "",
    "while one streams": "start(engine)",
    "while more stream than fit": "start(engine, 8)",
}

# The code of each, and the exit status.
ENDINGS: dict[str, tuple[str, int]] = {
    "drop the last reference": ("del engine; gc.collect()", 0),
    "end the interpreter": ("", 0),
    "sys.exit with a status": ("sys.exit(7)", 7),
    "os._exit": ("os._exit(5)", 5),
    "an uncaught error": ("raise SystemError('planned')", 1),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(50)", -signal.SIGTERM),
    "SIGINT": (
        "try:\n    os.kill(os.getpid(), signal.SIGINT); time.sleep(50)\n"
        "except KeyboardInterrupt: pass\nfinish()",
        0,
    ),
    "fork, and the child exits": (
        "pid = os.fork()\nif pid == 0: sys.exit(3)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3\n"
        "finish()",
        0,
    ),
    "fork, and the child uses it": (
        "pid = os.fork()\nif pid == 0:\n"
        "    try: engine.step() if isinstance(engine, SyncMLCEngine) else run(engine.metrics)\n"
        "    except MLCNativeError: os._exit(0)\n    os._exit(9)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0\n"
        "finish()",
        0,
    ),
    "another engine in between": (
        "other = make('sync'); print(consume(other.completions.create(**FIELDS)))\n"
        "other.terminate(); finish()",
        0,
    ),
    "a cycle with itself": ("engine.me = engine; del engine; gc.collect()", 0),
}

# Only of the engines with threads.
THREADED: dict[str, tuple[str, int]] = {
    "terminate": ("engine.terminate(); settle()", 0),
    "terminate twice": ("engine.terminate(); engine.terminate(); settle()", 0),
    "terminate from four threads": (
        "ts = [threading.Thread(target=engine.terminate) for _ in range(4)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts]; settle()",
        0,
    ),
    "leave a with block by an error": (
        "try:\n    with engine: raise ValueError\nexcept ValueError: pass\nsettle()",
        0,
    ),
    "unload": ("run(engine.unload); settle(); engine.terminate()", 0),
    "reload": (
        "run(engine.reload, model, CONFIG, model_lib=library); settle(); engine.terminate()",
        0,
    ),
    "reload what is not there": (
        "try: run(engine.reload, model + '/none', CONFIG)\n"
        "except MLCNativeError: pass\nelse: raise AssertionError\nengine.terminate(); settle()",
        0,
    ),
    "reload and terminate at once": (
        "def again():\n    try: run(engine.reload, model, CONFIG, model_lib=library)\n"
        "    except MLCNativeError: pass\n"
        "t = threading.Thread(target=again); t.start(); engine.terminate(); t.join(); settle()",
        0,
    ),
    "abort all": ("run(engine.abort_all); settle(); engine.terminate()", 0),
}

TELLTALES = (
    "Fatal Python error",
    "terminate called",
    "core dumped",
    "Exception ignored",
    "panicked",
)


def _cases() -> list[Case]:
    cases = []
    for kind in ("sync", "async", "stepped"):
        endings = ENDINGS | ({} if kind == "stepped" else THREADED)
        for moment, begin in MOMENTS.items():
            for ending, (end, status) in endings.items():
                script = "\n".join((HEAD, f"engine = make({kind!r})", begin, end))
                cases.append(Case(f"{kind}, {moment}: {ending}", (script, status)))
    return cases


def _attempt(value: tuple[str, int]) -> str:
    script, status = value
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder) / "model", us_per_step=200, cost="sleep")
        done = _ended([sys.executable, "-X", "faulthandler", "-c", script, model], status)
    return "served" if done is None else done


def _ended(command: list[str], status: int) -> str | None:
    """What is wrong with how the process ended; nothing if it ended as it should."""
    process = subprocess.Popen(
        [*command, find_fake_model_lib()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        _, errors = process.communicate(timeout=TIMEOUT_S * PATIENCE)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # faulthandler shows where it is
        _, errors = process.communicate()
        return "it did not end: " + errors[-2000:]
    if process.returncode != status:
        return f"status {process.returncode} instead of {status}: {errors[-2000:]}"
    found = [telltale for telltale in TELLTALES if telltale in errors]
    return f"{found[0]}: {errors[-2000:]}" if found else None


def hostile_class() -> HostileClass:
    """Engines that end in every way at several points of their lives."""
    cases: list[Any] = _cases()
    return HostileClass("lifecycle", cases, _attempt, cpu_s=10, memory_mib=64, sample=8)
