"""Many threads at once: the bridge, engines and the objects of _core, with a GIL and without one.

With a GIL, threads take turns after a microsecond here, so that what counts on luck fails there,
too. Without one, as in CPython 3.13t and later, these tests say that nothing counts on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_stream_bridge import final, text

import mlc_native
from mlc_native import MLCEngine, _core
from mlc_native._stream_bridge import AsyncChannel, StreamBridge, SyncChannel
from mlc_native._text_event import TextEvent
from mlc_native.errors import EngineTerminatedError, InvalidRequest
from mlc_native.protocol.generation_config import GenerationConfig

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
NUM_THREADS = 6
SETTINGS: dict[str, Any] = {"mode": "server", "verbose": False}
DEMO = Path(mlc_native.__file__).parent / "demo_model"
ROUNDS = [20, pytest.param(1500, marks=[pytest.mark.slow, pytest.mark.nightly])]


@pytest.fixture(autouse=True)
def _short_turns() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def at_once(*functions: Callable[[], None]) -> None:
    """Runs functions on threads that begin together; raises the first error of any."""
    barrier = threading.Barrier(len(functions))
    errors: list[BaseException] = []

    def run(function: Callable[[], None]) -> None:
        try:
            barrier.wait(60)
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(each,), daemon=True) for each in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


# ------------------------------------------------------------------------------------- the GIL

USE = """
import sys
assert not sys._is_gil_enabled()
from mlc_native import MLCEngine
from mlc_native._text_event import TextEvent
with MLCEngine("demo", num_threads=1, verbose=False) as engine:
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}
    engine.chat.completions.create(**chat)
    list(engine.chat.completions.create(**chat, stream=True))
