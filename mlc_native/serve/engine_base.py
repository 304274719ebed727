"""MLCEngineBase: from a model name to a running C++ engine, and back to nothing.

The engine's two loops run on daemon threads that hold no reference to the engine object: when it
is collected, terminated or the interpreter exits, every open request gets its final output, the
loops end and the threads are joined. Errors leave nothing behind either.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self

from mlc_native import _core
from mlc_native._core import PinnedPrefix
from mlc_native._stream_bridge import Channel, StreamBridge
from mlc_native.conversation import ChatTemplate
from mlc_native.errors import (
    EngineTerminatedError,
    InvalidRequest,
    invalid_config,
    invalid_request,
)
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.serve.config import EngineConfig
from mlc_native.serve.echo_engine import EchoEngine, is_mock
from mlc_native.serve.echo_settings import MOCK_ECHO
from mlc_native.serve.engine_state import (
    FORK_GUARD,
    FORKED,
    TERMINATED,
    EngineState,
    keep_forever,
    shut_down,
)
from mlc_native.serve.event_trace_recorder import EventTraceRecorder
from mlc_native.serve.load_report import LoadReport, LoadSummary
from mlc_native.serve.metrics import EngineMetrics
from mlc_native.serve.model_setup import (
    Mode,
    ModelSetup,
    ModelSlot,
    describe_engine,
    loaded_config,
    prepare_model,
)
from mlc_native.serve.model_setup import ModelInfo as ModelInfo
from mlc_native.serve.request_processing import (
    Prompt,
    bounded_token_ids,
    check_name,
    check_request_id,
    checked_pin_id,
)
from mlc_native.support.interrupt import call_interruptibly
from mlc_native.tokenizers import Tokenizer


class MLCEngineBase:
    """What the sync and the async engine share: setup, requests, shutdown.

    Attributes:
        device: where models run: "cpu" or "cuda:i"; "auto" when a ``model_lib`` chooses.
        state: the EngineState.

    Raises:
        InvalidConfig: an argument or a field of ``engine_config`` is wrong; it is named.
        LoadError: the model is missing, damaged or of an unsupported kind.
        FileNotFoundError: ``model_lib`` does not exist.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        device: object,
        model_lib: str | os.PathLike[str] | None,
        mode: Mode,
        engine_config: EngineConfig | Mapping[str, Any] | None,
        enable_tracing: bool,
        settings: Mapping[str, Any],
    ) -> None:
        self._status = "starting"
        # 1. The model, as far as it can be known without loading it, and the device.
        config = EngineConfig.of(engine_config, settings, type(self).__name__)
        setup = prepare_model(model, device, model_lib, mode, config)
        self.device = setup.device
        # 2. The C++ engine. 3. The state, with callback and tracing.
        self._core: Any = EchoEngine() if is_mock(setup.engine_config) else _core.ThreadedEngine()
        bridge = StreamBridge(self._core.abort_request)
        self.state = EngineState(EventTraceRecorder() if enable_tracing else None, bridge)
        self._core.init_threaded_engine(
            self.device, self.state.get_request_stream_callback(), self.state.trace_recorder
        )
        self._model = ModelSlot()
        self._shared_channels: weakref.WeakValueDictionary[str, Channel] = (
            weakref.WeakValueDictionary()
        )
        self._reload_lock = threading.Lock()
        threads: list[threading.Thread] = []
        self._shutdown = weakref.finalize(self, shut_down, self._core, bridge, threads)
        try:
            # 4. The two loops. 5. Load.
            threads += self._start_threads()
            self._replace_model(setup)
        except BaseException:
            self._shutdown()
            raise
        self._status = "running"
        FORK_GUARD.watch(self)

    def _start_threads(self) -> list[threading.Thread]:
        # Threads of Python instead of ThreadedEngine::Start: each keeps its thread state, which a
        # foreign thread would make and drop with every callback; and a daemon thread may run the
        # callback that drops the last reference to the engine.
        loops = {
            "background": self._core.run_background_loop,
            "stream-back": self._core.run_background_stream_back_loop,
        }
        threads = [
            threading.Thread(target=loop, name=f"mlc-native-{name}", daemon=True)
            for name, loop in loops.items()
        ]
        for thread in threads:
            thread.start()
        return threads

    def __reduce__(self) -> Any:
        raise TypeError("an engine cannot be sent to another process; create it there")

    # ---------------------------------------------------------------------------------- the model

    @property
    def model_name(self) -> str:
        """What the caller called the model."""
        return self._model.current.name

    @property
    def engine_config(self) -> EngineConfig:
        """The settings with everything inferred filled in."""
        return self._model.current.engine_config

    @property
    def max_input_sequence_length(self) -> int:
        """Tokens that a prompt may have."""
        return self._model.current.max_input_sequence_length

    @property
    def tokenizer(self) -> Tokenizer | None:
        """None when the model folder has no tokenizer.json."""
        return self._model.current.tokenizer

    @property
    def conv_template(self) -> ChatTemplate | None:
        """The model's chat template; None when it has none."""
        return self._model.current.conv_template

    @property
    def model_config_dicts(self) -> list[dict[str, Any]]:
        """config.json of each model."""
        return self._model.current.model_config_dicts

    def _reload(
        self,
        model: str | os.PathLike[str],
        engine_config: EngineConfig | Mapping[str, Any] | None,
        model_lib: str | os.PathLike[str] | None,
        mode: Mode,
        settings: Mapping[str, Any],
    ) -> None:
        self._check_running()
        config = EngineConfig.of(engine_config, settings, "reload")
        setup = prepare_model(model, self.device, model_lib, mode, config)
        if is_mock(setup.engine_config) != isinstance(self._core, EchoEngine):
            raise invalid_config(
                "model_lib", f'only a new engine changes from or to the model_lib "{MOCK_ECHO}"'
            )
        self._replace_model(setup)

    def _unload(self) -> None:
        self._check_running()
        with self._reload_lock:
            self._model.take_out()
            self._core.unload()

    def _replace_model(self, setup: ModelSetup) -> None:
        with self._reload_lock:
            old = self._model.take_out()
            try:
                summary = self._load(setup)
            except BaseException:
                # Refused before the old model was unloaded, or nothing is loaded now.
                if self._has_model():
                    self._model.put(old)
                raise
            try:
                loaded = self._loaded(setup, summary)
            except BaseException:
                self._core.unload()
                raise
            self._model.put(loaded)

    def _load(self, setup: ModelSetup) -> LoadSummary:
        config = setup.engine_config
        report = LoadReport(setup.name, config.verbose)
        try:
            call_interruptibly(report.stop, self._core.reload, config.engine_json(), report)
            summary = self._core.debug_call_func_on_all_worker("load_summary")
            return report.finish(summary, setup.device)
        finally:
            report.close()

    def _has_model(self) -> bool:
        try:
            self._core.get_request_limits()
        except InvalidRequest:
            return False
        return True

    def _loaded(self, setup: ModelSetup, summary: LoadSummary) -> ModelSetup:
        """The setup with what the engine made of it."""
        engine_json = self._core.get_complete_engine_config()
        config = loaded_config(setup.engine_config, engine_json, summary)
        limits = self._core.get_request_limits()
        return replace(
            setup,
            engine_config=config,
            max_input_sequence_length=limits.max_sequence_length,
            input_length_reason=limits.length_reason,
            summary=summary,
        )

    def __repr__(self) -> str:
        """The model, where it runs, its sizes, and whether the engine runs."""
        setup = self._model.peek()
        status = self._status if setup is not None else f"{self._status}, no model"
        return describe_engine(type(self).__name__, setup, status)

    # ------------------------------------------------------------------------------ the lifecycle

    def terminate(self) -> None:
        """Ends the engine: open requests end with finish reason "abort". Idempotent."""
        if self._status == "running":
            self._status = "terminated"
        self._shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.terminate()

    def _forget_after_fork(self) -> None:
        """In a forked child: this object is no engine any more, and its parts stay untouched."""
        self._status = "forked"
        self._shutdown.detach()
        keep_forever(self._core)

    def _check_running(self) -> None:
        self._check_not_forked()
        if self._status != "running":
            raise EngineTerminatedError(TERMINATED)

    def _check_not_forked(self) -> None:
        if self._status == "forked":
            raise EngineTerminatedError(FORKED)

    def reset(self) -> None:
        """Ends all requests with finish reason "abort" and clears metrics and prefix cache."""
        self._check_running()
        self._core.reset()

    # -------------------------------------------------------------------------------- the requests

    def _create_request(
        self,
        prompt: Prompt,
        generation_config: GenerationConfig,
        request_id: str,
        setup: ModelSetup,
        begins_turn: bool = False,
        add_special_tokens: bool = True,
    ) -> _core.Request:
        """A request for ``_open_request``. May take a while when the answer is constrained.

        Args:
            setup: the model that the prompt was made for.
            begins_turn: the answer is a turn of a chat, which loses the leading space that the
                tokenizer's decoder strips; what continues the prompt keeps it.
            add_special_tokens: see ``prompt_token_ids``.

        Raises:
            InvalidRequest: the request can never be served, or its response_format is no valid
                grammar or takes too much to compile.
            InvalidConfig: the answer is constrained and the grammar library is not installed.
        """
        self._check_running()
        record = self.state.record_event
        record(request_id, "receive request")
        record(request_id, "start tokenization")
        token_ids = self._token_ids(
            prompt, setup, generation_config, add_special_tokens=add_special_tokens
        )
        record(request_id, "finish tokenization")
        defaults = self._core.get_default_generation_config()
        config = generation_config.apply_to(
            defaults, setup.tokenizer, self._core.get_request_limits
        )
        create = self._core.create_request
        if generation_config.is_constrained:  # the grammar may take seconds to compile
            return call_interruptibly(None, create, request_id, token_ids, config, begins_turn)
        return create(request_id, token_ids, config, begins_turn)

    @staticmethod
    def _token_ids(
        prompt: Prompt, setup: ModelSetup, config: GenerationConfig, *, add_special_tokens: bool
    ) -> list[int]:
        """The tokens of a prompt. Raises InvalidRequest if they cannot fit."""
        return bounded_token_ids(
            *(prompt, setup.tokenizer, config),
            *(setup.max_input_sequence_length, setup.input_length_reason),
            add_special_tokens=add_special_tokens,
        )

    def _open_request(
        self, open_channel: Callable[[str], Any], request: _core.Request, setup: ModelSetup
    ) -> Any:
        """Hands a request to the engine and returns the channel of its outputs.

        Args:
            setup: the model that the request was created for.

        Raises:
            InvalidRequest: the request's id is in use, or the model is not loaded any more.
            QueueFull: too many requests wait already.
        """
        self._check_running()
        with self._model.hold(setup):
            try:
                channel = open_channel(request.id)
            except ValueError as error:
                raise invalid_request("request_id", str(error)) from None
            try:
                self._core.add_request(request)
            except BaseException:
                self.state.bridge.discard(channel, request.id)
                raise
        return channel

    def _open_requests(
        self, open_channel: Callable[[str], Any], requests: list[_core.Request], setup: ModelSetup
    ) -> Any:
        """``_open_request`` for requests that share a channel: all of them, or none.

        ``abort`` of the first one's id ends them all.
        """
        channel = self._open_request(open_channel, requests[0], setup)

        def join(request_id: str) -> Any:
            self.state.bridge.join(channel, request_id)
            return channel

        try:
            for request in requests[1:]:
                self._open_request(join, request, setup)
        except BaseException:
            self._close_request(channel)
            raise
        if len(requests) > 1:
            self._shared_channels[channel.request_id] = channel
        return channel

    def _close_request(self, channel: Channel) -> None:
        """Aborts the requests of a channel that have not ended: their consumer gave up."""
        if channel.finished or self._status != "running":
            return
        for request_id in self.state.bridge.discard(channel):
            self._core.abort_request(request_id)

    def _abort(self, request_id: str) -> None:
        """Ends a request: its consumer gets finish reason "abort". Unknown ids are ignored."""
        self._check_running()
        check_request_id(request_id)
        channel = self._shared_channels.get(request_id)
        for each in channel.open_ids if channel is not None else [request_id]:
            self._core.abort_request(each)

    def _abort_all(self) -> None:
        self._check_running()
        self._core.abort_all_requests()

    def _query_metrics(self) -> EngineMetrics:
        """Waits for the engine's next step, without the GIL."""
        self._check_running()
        return EngineMetrics(json.loads(self._core.json_metrics()))

    def _unpin_prefix(self, pin_id: int) -> None:
        self._check_running()
        self._core.unpin_prefix(checked_pin_id(pin_id))

    def _pinned_prefixes(self) -> list[PinnedPrefix]:
        self._check_running()
        pinned: list[PinnedPrefix] = self._core.pinned_prefixes()
        return pinned

    def _debug_call_func_on_all_worker(self, name: str) -> str:
        """Runs a debug function of the engine between two of its steps and returns its JSON.

        "dump_state": queues and sequences. "audit_pages": checks pages, ids and queues.
        "memory_summary": bytes of weights, KV cache, workspace and process. "load_summary": what
        is loaded. "dump_prefix_cache": tokens and pages of the prefix cache. "profiler_start",
        "profiler_stop": count, sum and maximum of the times of each phase of the steps between.

        Raises:
            InvalidRequest: there is no such function; the message lists those that are there.
        """
        self._check_running()
        check_name("name", name)
        answer: str = self._core.debug_call_func_on_all_worker(name)
        return answer
