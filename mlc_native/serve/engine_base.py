"""MLCEngineBase: from a model name to a running C++ engine, and back to nothing.

The engine's two loops run on daemon threads that hold no reference to the engine object: when it
is collected, terminated or the interpreter exits, every open request gets its final output, the
loops end and the threads are joined. Errors leave nothing behind either.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from mlc_native import _core
from mlc_native._stream_bridge import Channel, StreamBridge
from mlc_native.conversation import ChatTemplate
from mlc_native.errors import (
    EngineTerminatedError,
    InvalidRequest,
    ModelNotLoaded,
    invalid_config,
)
from mlc_native.serve.config import EngineConfig
from mlc_native.serve.echo_engine import EchoEngine, is_mock
from mlc_native.serve.echo_settings import MOCK_ECHO
from mlc_native.serve.embedding_prompts import EmbeddingPrompts
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
from mlc_native.serve.model_setup import (
    REPLACED,
    Mode,
    ModelSetup,
    ModelSlot,
    describe_engine,
    loaded_config,
    prepare_model,
)
from mlc_native.serve.model_setup import ModelInfo as ModelInfo
from mlc_native.serve.preparations import Preparations
from mlc_native.support.engine_log import write_log
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
            self.device,
            self.state.get_request_stream_callback(),
            self.state.trace_recorder,
            write_log,
        )
        self._model = ModelSlot()
        self._preparations = Preparations()
        self._shared_channels: weakref.WeakValueDictionary[str, Channel] = (
            weakref.WeakValueDictionary()
        )
        self._reload_lock = threading.Lock()
        self._loads: list[LoadReport] = []  # the load that runs
        threads: list[threading.Thread] = []
        self._shutdown = weakref.finalize(
            self, shut_down, self._core, bridge, threads, self._preparations, self._loads
        )
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
        raise TypeError("an engine cannot be copied or sent to another process; create one there")

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
    def adapter_names(self) -> frozenset[str]:
        """The names of the adapters that requests can choose; ``adapters`` says more of them."""
        return self._model.current.adapters.current

    @property
    def embedding_prompts(self) -> EmbeddingPrompts:
        """What the model folder has for the beginnings of texts that are embedded."""
        return self._model.current.embedding_prompts

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
        with self._reload_lock, self._asking():
            self._model.take_out()
            self._preparations.abort_all()
            self._core.unload()

    def _replace_model(self, setup: ModelSetup) -> None:
        has_new = threading.Event()
        with self._reload_lock, self._asking():
            old = self._model.take_out()
            try:
                loaded = self._load(setup, has_new)
            except BaseException:
                if has_new.is_set():
                    self._core.unload()
                # Refused before the old model was unloaded, or nothing is loaded now.
                elif self._has_model():
                    self._model.put(old)
                raise
            self._model.put(loaded)

    def _load(self, setup: ModelSetup, has_new: threading.Event) -> ModelSetup:
        """The setup of the loaded model. Sets ``has_new`` as soon as the engine has it."""
        config = setup.engine_config
        report = LoadReport(setup.name, config.verbose)

        def reload() -> None:
            self._core.reload(config.engine_json(), report)
            has_new.set()

        self._loads.append(report)
        try:
            call_interruptibly(report.stop, reload)
            summary = self._core.debug_call_func_on_all_worker("load_summary")
            return self._loaded(setup, report.finish(summary, setup.device))
        finally:
            self._loads.remove(report)
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
        setup.adapters.refresh(self._core.adapters)
        return setup.loaded(limits, config, summary)

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

    @contextmanager
    def _asking(self, setup: ModelSetup | None = None) -> Iterator[None]:
        """What the C++ engine refuses because it has exited or has no model says so by its type.

        So does what concerns a request that was made for the model ``setup``, which is replaced.
        """
        try:
            yield
        except InvalidRequest as error:
            if self._status == "terminated":
                raise EngineTerminatedError(TERMINATED) from None
            if setup is not None and self._model.peek() is not setup:
                raise ModelNotLoaded(REPLACED) from None
            if error.field == "engine" and not isinstance(error, ModelNotLoaded):
                raise ModelNotLoaded(str(error)) from None
            raise

    def reset(self) -> None:
        """Ends all requests with finish reason "abort" and clears metrics and prefix cache."""
        self._check_running()
        self._preparations.abort_all()
        with self._asking():
            self._core.reset()
