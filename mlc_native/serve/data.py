"""The inputs of a request and its streamed outputs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlc_native import _core
from mlc_native.errors import invalid_request
from mlc_native.protocol.openai_api_protocol import PromptLogProbs
from mlc_native.serve.prompt_logprobs import prompt_logprobs


class Data:
    """A piece of a prompt."""


@dataclass
class TextData(Data):
    """A piece of text."""

    text: str

    def __str__(self) -> str:
        return self.text


class TokenData(Data):
    """A piece of a prompt as token ids."""

    def __init__(self, token_ids: Sequence[int]) -> None:
        self._token_ids = list(token_ids)

    @property
    def token_ids(self) -> list[int]:
        """The ids, as given."""
        return self._token_ids


class ImageData(Data):
    """An image. Creating one is refused, since no supported model takes images."""

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        raise invalid_request("image", "image input is not supported: this engine serves text")


@dataclass
class SingleRequestStreamOutput:
    """The new output of one sequence of a request, or the usage of a finished request.

    Attributes:
        delta_token_ids: the tokens of delta_text, without stop tokens.
        delta_logprob_json_strs: one JSON object per token if logprobs were requested, else None.
        finish_reason: "stop", "length", "abort", "error" or "timeout"; None before the end.
        request_final_usage_json_str: the usage; set only in the last output of a request.
        extra_prefix_string: text in front of delta_text that belongs to none of delta_token_ids,
            because jump-forward decoding replaced delivered tokens by a longer one.
        delta_text: the text of the new tokens; valid UTF-8, cut before a stop string.
        error_message: why the request ended, with finish reason "error".
        prompt_logprobs: for each token of the prompt the log-probabilities of itself and of its
            alternatives, by token id; None for the first one. Set in the first output of a request
            with prompt_logprobs.
    """

    delta_token_ids: list[int]
    delta_logprob_json_strs: list[str] | None
    finish_reason: str | None
    request_final_usage_json_str: str | None
    extra_prefix_string: str
    delta_text: str = ""
    error_message: str = ""
    prompt_logprobs: PromptLogProbs | None = None


class RequestStreamOutput:
    """An output of one request, as passed to stream callbacks. The last one has ``is_final``."""

    def __init__(self, output: _core.RequestStreamOutput) -> None:
        self._output = output

    @property
    def request_id(self) -> str:
        """The id of the request."""
        request_id: str = self._output.request_id
        return request_id

    @property
    def is_final(self) -> bool:
        """Whether this is the last output of the request, which has its usage."""
        is_final: bool = self._output.is_final
        return is_final

    @property
    def embedding_bytes(self) -> bytes | None:
        """Of a request that embeds its prompt, in its only output but the last one: float32."""
        embedding: bytes | None = self._output.embedding
        return embedding

    def unpack(self) -> tuple[str, list[SingleRequestStreamOutput]]:
        """Returns the request's id and one output per sequence; a single one if ``is_final``."""
        output = self._output
        if output.is_final:
            usage = output.request_final_usage_json_str
            return output.request_id, [SingleRequestStreamOutput([], None, None, usage, "")]
        scored = output.scored_prompt
        of_prompt = None if scored is None else prompt_logprobs(scored)
        return output.request_id, [
            SingleRequestStreamOutput(
                delta.token_ids,
                delta.logprob_json_strs or None,
                delta.finish_reason,
                None,
                delta.extra_prefix_string,
                delta.text,
                output.error_message,
                of_prompt,
            )
            for delta in output.group
        ]


StreamCallback = Callable[[list[RequestStreamOutput]], None]


class Unpacking:
    """The callback of a C++ engine: wraps its outputs for the callback of the Python engine.

    It holds the method that returns that callback weakly: a strong reference from C++ to the Python
    engine would be a cycle that the garbage collector cannot see.
    """

    def __init__(self, get_callback: Callable[[], StreamCallback | None]) -> None:
        self._get_callback = weakref.WeakMethod(get_callback)

    def __call__(self, outputs: list[_core.RequestStreamOutput]) -> None:
        get_callback = self._get_callback()
        callback = get_callback() if get_callback is not None else None
        if callback is not None:
            callback([RequestStreamOutput(output) for output in outputs])