ours = sorted(name for name in sys.modules if name.startswith("mlc_native._"))
print(sys._is_gil_enabled(), *ours)
"""


@pytest.mark.skipif(not FREE_THREADED, reason="this Python has a GIL")
def test_using_an_engine_does_not_switch_the_gil_on() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    done = subprocess.run(
        [sys.executable, "-c", USE], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    enabled, *modules = done.stdout.split()
    assert enabled == "False", done.stderr
    assert {"mlc_native._core", "mlc_native._stream_bridge", "mlc_native._text_event"} <= {*modules}


# ---------------------------------------------------------------------------------- the bridge


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_channel_that_is_opened_while_the_bridge_closes_is_ended(rounds: int) -> None:
    """By an error, at once or in ``next``: no caller waits for outputs that never come."""
    for _ in range(rounds):
        bridge = StreamBridge()
        opened: list[SyncChannel] = []

        def open_many(k: int, bridge: Any = bridge, opened: Any = opened) -> None:
            try:
                for i in range(50):
                    opened.append(bridge.open_sync(f"{k}-{i}"))
            except EngineTerminatedError:
                pass

        def close(bridge: Any = bridge) -> None:
            bridge.close("the end")

        at_once(*(lambda k=k: open_many(k) for k in range(NUM_THREADS)), close)
        for channel in opened:
            with pytest.raises(EngineTerminatedError):
                channel.next()
        assert len(bridge) == 0


@pytest.mark.parametrize("rounds", ROUNDS)
def test_channels_are_given_up_while_outputs_come(rounds: int) -> None:
    """Other threads close channels whose consumers read. What is read is in order, without gaps."""
    num_tokens, num_channels = 40, 12
    for seed in range(rounds):
        bridge = StreamBridge()
        channels = [bridge.open_sync(str(i)) for i in range(num_channels)]
        rng = random.Random(seed)
        given_up = rng.sample(range(num_channels), num_channels // 2)

        def feed(bridge: Any = bridge) -> None:
            for k in range(num_tokens):
                bridge([text(str(i), f"{k} ") for i in range(num_channels)])
            bridge([final(str(i)) for i in range(num_channels)])

        def consume(ours: list[int], channels: Any = channels, given_up: Any = given_up) -> None:
            for i in ours:
                pieces = []
                while (outputs := channels[i].next()) is not None:
                    pieces += [output.delta_text for output in outputs]
                words = "".join(pieces).split()
                assert words == [str(k) for k in range(len(words))]
                assert len(words) == num_tokens or i in given_up

        def give_up(bridge: Any = bridge, channels: Any = channels, given: Any = given_up) -> None:
            for i in given:
                for request_id in bridge.discard(channels[i]):
                    assert request_id == str(i)
                channels[i].interrupt()  # its consumer may wait

        shares = [list(range(k, num_channels, 4)) for k in range(4)]
        at_once(feed, give_up, *(lambda ours=ours: consume(ours) for ours in shares))
        assert len(bridge) == 0


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_channel_that_several_threads_use(rounds: int) -> None:
    """More than is promised: it may lose outputs, and must not touch memory that is not its own."""
    for _ in range(rounds):
        bridge = StreamBridge()
        channel = bridge.open_sync("0")

        def feed(bridge: Any = bridge) -> None:
            for k in range(100):
                bridge([text("0", "x", "y"), text(str(k % 3), "z", "y")])

        left = [1, 2]

        def consume(channel: Any = channel, left: Any = left) -> None:
            while channel.next() is not None:
                pass
            left.pop()

        def change(bridge: Any = bridge, channel: Any = channel, left: Any = left) -> None:
            for k in range(1, 40):
                with contextlib.suppress(ValueError):
                    bridge.join(channel, str(k % 3))
                assert len(channel.open_ids) <= 3
                bridge.discard(channel, str(k % 3))
            bridge.discard(channel)
            while left:  # one consumer may take the call of the other
                channel.interrupt()

        at_once(feed, change, consume, consume)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_tasks_of_several_loops_read_while_outputs_come(rounds: int) -> None:
    """A loop per thread. Another thread closes half of the channels and cancels their tasks."""
    num_tokens, num_channels, num_loops = 40, 12, 4
    for seed in range(rounds):
        bridge = StreamBridge()
        given_up = random.Random(seed).sample(range(num_channels), num_channels // 2)
        opened = threading.Barrier(num_loops + 2)
        tasks: dict[int, tuple[AsyncChannel, asyncio.Task[None]]] = {}

        async def consume(i: int, channel: AsyncChannel, given_up: Any = given_up) -> None:
            pieces: list[str] = []
            try:
                while (outputs := await channel.next()) is not None:
                    pieces += [output.delta_text for output in outputs]
            except asyncio.CancelledError:
                assert i in given_up
            words = "".join(pieces).split()
            assert words == [str(k) for k in range(len(words))]
            assert len(words) == num_tokens or i in given_up

        async def read(
            ours: range, bridge: Any = bridge, tasks: Any = tasks, opened: Any = opened
        ) -> None:
            loop = asyncio.get_running_loop()
            for i in ours:
                channel = bridge.open_async(str(i), loop)
                tasks[i] = channel, loop.create_task(consume(i, channel))
            await asyncio.sleep(0)  # each of them waits
            opened.wait(60)
            await asyncio.wait_for(asyncio.gather(*(tasks[i][1] for i in ours)), 60)

        def feed(bridge: Any = bridge, opened: Any = opened) -> None:
            opened.wait(60)
            for k in range(num_tokens):
                bridge([text(str(i), f"{k} ") for i in range(num_channels)])
            bridge([final(str(i)) for i in range(num_channels)])

        def give_up(
            bridge: Any = bridge, tasks: Any = tasks, opened: Any = opened, given: Any = given_up
        ) -> None:
            opened.wait(60)
            for i in given:
                channel, task = tasks[i]
                assert channel.open_ids in ([], [str(i)])
                assert bridge.discard(channel) in ([], [str(i)])
                assert channel.open_ids == []
                with contextlib.suppress(RuntimeError):  # its loop is closed: the task is done
                    channel.loop.call_soon_threadsafe(task.cancel)

        shares = [range(k, num_channels, num_loops) for k in range(num_loops)]
        loops = [lambda ours=ours, read=read: asyncio.run(read(ours)) for ours in shares]
        at_once(feed, give_up, *loops)
        assert len(bridge) == 0


# ------------------------------------------------------------------------------------ an engine


@pytest.mark.parametrize("rounds", ROUNDS)
def test_threads_submit_cancel_and_iterate(
    rounds: int, make_model: Callable[..., str], fake_lib: str
) -> None:
    """Every request ends once, and those that are not cancelled have their whole answers."""
    answer = "abcdefghij" * 3
    with MLCEngine(make_model(answer=answer), model_lib=fake_lib, **SETTINGS) as engine:
        names: list[str] = []
        settings = GenerationConfig(max_tokens=100)

        def work(k: int) -> None:
            rng = random.Random(k)
            for i in range(rounds):
                name = f"{k}-{i}"
                names.append(name)
                stream = engine._generate(f"request {name}", settings, name)
                how = rng.randrange(4)
                if how == 0:
                    next(stream)
                    stream.close()
                    continue
                if how == 1:
                    engine.abort(names[rng.randrange(len(names))])
                outputs = [each for (each,) in stream]
                got = "".join(output.delta_text for output in outputs)
                reasons = [output.finish_reason for output in outputs if output.finish_reason]
                assert answer.startswith(got)
                assert reasons in (["stop"], ["abort"]), reasons
                assert got == answer or reasons == ["abort"]
                assert outputs[-1].request_final_usage_json_str is not None

        def watch() -> None:
            for _ in range(rounds):
                assert engine.metrics()["num_errors"] == 0

        at_once(*(lambda k=k: work(k) for k in range(NUM_THREADS)), watch)
        finished = engine.metrics()["finished_requests"]
        assert sum(finished.values()) == len(names)
        assert len(engine.state.bridge) == 0


# --------------------------------------------------------------------------- objects of _core


def test_a_generation_config_that_several_threads_change() -> None:
    config = _core.GenerationConfig()
    stops = [["a" * 100], ["b" * 200, "c"], []]
    biases = [dict.fromkeys(range(50), 1.0), {}]

    def change() -> None:
        for i in range(4000):
            config.stop_strs = stops[i % 3]
            config.logit_bias = biases[i % 2]
            config.stop_token_ids = list(range(i % 40))

    def read() -> None:
        for _ in range(4000):
            assert config.stop_strs in stops
            assert config.logit_bias in biases
            ids = config.copy().stop_token_ids
            assert ids == list(range(len(ids)))
            config.validate(1 << 20)
            config.as_json()

    at_once(change, change, read, read)


def test_trees_that_several_threads_change() -> None:
    """Threads change their own sequences, compare them, and fork others'; two threads read all."""
    tree = _core.PagedRadixTree(1 << 20)
    tokens = list(range(300))
    changing = list(range(NUM_THREADS))

    def use(k: int) -> None:
        rng = random.Random(k)
        for i in range(300):
            mine = k * 1000 + i
            tree.add(mine)
            tree.extend(mine, tokens[:i])
            assert tree.get(mine) == tokens[:i]
            dropped = rng.randrange(i + 1)
            tree.rollback(mine, dropped)
            assert tree.get_length(mine) == i - dropped
            tree.extend(mine, tokens[i - dropped : i])
            tree.match(tokens)
            other = rng.randrange(NUM_THREADS) * 1000 + rng.randrange(i + 1)
            with contextlib.suppress(InvalidRequest):  # unknown, or too short
                tree.fork(mine + 500, other, rng.randrange(i + 1))
                held = tree.get(mine + 500)
                assert held == tokens[: len(held)]
                tree.remove(mine + 500)
            assert 0 <= tree.free_capacity() <= 1 << 20
            if i % 3:
                tree.remove(mine)
        changing.pop()

    def read() -> None:
        rng = random.Random(0)
        while changing:
            length, ids = tree.match(tokens)
            assert length == 0 or ids
            with contextlib.suppress(InvalidRequest):  # unknown
                seq_id = rng.randrange(NUM_THREADS) * 1000 + rng.randrange(300)
                assert 0 <= tree.get_length(seq_id) < 300
                held = tree.get(seq_id)
                assert held == tokens[: len(held)]

    at_once(*(lambda k=k: use(k) for k in range(NUM_THREADS)), read, read)
    assert tree.match(tokens)[0] == 297
    assert tree.free_capacity() == (1 << 20) - 297
    for k in range(NUM_THREADS):
        assert tree.get_length(k * 1000 + 297) == 297


