"""The bridge alone, fed with outputs by hand: fan-out, joining, dead consumers, closing."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from mlc_native._stream_bridge import StreamBridge
from mlc_native.errors import EngineRequestError, EngineTerminatedError


@dataclass
class Delta:
    """Stands for _core.SequenceDelta."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprob_json_strs: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    extra_prefix_string: str = ""


@dataclass
class Output:
    """Stands for _core.RequestStreamOutput."""

    request_id: str
    group: list[Delta] = field(default_factory=list)
    request_final_usage_json_str: str | None = None
    error_message: str = ""
    scored_prompt: list[str] | None = None

    def unpack_deltas(self) -> list[tuple[str, list[int], list[str] | None, str | None]]:
        return [
            (
                d.extra_prefix_string + d.text,
                list(d.token_ids),
                list(d.logprob_json_strs) or None,
                d.finish_reason,
            )
            for d in self.group
        ]

    @property
    def has_prompt_results(self) -> bool:
        return self.scored_prompt is not None

    has_scored_prompt = has_prompt_results

    @property
    def is_final(self) -> bool:
        return self.request_final_usage_json_str is not None


def text(request_id: str, *texts: str, finish: str | None = None, error: str = "") -> Output:
    group = [Delta(t, list(t.encode()), finish_reason=finish) for t in texts]
    return Output(request_id, group, error_message=error)


def final(request_id: str) -> Output:
    return Output(request_id, [], f'{{"id": "{request_id}"}}')


def texts(outputs: Sequence[Any]) -> list[str]:
    return [output.delta_text for output in outputs]


# ------------------------------------------------------------------------------------- one thread


def test_deltas_in_order_then_the_usage_alone() -> None:
    bridge = StreamBridge()
    channel = bridge.open_sync("r")
    bridge([text("r", "a")])
    assert texts(channel.next()) == ["a"]
    bridge([text("r", "b", finish="stop"), final("r")])
    outputs = channel.next()
    assert (texts(outputs), outputs[0].finish_reason) == (["b"], "stop")
    assert not channel.finished
    (usage,) = channel.next()
    assert usage.request_final_usage_json_str == '{"id": "r"}'
    assert channel.finished
    assert channel.next() is None
    assert len(bridge) == 0


def test_what_has_piled_up_is_joined() -> None:
    bridge = StreamBridge()
    channel = bridge.open_sync("r")
    bridge([Output("r", [Delta("a", [1], ["A"]), Delta("", [], [])])])
    bridge([Output("r", [Delta("b", [2, 3], ["B", "C"], "length"), Delta("x", [9], ["X"])])])
    bridge([Output("r", [Delta("", [], []), Delta("z", [], [], "stop", "y")]), final("r")])
    first, second = channel.next()
    assert (first.delta_text, first.delta_token_ids, first.finish_reason) == (
        "ab",
        [1, 2, 3],
        "length",
    )
    assert first.delta_logprob_json_strs == ["A", "B", "C"]
    assert (second.delta_text, second.delta_token_ids, second.finish_reason) == ("xyz", [9], "stop")
    assert second.delta_logprob_json_strs == ["X"]
    assert channel.next()[0].request_final_usage_json_str is not None


def test_no_logprobs_is_none() -> None:
    bridge = StreamBridge()
    channel = bridge.open_sync("r")
    bridge([text("r", "a")])
    assert channel.next()[0].delta_logprob_json_strs is None


def test_requests_do_not_mix() -> None:
    bridge = StreamBridge()
    channels = {name: bridge.open_sync(name) for name in "abc"}
    bridge([text(name, name + str(i)) for i in range(3) for name in "abc"])
    assert {name: texts(c.next()) for name, c in channels.items()} == {
        name: [f"{name}0{name}1{name}2"] for name in "abc"
    }


def test_unknown_ids_are_dropped() -> None:
    bridge = StreamBridge()
    channel = bridge.open_sync("r")
    bridge([text("nobody", "x"), text("r", "a"), final("nobody")])
    assert texts(channel.next()) == ["a"]


