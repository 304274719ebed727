"""Random histories of requests on a small engine, compared with a model of the outputs.

A request that runs to its end gives the tokens that it gives alone, whatever runs alongside it. One
that is aborted gives a prefix of them. Each gets exactly one final output, its last.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from facades import Answer
from fake_model import find_fake_model_lib, write_model
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)

from mlc_native import EngineConfig, SyncMLCEngine
from mlc_native.errors import InvalidRequest
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.serve.data import RequestStreamOutput

# Room for about three sequences of 48 tokens: preemption is the rule, not the exception.
SMALL = EngineConfig(
    max_num_sequence=4,
    max_total_sequence_length=128,
    max_single_sequence_length=64,
    prefill_chunk_size=16,
)
PROMPTS = st.lists(st.integers(0, 255), min_size=1, max_size=40)


class Shared:
    """The model folder and an engine that runs one request at a time: the oracle."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.model = write_model(Path(self._folder.name) / "model", peak=3)
        self.oracle = self.engine(None)

    def engine(self, callback: Any) -> SyncMLCEngine:
        return SyncMLCEngine(
            self.model,
            model_lib=find_fake_model_lib(),
            engine_config=SMALL,
            request_stream_callback=callback,
        )

    def alone(self, prompt: list[int], config: GenerationConfig) -> Answer:
        answer = Answer()

        def collect(outputs: list[RequestStreamOutput]) -> None:
            for output in outputs:
                answer.add(output.unpack()[1])

        self.oracle.set_request_stream_callback(collect)
        self.oracle.add_request(self.oracle.create_request("alone", prompt, config))
        while not self.oracle.empty():
            self.oracle.step()
        return answer


_shared: list[Shared] = []


def shared() -> Shared:
    if not _shared:
        _shared.append(Shared())
    return _shared[0]


@pytest.fixture(scope="module", autouse=True)
def _drop_shared() -> Any:
    yield
    _shared.clear()


class EngineHistory(RuleBasedStateMachine):
    """Adds, steps and aborts in any order."""

    live = Bundle("live")

    @initialize()
    def start(self) -> None:
        self.engine = shared().engine(self._callback)
        self.asked: dict[str, tuple[list[int], GenerationConfig]] = {}
        self.answers: dict[str, Answer] = {}
        self.aborted: set[str] = set()

    def _callback(self, outputs: list[RequestStreamOutput]) -> None:
        for output in outputs:
            request_id, group = output.unpack()
            self.answers[request_id].add(group)

    @rule(
        target=live,
        prompt=PROMPTS,
        n=st.integers(1, 3),
        max_tokens=st.integers(0, 30),
        temperature=st.sampled_from([0.0, 1.0]),
        seed=st.integers(0, 3),
        stop=st.one_of(st.none(), st.integers(0, 255)),
    )
    def add(
        self,
        prompt: list[int],
        n: int,
        max_tokens: int,
        temperature: float,
        seed: int,
        stop: int | None,
    ) -> str:
        config = GenerationConfig(
            n=n,
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
            stop_token_ids=None if stop is None else [stop],
        )
        request_id = f"r{len(self.asked)}"
        self.asked[request_id] = (prompt, config)
        self.answers[request_id] = Answer()
        self.engine.add_request(self.engine.create_request(request_id, prompt, config))
        return request_id

    @rule(request_id=live)
    def add_a_duplicate(self, request_id: str) -> None:
        if self.answers[request_id].num_finals:
            return
        prompt, config = self.asked[request_id]
        request = self.engine.create_request(request_id, prompt, config)
        with pytest.raises(InvalidRequest):
            self.engine.add_request(request)

    @rule(request_id=consumes(live))
    def abort(self, request_id: str) -> None:
        if self.answers[request_id].num_finals == 0:
            self.aborted.add(request_id)
        self.engine.abort_request(request_id)

    @rule(num_steps=st.integers(1, 12))
    def step(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self.engine.step()

    @rule()
    def reset(self) -> None:
        self.aborted |= {r for r, answer in self.answers.items() if answer.num_finals == 0}
        self.engine.reset()
        assert self.engine.empty()

    @invariant()
    def pages_add_up(self) -> None:
        if hasattr(self, "engine"):
            self.engine._engine().debug_call("audit_pages")

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        for _ in range(10_000):
            if self.engine.empty():
                break
            self.engine.step()
        assert self.engine.empty(), "the engine makes no progress"
        assert self.engine.metrics()["kv_pages_used"] == 0
        for request_id, answer in self.answers.items():
            self._check(request_id, answer)

    def _check(self, request_id: str, answer: Answer) -> None:
        assert answer.num_finals == 1
        alone = shared().alone(*self.asked[request_id])
        if request_id not in self.aborted:
            assert answer == alone
            return
        assert set(answer.finish_reasons) <= {"abort", "stop", "length"}
        for ids, whole in zip(answer.token_ids, alone.token_ids, strict=True):
            assert ids == whole[: len(ids)]


TestEngineHistory = EngineHistory.TestCase
TestEngineHistory.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
