"""The chat template of a model folder, which turns messages into the text of a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlc_native.errors import InvalidRequest, invalid_request, load_error
from mlc_native.support.json_file import read_optional_json_object, read_text, token_text
from mlc_native.support.regular_file import MAX_TEMPLATE_BYTES
from mlc_native.template_sandbox import MAX_REASON, Limits, TemplateLimitError
from mlc_native.template_sandbox.native import NativeTemplate, TemplateRaisedError
from mlc_native.template_sandbox.prompt_text import stripped

if TYPE_CHECKING:
    import jinja2

    from mlc_native.template_sandbox.environment import BoundedEnvironment

MAX_SOURCE_CHARS = 1 << 20
_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


class ChatTemplate:
    """A compiled chat template. Thread-safe.

    The C++ renderer renders it, and jinja2's sandbox what that one does not know.

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
        self._native = NativeTemplate.compile(source)
        if self._native is None:
            _ = self._template  # compiled now, so that it does not load if it is wrong

    @cached_property
    def _environment(self) -> BoundedEnvironment:
        from mlc_native.template_sandbox.chat import chat_environment

        return chat_environment()

    @cached_property
    def _template(self) -> jinja2.Template:
        import jinja2

        try:
            return self._environment.from_string(self.source)
        except (jinja2.TemplateError, SyntaxError, RecursionError, MemoryError) as error:
            reason = str(error)[:MAX_REASON]
            raise load_error("chat_template", f"the chat template is invalid: {reason}") from error

    @cached_property
    def shows_only_parts(self) -> bool:
        """Whether it shows the texts of messages only where content is a list of parts."""
        probe = "mlcnative"

        def shows(content: str | list[dict[str, str]]) -> bool:
            try:
                return probe in self.render([{"role": "user", "content": content}])
            except InvalidRequest:
                return False

        return not shows(probe) and shows([{"type": "text", "text": probe}])

    def shows_images(self, placeholder: str) -> bool:
        """Whether it writes this text for a part with an image."""
        image, text = {"type": "image"}, {"type": "text", "text": "mlcnative"}
        try:
            return placeholder in self.render([{"role": "user", "content": [image, text]}])
        except InvalidRequest:
            return False

    def with_source(self, source: str) -> ChatTemplate:
        """Another template for the same model."""
        return ChatTemplate(
            source, self.special_tokens, self.limits, self._variables, self.stop_strs
        )

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        /,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        allow_special_tokens_in_content: bool = False,
        **variables: Any,
    ) -> str:
        """Returns the prompt for ``messages`` (objects with ``role`` and ``content``).

        With ``continue_final_message``, the prompt ends with the content of the last message, so
        that the answer continues it. Other ``variables`` are passed to the template.

        The prompt is a PromptText, which knows what the template wrote, unless
        ``allow_special_tokens_in_content``.

        Raises:
            InvalidRequest: the template refused the messages, failed, or exceeded its limits; or
                it does not show the message to be continued.
        """
        shown = _with_mark(messages) if continue_final_message else messages
        given = {
            **variables,
            "messages": shown,
            "tools": tools,
            "documents": documents,
            "add_generation_prompt": add_generation_prompt,
        }
        own = {name: token for name, token in self.special_tokens.items() if name not in variables}
        text = self._render(given, {**own, **self._variables}, allow_special_tokens_in_content)
        return _cut_at_mark(text, _last_text(messages[-1])) if continue_final_message else text

    def _render(self, given: dict[str, Any], own: dict[str, Any], trusted: bool) -> str:
        try:
            if self._native is not None:
                text = self._native.render(given, own, self.limits, trusted=trusted)
                if text is not None:
                    return text
            return self._environment.render(
                *(self._template, given, self.limits), own=own, trusted=trusted
            )
        except TemplateLimitError as error:
            message = f"the chat template was stopped: {error}"
        except RecursionError:
            message = "the chat template was stopped: its macros call each other without end"
        except MemoryError:
            message = "the chat template was stopped: it used too much memory"
        except TemplateRaisedError as error:
            message = f"the chat template refused the messages: {error}"
        except Exception as error:  # any failure of a template concerns only this request
            message = f"the chat template refused the messages: {str(error)[:MAX_REASON]}"
        raise invalid_request("messages", message)


# Marks the end of a message that the answer continues. The space behind it shows whether the
# template strips the content, as in transformers.
_MARK = "\ue0f7CONTINUE_FINAL_MESSAGE\ue0f7 "


def _with_mark(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    final = messages[-1]
    content: Any = _last_text(final) + _MARK
    if not isinstance(final["content"], str):
        content = [*final["content"][:-1], {"type": "text", "text": content}]
    return [*messages[:-1], {**final, "content": content}]


def _last_text(message: Mapping[str, Any]) -> str:
    """The text that a message ends with; its content may be a list of parts."""
    content = message["content"]
    if isinstance(content, str):
        return content
    if content and content[-1]["type"] == "text":
        text: str = content[-1]["text"]
        return text
    raise invalid_request(
        "continue_final_message", "the last message must end with a text that can be continued"
    )


def _cut_at_mark(text: str, content: str) -> str:
    end = text.rfind(_MARK.rstrip())
    if end < 0 or content.strip() not in text:
        raise invalid_request(
            "continue_final_message",
            "the chat template does not show the content of the last message as it is, so the "
            "answer cannot continue it",
        )
    return text[:end] if text[end:].startswith(_MARK) else stripped(text[:end], "rstrip")


def load_chat_template(
    folder: Path,
    limits: Limits | None = None,
    stop_strs: Sequence[str] = (),
    source: str | None = None,
) -> ChatTemplate | None:
    """Returns the default chat template of a model folder, or None if it has none.

    A ``source`` takes the place of the folder's; the special tokens remain those of the folder.

    The template is searched in ``chat_template.jinja``, ``chat_template.json`` and
    ``tokenizer_config.json``, in this order, as in transformers. ``stop_strs`` end its answers,
    since a template file has no stop strings.

    Raises:
        LoadError: a file is damaged or the template is invalid.
    """
    config = read_optional_json_object(folder / "tokenizer_config.json")
    source = _read_source(folder, config) if source is None else source
    if source is None:
        return None
    tokens = {name: token_text(config, name) for name in _SPECIAL_TOKENS}
    special_tokens = {name: token for name, token in tokens.items() if token is not None}
    return ChatTemplate(source, special_tokens, limits, stop_strs=stop_strs)


def _read_source(folder: Path, config: dict[str, Any]) -> str | None:
    jinja_file = folder / "chat_template.jinja"
    if jinja_file.exists():
        return read_text(jinja_file, MAX_TEMPLATE_BYTES)
    for template in (
        read_optional_json_object(folder / "chat_template.json").get("chat_template"),
        config.get("chat_template"),
    ):
        if isinstance(template, list):  # named templates
            named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
            template = named.get("default", next(iter(named.values()), None))
        if isinstance(template, str):
            return template
    return None
