"""AnswerFormats: how a model writes reasoning and calls of tools, by its settings and template."""

from __future__ import annotations

from dataclasses import dataclass

from mlc_native.conversation import ChatTemplate
from mlc_native.parsers.catalog import NONE, reasoning_format, tool_format
from mlc_native.parsers.reasoning import ReasoningFormat
from mlc_native.parsers.tool_format import ToolFormat
from mlc_native.serve.config import EngineConfig
from mlc_native.tokenizers import Tokenizer


@dataclass(frozen=True)
class AnswerFormats:
    """How a model writes what is not content.

    Attributes:
        tools: how calls of tools are written; None if they are not known or stay text.
        reasoning: how reasoning is marked; the same.
        shows_tools: whether the chat template tells the model about tools.
    """

    tools: ToolFormat | None = None
    reasoning: ReasoningFormat | None = None
    shows_tools: bool = False


def shows_tools(source: str) -> bool:
    """Whether a chat template tells the model about tools."""
    return "tools" in source


def choose_formats(
    config: EngineConfig, tokenizer: Tokenizer | None, template: ChatTemplate | None
) -> AnswerFormats:
    """The formats that the config names or the template shows.

    Writes into the config what was chosen, and which special tokens are a part of it.

    Raises:
        InvalidConfig: the config names a format that does not exist.
    """
    shape = "" if template is None else template.shape
    formats = AnswerFormats(
        tool_format(config.tool_call_parser, shape),
        reasoning_format(config.reasoning_parser, shape),
        shows_tools=template is not None and shows_tools(template.source),
    )
    config.tool_call_parser = NONE if formats.tools is None else formats.tools.name
    config.reasoning_parser = NONE if formats.reasoning is None else formats.reasoning.name
    if tokenizer is not None:
        texts = [text for each in (formats.tools, formats.reasoning) if each for text in each.texts]
        marks = [token for token in tokenizer.special_texts if any(token in text for text in texts)]
        config.visible_special_tokens = list(
            dict.fromkeys([*(config.visible_special_tokens or ()), *marks])
        )
    return formats