def test_a_text_streamer_that_several_threads_use() -> None:
    """A call puts whole characters of four tokens each, so no call may see a part of another's."""
    table = _core.TokenTable.from_tokenizer_json(str(DEMO / "tokenizer.json"))
    ids = {table.bytes(i): i for i in range(table.size)}
    characters = "\N{GRINNING FACE}" * 50
    token_ids = [ids[bytes([byte])] for byte in characters.encode()]
    streamer = _core.TextStreamer(table)

    def put() -> None:
        for _ in range(3000):
            assert streamer.put(token_ids) == characters

    def finish() -> None:
        for _ in range(30000):
            assert streamer.finish() == ""

    at_once(put, put, put, finish)


def test_a_stop_handler_that_several_threads_use() -> None:
    """Each token and each byte comes out once."""
    table = _core.TokenTable.from_tokenizer_json(str(DEMO / "tokenizer.json"))
    handler = _core.StopStrHandler(["stop" * 10], table)
    token_ids = list(range(300, 600))
    num_bytes = sum(len(table.bytes(i)) for i in token_ids)
    released: list[int] = []
    written: list[int] = []

    def put() -> None:
        for token_id in token_ids:
            released.append(len(handler.put(token_id)))
            assert not handler.stop_triggered

    def finish() -> None:
        for _ in range(300):
            released.append(len(handler.finish()))
            written.append(len(handler.take_text()))

    at_once(*[put] * NUM_THREADS, finish, finish)
    assert sum(released) + len(handler.finish()) == NUM_THREADS * len(token_ids)
    assert sum(written) + len(handler.take_text()) == NUM_THREADS * num_bytes


