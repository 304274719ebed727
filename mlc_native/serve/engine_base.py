"""MLCEngineBase: from a model name to a running C++ engine, and back to nothing.

The engine's two loops run on daemon threads that hold no reference to the engine object: when it
is collected, terminated or the interpreter exits, every open request gets its final output, the
loops end and the threads are joined. Errors leave nothing behind either.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from tqdm import tqdm

from mlc_native import _core
from mlc_native._stream_bridge import AsyncChannel, StreamBridge, SyncChannel
from mlc_native.conversation import ChatTemplate, load_chat_template
from mlc_native.errors import EngineTerminatedError, invalid_config, invalid_request
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.protocol.mlc_chat_config import MLCChatConfig
from mlc_native.serve.config import EngineConfig
from mlc_native.serve.event_trace_recorder import EventTraceRecorder
from mlc_native.serve.metrics import EngineMetrics
from mlc_native.serve.request_processing import Prompt, check_prompt_length, prompt_token_ids
from mlc_native.support.model_source import resolve_model
from mlc_native.tokenizers import Tokenizer

logger = logging.getLogger(__name__)

Mode = Literal["local", "interactive", "server"]
PROGRESS_BAR_AFTER_S = 2.0
TERMINATED = "the engine was terminated"
FORKED = (
    "this process was forked from the one that owns the engine: create an engine here, "
    "or start processes with the spawn method"
)
KV_PAGE_SIZE = 16


@dataclass
class ModelInfo:
    """A model folder and the plug-in library that creates the model, if any."""

    model: str
    model_lib: str | None = None


# ------------------------------------------------------------------------ steps 1 to 4: the inputs


def check_engine_config(
    model: str, model_lib: str | None, mode: Mode, engine_config: EngineConfig
) -> None:
    """Raises InvalidConfig when arguments and config contradict each other, or a field is wrong."""
    arguments = {"model": model, "model_lib": model_lib, "mode": mode}
    for name, argument in arguments.items():
        configured = getattr(engine_config, name)
        if configured is not None and argument is not None and configured != argument:
            raise invalid_config(
                name,
                f'The argument "{name}" of engine constructor is "{argument}", while the "{name}" '
                f'field in argument "engine_config" is "{configured}". Please set the '
                f'"engine_config.{name}" to None or set it to the same as the argument "{name}".',
            )
    if engine_config.kv_cache_page_size != KV_PAGE_SIZE:
        raise invalid_config(
            "kv_cache_page_size",
            f"KV cache only supports page size {KV_PAGE_SIZE}, while the "
            f'"kv_cache_page_size" field in argument "engine_config" is '
            f"{engine_config.kv_cache_page_size}.",
        )
    _core.check_engine_config(replace(engine_config, model=model, mode=mode).engine_json())


def resolve_models(model: str, engine_config: EngineConfig) -> tuple[list[Path], EngineConfig]:
    """The folders of all models, and a config that names them."""
    model_lib = engine_config.model_lib
    if model_lib is not None and not Path(model_lib).is_file():
        raise FileNotFoundError(f'the "model_lib" {model_lib} does not exist')
    names = [m if isinstance(m, str) else m[0] for m in engine_config.additional_models]
    folders = [resolve_model(name) for name in (model, *names)]
    config = replace(
        engine_config,
        model=str(folders[0]),
        additional_models=[str(folder) for folder in folders[1:]],
    )
    return folders, config


def detect_device(device: str) -> str:
    """The device to run on: "auto" is the best that is there.

    Raises InvalidConfig for a device that is not there, naming those that are.
    """
    available = _core.available_devices()
    kind, _, index = str(device).partition(":")
    if device == "auto":
        return "cuda" if any(d.startswith("cuda") for d in available) else "cpu"
    present = device in available or (not index and any(d.startswith(kind) for d in available))
    if kind not in ("cpu", "cuda") or not present:
        raise invalid_config(
            "device",
            f'device "{device}" is not available; this machine and build have: '
            f'{", ".join(available)} (or "auto")',
        )
    return str(device)


def load_tokenizer(folder: Path) -> tuple[Tokenizer | None, ChatTemplate | None]:
    """The tokenizer and chat template of a model folder, None where it has none."""
    if not (folder / "tokenizer.json").is_file():
        return None, None
    return Tokenizer(folder), load_chat_template(folder)


class LoadProgressBar:
    """A progress bar on stderr that appears when a load takes more than two seconds."""

    def __init__(self, model: str) -> None:
        self._description = f"Loading {Path(model).name}"
        self._bar: Any = None

    def __call__(self, done: int, total: int) -> None:
        if self._bar is None:
            self._bar = tqdm(
                total=total,
                desc=self._description,
                unit="B",
                unit_scale=True,
                unit_divisor=1024,
                delay=PROGRESS_BAR_AFTER_S,
                leave=False,
            )
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Removes the bar."""
        if self._bar is not None:
            self._bar.close()


