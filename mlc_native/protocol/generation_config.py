"""SamplingOptions: what all kinds of requests let a caller set. GenerationConfig: all of a request.

The documentation, the ranges and the defaults of the options are declared in
csrc/config/generation_config.h; this module declares their Python types. The OpenAI requests, the
fields of ``extra_body`` and the ``/set`` command of the chat derive from SamplingOptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from mlc_native import _core
from mlc_native.errors import invalid_request
from mlc_native.protocol.debug_protocol import DebugConfig
from mlc_native.protocol.response_format import RequestResponseFormat
from mlc_native.tokenizers import Tokenizer


class SamplingOptions(BaseModel):
    """Options that every kind of request has by the same name, and that the engine has, too."""

    model_config = ConfigDict(extra="forbid")

    n: int = 1
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = Field(default=None, min_length=1)
    bad_words: list[str | list[int]] | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    seed: int | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    truncate_prompt_tokens: int | None = None
    priority: Literal["high", "normal", "low"] = "normal"
    queue_timeout_s: float | None = None
    timeout_s: float | None = None
    response_format: RequestResponseFormat | None = None


def bad_word_tokens(
    words: Sequence[str | list[int]], tokenizer: Tokenizer | None
) -> list[list[int]]:
    """The sequences of tokens that an answer must not have.

    A text is forbidden as it is spelled at the beginning of a text; and behind a space, if that is
    the same number of tokens with another first one (otherwise it holds the first spelling).

    Raises:
        InvalidRequest: an empty word, or a text and no tokenizer.
    """
    sequences: list[list[int]] = []
    for word in words:
        if not word:
            raise invalid_request(
                "bad_words", '"bad_words" holds no empty words, got ' + repr(word)
            )
        if not isinstance(word, str):
            sequences.append(word)
            continue
        if tokenizer is None:
            raise invalid_request(
                "bad_words",
                "the model folder has no tokenizer.json: give bad_words as lists of token ids",
            )
        plain = tokenizer.encode(word.lstrip())
        spaced = tokenizer.encode(" " + word.lstrip())
        sequences.append(plain)
        if spaced[0] != plain[0] and len(spaced) == len(plain):
            sequences.append(spaced)
    return sequences


class GenerationConfig(SamplingOptions):
    """Settings of one request. ``None`` means: the model's default, else the engine's.

    Ranges are checked by the engine when the request is created; what is wrong is named in an
    InvalidRequest.
    """

    max_tokens: int | None = -1
    stop_strs: list[str] | None = None
    logprobs: bool = False
    top_logprobs: int = 0
    debug_config: DebugConfig | None = Field(default_factory=DebugConfig)

    @property
    def is_constrained(self) -> bool:
        """Whether creating the request compiles a grammar, which may take a while."""
        return self.response_format is not None and self.response_format.type != "text"

    def apply_to(
        self, config: _core.GenerationConfig, tokenizer: Tokenizer | None = None
    ) -> _core.GenerationConfig:
        """Writes what is set here over ``config`` (the engine's defaults) and returns it.

        Args:
            tokenizer: of the model; ``bad_words`` that are texts need it.
        """
        for name in type(self).model_fields:
            value = getattr(self, name)
            if name == "bad_words" and value is not None:
                config.bad_words = bad_word_tokens(value, tokenizer)
            elif isinstance(value, DebugConfig):
                for debug_name, debug_value in value:
                    setattr(config, debug_name, "" if debug_value is None else debug_value)
            elif isinstance(value, RequestResponseFormat):
                config.response_format = value.core()
            elif value is not None:
                try:
                    setattr(config, name, value)
                except TypeError:  # an integer that no C++ field holds
                    raise invalid_request(name, f'"{name}" is out of range: {value}') from None
        return config


assert GenerationConfig.__doc__ is not None
GenerationConfig.__doc__ += "\n    Attributes:\n" + "".join(
    f"        {name}: {text}\n" for name, text in _core.generation_field_docs().items()
)