def test_an_id_in_use_is_refused_and_its_owner_untouched() -> None:
    bridge = StreamBridge()
    channel = bridge.open_sync("r")
    with pytest.raises(ValueError, match='"r" is in use'):
        bridge.open_sync("r")
    bridge([text("r", "a"), final("r")])
    assert texts(channel.next()) == ["a"]
    bridge.open_sync("r")  # free again


def test_an_id_that_was_given_up_is_in_use_until_its_final_output() -> None:
    bridge = StreamBridge()
    old = bridge.open_sync("r")
    other = bridge.open_sync("s")
    assert bridge.discard(old) == ["r"]
    for outputs in ([], [text("r", "a")]):
        bridge(outputs)
        with pytest.raises(ValueError, match='"r" is in use'):
            bridge.open_sync("r")
        with pytest.raises(ValueError, match='"r" is in use'):
            bridge.join(other, "r")
    bridge([text("r", "", finish="abort"), final("r")])
    new = bridge.open_sync("r")
    bridge.discard(old)  # a second time: must not touch the new owner
    bridge([text("r", "b")])
    assert texts(new.next()) == ["b"]


def test_an_id_is_in_use_until_its_request_is_aborted() -> None:
    """The request ends before the abort arrives: the next one of that id must not be aborted."""
    aborted: list[str] = []

    def abort(request_id: str) -> None:
        bridge([final(request_id)])
        with pytest.raises(ValueError, match="in use"):
            bridge.open_sync(request_id)
        aborted.append(request_id)

    bridge = StreamBridge(abort)
    bridge.give_up(bridge.open_sync("r"))
    assert aborted == ["r"]
    assert bridge.open_sync("r").request_id == "r"


def test_an_id_that_the_engine_refused_is_free() -> None:
    bridge = StreamBridge()
    bridge.discard(bridge.open_sync("r"), "r")
    channel = bridge.open_sync("r")
    bridge([text("r", "a")])
    assert texts(channel.next()) == ["a"]


def test_an_error_comes_after_the_text_before_it() -> None:
    bridge = StreamBridge()
    channel = bridge.open_sync("r")
    bridge([text("r", "a"), text("r", "", finish="error", error="it broke"), final("r")])
    assert texts(channel.next()) == ["a"]
    with pytest.raises(EngineRequestError, match="request r: it broke") as error:
        channel.next()
    assert error.value.request_id == "r"
    assert channel.finished
    assert channel.next() is None


def test_an_error_alone_is_raised_at_once() -> None:
    bridge = StreamBridge()
    channel = bridge.open_sync("r")
    bridge([text("r", "", "", finish="error", error="it broke"), final("r")])
    with pytest.raises(EngineRequestError):
        channel.next()


def test_the_outputs_in_front_of_an_error_do_not_end_with_it() -> None:
    """What a consumer gets of an error does not depend on what arrives together with it."""
    bridge = StreamBridge()
    channel = bridge.open_sync("r")
    end = text("r", "b", "", "", finish="error", error="it broke")
    end.group[1].finish_reason = "stop"
    bridge([text("r", "a", "", "c"), end, final("r")])
    outputs = channel.next()
    assert texts(outputs) == ["ab", "", "c"]
    assert [output.finish_reason for output in outputs] == [None, "stop", None]
    with pytest.raises(EngineRequestError):
        channel.next()


def test_an_answer_that_ended_before_an_error_has_its_end() -> None:
    bridge = StreamBridge()
    channel = bridge.open_sync("r")
    bridge([text("r", "", "", finish="error", error="it broke"), final("r")])
    with pytest.raises(EngineRequestError):
        channel.next()
    channel = bridge.open_sync("s")
    end = text("s", "", "", finish="error", error="it broke")
    end.group[1].finish_reason = "stop"
    bridge([end, final("s")])
    assert [output.finish_reason for output in channel.next()] == [None, "stop"]
    with pytest.raises(EngineRequestError):
        channel.next()


