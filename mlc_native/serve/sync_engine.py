"""SyncMLCEngine: the engine without threads. The caller steps it; for offline work and tests."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Unpack

from mlc_native import _core
from mlc_native._core import AdapterInfo, PinnedPrefix
from mlc_native.errors import (
    EngineRequestError,
    EngineTerminatedError,
    ModelNotLoaded,
    invalid_request,
    shown,
)
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.serve.adapters import adapter_folder
from mlc_native.serve.arguments import EngineSettings
from mlc_native.serve.config import EngineConfig
from mlc_native.serve.data import RequestStreamOutput, StreamCallback, Unpacking
from mlc_native.serve.echo_engine import refuse_mock
from mlc_native.serve.engine_state import FORK_GUARD, FORKED, keep_forever
from mlc_native.serve.event_trace_recorder import EventTraceRecorder
from mlc_native.serve.load_report import LoadReport
from mlc_native.serve.metrics import EngineMetrics
from mlc_native.serve.model_setup import (
    Mode,
    ModelSetup,
    describe_engine,
    loaded_config,
    prepare_model,
)
from mlc_native.serve.rendered_chat import (
    Messages,
    RenderArguments,
    RenderedChat,
    render_chat,
)
from mlc_native.serve.request import Request
from mlc_native.serve.request_caps import check_generation_config
from mlc_native.serve.request_processing import (
    PIN_CONFIG,
    Prompt,
    bounded_inputs,
    bounded_token_ids,
    check_name,
    check_request_id,
    checked_pin_id,
    encoded_texts,
)
from mlc_native.serve.sync_answers import (
    Answers,
    Collector,
    Config,
    Generated,
    Prompts,
    as_config_list,
    as_prompt_list,
)
from mlc_native.serve.sync_embeddings import SyncPooling
from mlc_native.support.engine_log import write_log
from mlc_native.support.interrupt import call_interruptibly


def check_callback(callback: object) -> None:
    """Raises InvalidRequest for what cannot be called."""
    if callback is not None and not callable(callback):
        raise invalid_request(
            "request_stream_callback", f"the callback must be callable, got {shown(callback)}"
        )


@contextmanager
def _expected(answers: dict[str, Answers], request_id: str, answer: Answers) -> Iterator[None]:
    """While a request is added, which may answer it at once. Where it is refused, its id is not one
    of the call's: it may be that of another request.
    """
    answers[request_id] = answer
    try:
        yield
    except BaseException:
        del answers[request_id]
        raise


class SyncMLCEngine(SyncPooling):
    """An engine for one thread: requests are added, and every ``step()`` computes one step.

    Args:
        model: model folder, "demo" (the model inside this package) or hub id.
        device: "cpu", "cuda" (the first GPU), "cuda:i", or "auto" (a GPU where one can be used); or
            an object that prints as one of them, such as a torch.device.
        model_lib: plug-in library that creates the model; None is the decoder of the device.
        mode: "auto" (as many sequences as fit into memory), or MLC-LLM's "local" (at most 4
            sequences and 8192 tokens), "interactive" (one sequence) and "server" (as many as fit,
            with a limited queue).
        engine_config: further settings, also as a dict. The object is not changed.
        enable_tracing: record events in ``trace_recorder``.
        request_stream_callback: called by ``step()`` with a list of RequestStreamOutput. ``step()``
            passes its exceptions on.
        settings: fields of EngineConfig (``dtype="bf16"``); they take precedence.

    Attributes:
        device: the device that models run on: "cpu" or "cuda:i"; "auto" if a ``model_lib`` chooses.
        engine_config: the settings, with all inferred ones filled in.
        max_input_sequence_length: greatest length of a prompt in tokens.
        tokenizer: None if the model folder has no tokenizer.json.
        conv_template: the model's chat template; None if there is none.

    Raises:
        InvalidConfig: an argument or a field of ``engine_config`` is wrong; the message names it.
        LoadError: the model is missing, damaged or of an unsupported kind.
        FileNotFoundError: ``model_lib`` does not exist.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        device: object = "auto",
        *,
        model_lib: str | os.PathLike[str] | None = None,
        mode: Mode = "auto",
        engine_config: EngineConfig | Mapping[str, Any] | None = None,
        enable_tracing: bool = False,
        request_stream_callback: StreamCallback | None = None,
        **settings: Unpack[EngineSettings],
    ) -> None:
        self._core: Any = None
        self._setup: ModelSetup | None = None
        self._forked = False
        check_callback(request_stream_callback)
        config = EngineConfig.of(engine_config, settings, "SyncMLCEngine")
        setup = prepare_model(model, device, model_lib, mode, config)
        refuse_mock(setup.engine_config)
        self.device = setup.device
        self.trace_recorder = EventTraceRecorder() if enable_tracing else None
        self._request_stream_callback: StreamCallback | None = None
        self._load(setup, request_stream_callback)
        self._generate_ids = itertools.count()
        FORK_GUARD.watch(self)

    def _load(self, setup: ModelSetup, request_stream_callback: StreamCallback | None) -> None:
        config = setup.engine_config
        report = LoadReport(setup.name, config.verbose)
        self._setup = None
        try:
            self._create_core(config.engine_json(), request_stream_callback, report)
            summary = report.finish(self._core.debug_call("load_summary"), self.device)
            loaded = loaded_config(config, self._core.config_json(), summary)
            limits = self._core.request_limits()
        except BaseException:
            self._core = None  # what follows belongs to another model
            raise
        finally:
            report.close()
        self.engine_config = loaded
        self.max_input_sequence_length = limits.max_sequence_length
        self._input_length_reason = limits.length_reason
        self._setup = setup.loaded(limits, loaded, summary)
        self.model_config_dicts = setup.model_config_dicts
        self.tokenizer, self.conv_template = setup.tokenizer, setup.conv_template

    def _create_core(
        self, config_json: str, callback: StreamCallback | None, progress: Callable[..., None]
    ) -> None:
        unpacking = Unpacking(self.get_request_stream_callback)
        self._core = _core.Engine.create(
            config_json, self.device, unpacking, self.trace_recorder, progress, write_log
        )
        self._request_stream_callback = callback

    def _init(
        self,
        engine_config_json: str,
        device: str,
        request_stream_callback: StreamCallback | None,
        trace_recorder: EventTraceRecorder | None,
    ) -> None:
        self.device, self.trace_recorder = device, trace_recorder
        report = LoadReport(json.loads(engine_config_json)["model"], verbose=False)
        self._create_core(engine_config_json, request_stream_callback, report)

    def __repr__(self) -> str:
        """The model, where it runs, its sizes, and whether it is loaded."""
        loaded = self._core is not None
        setup = self._setup if loaded else None
        return describe_engine("SyncMLCEngine", setup, "loaded" if loaded else "no model")

    def reload(
        self,
        model: str | os.PathLike[str],
        engine_config: EngineConfig | Mapping[str, Any] | None = None,
        *,
        model_lib: str | os.PathLike[str] | None = None,
        mode: Mode = "auto",
        **settings: Unpack[EngineSettings],
    ) -> None:
        """Replaces the model, as ``MLCEngine.reload`` does; not from the callback."""
        self._check_not_forked()
        config = EngineConfig.of(engine_config, settings, "reload")
        setup = prepare_model(model, self.device, model_lib, mode, config)
        refuse_mock(setup.engine_config)
        self.unload()
        self._load(setup, self._request_stream_callback)

    def unload(self) -> None:
        """Drops the model. Requests end with "abort"; new ones are refused until a reload."""
        self._check_not_forked()
        if self._core is not None:
            self._core.abort_all_requests()
        self._core = None

    def _forget_after_fork(self) -> None:
        """Leaves the engine untouched in a forked child, where its threads do not exist."""
        self._forked = True
        if self._core is not None:
            keep_forever(self._core)
        self._core = None

    def _check_not_forked(self) -> None:
        if self._forked:
            raise EngineTerminatedError(FORKED)

    def _engine(self) -> Any:
        self._check_not_forked()
        if self._core is None:
            raise ModelNotLoaded
        return self._core

    # ------------------------------------------------------------------------------- step by step

    def create_request(
        self,
        request_id: str,
        inputs: Prompt,
        generation_config: GenerationConfig | Mapping[str, Any] | None = None,
        *,
        add_special_tokens: bool = True,
        begins_turn: bool = False,
    ) -> Request:
        """Returns a validated request. ``inputs`` is text, token ids, data or a list of these.

        Args:
            add_special_tokens: text gets what the tokenizer puts around a text (BOS).
            begins_turn: the prompt ends where a turn of a chat begins, as one of ``render_chat``
                does: the answer loses the leading space that the tokenizer's decoder strips from a
                text. An answer that continues the prompt keeps it.

        Raises:
            InvalidRequest: the request can never be served.
        """
        engine = self._engine()
        check_request_id(request_id, self.engine_config)
        generation_config = GenerationConfig.of(generation_config)
        check_generation_config(generation_config, self.engine_config)
        token_ids, rows = bounded_inputs(
            *(inputs, self.tokenizer, generation_config),
            *(self.max_input_sequence_length, self._input_length_reason),
            add_special_tokens=add_special_tokens,
        )
        config = generation_config.apply_to(
            engine.default_generation_config(), self.tokenizer, engine.request_limits
        )
        if not generation_config.is_constrained:
            return engine.create_request(request_id, token_ids, config, begins_turn, **rows)
        cancellation = _core.Cancellation()
        create = partial(engine.create_request, request_id, token_ids, config, begins_turn, **rows)
        return call_interruptibly(cancellation.cancel, create, cancellation)

    def _token_ids(
        self, prompt: Prompt, config: GenerationConfig, *, add_special_tokens: bool
    ) -> list[int]:
        """The tokens of a prompt. Raises InvalidRequest if they cannot fit."""
        return bounded_token_ids(
            *(prompt, self.tokenizer, config),
            *(self.max_input_sequence_length, self._input_length_reason),
            add_special_tokens=add_special_tokens,
        )

    def add_request(self, request: Request) -> None:
        """Queues a request. Raises InvalidRequest if its id is in use."""
        if not isinstance(request, Request):
            raise invalid_request("request", f"create_request makes requests, got {shown(request)}")
        self._engine().add_request(request)

    def abort_request(self, request_id: str) -> None:
        """Ends a request with finish reason "abort". Unknown ids are ignored."""
        check_request_id(request_id)
        self._engine().abort_request(request_id)

    def abort_all(self) -> None:
        """Ends all requests with finish reason "abort"."""
        self._engine().abort_all_requests()

    def step(self) -> None:
        """Computes one step of the engine. Does nothing if there is no request."""
        self._engine().step()

    def empty(self) -> bool:
        """Returns whether no request is queued or running."""
        empty: bool = self._engine().empty()
        return empty

    def reset(self) -> None:
        """Ends all requests with finish reason "abort" and clears metrics and prefix cache."""
        self._engine().reset()

    def render_chat(self, messages: Messages, **arguments: Unpack[RenderArguments]) -> RenderedChat:
        """The same as ``MLCEngine.render_chat``."""
        self._engine()
        assert self._setup is not None  # of a loaded model
        return render_chat(self._setup, messages, arguments)

    def pin_prefix(self, prompt: Prompt, *, add_special_tokens: bool = True) -> int:
        """The same as ``MLCEngine.pin_prefix``."""
        token_ids = self._token_ids(prompt, PIN_CONFIG, add_special_tokens=add_special_tokens)
        self.generate([token_ids], PIN_CONFIG)
        pin_id: int = self._engine().pin_prefix(token_ids)
        return pin_id

    def unpin_prefix(self, pin_id: int) -> None:
        """Releases a pinned prompt. Raises InvalidRequest for an id that is not pinned."""
        self._engine().unpin_prefix(checked_pin_id(pin_id))

    def pinned_prefixes(self) -> list[PinnedPrefix]:
        """Returns all pins, with the id and the numbers of tokens and pages of each."""
        pinned: list[PinnedPrefix] = self._engine().pinned_prefixes()
        return pinned

    def load_adapter(self, name: str, folder: str | os.PathLike[str]) -> None:
        """The same as ``MLCEngine.load_adapter``."""
        engine = self._engine()
        check_name("adapter", name)
        engine.load_adapter(name, adapter_folder(folder, verbose=self.engine_config.verbose))

    def unload_adapter(self, name: str) -> None:
        """The same as ``MLCEngine.unload_adapter``."""
        engine = self._engine()
        check_name("adapter", name)
        engine.unload_adapter(name)

    def adapters(self) -> list[AdapterInfo]:
        """Returns the loaded adapters, with the name, folder, rank and bytes of each."""
        loaded: list[AdapterInfo] = self._engine().adapters()
        return loaded

    def metrics(self) -> EngineMetrics:
        """Returns the engine's metrics."""
        return EngineMetrics(json.loads(self._engine().json_metrics()))

    def set_request_stream_callback(self, callback: StreamCallback | None) -> None:
        """Replaces the callback. With None, all outputs are dropped."""
        self._engine()
        check_callback(callback)
        self._request_stream_callback = callback

    def get_request_stream_callback(self) -> StreamCallback | None:
        """Returns the callback as it was given."""
        return self._request_stream_callback

    @property
    def _ffi(self) -> dict[str, Callable[..., Any]]:
        """The engine's functions under the names that MLC-LLM gives them."""
        return {
            "init": self._init,
            "add_request": self.add_request,
            "abort_request": self.abort_request,
            "step": self.step,
            "reset": self.reset,
            "json_metrics": lambda: self._engine().json_metrics(),
            "get_request_stream_callback": self.get_request_stream_callback,
            "set_request_stream_callback": self.set_request_stream_callback,
            "create_request": self.create_request,
        }

    # ------------------------------------------------------------------------------ all in one go

    def generate(
        self,
        prompts: Prompts,
        generation_config: Config | list[Config] | None = None,
        *,
        add_special_tokens: bool = True,
        begins_turn: bool = False,
    ) -> Generated:
        """Answers all prompts and returns when the last one is finished.

        Args:
            prompts: one prompt (text or token ids) or a list of prompts (texts, lists of ids, or
                lists of data). For an empty list, both results are empty.
            generation_config: one for all prompts, or a list with one per prompt.
            add_special_tokens: put what the tokenizer puts around a text (BOS) around prompts that
                are texts.
            begins_turn: see ``create_request``; for all prompts.

        Returns:
            ``texts[i][j]``, the j-th of n answers to prompt i, and ``logprobs[i][j]``, one JSON
            object per token of it. ``logprobs[i]`` is None if none were requested. The result's
            attribute ``prompt_logprobs[i]`` has those of prompt i.

        Raises:
            InvalidRequest: a prompt can never be served; nothing is generated.
            EngineRequestError: the engine ended a request with an error.
        """
        prompt_list = as_prompt_list(prompts)
        configs = as_config_list(generation_config, len(prompt_list))
        run = next(self._generate_ids)
        self._engine()
        inputs = encoded_texts(
            *(prompt_list, [GenerationConfig.of(config) for config in configs], self.tokenizer),
            *(self.max_input_sequence_length, self._input_length_reason),
            add_special_tokens=add_special_tokens,
        )
        requests = [
            self.create_request(
                *(f"generate-{run}-{i}", prompt, config),
                add_special_tokens=add_special_tokens,
                begins_turn=begins_turn,
            )
            for i, (prompt, config) in enumerate(zip(inputs, configs, strict=True))
        ]
        answers: dict[str, Answers] = {}
        with self._collecting(answers):
            for request, config in zip(requests, configs, strict=True):
                with _expected(answers, request.id, Answers(config)):
                    self.add_request(request)
            while any(not answer.finished for answer in answers.values()):
                self.step()
        for request_id, answer in answers.items():
            if answer.error_message:
                raise EngineRequestError(request_id, answer.error_message)
        return Generated(
            [answer.texts for answer in answers.values()],
            [answer.logprobs for answer in answers.values()],
            [answer.prompt_logprobs for answer in answers.values()],
        )

    @contextmanager
    def _collecting(self, answers: Mapping[str, Collector]) -> Iterator[None]:
        """Outputs of the requests in ``answers`` go there, others where they went before.

        A request gets there as it is added (``_expected``). At the end, also after an error, the
        callback is restored and no request of these is left.
        """
        saved = self.get_request_stream_callback()

        def collect(outputs: list[RequestStreamOutput]) -> None:
            others = [output for output in outputs if output.request_id not in answers]
            for output in outputs:
                if output.request_id in answers:
                    answers[output.request_id].add(output)
            if others and saved is not None:
                saved(others)

        self.set_request_stream_callback(collect)
        try:
            yield
        finally:
            try:
                for request_id, answer in answers.items():
                    if not answer.finished:
                        self.abort_request(request_id)
            finally:
                self.set_request_stream_callback(saved)