def test_an_event_that_several_threads_write() -> None:
    event = TextEvent(b'{"a": "', b'"}')

    def write() -> None:
        for i in range(300):
            assert event.write("\n" * i) == b'{"a": "' + b"\\n" * i + b'"}'

    at_once(*[write] * NUM_THREADS)


def test_messages_that_change_while_they_are_rendered() -> None:
    template = _core.ChatTemplate.compile(
        "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
    )
    messages: list[dict[str, Any]] = []
    limits = (True, 10.0, 1 << 20, 1 << 24, 1 << 20)

    def change() -> None:
        for i in range(2000):
            messages.append({"role": f"user {i}", "content": f"text {i}", "more": {"x": [i]}})
            if i % 3 == 2:
                messages[0].clear()
                del messages[0]

    def render() -> None:
        for _ in range(60):
            rendered, _ = template.render({"messages": messages[-20:]}, {}, *limits)
            for part in rendered.split(";")[:-1]:
                role, content = part.split(":")
                assert role.removeprefix("user ") == content.removeprefix("text ")

    at_once(change, render, render)


def test_one_request_id_for_many_threads(make_model: Callable[..., str], fake_lib: str) -> None:
    """One of them gets it, the others are told so."""
    results: list[str] = []
    with MLCEngine(make_model(answer="abc"), model_lib=fake_lib, **SETTINGS) as engine:

        def ask() -> None:
            try:
                stream = engine._generate("x", GenerationConfig(), "the same")
                results.append("".join(output.delta_text for (output,) in stream))
            except InvalidRequest as error:
                results.append(error.field)

        at_once(*[ask] * NUM_THREADS)
    assert set(results) <= {"abc", "request_id"}
    assert "abc" in results
    assert len(results) == NUM_THREADS