def test_requests_that_share_a_channel() -> None:
    bridge = StreamBridge()
    channel = bridge.open_sync("r")
    bridge.join(channel, "s")
    with pytest.raises(ValueError, match='"s" is in use'):
        bridge.join(channel, "s")
    with pytest.raises(ValueError, match='"s" is in use'):
        bridge.open_sync("s")
    bridge([text("r", "a"), text("r", "b"), text("s", "x"), final("r"), text("s", "y")])
    seen = [(out[0].request_id, texts(out)) for out in (channel.next() for _ in range(4))]
    assert seen == [("r", ["ab"]), ("s", ["x"]), ("r", [""]), ("s", ["y"])]
    assert channel.open_ids == ["s"]
    bridge.join(channel, "t")
    bridge([final("s"), final("t")])
    assert [channel.next()[0].request_id for _ in range(2)] == ["s", "t"]
    assert channel.finished
    assert channel.next() is None
    bridge.join(channel, "u")  # a channel may go on
    bridge([text("u", "z")])
    assert texts(channel.next()) == ["z"]


def test_an_error_ends_one_request_of_a_channel() -> None:
    bridge = StreamBridge()
    channel = bridge.open_sync("r")
    bridge.join(channel, "s")
    bridge([text("r", "a", finish="error", error="it broke"), text("s", "x"), final("r")])
    assert texts(channel.next()) == ["a"]
    with pytest.raises(EngineRequestError, match="request r: it broke"):
        channel.next()
    assert texts(channel.next()) == ["x"]
    bridge([final("s")])
    assert channel.next()[0].request_id == "s"
    assert channel.next() is None


def test_discarding_tells_what_has_not_ended() -> None:
    bridge = StreamBridge()
    channel = bridge.open_sync("r")
    bridge.join(channel, "s")
    bridge.join(channel, "t")
    assert bridge.discard(channel, "t") == ["t"]
    bridge([final("r")])  # not taken yet; its id may already belong to another
    other = bridge.open_sync("r")
    assert bridge.discard(channel) == ["s"]
    assert channel.next() is None
    bridge([text("r", "a")])
    assert texts(other.next()) == ["a"]


def test_what_was_taken_is_let_go() -> None:
    bridge = StreamBridge()
    channel = bridge.open_sync("0")
    taken = []
    for i in range(100):
        item = final(str(i))
        taken.append(weakref.ref(item))
        bridge([item])
        del item
        bridge.join(channel, str(i + 1))
        assert channel.next()[0].request_id == str(i)
    assert sum(reference() is not None for reference in taken) <= 1


def test_an_interrupted_consumer_gets_none() -> None:
    bridge = StreamBridge()
    channel = bridge.open_sync("r")
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(channel.next()))
    thread.start()
    channel.interrupt()
    thread.join(30)
    assert results == [None]
    assert bridge.discard(channel) == ["r"]


def test_close_ends_waiting_threads() -> None:
    bridge = StreamBridge()
    channel = bridge.open_sync("r")
    bridge([text("r", "a")])
    errors: list[BaseException] = []

    def consume() -> None:
        try:
            while channel.next() is not None:
                pass
        except EngineTerminatedError as error:
            errors.append(error)

    thread = threading.Thread(target=consume)
    thread.start()
    bridge.close("the end")
    thread.join(30)
    assert [str(error) for error in errors] == ["the end"]
    with pytest.raises(EngineTerminatedError):
        bridge.open_sync("s")


@pytest.mark.parametrize("num_threads", [1, 3])
def test_discarding_ends_waiting_threads(num_threads: int) -> None:
    """A thread that waits when another one gives up gets the end, and so do further threads, which
    a channel is not for."""
    bridge = StreamBridge()
    channel = bridge.open_sync("r")
    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda: results.append(channel.next()), daemon=True)
        for _ in range(num_threads)
    ]
    for thread in threads:
        thread.start()
    assert bridge.discard(channel) == ["r"]
    for thread in threads:
        thread.join(30)
    assert results == [None] * num_threads


