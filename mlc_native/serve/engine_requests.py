"""EngineRequests: from a prompt to the channel of its outputs, and what else an engine answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, cast

from mlc_native import _core
from mlc_native._core import AdapterInfo, Cancellation, PinnedPrefix
from mlc_native._stream_bridge import Channel
from mlc_native.errors import invalid_request
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.serve.adapters import adapter_folder
from mlc_native.serve.engine_base import MLCEngineBase
from mlc_native.serve.metrics import EngineMetrics
from mlc_native.serve.model_setup import ModelSetup
from mlc_native.serve.request_caps import check_generation_config
from mlc_native.serve.request_processing import (
    Prompt,
    bounded_inputs,
    bounded_token_ids,
    check_name,
    check_request_id,
    checked_pin_id,
)
from mlc_native.support.interrupt import call_interruptibly


class EngineRequests(MLCEngineBase):
    """The requests of an engine, with its pins, adapters, metrics and debug functions.

    Any thread may call the methods.
    """

    def _create_request(
        self,
        prompt: Prompt,
        generation_config: GenerationConfig,
        request_id: str,
        setup: ModelSetup,
        begins_turn: bool = False,
        add_special_tokens: bool = True,
        *,
        cancellation: Cancellation | None = None,
    ) -> _core.Request:
        """A request for ``_open_request``. May take a while when the answer is constrained.

        If it is given up meanwhile, the request ends with "abort" as soon as it is opened.

        Args:
            setup: the model that the prompt was made for.
            begins_turn: the answer is a turn of a chat, which loses the leading space that the
                tokenizer's decoder strips; what continues the prompt keeps it.
            add_special_tokens: see ``prompt_token_ids``.
            cancellation: gives the request up; others do so by its id.

        Raises:
            InvalidRequest: the request can never be served, or its response_format is no valid
                grammar or takes too much to compile.
            InvalidConfig: the answer is constrained and the grammar library is not installed.
        """
        self._check_running()
        record = self.state.record_event
        record(request_id, "receive request")
        record(request_id, "start tokenization")
        token_ids, rows = bounded_inputs(
            *(prompt, setup.tokenizer, generation_config),
            *(setup.max_input_sequence_length, setup.input_length_reason),
            add_special_tokens=add_special_tokens,
        )
        record(request_id, "finish tokenization")
        check_generation_config(
            *(generation_config, setup.engine_config),
            extra_stop_strs=len(setup.chat_stop_strs),
            extra_stop_token_ids=len(setup.chat_stop_token_ids),
        )
        with self._asking(setup):
            defaults = self._core.get_default_generation_config()
            config = generation_config.apply_to(
                defaults, setup.tokenizer, self._core.get_request_limits
            )
            create = self._core.create_request
            if not generation_config.is_constrained:
                return create(request_id, token_ids, config, begins_turn, **rows)
            cancellation = cancellation or Cancellation()
            with self._preparations.entry(request_id, cancellation):  # seconds, for some grammars
                return call_interruptibly(
                    None,
                    partial(create, request_id, token_ids, config, begins_turn, **rows),
                    cancellation,
                )

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
        with self._asking(), self._model.hold(setup):
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
        self,
        open_channel: Callable[[str], Any],
        requests: list[_core.Request],
        setup: ModelSetup,
        call_id: str | None = None,
    ) -> Any:
        """``_open_request`` for requests that share a channel: all of them, or none.

        ``abort`` of the first one's id, or of ``call_id``, ends them all.
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
        if len(requests) > 1 or call_id is not None:
            self._shared_channels[call_id or channel.request_id] = channel
        return channel

    def _close_request(self, channel: Channel) -> None:
        """Aborts the requests of a channel that have not ended: their consumer gave up."""
        if not channel.finished and self._status == "running":
            self.state.bridge.give_up(channel)

    def _abort(self, request_id: str) -> None:
        """Ends a request: its consumer gets finish reason "abort". Unknown ids are ignored."""
        self._check_running()
        check_request_id(request_id)
        self._preparations.abort(request_id)
        channel = self._shared_channels.get(request_id)
        for each in channel.open_ids if channel is not None else [request_id]:
            self._core.abort_request(each)

    def _abort_all(self) -> None:
        self._check_running()
        self._preparations.abort_all()
        self._core.abort_all_requests()

    def _query_metrics(self) -> EngineMetrics:
        """Waits for the engine's next step, without the GIL."""
        self._check_running()
        with self._asking():
            return EngineMetrics(json.loads(self._core.json_metrics()))

    def _pin_prefix(self, token_ids: list[int], setup: ModelSetup) -> int:
        """Pins a prompt of this model that has been computed."""
        with self._asking(setup), self._model.hold(setup):
            pin_id: int = self._core.pin_prefix(token_ids)
            return pin_id

    def _unpin_prefix(self, pin_id: int) -> None:
        self._check_running()
        with self._asking():
            self._core.unpin_prefix(checked_pin_id(pin_id))

    def _pinned_prefixes(self) -> list[PinnedPrefix]:
        self._check_running()
        with self._asking():
            pinned: list[PinnedPrefix] = self._core.pinned_prefixes()
            return pinned

    def _load_adapter(self, name: str, folder: object) -> None:
        self._check_running()
        check_name("adapter", name)
        setup = self._model.current
        path = adapter_folder(folder, verbose=setup.engine_config.verbose)
        with self._asking(setup), self._model.hold(setup):
            self._core.load_adapter(name, path)
            setup.adapters.refresh(self._core.adapters)

    def _unload_adapter(self, name: str) -> None:
        self._check_running()
        check_name("adapter", name)
        setup = self._model.current
        with self._asking(setup), self._model.hold(setup):
            self._core.unload_adapter(name)
            setup.adapters.refresh(self._core.adapters)

    def _adapters(self) -> list[AdapterInfo]:
        self._check_running()
        with self._asking():
            loaded: list[AdapterInfo] = self._core.adapters()
            return loaded

    @property
    def embedding_size(self) -> int:
        """Numbers of an embedding; 0 if the model gives none."""
        return self._limits.embedding_size

    @property
    def num_classes(self) -> int:
        """Classes that ``classify`` tells; 0 if the model has none."""
        return self._limits.num_classes

    @property
    def embedding_pooling(self) -> Literal["last", "mean", "cls"]:
        """What an embedding is made of if its request does not say."""
        return cast(Literal["last", "mean", "cls"], self._limits.pooling)

    @property
    def attends_in_both_directions(self) -> bool:
        """Whether tokens see those behind them, so that the model generates nothing."""
        return self._limits.whole_prompts

    @property
    def _limits(self) -> _core.RequestLimits:
        self._check_running()
        with self._asking():
            limits: _core.RequestLimits = self._core.get_request_limits()
            return limits

    def _debug_call_func_on_all_worker(self, name: str) -> str:
        """Runs a debug function of the engine between two of its steps and returns its JSON.

        "dump_state": queues and sequences. "audit_pages": checks pages, ids and queues.
        "memory_summary": bytes of weights, KV cache, workspace and process. "load_summary": what
        is loaded. "dump_prefix_cache": tokens and pages of the prefix cache. "profiler_start",
        "profiler_stop": count, sum and maximum of the times of each phase of the steps between.
        "kernel_profile_start", "kernel_profile_stop" (decoders on the CPU): calls, times of all
        threads, waits, bytes and operations of each kernel between.

        Raises:
            InvalidRequest: there is no such function; the message lists those that are there.
        """
        self._check_running()
        check_name("name", name)
        with self._asking():
            answer: str = self._core.debug_call_func_on_all_worker(name)
            return answer
