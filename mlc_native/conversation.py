"""The chat template of a model folder, which turns messages into the text of a prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from mlc_native.errors import invalid_request, load_error
from mlc_native.template_sandbox import Limits, TemplateLimitError, chat_environment

MAX_SOURCE_CHARS = 1 << 20
_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


class ChatTemplate:
    """A compiled chat template. Thread-safe.

    Args:
        source: jinja2 text, as in Hugging Face checkpoints.
        special_tokens: variables of the template such as ``bos_token``.
        limits: limits of one rendering.
        variables: further variables of the template.
        stop_strs: texts that end an answer.
        shape: the texts that show how the model writes calls and reasoning; default: the source.

    Raises:
        LoadError: the source is not a valid template.
    """

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        variables: Mapping[str, Any] | None = None,
        stop_strs: Sequence[str] = (),
        shape: str | None = None,
    ) -> None:
        if len(source) > MAX_SOURCE_CHARS:
            raise load_error(
                "chat_template",
                f"the chat template has {len(source)} characters, allowed are {MAX_SOURCE_CHARS}",
            )
        self.source = source
        self.special_tokens = dict(special_tokens or {})
        self.limits = limits or Limits()
        self.stop_strs = tuple(stop_strs)
        self.shape = source if shape is None else shape
        self._variables = dict(variables or {})
        self._environment = chat_environment()
        try:
            self._template = self._environment.from_string(source)
        except (jinja2.TemplateError, SyntaxError, RecursionError) as error:
            raise load_error("chat_template", f"the chat template is invalid: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """Returns the prompt for ``messages`` (objects with ``role`` and ``content``).

        Raises:
            InvalidRequest: the template refused the messages, failed, or exceeded its limits.
        """
        names = {
            **self.special_tokens,
            **self._variables,
            **variables,
            "messages": messages,
            "tools": tools,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return self._environment.render(self._template, names, self.limits)
        except TemplateLimitError as error:
            message = f"the chat template was stopped: {error}"
        except RecursionError:
            message = "the chat template was stopped: its macros call each other without end"
        except MemoryError:
            message = "the chat template was stopped: it used too much memory"
        except Exception as error:  # any failure of a template concerns only this request
            message = f"the chat template refused the messages: {error}"
        raise invalid_request("messages", message)


def load_chat_template(
    folder: Path, limits: Limits | None = None, stop_strs: Sequence[str] = ()
) -> ChatTemplate | None:
    """Returns the default chat template of a model folder, or None if it has none.

    The template is searched in ``chat_template.jinja``, ``chat_template.json`` and
    ``tokenizer_config.json``, in this order, as in transformers. ``stop_strs`` end its answers,
    since a template file has no stop strings.

    Raises:
        LoadError: a file is damaged or the template is invalid.
    """
    config = _read_object(folder / "tokenizer_config.json")
    source = _read_source(folder, config)
    if source is None:
        return None
    special_tokens = {}
    for name in _SPECIAL_TOKENS:
        token = config.get(name)
        if isinstance(token, dict):  # a serialized AddedToken
            token = token.get("content")
        if isinstance(token, str):
            special_tokens[name] = token
    return ChatTemplate(source, special_tokens, limits, stop_strs=stop_strs)


def _read_source(folder: Path, config: dict[str, Any]) -> str | None:
    jinja_file = folder / "chat_template.jinja"
    if jinja_file.is_file():
        return _read_text(jinja_file)
    for template in (
        _read_object(folder / "chat_template.json").get("chat_template"),
        config.get("chat_template"),
    ):
        if isinstance(template, list):  # named templates
            named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
            template = named.get("default", next(iter(named.values()), None))
        if isinstance(template, str):
            return template
    return None


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise load_error(str(path), f"{path} is damaged: {error}") from error


def _read_object(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file, which is empty if the file does not exist."""
    if not path.is_file():
        return {}
    try:
        fields = json.loads(_read_text(path))
    except ValueError as error:
        raise load_error(str(path), f"{path} is damaged: {error}") from error
    if not isinstance(fields, dict):
        raise load_error(str(path), f"{path} is damaged: it must hold a JSON object")
    return fields