def test_many_threads() -> None:
    bridge = StreamBridge()
    num_threads, num_tokens = 16, 200
    channels = [bridge.open_sync(str(i)) for i in range(num_threads)]
    results: dict[int, str] = {}

    def consume(i: int) -> None:
        pieces = []
        while (outputs := channels[i].next()) is not None:
            pieces += texts(outputs)
        results[i] = "".join(pieces)

    threads = [threading.Thread(target=consume, args=(i,)) for i in range(num_threads)]
    for thread in threads:
        thread.start()
    for k in range(num_tokens):
        bridge([text(str(i), f"{i}:{k} ") for i in range(num_threads)])
    bridge([final(str(i)) for i in range(num_threads)])
    for thread in threads:
        thread.join(60)
    expected = {i: "".join(f"{i}:{k} " for k in range(num_tokens)) for i in range(num_threads)}
    assert results == expected


# ---------------------------------------------------------------------------------------- asyncio


async def collect(channel: Any) -> str:
    pieces: list[str] = []
    while (outputs := await channel.next()) is not None:
        pieces += texts(outputs)
    return "".join(pieces)


async def test_async_channel() -> None:
    bridge = StreamBridge()
    channel = bridge.open_async("r", asyncio.get_running_loop())
    task = asyncio.create_task(collect(channel))
    await asyncio.sleep(0)  # the task waits now
    bridge([text("r", "a")])
    await asyncio.to_thread(bridge, [text("r", "b", finish="stop"), final("r")])
    assert await asyncio.wait_for(task, 30) == "ab"


async def test_a_cancelled_consumer_can_go_on() -> None:
    bridge = StreamBridge()
    channel = bridge.open_async("r", asyncio.get_running_loop())
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(channel.next(), 0.01)
    bridge([text("r", "a")])
    assert texts(await asyncio.wait_for(channel.next(), 30)) == ["a"]


async def test_discarding_ends_a_waiting_task() -> None:
    """A task that waits when another task or thread gives up gets the end."""
    bridge = StreamBridge()
    from_a_thread = partial(asyncio.to_thread, bridge.discard)
    for request_id, discard in (("r", bridge.discard), ("s", from_a_thread)):
        channel = bridge.open_async(request_id, asyncio.get_running_loop())
        task = asyncio.create_task(channel.next())
        await asyncio.sleep(0)  # the task waits now
        assert channel.has_waiter
        discarded = discard(channel)
        assert (await discarded if asyncio.iscoroutine(discarded) else discarded) == [request_id]
        assert await asyncio.wait_for(task, 30) is None
        assert not channel.has_waiter


def test_discarding_when_the_loop_is_closed() -> None:
    bridge = StreamBridge()
    loop = asyncio.new_event_loop()
    channel = bridge.open_async("r", loop)
    loop.close()
    assert bridge.discard(channel) == ["r"]


class CountingLoop:
    """An event loop that counts how often it is woken."""

    def __init__(self) -> None:
        self.wakeups: list[tuple[Any, ...]] = []

    def call_soon_threadsafe(self, *call: Any) -> None:
        self.wakeups.append(call)


def test_one_wakeup_per_loop_and_batch() -> None:
    bridge = StreamBridge()
    loops = [CountingLoop(), CountingLoop()]
    for i in range(10):
        bridge.open_async(str(i), loops[i % 2])
    bridge([text(str(i), "a") for _ in range(3) for i in range(10)])
    assert [len(loop.wakeups) for loop in loops] == [1, 1]
    bridge([text("1", "a")])
    assert [len(loop.wakeups) for loop in loops] == [1, 2]


def test_a_closed_loop_loses_only_its_own() -> None:
    aborted: list[str] = []
    bridge = StreamBridge(aborted.append)
    loop = asyncio.new_event_loop()
    bridge.open_async("dead", loop)
    channel = bridge.open_sync("alive")
    loop.close()
    bridge([text("dead", "x"), text("alive", "a")])
    bridge([text("dead", "x"), text("alive", "b"), final("dead"), final("alive")])
    assert texts(channel.next()) == ["ab"]
    assert aborted == ["dead"]  # once: it will never be read, so the engine need not generate it
    assert len(bridge) == 0