def parse_default_config(engine_config: EngineConfig | None, model_lib: str | None) -> EngineConfig:
    """A config of our own: what the caller gave is never changed."""
    config = replace(engine_config) if engine_config is not None else EngineConfig()
    if config.model_lib is None:
        config.model_lib = model_lib
    return config


# ------------------------------------------------------------------------------ step 5: the state


class EngineState:
    """What streams and traces share: the bridge to the consumers and the trace recorder.

    One per engine; never holds the engine object.
    """

    def __init__(self, trace_recorder: EventTraceRecorder | None, bridge: StreamBridge) -> None:
        self.trace_recorder = trace_recorder
        self.bridge = bridge

    def record_event(self, request_id: str, event: str) -> None:
        """Adds a trace event; nothing when tracing is off."""
        if self.trace_recorder is not None:
            self.trace_recorder.add_event(request_id, event)

    def get_request_stream_callback(self, kind: Literal["async", "sync"]) -> Callable[[Any], None]:
        """What the engine calls with each batch of outputs; one bridge serves both kinds."""
        del kind
        callback: Callable[[Any], None] = self.bridge
        return callback


class ForkGuard:
    """Marks engines as unusable in a child process, where their threads do not exist."""

    def __init__(self) -> None:
        self._engines: weakref.WeakSet[Any] = weakref.WeakSet()
        os.register_at_fork(after_in_child=self._after_fork)

    def watch(self, engine: Any) -> None:
        """From now on ``engine._forget_after_fork()`` runs in forked children."""
        self._engines.add(engine)

    def _after_fork(self) -> None:
        for engine in list(self._engines):
            engine._forget_after_fork()


FORK_GUARD = ForkGuard()


