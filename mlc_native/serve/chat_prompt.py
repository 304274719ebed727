"""The prompt text of a chat: its messages as templates expect them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlc_native.conversation import ChatTemplate
from mlc_native.errors import LoadError, invalid_request, shown
from mlc_native.protocol.openai_api_protocol import ChatCompletionMessage, ChatCompletionRequest
from mlc_native.serve.config import EngineConfig
from mlc_native.serve.images.chat import ChatImages
from mlc_native.serve.images.parts import is_image
from mlc_native.serve.request_caps import check_value_depth
from mlc_native.support import bounded_json


def chat_prompt(
    request: ChatCompletionRequest,
    template: ChatTemplate | None,
    config: EngineConfig,
    images: ChatImages,
) -> str:
    """The prompt text of a chat request; ``config`` has the caps of one.

    ``images`` takes those of the messages; in the text, the template writes a placeholder for each.

    Raises:
        InvalidRequest: the model has no chat template, the request's is invalid, or the template
            refused the messages.
    """
    if request.chat_template is not None:
        template = _template_of_request(request.chat_template, template)
    if template is None:
        raise invalid_request(
            "messages",
            "this model has no chat template (chat_template.jinja, or chat_template in "
            "tokenizer_config.json): use completions.create with a prompt of your own",
        )
    messages = [
        _template_message(i, each, config, images) for i, each in enumerate(request.messages)
    ]
    if images.model_sees and template.shows_only_parts:
        messages = [_with_parts(message) for message in messages]
    mark = images.mark_for(template)
    if mark:
        messages = [_with_marks(message, mark) for message in messages]
    prompt = template.render(
        messages,
        tools=request.template_tools(),
        documents=request.documents,
        add_generation_prompt=request.adds_generation_prompt,
        continue_final_message=request.continue_final_message,
        allow_special_tokens_in_content=request.allow_special_tokens_in_content,
        **(request.chat_template_kwargs or {}),
    )
    return images.without_marks(prompt, mark) if mark else prompt


def _template_of_request(source: str, template: ChatTemplate | None) -> ChatTemplate:
    try:
        return ChatTemplate(source) if template is None else template.with_source(source)
    except LoadError as error:
        raise invalid_request("chat_template", str(error)) from None


def _template_message(
    position: int, message: ChatCompletionMessage, config: EngineConfig, images: ChatImages
) -> dict[str, Any]:
    """A message as templates expect it: text content, arguments of calls as objects.

    The content of a message with images is a list of parts.
    """
    plain: dict[str, Any] = {"role": message.role, "content": _content(position, message, images)}
    if message.role == "developer":
        plain["role"] = "system"
    if message.name is not None:
        plain["name"] = message.name
    if message.reasoning_content is not None:
        plain["reasoning_content"] = message.reasoning_content
        # Some templates read it by another name. That of gpt-oss refuses it with a call that has
        # content.
        if not (message.tool_calls and plain["content"]):
            plain["thinking"] = message.reasoning_content
    if message.tool_call_id is not None:
        plain["tool_call_id"] = message.tool_call_id
    if message.tool_calls:  # some clients send an empty list, at which some templates fail
        plain["tool_calls"] = [call.model_dump(exclude_none=True) for call in message.tool_calls]
        for call in plain["tool_calls"]:
            call["function"]["arguments"] = _arguments_object(
                call["function"].get("arguments"), config
            )
    return plain


def _content(
    position: int, message: ChatCompletionMessage, images: ChatImages
) -> str | list[dict[str, Any]]:
    if message.content is None:
        return ""
    if isinstance(message.content, str):
        return message.content
    parts: list[dict[str, Any]] = []
    has_images = False
    for i, part in enumerate(message.content):
        place = f"messages[{position}].content[{i}]"
        if images.model_sees and is_image(part):
            images.add(part, place)
            parts.append({"type": "image"})
            has_images = True
        else:
            parts.append(_text_part(part, place, images))
    return parts if has_images else "".join(part["text"] for part in parts)


def _text_part(part: Mapping[str, Any], place: str, images: ChatImages) -> dict[str, Any]:
    text = part.get("text")
    if part.get("type") == "text" and isinstance(text, str):
        return {"type": "text", "text": text}
    kinds = "this model reads texts and images" if images.model_sees else "this engine serves text"
    raise invalid_request(
        "messages",
        f'{place}: must be {{"type": "text", "text": ...}}, since {kinds}; got {shown(part)}',
    )


def _with_parts(message: dict[str, Any]) -> dict[str, Any]:
    """A message whose text is a part of its content."""
    content = message["content"]
    if not isinstance(content, str) or message["role"] == "tool":
        return message
    parts = [{"type": "text", "text": content}] if content else []
    return {**message, "content": parts}


def _with_marks(message: dict[str, Any], mark: str) -> dict[str, Any]:
    """A message whose content is a text, with a mark in place of each image."""
    content = message["content"]
    if not isinstance(content, list):
        return message
    texts = (mark if part["type"] == "image" else part["text"] for part in content)
    return {**message, "content": "".join(texts)}


def _arguments_object(arguments: Any, config: EngineConfig) -> Any:
    if not isinstance(arguments, str):
        check_value_depth("messages", arguments, config)
        return arguments or {}
    try:
        return bounded_json.loads(arguments, config.max_json_depth)
    except bounded_json.TooDeepError as error:
        raise invalid_request("messages", f"the arguments of a call: {error}") from None
    except ValueError:
        return arguments  # a template that prints them still can