class LackingOnce:
    """Raises MemoryError the first time that one of its actions is due."""

    def __init__(self, action: Callable[..., Any]) -> None:
        self.lacks = True
        self._action = action

    def __call__(self, *arguments: Any) -> Any:
        if self.lacks:
            self.lacks = False
            raise MemoryError
        return self._action(*arguments)


@dataclass
class FinalThatNeedsMemory(Output):
    """The end of a request. What the bridge asks it for does not fit into memory at first."""

    lacks: bool = True

    @property
    def is_final(self) -> bool:
        if self.lacks:
            self.lacks = False
            raise MemoryError
        return True


def test_a_batch_that_was_not_sorted_for_lack_of_memory_is_called_again() -> None:
    bridge = StreamBridge()
    channels = {name: bridge.open_sync(name) for name in "ab"}
    batch = [text("a", "x"), final("a"), FinalThatNeedsMemory("b", [], "{}")]
    with pytest.raises(MemoryError):
        bridge(batch)
    bridge(batch)
    assert texts(channels["a"].next()) == ["x"]
    for channel in channels.values():
        assert channel.next()[0].request_final_usage_json_str is not None
        assert channel.finished
    assert len(bridge) == 0
    bridge.open_sync("a")  # its id is free


def test_a_batch_goes_on_where_it_lacked_memory() -> None:
    """What has been handed over is not handed over again."""
    bridge = StreamBridge()
    loops = [CountingLoop(), CountingLoop()]
    first = bridge.open_sync("first")
    for i in range(2):
        bridge.open_async(str(i), loops[i])
    last = bridge.open_sync("last")
    loops[1].call_soon_threadsafe = LackingOnce(loops[1].call_soon_threadsafe)  # type: ignore[method-assign]
    names = ("first", "0", "1", "last")
    batch = [output for name in names for output in (text(name, "x"), final(name))]
    with pytest.raises(MemoryError):
        bridge(batch)
    bridge(batch)
    assert [len(loop.wakeups) for loop in loops] == [1, 1]
    for channel in (first, last):
        assert texts(channel.next()) == ["x"]
        assert channel.next()[0].request_final_usage_json_str is not None
    assert len(bridge) == 0


def test_a_batch_that_fails_does_not_hold_up_the_next() -> None:
    bridge = StreamBridge()
    loop = CountingLoop()
    loop.call_soon_threadsafe = LackingOnce(print)  # type: ignore[method-assign]
    bridge.open_async("lost", loop)
    channel = bridge.open_sync("r")
    with pytest.raises(MemoryError):
        bridge([text("lost", "x")])
    bridge([text("r", "a"), final("r")])
    assert texts(channel.next()) == ["a"]


def test_many_event_loops() -> None:
    bridge = StreamBridge()
    num_loops, num_requests, num_tokens = 4, 5, 50
    opened = threading.Barrier(num_loops + 1)
    results: dict[str, str] = {}

    def run_loop(k: int) -> None:
        async def main() -> None:
            loop = asyncio.get_running_loop()
            names = [f"{k}-{i}" for i in range(num_requests)]
            channels = [bridge.open_async(name, loop) for name in names]
            opened.wait(30)
            results.update(zip(names, await asyncio.gather(*map(collect, channels)), strict=True))

        asyncio.run(main())

    threads = [threading.Thread(target=run_loop, args=(k,)) for k in range(num_loops)]
    for thread in threads:
        thread.start()
    opened.wait(30)
    names = [f"{k}-{i}" for k in range(num_loops) for i in range(num_requests)]
    for token in range(num_tokens):
        bridge([text(name, f"{name}:{token} ") for name in names])
    bridge([final(name) for name in names])
    for thread in threads:
        thread.join(60)
    expected = {name: "".join(f"{name}:{t} " for t in range(num_tokens)) for name in names}
    assert results == expected
