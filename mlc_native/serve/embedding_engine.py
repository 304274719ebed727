"""AsyncEmbeddingEngine: MLC-LLM's engine for embeddings, on an MLCEngine of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Literal, Self, Unpack

from mlc_native.errors import EngineTerminatedError, invalid_request, shown
from mlc_native.serve.arguments import EngineSettings
from mlc_native.serve.engine import MLCEngine
from mlc_native.serve.engine_state import TERMINATED
from mlc_native.serve.request_processing import random_request_id
from mlc_native.serve.work_threads import outcome_of

_POOLINGS = ("cls", "mean", "last")
# Calls of ``async_embed`` that are computed at once; others wait.
_MAX_THREADS = 64


class AsyncEmbeddingEngine:
    """Embeds texts with a model of its own. Any number of threads and tasks may call it.

    A program that generates, too, needs no second engine: ``embeddings.create`` of an MLCEngine.

    Args:
        model: model folder, "demo" or hub id.
        model_lib: plug-in library that creates the model; None is the decoder of the device.
        device: as for MLCEngine.
        pooling_strategy: "cls", "mean" or "last"; None: as the model folder says, else "cls" of
            encoders and "last" of decoders.
        settings: fields of EngineConfig.

    Attributes:
        engine: the MLCEngine.
        model_type: "encoder" for a model that attends in both directions, else "decoder".
        pooling_strategy: what is in effect.

    Raises:
        InvalidRequest: ``pooling_strategy`` is none of these, or "cls" of a decoder.
        InvalidConfig, LoadError: see MLCEngine.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        model_lib: str | os.PathLike[str] | None = None,
        device: object = "auto",
        *,
        pooling_strategy: Literal["cls", "mean", "last"] | None = None,
        **settings: Unpack[EngineSettings],
    ) -> None:
        is_text = isinstance(pooling_strategy, str)
        if pooling_strategy is not None and not (is_text and str(pooling_strategy) in _POOLINGS):
            raise invalid_request(
                "pooling_strategy",
                '"pooling_strategy" must be "cls", "mean", "last" or None, got '
                f"{shown(pooling_strategy)}",
            )
        self.engine = MLCEngine(model, device, model_lib=model_lib, **settings)
        self.model_type: Literal["encoder", "decoder"] = (
            "encoder" if self.engine.attends_in_both_directions else "decoder"
        )
        if pooling_strategy == "cls" and self.model_type == "decoder":
            self.engine.terminate()
            raise invalid_request(
                "pooling_strategy",
                '"pooling_strategy" "cls" is of encoders; a decoder\'s first token sees no other',
            )
        self._pooling = pooling_strategy
        self._terminated = False
        self._threads = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="mlc-native-embed")
        self.pooling_strategy = pooling_strategy or self.engine.embedding_pooling

    def embed(self, inputs: str | Sequence[str]) -> tuple[list[list[float]], int]:
        """The embeddings of texts, each of length 1, and the number of their tokens.

        Raises:
            InvalidRequest, EngineRequestError, EngineTerminatedError: see
                ``MLCEngine.embeddings.create``.
        """
        return self._embed(inputs, None)

    async def async_embed(self, inputs: str | Sequence[str]) -> tuple[list[list[float]], int]:
        """``embed`` without blocking the event loop. Cancelling it aborts the call."""
        request_id = random_request_id("embd")
        try:
            work = self._threads.submit(self._embed, inputs, request_id)
        except RuntimeError:  # the pool is closed, or the system has no thread left
            if not self._terminated:
                raise
            raise EngineTerminatedError(TERMINATED) from None
        try:
            return await outcome_of(work)
        except asyncio.CancelledError:
            with suppress(EngineTerminatedError):
                self.engine.abort(request_id)
            raise

    def _embed(
        self, inputs: str | Sequence[str], request_id: str | None
    ) -> tuple[list[list[float]], int]:
        response = self.engine.embeddings.create(
            input=inputs, pooling=self._pooling, normalize=True, request_id=request_id
        )
        vectors: list[Any] = [each.embedding for each in response.data]
        return vectors, response.usage.prompt_tokens

    def terminate(self) -> None:
        """Ends the engine. Idempotent."""
        self._terminated = True
        self.engine.terminate()
        self._threads.shutdown(wait=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.terminate()
