"""CountingResponder: gives each chunk of a stream the token counts so far."""

from __future__ import annotations

from typing import Any

from mlc_native._stream_bridge import CallbackStreamOutput
from mlc_native.protocol.openai_api_protocol import CompletionUsage
from mlc_native.serve.streams import AddedText, Responder, made_chunks

Outputs = list[CallbackStreamOutput]


class CountingResponder:
    """A Responder for ``continuous_usage_stats``, around the one that makes the chunks.

    The last chunk, which has no choices, keeps the usage of the engine.
    """

    def __init__(self, responder: Responder, prompt_tokens: int) -> None:
        self._responder = responder
        self._prompt_tokens = prompt_tokens
        self._completion_tokens = 0

    def opening(self) -> list[Any]:
        """See Responder."""
        return self._counted(self._responder.opening())

    def pieces(self, outputs: Outputs) -> list[Any]:
        """See Responder. All pieces are chunks, since they have counts."""
        if outputs[0].request_final_usage_json_str is None:
            self._completion_tokens += sum(len(output.delta_token_ids) for output in outputs)
        return self._counted(made_chunks(self._responder, outputs))

    def chunk(self, added: AddedText) -> Any:
        """See Responder."""
        return self._responder.chunk(added)

    def response(self, outputs: list[Outputs]) -> Any:
        """See Responder."""
        return self._responder.response(outputs)

    def _counted(self, chunks: list[Any]) -> list[Any]:
        for chunk in chunks:
            if chunk.choices:
                chunk.usage = CompletionUsage(
                    prompt_tokens=self._prompt_tokens,
                    completion_tokens=self._completion_tokens,
                    total_tokens=self._prompt_tokens + self._completion_tokens,
                )
        return chunks
