"""What one request may have: the caps among the engine's settings.

They are checked before a request is validated or converted, which takes time and the GIL for long
lists, and again where a request comes from a caller's objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from itertools import islice
from typing import Any

from mlc_native.errors import InvalidRequest, invalid_request
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.protocol.validation import unreadable
from mlc_native.serve.config import EngineConfig
from mlc_native.support.bounded_json import TooDeepError, check_depth

# Fields of a request, and the setting that caps each.
_COUNTS = {
    "messages": "max_messages",
    "tools": "max_tools",
    "logit_bias": "max_logit_bias",
    "stop_token_ids": "max_stop_token_ids",
    "stop": "max_stop_strs",
    "stop_strs": "max_stop_strs",
}
# Fields whose form a caller is free in.
_FREE = (
    *("messages", "tools", "documents", "chat_template_kwargs", "response_format"),
    *("prediction", "tool_choice"),
)
_STOP_STRS = ("stop", "stop_strs")
_CAPPED = tuple(dict.fromkeys((*_COUNTS, *_FREE)))


def check_fields(fields: Mapping[str, Any], config: EngineConfig) -> None:
    """Raises InvalidRequest for the fields of a request of which there is too much."""
    for name in _CAPPED:
        value = fields.get(name)
        if value is None:
            continue
        try:
            _check_field(name, value, config)
        except InvalidRequest:
            raise
        except Exception as error:  # what a method of a caller's object raises
            raise unreadable(name, error) from error


def _check_field(name: str, value: Any, config: EngineConfig) -> None:
    is_list = isinstance(value, (list, tuple))
    if name in _COUNTS and (is_list or isinstance(value, Mapping)):
        _check_count(name, len(value), _COUNTS[name], config)
    if name in _STOP_STRS and (is_list or isinstance(value, str)):
        texts = list(islice(value, config.max_stop_strs)) if is_list else [value]
        _check_stop_strs(name, texts, config)
    if name in _FREE:
        check_value_depth(name, value, config)


def check_generation_config(
    generation_config: GenerationConfig,
    config: EngineConfig,
    *,
    extra_stop_strs: int = 0,
    extra_stop_token_ids: int = 0,
) -> None:
    """``check_fields`` for settings; the extra ones are the model's own, added to the request's."""
    for name, extra in (
        ("logit_bias", 0),
        ("stop_token_ids", extra_stop_token_ids),
        ("stop_strs", extra_stop_strs),
    ):
        value: Sized | None = getattr(generation_config, name)
        if value is not None:
            _check_count(name, len(value) - extra, _COUNTS[name], config)
    _check_stop_strs("stop_strs", generation_config.stop_strs or [], config)


def check_value_depth(name: str, value: object, config: EngineConfig) -> None:
    """Raises InvalidRequest for a value that is nested too deeply."""
    limit = config.max_json_depth
    try:
        check_depth((value,), limit)
    except TooDeepError as error:
        raise invalid_request(name, f'"{name}": {error} ("max_json_depth")') from None


def check_id_length(request_id: str, config: EngineConfig) -> None:
    """Raises InvalidRequest for the id of a request that is too long."""
    size, limit = len(request_id.encode()), config.max_request_id_bytes
    if size > limit:
        raise invalid_request(
            "request_id",
            f'"request_id" may have {limit} bytes ("max_request_id_bytes"), got {size}',
        )


def _check_count(name: str, count: int, setting: str, config: EngineConfig) -> None:
    limit = getattr(config, setting)
    if count > limit:
        raise invalid_request(name, f'"{name}" may have {limit} entries ("{setting}"), got {count}')


def _check_stop_strs(name: str, texts: list[Any] | tuple[Any, ...], config: EngineConfig) -> None:
    limit = config.max_stop_str_bytes
    for text in texts:
        if text == "":
            raise invalid_request(name, f'"{name}" must not hold an empty text')
        size = len(text.encode("utf-8", "surrogatepass")) if isinstance(text, str) else 0
        if size > limit:
            raise invalid_request(
                name,
                f'a text in "{name}" may have {limit} bytes ("max_stop_str_bytes"), got {size}',
            )
