"""The stream callback of _core.ThreadedEngine: slow and raising callbacks, joined outputs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mlc_native import EngineConfig, _core

MakeModel = Callable[..., str]
pytestmark = pytest.mark.both_step_kinds
NUM_TOKENS = 200


class Loops:
    """A threaded engine with its two loops running, and a callback to plan."""

    def __init__(self, model: str, fake_lib: str) -> None:
        self.on_outputs: Callable[[list[Any]], None] = lambda outputs: None
        self.core = _core.ThreadedEngine()
        self.core.init_threaded_engine("cpu", lambda outputs: self.on_outputs(outputs))
        loops = (self.core.run_background_loop, self.core.run_background_stream_back_loop)
        self.threads = [threading.Thread(target=loop) for loop in loops]
        for thread in self.threads:
            thread.start()
        self.core.reload(EngineConfig(model=model, model_lib=fake_lib, mode="server").engine_json())

    def add(self, request_id: str, **settings: Any) -> None:
        config = self.core.get_default_generation_config()
        for name, value in {"max_tokens": NUM_TOKENS, "ignore_eos": True, **settings}.items():
            setattr(config, name, value)
        prompt = list(request_id.encode())
        self.core.add_request(self.core.create_request(request_id, prompt, config))

    def wait_until_idle(self) -> None:
        """Until the engine has nothing to do; its outputs may still be queued."""
        busy = True
        while busy:
            metrics = json.loads(self.core.json_metrics())
            busy = metrics["num_running_requests"] + metrics["num_waiting_requests"] > 0

    def end(self) -> None:
        self.core.exit_background_loop()
        for thread in self.threads:
            thread.join(60)


@pytest.fixture
def loops(make_model: MakeModel, fake_lib: str) -> Iterator[Loops]:
    made = Loops(make_model(peak=4), fake_lib)
    yield made
    made.end()


class Collector:
    """Counts outputs and joins what they say, per request."""

    def __init__(self) -> None:
        self.num_outputs = 0
        self.answers: dict[str, list[tuple[str, list[int], list[str]]]] = {}
        self.finals: list[str] = []
        self.done = threading.Event()

    def __call__(self, outputs: list[Any]) -> None:
        for output in outputs:
            self.num_outputs += 1
            assert output.request_id not in self.finals
            if output.is_final:
                self.finals.append(output.request_id)
                self.done.set()
                continue
            deltas = output.unpack_deltas()
            answer = self.answers.setdefault(output.request_id, [("", [], []) for _ in deltas])
            for i, (text, token_ids, logprobs, _) in enumerate(deltas):
                old_text, old_ids, old_logprobs = answer[i]
                answer[i] = (old_text + text, old_ids + token_ids, old_logprobs + (logprobs or []))


def test_a_slow_callback_gets_everything_joined(loops: Loops) -> None:
    settings = {"n": 2, "seed": 3, "logprobs": True}
    fast = Collector()
    loops.on_outputs = fast
    loops.add("a", **settings)
    assert fast.done.wait(60)

    slow, entered, go_on = Collector(), threading.Event(), threading.Event()

    def block_once(outputs: list[Any]) -> None:
        entered.set()
        assert go_on.wait(60)
        slow(outputs)

    loops.on_outputs = block_once
    loops.add("b", max_tokens=1)
    assert entered.wait(60)
    loops.add("a", **settings)  # all of it queues up behind the blocked callback
    loops.wait_until_idle()
    slow.done.clear()
    go_on.set()
    assert slow.done.wait(60)
    while "a" not in slow.finals:
        pass
    assert slow.answers["a"] == fast.answers["a"]
    assert [len(ids) for _, ids, _ in slow.answers["a"]] == [NUM_TOKENS, NUM_TOKENS]
    assert all(len(logprobs) == NUM_TOKENS for _, _, logprobs in slow.answers["a"])
    assert slow.num_outputs <= 6  # b: at most 2 and its final one; a: joined, and its final one


def test_a_raising_callback_loses_only_its_own_call(
    loops: Loops, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", reported.append)
    collector, raised = Collector(), threading.Event()

    def raise_first(outputs: list[Any]) -> None:
        if not raised.is_set():
            raised.set()
            raise ValueError("planned")
        collector(outputs)

    loops.on_outputs = raise_first
    loops.add("a", max_tokens=1)
    assert raised.wait(60)
    loops.add("b")
    while "b" not in collector.finals:
        pass
    assert len(collector.answers["b"][0][1]) == NUM_TOKENS
    assert [str(entry.exc_value) for entry in reported] == ["planned"]


def test_unpack_deltas_says_what_group_says(loops: Loops) -> None:
    seen: list[Any] = []
    done = threading.Event()

    def keep(outputs: list[Any]) -> None:
        seen.extend(outputs)
        if outputs[-1].is_final:
            done.set()

    loops.on_outputs = keep
    loops.add("a", n=2, logprobs=True, top_logprobs=1, max_tokens=3)
    assert done.wait(60)
    for output in seen:
        assert output.unpack_deltas() == [
            (
                delta.extra_prefix_string + delta.text,
                delta.token_ids,
                delta.logprob_json_strs or None,
                delta.finish_reason,
            )
            for delta in output.group
        ]
    assert {d.finish_reason for output in seen for d in output.group} >= {"length"}


def test_a_callback_without_memory_is_called_again(
    loops: Loops, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same list, so that no output is lost: not even the last one of a request."""
    reported: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", reported.append)
    collector = Collector()
    refused: list[list[Any]] = []

    def lack_memory_twice(outputs: list[Any]) -> None:
        if len(refused) < 2:
            refused.append(outputs)
            raise MemoryError
        assert len(refused) != 2 or outputs is refused[0] is refused[1]
        refused.append(outputs)
        collector(outputs)

    loops.on_outputs = lack_memory_twice
    loops.add("a", max_tokens=1)
    assert collector.done.wait(60)
    assert len(collector.answers["a"][0][1]) == 1
    assert reported == []