def keep_forever(core: Any) -> None:
    """Never destroys an engine inherited through fork: that would wait for threads it lacks."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(core))


def shut_down(core: _core.ThreadedEngine, bridge: StreamBridge, threads: list[Any]) -> None:
    """Ends all requests and both loops and joins the threads."""
    core.exit_background_loop()
    for thread in threads:
        # Not from a thread of its own: a callback may drop the last reference to the engine.
        if thread.is_alive() and thread is not threading.current_thread():
            thread.join()
    bridge.close(TERMINATED)


# -------------------------------------------------------------------------------------- the engine


class MLCEngineBase:
    """What the sync and the async engine share: setup, requests, shutdown.

    Attributes:
        engine_config: the settings with everything inferred filled in.
        max_input_sequence_length: tokens that a prompt may have.
        tokenizer: None when the model folder has no tokenizer.json.
        conv_template: the model's chat template; None when it has none.
        model_config_dicts: config.json of each model.
        state: the EngineState.

    Raises:
        InvalidConfig: an argument or a field of ``engine_config`` is wrong; it is named.
        LoadError: the model is missing, damaged or of an unsupported kind.
        FileNotFoundError: ``model_lib`` does not exist.
    """

    def __init__(
        self,
        kind: Literal["async", "sync"],
        model: str,
        device: str,
        model_lib: str | None,
        mode: Mode,
        engine_config: EngineConfig | None,
        enable_tracing: bool,
    ) -> None:
        self._status = "starting"
        self.model_name = str(model)
        # 1. Check the config. 2. Find the models. 3. The device. 4. What the models say.
        config = parse_default_config(engine_config, model_lib)
        check_engine_config(self.model_name, model_lib, mode, config)
        folders, config = resolve_models(self.model_name, replace(config, mode=mode))
        self.device = detect_device(device)
        chat_configs = [MLCChatConfig.from_folder(folder) for folder in folders]
        self.model_config_dicts = [chat_config.model_config_dict for chat_config in chat_configs]
        # 5. The state, with callback and tracing. 6. The C++ engine. 7. The tokenizer.
        self._core = _core.ThreadedEngine()
        bridge = StreamBridge(self._core.abort_request)
        self.state = EngineState(EventTraceRecorder() if enable_tracing else None, bridge)
        self._core.init_threaded_engine(
            self.device, self.state.get_request_stream_callback(kind), self.state.trace_recorder
        )
        threads: list[threading.Thread] = []
        self._shutdown = weakref.finalize(self, shut_down, self._core, bridge, threads)
        try:
            self.tokenizer, self.conv_template = load_tokenizer(folders[0])
            self._chat_stop_token_ids = self._template_stop_token_ids()
            # 8. The two loops. 9. Load. 10. What the engine made of the config.
            threads += self._start_threads()
            self._load(config)
            self.engine_config = EngineConfig.from_json(self._core.get_complete_engine_config())
            self.max_input_sequence_length = self._core.get_request_limits().max_sequence_length
        except BaseException:
            self._shutdown()
            raise
        self._status = "running"
        FORK_GUARD.watch(self)
        if self.engine_config.verbose:
            self._log_settings()

    def _start_threads(self) -> list[threading.Thread]:
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

    def _load(self, config: EngineConfig) -> None:
        progress = LoadProgressBar(str(config.model))
        try:
            self._core.reload(config.engine_json(), progress)
        finally:
            progress.close()

    def _log_settings(self) -> None:
        config = self.engine_config
        logger.info(
            "%s on %s, mode %s: max_num_sequence %s, max_total_sequence_length %s, "
            "max_single_sequence_length %s, prefill_chunk_size %s",
            *(self.model_name, self.device, config.mode, config.max_num_sequence),
            *(config.max_total_sequence_length, config.max_single_sequence_length),
            config.prefill_chunk_size,
        )

    def _template_stop_token_ids(self) -> list[int]:
        """The end-of-turn token that the chat template writes; config.json may not list it."""
        if self.conv_template is None or self.tokenizer is None:
            return []
        eos_token = self.conv_template.special_tokens.get("eos_token", "")
        token_id = self.tokenizer.token_to_id(eos_token)
        return [] if token_id is None else [token_id]

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
        """Ends all requests with finish reason "abort" and clears the metrics."""
        self._check_running()
        self._core.reset()

    # -------------------------------------------------------------------------------- the requests

    def _open_request(
        self,
        open_channel: Callable[[str], Any],
        prompt: Prompt,
        generation_config: GenerationConfig,
        request_id: str,
    ) -> Any:
        """Hands a request to the engine and returns the channel of its outputs.

        Raises:
            InvalidRequest: the request can never be served, or its id is in use.
        """
        self._check_running()
        record = self.state.record_event
        record(request_id, "receive request")
        record(request_id, "start tokenization")
        token_ids = prompt_token_ids(prompt, self.tokenizer)
        record(request_id, "finish tokenization")
        check_prompt_length(len(token_ids), self.max_input_sequence_length)
        config = generation_config.apply_to(self._core.get_default_generation_config())
        request = self._core.create_request(request_id, token_ids, config)
        try:
            channel = open_channel(request_id)
        except ValueError as error:
            raise invalid_request("request_id", str(error)) from None
        try:
            self._core.add_request(request)
        except BaseException:
            self.state.bridge.discard(channel)
            raise
        return channel

    def _close_request(self, channel: SyncChannel | AsyncChannel) -> None:
        """Aborts a request whose consumer gave up; nothing when it had ended."""
        if channel.finished or self._status != "running":
            return
        self.state.bridge.discard(channel)
        self._core.abort_request(channel.request_id)

    def _abort(self, request_id: str) -> None:
        """Ends a request: its consumer gets finish reason "abort". Unknown ids are ignored."""
        self._check_running()
        self._core.abort_request(request_id)

    def _query_metrics(self) -> EngineMetrics:
        """Waits for the engine's next step, without the GIL."""
        self._check_running()
        return EngineMetrics(json.loads(self._core.json_metrics()))

    def _debug_call_func_on_all_worker(self, name: str) -> str:
        """Runs a debug function ("audit_pages", "dump_state") between two steps; its JSON."""
        self._check_running()
        answer: str = self._core.debug_call_func_on_all_worker(name)
        return answer
