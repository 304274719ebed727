"""The inputs of a request and its streamed outputs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlc_native import _core
from mlc_native.errors import invalid_request, shown
from mlc_native.protocol.openai_api_protocol import PromptLogProbs
from mlc_native.protocol.validation import unreadable
from mlc_native.serve.prompt_logprobs import prompt_logprobs

if TYPE_CHECKING:
    import numpy as np


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


class EmbeddingData(Data):
    """A piece of a prompt as rows that the model reads in place of embeddings of tokens.

    Args:
        rows: an array or a tensor [n, hidden_size] of real numbers; n is at least 1.
        positions: of a model with positions of images (M-RoPE): time, height and width of each row,
            counted from the place of the first one; integers [n, 3] in [0, n). None: as of tokens.
        advance: with positions: how far behind the first row the text goes on, in [1, n].

    Raises:
        InvalidRequest: the rows are of another shape, or not all of them are finite numbers; or one
            of positions and advance is missing or wrong.
    """

    def __init__(self, rows: Any, positions: Any = None, advance: int | None = None) -> None:
        import numpy as np  # which takes long to import, and which few need

        try:
            if hasattr(rows, "detach"):  # a tensor, which may be on a GPU or of bfloat16
                rows = rows.detach().to("cpu").float().numpy()
            self._rows = np.ascontiguousarray(rows, dtype=np.float32)
        except Exception as error:  # what a method of a caller's object raises
            raise unreadable("rows", error) from error
        if self._rows.ndim != 2 or self._rows.size == 0:
            raise invalid_request(
                "rows", f'"rows" must be of shape [n, hidden_size], got {list(self._rows.shape)}'
            )
        if not np.isfinite(self._rows).all():
            raise invalid_request("rows", '"rows" must be finite numbers')
        self._positions = None if positions is None else self._checked(positions)
        self._advance = advance
        if (advance is None) != (positions is None) or not (advance is None or _is_int(advance)):
            raise invalid_request(
                "advance", f'"advance" must be an integer with positions, got {shown(advance)}'
            )

    def _checked(self, positions: Any) -> Any:
        import numpy as np

        try:
            given = np.asarray(positions)
            checked = np.ascontiguousarray(given, dtype=np.int32)
        except Exception as error:
            raise unreadable("positions", error) from error
        if checked.shape != (len(self._rows), 3) or not np.array_equal(given, checked):
            raise invalid_request(
                "positions",
                f'"positions" must be integers [{len(self._rows)}, 3], got {list(given.shape)} of '
                f"{given.dtype}",
            )
        return checked

    @property
    def rows(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The rows, in float32."""
        return self._rows

    @property
    def placed(self) -> tuple[Any, ...]:
        """The rows and, if they have positions of their own, these and the advance."""
        return (
            (self._rows,)
            if self._positions is None
            else (self._rows, self._positions, self._advance)
        )

    def __len__(self) -> int:
        """The number of rows, each of which is a token of the prompt."""
        return len(self._rows)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31


class ImageData(Data):
    """An image. Creating one is refused: chats have images as parts of their messages."""

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        raise invalid_request(
            "image",
            "image input is not supported as a piece of a prompt: send images in the messages of "
            "a chat, or their rows as EmbeddingData",
        )


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
