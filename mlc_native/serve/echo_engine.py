"""EchoEngine: the engine of ``model_lib="mock://echo"``, which answers with the prompt.

It stands in for the C++ ThreadedEngine behind MLCEngine and AsyncMLCEngine, so that programs and
their tests run without weights. It needs a model folder with a configuration and a tokenizer only.
Each of the ``n`` answers is the prompt, one token per step, up to a stop string; the finish reason
is "stop", or "length" at ``max_tokens``. Requests are checked as by the real engine, what an echo
cannot do is refused (echo_settings), and ``usage.extra`` reports the settings in effect. Nothing is
sampled, so the settings of sampling, JSON formats, stop tokens and time limits have no effect.

One thread runs the loop and the callback; any thread may call the other methods.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlc_native import _core
from mlc_native.errors import ModelNotLoaded, invalid_config, invalid_request
from mlc_native.serve.config import EngineConfig
from mlc_native.serve.echo_settings import (
    MOCK_ECHO,
    StopText,
    refuse_unserved,
    reported_settings,
)
from mlc_native.support.regular_file import has_file

_SIZES = {
    "max_num_sequence": 32,
    "max_total_sequence_length": 32 * 4096,
    "max_single_sequence_length": 4096,
    "prefill_chunk_size": 1024,
    "max_history_size": 1024,
}
_UNBOUNDED_VOCABULARY = 1 << 31
_SUMMARY = {
    **{"num_parameters": 0, "weight_format": "no weights", "weight_bytes": 0},
    **{"kv_tokens": 0, "kv_bytes": 0, "kv_format": "no format", "compute": "echo"},
    "unused_tensors": [],
}
# What the server and EngineMetrics read; an echo takes no time and has no cache.
_EMPTY_HISTOGRAM = {"buckets": {"+Inf": 0}, "count": 0, "sum": 0.0}
_METRICS = {
    **{"num_waiting_requests": 0, "kv_pages_used": 0, "kv_pages_total": 0, "num_preemptions": 0},
    **{"cached_tokens_sum": 0, "prefix_cache_tokens_saved": 0, "num_queue_full": 0},
    **{"ttft_s": _EMPTY_HISTOGRAM, "inter_token_latency_s": _EMPTY_HISTOGRAM},
    "step_tokens": _EMPTY_HISTOGRAM,
}

Delta = tuple[str, list[int], list[str] | None, str | None]


@dataclass(frozen=True)
class EchoRequest:
    """A checked request."""

    id: str
    inputs: list[list[int]]
    generation_config: _core.GenerationConfig


@dataclass(frozen=True)
class EchoOutput:
    """What a step gives one request; the counterpart of RequestStreamOutput."""

    request_id: str
    deltas: list[Delta] = field(default_factory=list)
    request_final_usage_json_str: str | None = None
    has_prompt_results: bool = False
    error_message: str = ""

    @property
    def is_final(self) -> bool:
        """Whether the request has ended."""
        return self.request_final_usage_json_str is not None

    def unpack_deltas(self) -> list[Delta]:
        """One delta per sequence."""
        return self.deltas


@dataclass(frozen=True)
class EchoLimits:
    """What the engine can serve; the counterpart of RequestLimits."""

    vocab_size: int
    max_num_sequence: int
    max_sequence_length: int
    length_reason: str = "the sizes of the mock engine"
    embedding_size: int = 0
    num_classes: int = 0
    input_size: int = 0
    max_whole_rows: int | None = None
    pooling: str = "last"


class _Echo:
    """A request that is answered."""

    def __init__(self, request: EchoRequest, table: _core.TokenTable | None) -> None:
        self._id = request.id
        self._config = request.generation_config
        self._prompt = request.inputs[0]
        limit = self._config.max_tokens
        self._length = len(self._prompt) if limit < 0 else min(limit, len(self._prompt))
        self._num_answered = 0
        self._table = table
        self._streamer = None if table is None else _core.TextStreamer(table)
        self._stop_text = StopText(self._config)

    def step(self) -> list[EchoOutput]:
        """The outputs of one step; the last one is final."""
        token_ids = self._prompt[self._num_answered : self._num_answered + 1]
        token_ids = token_ids if self._num_answered < self._length else []
        self._num_answered += len(token_ids)
        is_last = self._num_answered >= self._length
        text = self._stop_text.put(self._text(token_ids, is_last), is_last)
        if self._stop_text.is_triggered:
            return self._end(text, token_ids, "stop")
        if not is_last:
            return [self._output(text, token_ids, None)]
        return self._end(text, token_ids, "stop" if self._length == len(self._prompt) else "length")

    def abort(self) -> list[EchoOutput]:
        """The outputs that end the request."""
        return self._end("", [], "abort")

    @property
    def num_completion_tokens(self) -> int:
        """The tokens of all answers so far."""
        return self._num_answered * self._config.n

    @property
    def num_prompt_tokens(self) -> int:
        """The tokens of the prompt."""
        return len(self._prompt)

    def _text(self, token_ids: list[int], is_last: bool) -> str:
        if self._streamer is None or self._table is None:
            return ""
        if self._config.skip_special_tokens:
            token_ids = [i for i in token_ids if not self._table.is_special(i)]
        text = self._streamer.put(token_ids)
        return text + self._streamer.finish() if is_last else text

    def _output(self, text: str, token_ids: list[int], reason: str | None) -> EchoOutput:
        return EchoOutput(
            self._id, [(text, list(token_ids), None, reason) for _ in range(self._config.n)]
        )

    def _end(self, text: str, token_ids: list[int], reason: str) -> list[EchoOutput]:
        usage = {
            "prompt_tokens": len(self._prompt),
            "completion_tokens": self.num_completion_tokens,
            "total_tokens": len(self._prompt) + self.num_completion_tokens,
            "extra": reported_settings(self._config),
        }
        final = EchoOutput(self._id, request_final_usage_json_str=json.dumps(usage))
        return [self._output(text, token_ids, reason), final]


class EchoEngine:
    """See the module. Its methods are those of ThreadedEngine."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards what follows
        self._config: dict[str, Any] | None = None
        self._table: _core.TokenTable | None = None
        self._echoes: dict[str, _Echo] = {}
        self._aborted: list[EchoOutput] = []
        self._exits = False
        self._clear_counters()
        self._callback: Callable[[list[EchoOutput]], None] = lambda outputs: None

    # ------------------------------------------------------------------------------- the loop

    def init_threaded_engine(
        self,
        device: str,
        callback: Callable[[list[EchoOutput]], None],
        trace_recorder: Any = None,
        log: Callable[[int, str], None] | None = None,
    ) -> None:
        """Sets the callback, which the loop calls with each step's outputs."""
        self._callback = callback

    def run_background_loop(self) -> None:
        """Steps until ``exit_background_loop``; then all requests have ended."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._exits or self._echoes or self._aborted)
                if self._exits:
                    self._abort(list(self._echoes))
                outputs = [*self._aborted, *self._step()]
                self._aborted = []
                exits = self._exits
            if outputs:
                self._callback(outputs)
            if exits:
                return

    def run_background_stream_back_loop(self) -> None:
        """Returns at once: the background loop calls the callback."""

    def exit_background_loop(self) -> None:
        """Ends all requests and the loop."""
        with self._changed:
            self._exits = True
            self._changed.notify_all()

    def _step(self) -> list[EchoOutput]:
        outputs: list[EchoOutput] = []
        running = list(self._echoes.items())
        if self._config is not None:
            running = running[: self._config["max_num_sequence"]]
        for request_id, echo in running:
            new = echo.step()
            outputs += new
            if new[-1].is_final:
                self._finish(request_id, new[0].deltas[0][3] or "")
        return outputs

    def _abort(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            echo = self._echoes.get(request_id)
            if echo is not None:
                self._aborted += echo.abort()
                self._finish(request_id, "abort")
        self._changed.notify_all()

    def _finish(self, request_id: str, reason: str) -> None:
        echo = self._echoes.pop(request_id)
        self._finished[reason] = self._finished.get(reason, 0) + 1
        self._num_prompt_tokens += echo.num_prompt_tokens
        self._num_completion_tokens += echo.num_completion_tokens

    def _clear_counters(self) -> None:
        self._finished: dict[str, int] = {}
        self._num_prompt_tokens = 0
        self._num_completion_tokens = 0

    # ------------------------------------------------------------------------------ the model

    def reload(self, engine_config_json: str, progress: object = None) -> None:
        """Loads the tokenizer of a folder. Requests of the old one are aborted."""
        given = json.loads(engine_config_json)
        if given.get("adapters"):
            raise invalid_config("adapters", f"{MOCK_ECHO} has no weights that adapters can change")
        complete = json.loads(_core.check_engine_config(engine_config_json))
        complete |= {name: given.get(name) or size for name, size in _SIZES.items()}
        path = Path(given["model"]) / "tokenizer.json"
        table = _core.TokenTable.from_tokenizer_json(str(path)) if has_file(path) else None
        with self._changed:
            self._abort(list(self._echoes))
            self._clear_counters()
            self._config, self._table = complete, table

    def unload(self) -> None:
        """Aborts all requests; further ones are refused until a reload."""
        with self._changed:
            self._abort(list(self._echoes))
            self._config = None

    def reset(self) -> None:
        """Aborts all requests and clears the metrics."""
        with self._changed:
            self._abort(list(self._echoes))
            self._clear_counters()

    def get_complete_engine_config(self) -> str:
        """The settings in full."""
        return json.dumps(self._loaded())

    def get_request_limits(self) -> EchoLimits:
        """What can be served. Raises InvalidRequest when nothing is loaded."""
        config = self._loaded()
        vocab_size = _UNBOUNDED_VOCABULARY if self._table is None else self._table.size
        return EchoLimits(
            vocab_size, config["max_num_sequence"], config["max_single_sequence_length"]
        )

    def get_default_generation_config(self) -> _core.GenerationConfig:
        """The engine's defaults."""
        return _core.GenerationConfig()

    def _loaded(self) -> dict[str, Any]:
        config = self._config
        if config is None:
            raise ModelNotLoaded
        return config

    # ---------------------------------------------------------------------------- the requests

    def create_request(
        self,
        id: str,
        token_ids: Iterable[int],
        generation_config: _core.GenerationConfig,
        begins_turn: bool = False,
        cancellation: _core.Cancellation | None = None,
        embeddings: Sequence[object] = (),
    ) -> EchoRequest:
        """A request for ``add_request``, made at once. Raises InvalidRequest."""
        if embeddings:
            raise invalid_request("prompt", f'the model_lib "{MOCK_ECHO}" reads tokens only')
        config = generation_config.copy()
        config.validate(self.get_request_limits().vocab_size)
        refuse_unserved(config, self._table is not None)
        tokens = list(token_ids)
        if not tokens:
            raise invalid_request("prompt", "the prompt has no tokens")
        if config.truncate_prompt_tokens is not None:
            tokens = tokens[-config.truncate_prompt_tokens :]
        return EchoRequest(id, [tokens], config)

    def create_embedding_request(self, *_arguments: object, **_keywords: object) -> EchoRequest:
        """Raises InvalidRequest: there are no hidden states."""
        raise invalid_request("model", f'the model_lib "{MOCK_ECHO}" embeds no texts')

    def add_request(self, request: EchoRequest) -> None:
        """Answers a request. Raises InvalidRequest for an id that is in use."""
        with self._changed:
            self._loaded()
            if request.id in self._echoes:
                raise invalid_request("request_id", f'the request id "{request.id}" is in use')
            self._echoes[request.id] = _Echo(request, self._table)
            self._changed.notify_all()

    def abort_request(self, request_id: str) -> None:
        """Ends a request with "abort". Unknown ids are ignored."""
        with self._changed:
            self._abort([request_id])

    def abort_all_requests(self) -> None:
        """Ends all requests with "abort"."""
        with self._changed:
            self._abort(list(self._echoes))

    def json_metrics(self) -> str:
        """The counters as JSON, by the names of the real engine's."""
        with self._changed:
            return json.dumps(
                {
                    **_METRICS,
                    "num_running_requests": len(self._echoes),
                    "prompt_tokens_sum": self._num_prompt_tokens,
                    "completion_tokens_sum": self._num_completion_tokens,
                    "finished_requests": self._finished,
                }
            )

    def pin_prefix(self, token_ids: object) -> int:
        """Raises InvalidRequest: there is no prefix cache."""
        raise invalid_request("prompt", f"{MOCK_ECHO} has no prefix cache to pin a prompt in")

    def unpin_prefix(self, pin_id: int) -> None:
        """Raises InvalidRequest: nothing is pinned."""
        raise invalid_request("pin_id", f"no prompt is pinned under {pin_id}")

    def pinned_prefixes(self) -> list[_core.PinnedPrefix]:
        """Returns an empty list."""
        return []

    def load_adapter(self, name: str, path: str) -> None:
        """Raises InvalidRequest: there are no weights."""
        raise invalid_request("adapter", f"{MOCK_ECHO} has no weights that an adapter can change")

    def unload_adapter(self, name: str) -> None:
        """Raises InvalidRequest: nothing is loaded."""
        raise invalid_request("adapter", f'no adapter "{name}" is loaded; {MOCK_ECHO} has none')

    def adapters(self) -> list[_core.AdapterInfo]:
        """Returns an empty list."""
        return []

    def debug_call_func_on_all_worker(self, name: str) -> str:
        """The summary of the load. Raises InvalidRequest for another function."""
        if name != "load_summary":
            raise invalid_request("name", f'{MOCK_ECHO} has no debug function "{name}"')
        return json.dumps(_SUMMARY)


def is_mock(config: EngineConfig) -> bool:
    """Whether a config asks for an EchoEngine."""
    return config.model_lib == MOCK_ECHO


def refuse_mock(config: EngineConfig) -> None:
    """Raises InvalidConfig if a config asks for an EchoEngine, which runs on a thread."""
    if is_mock(config):
        raise invalid_config(
            "model_lib", f'"{MOCK_ECHO}" works with MLCEngine and AsyncMLCEngine, not step by step'
        )
