"""The three engines behind one interface, so that a test can run on each of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mlc_native import AsyncMLCEngine, EngineConfig, MLCEngine
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.serve.data import RequestStreamOutput
from mlc_native.serve.sync_engine import SyncMLCEngine

T = TypeVar("T")
WAIT_S = 60


@dataclass
class Answer:
    """What came of one request: one entry per sequence."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[list[int]] = field(default_factory=list)
    finish_reasons: list[str | None] = field(default_factory=list)
    logprobs: list[list[str]] = field(default_factory=list)
    scored_prompts: list[Any] = field(default_factory=list)  # one, if they were requested
    num_finals: int = 0

    def add(self, deltas: list[Any]) -> None:
        """Joins one batch of CallbackStreamOutput or SingleRequestStreamOutput."""
        if deltas[0].request_final_usage_json_str is not None:
            self.num_finals += 1
            return
        assert self.num_finals == 0, "an output after the final one"
        scored = getattr(deltas[0], "scored_prompt", None)  # of a CallbackStreamOutput
        scored = scored or getattr(deltas[0], "prompt_logprobs", None)
        if scored is not None:
            self.scored_prompts.append(scored)
        if not self.texts:
            self.texts = [""] * len(deltas)
            self.token_ids = [[] for _ in deltas]
            self.finish_reasons = [None] * len(deltas)
            self.logprobs = [[] for _ in deltas]
        for i, delta in enumerate(deltas):
            assert self.finish_reasons[i] is None or not delta.delta_token_ids
            # CallbackStreamOutput has it in delta_text already.
            self.texts[i] += getattr(delta, "extra_prefix_string", "") + delta.delta_text
            self.token_ids[i] += delta.delta_token_ids
            self.logprobs[i] += delta.delta_logprob_json_strs or []
            self.finish_reasons[i] = self.finish_reasons[i] or delta.finish_reason


class SyncFacade:
    """MLCEngine."""

    def __init__(self, model: str, **kwargs: Any) -> None:
        self.engine = MLCEngine(model, **kwargs)

    def generate(self, prompt: Any, config: GenerationConfig, request_id: str = "r") -> Answer:
        answer = Answer()
        for outputs in self.engine._generate(prompt, config, request_id):
            answer.add(outputs)
        return answer

    def chat(self, **kwargs: Any) -> Any:
        result = self.engine.chat.completions.create(**kwargs)
        return list(result) if kwargs.get("stream") else result

    def complete(self, **kwargs: Any) -> Any:
        result = self.engine.completions.create(**kwargs)
        return list(result) if kwargs.get("stream") else result

    def metrics(self) -> Any:
        return self.engine.metrics()

    def audit(self) -> None:
        self.engine._debug_call_func_on_all_worker("audit_pages")

    def terminate(self) -> None:
        self.engine.terminate()


class AsyncFacade:
    """AsyncMLCEngine, on an event loop of its own."""

    def __init__(self, model: str, **kwargs: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.engine = AsyncMLCEngine(model, **kwargs)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(WAIT_S)

    def generate(self, prompt: Any, config: GenerationConfig, request_id: str = "r") -> Answer:
        async def collect() -> Answer:
            answer = Answer()
            async for outputs in self.engine._generate(prompt, config, request_id):
                answer.add(outputs)
            return answer

        return self.run(collect())

    async def _collect(self, create: Any, kwargs: dict[str, Any]) -> Any:
        result = await create(**kwargs)
        return [chunk async for chunk in result] if kwargs.get("stream") else result

    def chat(self, **kwargs: Any) -> Any:
        return self.run(self._collect(self.engine.chat.completions.create, kwargs))

    def complete(self, **kwargs: Any) -> Any:
        return self.run(self._collect(self.engine.completions.create, kwargs))

    def metrics(self) -> Any:
        return self.run(self.engine.metrics())

    def audit(self) -> None:
        self.engine._debug_call_func_on_all_worker("audit_pages")

    def terminate(self) -> None:
        self.engine.terminate()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(WAIT_S)
        self.loop.close()


class StepFacade:
    """SyncMLCEngine; it has no OpenAI interface."""

    def __init__(self, model: str, **kwargs: Any) -> None:
        self.answers: dict[str, Answer] = {}
        self.engine = SyncMLCEngine(model, request_stream_callback=self._callback, **kwargs)

    def _callback(self, outputs: list[RequestStreamOutput]) -> None:
        for output in outputs:
            request_id, group = output.unpack()
            self.answers[request_id].add(group)
            if group[0].error_message:
                raise RuntimeError(group[0].error_message)

    def generate(self, prompt: Any, config: GenerationConfig, request_id: str = "r") -> Answer:
        answer = self.answers[request_id] = Answer()
        self.engine.add_request(self.engine.create_request(request_id, prompt, config))
        while not self.engine.empty():
            self.engine.step()
        return answer

    def metrics(self) -> Any:
        return self.engine.metrics()

    def audit(self) -> None:
        self.engine._engine().debug_call("audit_pages")

    def terminate(self) -> None:
        self.engine.unload()


OPENAI_FACADES = {"sync": SyncFacade, "async": AsyncFacade}
ALL_FACADES = {**OPENAI_FACADES, "step": StepFacade}


USER = [{"role": "user", "content": "hi"}]
MakeModel = Callable[..., str]


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
