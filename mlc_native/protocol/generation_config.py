"""SamplingOptions: what all kinds of requests let a caller set. GenerationConfig: all of a request.

The options, their ranges and their documentation are declared in
include/mlc_native/detail/generation_config.h. Those that have the same type in Python are fields of
DeclaredOptions, which the build writes; the others are declared here. The OpenAI requests, the
fields of ``extra_body`` and the ``/set`` command of the chat derive from SamplingOptions.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from mlc_native import _core
from mlc_native.errors import InvalidRequest, invalid_request, shown
from mlc_native.protocol.debug_protocol import DebugConfig
from mlc_native.protocol.declared_options import DeclaredOptions
from mlc_native.protocol.prediction import Prediction
from mlc_native.protocol.response_format import RequestResponseFormat
from mlc_native.protocol.validation import field_that_raises, invalid_fields, read_lazy, unreadable
from mlc_native.tokenizers import Tokenizer

MAX_BAD_WORDS = 4096  # as the engine checks
MAX_LOGIT_BIAS = 1 << 19  # more tokens than any vocabulary has
# How many members a value of a class other than list and dict may have, by field.
_LISTS = {
    **dict.fromkeys(("stop_token_ids", "allowed_token_ids", "bad_words"), MAX_LOGIT_BIAS),
    **dict.fromkeys(("stop", "stop_strs", "messages", "tools", "documents"), 1 << 16),
}
_OBJECTS = {
    "logit_bias": MAX_LOGIT_BIAS,
    **dict.fromkeys(("response_format", "prediction", "debug_config", "stream_options"), 1 << 16),
    **dict.fromkeys(("tool_choice", "chat_template_kwargs"), 1 << 16),
}


class SamplingOptions(DeclaredOptions):
    """Options that every kind of request has by the same name, and that the engine has, too."""

    model_config = ConfigDict(extra="forbid")

    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = Field(default=None, min_length=1)
    bad_words: list[str | list[int]] | None = None
    cache_salt: str | None = Field(default=None, min_length=1)
    prediction: Prediction | None = None
    response_format: RequestResponseFormat | None = None

    @model_validator(mode="before")
    @classmethod
    def read_lazy_lists(cls, values: Any) -> Any:
        """Reads iterators and the like once, up to a limit, as they may have no end."""
        return read_lazy(values, _LISTS, _OBJECTS) if isinstance(values, dict) else values

    @field_validator("logit_bias", mode="before")
    @classmethod
    def check_logit_bias_size(cls, logit_bias: Any) -> Any:
        """Refuses what no vocabulary can have before it is converted, which holds the GIL."""
        if isinstance(logit_bias, Mapping) and len(logit_bias) > MAX_LOGIT_BIAS:
            raise ValueError(f"must have at most {MAX_LOGIT_BIAS} tokens, got {len(logit_bias)}")
        return logit_bias

    @field_validator("bad_words", mode="before")
    @classmethod
    def check_bad_words_size(cls, bad_words: Any) -> Any:
        """Refuses too many before each of them is checked."""
        if isinstance(bad_words, (list, tuple)) and len(bad_words) > MAX_BAD_WORDS:
            raise ValueError(f"holds at most {MAX_BAD_WORDS} words, got {len(bad_words)}")
        return bad_words


# Before any subclass copies the fields.
for _name, _text in _core.generation_field_docs().items():
    if _name in SamplingOptions.model_fields:
        SamplingOptions.model_fields[_name].description = _text


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
        text = word.lstrip() or word
        try:
            plain, spaced = tokenizer.encode(text), tokenizer.encode(" " + text)
        except InvalidRequest as error:
            raise invalid_request("bad_words", str(error)) from None
        sequences.append(plain)
        if spaced[:1] != plain[:1] and len(spaced) == len(plain):
            sequences.append(spaced)
    return sequences


class GenerationConfig(SamplingOptions):
    """Settings of one request. ``None`` means: the model's default, else the engine's.

    Ranges are checked by the engine when the request is created; what is wrong is named in an
    InvalidRequest.
    """

    stop_strs: list[str] | None = None
    logprobs: bool = False
    top_logprobs: int = 0
    debug_config: DebugConfig | None = Field(default_factory=DebugConfig)

    if not TYPE_CHECKING:  # checkers derive the constructor from the fields

        def __init__(self, **fields: Any) -> None:
            try:
                super().__init__(**fields)
            except ValidationError as error:
                raise invalid_fields(error, type(self).model_fields) from None
            except Exception as error:  # what a method of a caller's object raises
                raise unreadable(field_that_raises(SamplingOptions, fields), error) from error

    @staticmethod
    def of(config: GenerationConfig | Mapping[str, Any] | None) -> GenerationConfig:
        """Returns the config; a mapping is its fields, None the defaults.

        Raises:
            InvalidRequest: it is of another type, or a field is wrong.
        """
        if isinstance(config, GenerationConfig):
            return config
        if config is None:
            return GenerationConfig()
        if isinstance(config, Mapping):
            return GenerationConfig(**{str(name): value for name, value in config.items()})
        raise invalid_request(
            "generation_config",
            f'"generation_config" must be a GenerationConfig or a dict, got {shown(config)}',
        )

    @property
    def is_constrained(self) -> bool:
        """Whether creating the request compiles a grammar, which may take a while."""
        return self.response_format is not None and self.response_format.type != "text"

    def apply_to(
        self,
        config: _core.GenerationConfig,
        tokenizer: Tokenizer | None = None,
        limits: Callable[[], _core.RequestLimits] | None = None,
    ) -> _core.GenerationConfig:
        """Writes what is set here over ``config`` (the engine's defaults) and returns it.

        Args:
            tokenizer: of the model; ``prediction`` and ``bad_words`` that are texts need it.
            limits: returns those of the model.

        Raises:
            InvalidRequest: a value has no meaning for C++, or ``logit_bias`` has more tokens than
                the vocabulary.
        """
        if self.logit_bias and limits is not None:
            vocab_size = limits().vocab_size
            if len(self.logit_bias) > vocab_size:
                raise invalid_request(
                    "logit_bias",
                    f'"logit_bias" must have at most {vocab_size} tokens, as the vocabulary has, '
                    f"got {len(self.logit_bias)}",
                )
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, DebugConfig):
                for debug_name, debug_value in value:
                    _assign(config, debug_name, "" if debug_value is None else debug_value)
            elif isinstance(value, RequestResponseFormat):
                config.response_format = value.core()
            elif isinstance(value, Prediction):
                _assign(config, name, value.token_ids(tokenizer))
            elif name == "bad_words" and value is not None:
                _assign(config, name, bad_word_tokens(value, tokenizer))
            elif name == "cache_salt" and value is not None:
                config.cache_salt = _salt_number(value)
            elif value is not None:
                _assign(config, name, value)
        return config


def _salt_number(salt: str) -> int:
    """The number of a salt for the engine: not 0, and the same as another's by chance only."""
    digest = hashlib.sha256(salt.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "little", signed=True) or 1


# What is said of a value that C++ has no integer or text for.
_UNFIT = {
    "stop_strs": "holds no valid Unicode",
    "n": "must be in [1, 2^31)",
    "top_k": "must be in [-1, 2^31)",
    "max_tokens": "must be in [-1, 2^63)",
    "min_tokens": "must be in [0, 2^63)",
    "truncate_prompt_tokens": "must be in [1, 2^63)",
    "no_repeat_ngram_size": "must be in [0, 2^63)",
    "seed": "must be in [-2^63, 2^63)",
    "top_logprobs": "must be in range [0, 20]",
    "prompt_logprobs": "must be in range [0, 20]",
    "spec_draft_length": "must be in [0, 10]",
    **dict.fromkeys(
        ("stop_token_ids", "allowed_token_ids", "bad_words", "logit_bias"),
        "must be token ids in [0, 2^31)",
    ),
}


def _assign(config: _core.GenerationConfig, name: str, value: Any) -> None:
    try:
        setattr(config, name, value)
    except TypeError:  # of the right type in Python, but C++ has no such integer or text
        other = "holds no valid Unicode" if isinstance(value, str) else "is out of range"
        wrong = _UNFIT.get(name, other)
        raise invalid_request(name, f'"{name}" {wrong}, got {shown(value)}') from None


# "python -OO" leaves no text, and Python 3.13 no indentation of it.
GenerationConfig.__doc__ = inspect.cleandoc(GenerationConfig.__doc__ or "")
GenerationConfig.__doc__ += "\n\nAttributes:\n" + "".join(
    f"    {name}: {text}\n" for name, text in _core.generation_field_docs().items()
)
