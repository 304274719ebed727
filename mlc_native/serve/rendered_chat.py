"""``engine.render_chat``: the prompt that a chat becomes, as text and as token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from mlc_native.protocol.openai_api_protocol import (
    ChatCompletionMessage,
    ChatCompletionRequest,
    ChatTool,
)
from mlc_native.protocol.validation import validated
from mlc_native.serve.chat_prompt import chat_prompt
from mlc_native.serve.images.chat import ChatImages
from mlc_native.serve.model_setup import ModelSetup
from mlc_native.serve.request_caps import check_fields
from mlc_native.serve.request_processing import prompt_token_ids
from mlc_native.support.keywords import check_keywords

Messages = Sequence[ChatCompletionMessage | Mapping[str, Any]]


class RenderArguments(TypedDict, total=False):
    """The arguments of a chat completion that the prompt depends on, other than ``messages``."""

    tools: Sequence[ChatTool | Mapping[str, Any]] | None
    tool_choice: str | Mapping[str, Any] | None
    documents: Sequence[Mapping[str, Any]] | None
    chat_template: str | None
    chat_template_kwargs: Mapping[str, Any] | None
    add_generation_prompt: bool | None
    continue_final_message: bool
    add_special_tokens: bool | None
    allow_special_tokens_in_content: bool


@dataclass(frozen=True)
class RenderedChat:
    """The prompt of a chat.

    Attributes:
        text: what the chat template wrote. It knows which of its characters are the template's own,
            so that the engine encodes it into the same tokens; a copy of it does not.
        token_ids: its tokens. The model's image token stands for each row of an image, of which the
            text has a placeholder; the rows themselves are not part of it.
    """

    text: str
    token_ids: list[int]


def render_chat(setup: ModelSetup, messages: Messages, arguments: RenderArguments) -> RenderedChat:
    """The prompt of ``chat.completions.create`` with these arguments.

    Raises:
        InvalidRequest: an argument is wrong, or there is no template or no tokenizer.
        TypeError: a keyword argument does not exist.
    """
    check_keywords("render_chat", arguments, RenderArguments.__optional_keys__)
    fields = {"messages": messages, **arguments}
    check_fields(fields, setup.engine_config)
    request = validated(ChatCompletionRequest, fields)
    images = ChatImages(setup.image_encoder, setup.max_input_sequence_length)
    text = chat_prompt(request, setup.conv_template, setup.engine_config, images)
    add_special_tokens = images.add_special_tokens(request)
    if images and setup.tokenizer is not None:
        token_ids = images.token_ids(text, setup.tokenizer, add_special_tokens=add_special_tokens)
    else:
        token_ids = prompt_token_ids(text, setup.tokenizer, add_special_tokens=add_special_tokens)
    return RenderedChat(text, token_ids)
