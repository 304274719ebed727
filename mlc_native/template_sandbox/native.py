"""NativeTemplate: a chat template in the C++ renderer, which is the first choice.

The renderer writes what jinja2 writes, byte for byte, or says that it does not know a construct.
jinja2 then renders the template; it also words the errors of templates that fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlc_native import _core
from mlc_native.template_sandbox.limits import Limits, TemplateLimitError
from mlc_native.template_sandbox.prompt_text import MixedText, PromptText, Ranges


class TemplateRaisedError(Exception):
    """The template called ``raise_exception``."""


class NativeTemplate:
    """A compiled template. Thread-safe; rendering releases the GIL."""

    def __init__(self, template: _core.ChatTemplate) -> None:
        self._template = template

    @classmethod
    def compile(cls, source: str) -> NativeTemplate | None:
        """The template; None if jinja2 must compile it, or say what is wrong with it."""
        try:
            return cls(_core.ChatTemplate.compile(source))
        except _core.TemplateError:
            return None

    def render(
        self, given: Mapping[str, Any], own: Mapping[str, Any], limits: Limits, *, trusted: bool
    ) -> str | None:
        """What BoundedEnvironment.render returns; None if jinja2 must render it.

        Raises:
            TemplateLimitError: a limit was exceeded.
            TemplateRaisedError: the template refused what it was given.
        """
        text: str
        ranges: Ranges | None
        try:
            text, ranges = self._template.render(
                dict(given),
                dict(own),
                trusted,
                limits.seconds,
                limits.steps,
                limits.memory_bytes,
                limits.output_chars,
            )
        except _core.TemplateError as error:
            kind, message, _line = error.args
            if kind == "limit":
                raise TemplateLimitError(message) from None
            if kind == "raised":
                raise TemplateRaisedError(message) from None
            return None
        if ranges is None:
            return text
        return MixedText(text, ranges) if ranges else PromptText(text)
