"""From the JSON of a request to the arguments of ``create``.

The engine's request classes say which fields there are and check them. This module adds what is a
matter of clients: null means that a field is not there, other servers' names for the same wish,
fields that are accepted without an effect, and wishes that would change the answer and that nothing
here fulfils. What remains is unknown: it is ignored and reported.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import BaseModel

from mlc_native.errors import invalid_request, shown
from mlc_native.protocol.embeddings import EmbeddingRequest
from mlc_native.protocol.openai_api_protocol import ChatCompletionRequest, CompletionRequest
from mlc_native.protocol.scoring import ClassificationRequest, ComparisonRequest
from mlc_native.server.config import ServerConfig

logger = logging.getLogger(__name__)

Fields = dict[str, Any]
REQUESTS: dict[str, type[BaseModel]] = {
    "chat": ChatCompletionRequest,
    "completion": CompletionRequest,
    "embedding": EmbeddingRequest,
    "classification": ClassificationRequest,
    "comparison": ComparisonRequest,
}
DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's, for /v1/completions

# They say nothing about the answer, or what they ask for is the case anyway.
_WITHOUT_EFFECT = {
    *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"),
    *("prompt_cache_retention", "verbosity", "request_id"),
    "include_reasoning",  # the Dialect leaves it out
}
# field -> whether a value asks for nothing special.
_UNSUPPORTED: dict[str, Callable[[Any], bool]] = {
    "modalities": lambda value: value == ["text"],
    "audio": lambda value: False,
    "web_search_options": lambda value: False,
    "functions": lambda value: value == [],
    "function_call": lambda value: value == "none",
    "suffix": lambda value: value == "",
    "use_beam_search": lambda value: value is False,
}
_INSTEAD = {"functions": '; use "tools"', "function_call": '; use "tool_choice"'}
# llama.cpp's names of fields -> ours.
_LLAMA_CPP = {"n_predict": "max_tokens", "repeat_penalty": "repetition_penalty"}
_MAX_NAMES = 32
_MAX_REPORTED = 1000
_UNPRINTABLE = re.compile(r"[^A-Za-z0-9_.\-]")


def create_fields(kind: str, body: Fields, config: ServerConfig) -> tuple[Fields, list[str]]:
    """The fields of the request that the engine knows, and the names of those that are ignored.

    Raises:
        InvalidRequest: a field asks for what is not supported, or exceeds a limit of the server.
    """
    wishes = {name: value for name, value in body.items() if value is not None}
    for name in ("stream", "include_reasoning"):
        if not isinstance(wishes.get(name, False), bool):
            raise invalid_request(
                name, f'"{name}" must be true or false, got {shown(wishes[name])}'
            )
    _check_unsupported(wishes)
    check_template(wishes, config)
    known = set(REQUESTS[kind].model_fields)
    if not config.enable_debug:
        known.discard("debug_config")
    _translate(wishes)
    _check_limits(wishes, config)
    if kind == "completion":
        wishes.setdefault("max_tokens", DEFAULT_COMPLETION_TOKENS)
    if config.request_timeout_s is not None:
        wishes["timeout_s"] = _capped(wishes.get("timeout_s"), config.request_timeout_s)
    fields = {name: value for name, value in wishes.items() if name in known and name != "model"}
    ignored = [name for name in wishes if name not in known and name not in _WITHOUT_EFFECT]
    return fields, ignored


def integer(fields: Fields, *names: str) -> int | None:
    """The first of the fields that is there, if it is an integer as JSON has it."""
    for name in names:
        if name in fields:
            value = fields[name]
            return value if type(value) is int else None
    return None


def tokens_field(fields: Fields, name: str) -> int:
    """A field that must be a number of tokens of an answer. Raises InvalidRequest."""
    value = fields.get(name)
    if type(value) is not int or not 1 <= value < 1 << 63:
        raise invalid_request(name, f'"{name}" must be an integer in [1, 2^63), got {shown(value)}')
    return value


def object_field(fields: Fields, name: str) -> dict[str, Any]:
    """A field that must be an object; {} if it is not there. Raises InvalidRequest."""
    value = fields.get(name, {})
    if not isinstance(value, dict):
        raise invalid_request(name, f'"{name}" must be an object, got {shown(value)}')
    return value


def list_field(fields: Fields, name: str) -> list[Any]:
    """A field that must be a list; [] if it is not there. Raises InvalidRequest."""
    value = fields.get(name, [])
    if not isinstance(value, list):
        raise invalid_request(name, f'"{name}" must be a list, got {shown(value)}')
    return value


def texts_field(fields: Fields, name: str) -> list[str]:
    """A field that must be a list of texts, none of them empty. Raises InvalidRequest."""
    texts = list_field(fields, name)
    if not all(isinstance(text, str) and text for text in texts):
        raise invalid_request(name, f'"{name}" must be a list of texts that are not empty')
    return texts


def check_template(wishes: Fields, config: ServerConfig) -> None:
    """Raises InvalidRequest for a chat template that the server is not told to trust."""
    if "chat_template" in wishes and not config.trust_request_chat_template:
        raise invalid_request(
            "chat_template",
            '"chat_template" is not supported by this server; --trust-request-chat-template '
            "allows it",
        )


def _check_unsupported(wishes: Fields) -> None:
    for name, is_harmless in _UNSUPPORTED.items():
        if name in wishes:
            if not is_harmless(wishes[name]):
                advice = _INSTEAD.get(name, "")
                raise invalid_request(name, f'"{name}" is not supported by this server{advice}')
            del wishes[name]


def _translate(wishes: Fields) -> None:
    """Replaces fields of other servers by ours. ``wishes`` is changed."""
    priority = wishes.get("priority")
    if isinstance(priority, int) and not isinstance(priority, bool):  # vLLM: lower is earlier
        wishes["priority"] = "normal" if priority == 0 else "high" if priority < 0 else "low"
    for theirs, ours in _LLAMA_CPP.items():
        if theirs in wishes:
            wishes.setdefault(ours, wishes.pop(theirs))
    if "reasoning_effort" in wishes:
        _set_effort(wishes, wishes.pop("reasoning_effort"))
    if wishes.get("best_of") == wishes.get("n", 1):
        wishes.pop("best_of", None)
    formats = _asked_formats(wishes)
    if len(formats) > 1:
        names = ", ".join(name for name, _ in formats)
        field = formats[1][0].partition(".")[0]
        raise invalid_request(field, f"only one of {names} can be served")
    if formats:
        wishes["response_format"] = formats[0][1]


def _set_effort(wishes: Fields, effort: Any) -> None:
    """Tells the chat template how much to reason; "none" turns reasoning off where that exists."""
    if not isinstance(effort, str):
        raise invalid_request(
            "reasoning_effort", f'"reasoning_effort" must be a text, got {shown(effort)}'
        )
    variables: Fields = {"reasoning_effort": effort}
    if effort == "none":
        variables["enable_thinking"] = False
    given = wishes.get("chat_template_kwargs", {})
    if isinstance(given, dict):  # otherwise the engine refuses it
        wishes["chat_template_kwargs"] = {**variables, **given}


def _asked_formats(wishes: Fields) -> list[tuple[str, Any]]:
    """All that a request says about the form of its answer. Removes the fields of vLLM and of
    llama.cpp."""
    formats = []
    if wishes.get("response_format", {"type": "text"}) != {"type": "text"}:
        formats.append(("response_format", wishes["response_format"]))
    formats += _structured_outputs(wishes)
    for name in list(_FORMATS):
        value = wishes.pop(f"guided_{name}", None)
        if value is not None:
            formats.append((f"guided_{name}", _as_response_format(name, value)))
    for theirs, name in (("json_schema", "json"), ("grammar", "grammar")):  # llama.cpp
        value = wishes.pop(theirs, "")
        if value != "":
            formats.append((theirs, _as_response_format(name, value)))
    return formats


_FORMATS = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")
# Members of vLLM's object that say how a grammar is made, and nothing about the answer if false.
_GRAMMAR_SETTINGS = ("disable_fallback", "disable_any_whitespace", "disable_additional_properties")


def _structured_outputs(wishes: Fields) -> list[tuple[str, Any]]:
    """What vLLM's field asks for, which is removed. A member without an effect is an unknown field.

    Raises InvalidRequest when it is no object, or asks for no form: the answer would be free.
    """
    outputs = wishes.pop("structured_outputs", None)
    if outputs is None:
        return []
    if not isinstance(outputs, dict):
        raise invalid_request(
            "structured_outputs", f'"structured_outputs" must be an object, got {shown(outputs)}'
        )
    given = {name: value for name, value in outputs.items() if value is not None}
    if not any(name in _FORMATS for name in given):
        raise invalid_request(
            "structured_outputs",
            f'"structured_outputs" must have one of {", ".join(_FORMATS)}, got {shown(outputs)}',
        )
    for name, value in given.items():
        if name not in _FORMATS and not (name in _GRAMMAR_SETTINGS and value is False):
            wishes[f"structured_outputs.{name}"] = value
    return [
        (f"structured_outputs.{name}", _as_response_format(name, value))
        for name, value in given.items()
        if name in _FORMATS
    ]


def _as_response_format(name: str, value: Any) -> Any:
    if name == "json":
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": value}}
    if name == "json_object":
        return {"type": "json_object"} if value else {"type": "text"}
    if name == "structural_tag":
        return _object_of(value)
    return {"type": name, name: value}


def _object_of(value: Any) -> Any:
    """vLLM has a structural tag as a JSON text. What is none is refused where an object is."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def _check_limits(wishes: Fields, config: ServerConfig) -> None:
    stop = wishes.get("stop")
    if isinstance(stop, list) and len(stop) > config.max_stop_strings:
        raise invalid_request(
            "stop", f'"stop" may have {config.max_stop_strings} texts, got {len(stop)}'
        )
    for name in ("prompt", "input"):
        prompt = wishes.get(name)
        num_prompts = len(prompt) if isinstance(prompt, list) and not _is_token_ids(prompt) else 1
        if num_prompts > config.max_prompts:
            raise invalid_request(
                name, f'"{name}" may have {config.max_prompts} prompts, got {num_prompts}'
            )


def _is_token_ids(prompt: list[Any]) -> bool:
    return bool(prompt) and isinstance(prompt[0], int)


def _capped(wished: Any, limit: float) -> Any:
    if wished is None:
        return limit
    is_number = isinstance(wished, (int, float)) and not isinstance(wished, bool)
    return min(wished, limit) if is_number else wished  # the engine refuses what is no number


class IgnoredFields:
    """Reports ignored fields: each name once in the log, and in a header of its answer."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def header(self, names: Iterable[str]) -> list[tuple[bytes, bytes]]:
        """The header ``x-ignored-fields``, or nothing."""
        safe = [_UNPRINTABLE.sub("?", name[:64]) for name in names][:_MAX_NAMES]
        for name in safe:
            if name not in self._reported and len(self._reported) < _MAX_REPORTED:
                self._reported.add(name)
                logger.warning('requests have the field "%s", which is ignored', name)
        return [(b"x-ignored-fields", ", ".join(safe).encode())] if safe else []
