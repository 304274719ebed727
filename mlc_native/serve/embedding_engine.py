"""AsyncEmbeddingEngine: MLC-LLM's engine for embeddings, on an MLCEngine of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any, Literal, Self, Unpack

from mlc_native.errors import invalid_request, shown
from mlc_native.serve.arguments import EngineSettings
from mlc_native.serve.engine import MLCEngine

_POOLINGS = ("cls", "mean", "last")


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
        if pooling_strategy is not None and pooling_strategy not in _POOLINGS:
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
        self.pooling_strategy = pooling_strategy or self.engine.embedding_pooling

    def embed(self, inputs: str | Sequence[str]) -> tuple[list[list[float]], int]:
        """The embeddings of texts, each of length 1, and the number of their tokens.

        Raises:
            InvalidRequest, EngineRequestError, EngineTerminatedError: see
                ``MLCEngine.embeddings.create``.
        """
        response = self.engine.embeddings.create(
            input=inputs, pooling=self._pooling, normalize=True
        )
        vectors: list[Any] = [each.embedding for each in response.data]
        return vectors, response.usage.prompt_tokens

    async def async_embed(self, inputs: str | Sequence[str]) -> tuple[list[list[float]], int]:
        """``embed`` without blocking the event loop."""
        return await asyncio.to_thread(self.embed, inputs)

    def terminate(self) -> None:
        """Ends the engine. Idempotent."""
        self.engine.terminate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.terminate()
