"""Images in the requests of other interfaces: as parts of OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlc_native.errors import invalid_request, shown

Part = dict[str, Any]


def of_responses(part: Mapping[str, Any], field: str) -> Part:
    """An ``input_image``. Raises InvalidRequest for a file of OpenAI's servers."""
    url = part.get("image_url")
    if not isinstance(url, str):
        raise invalid_request(
            field, f'an input_image must have an "image_url" with a data URL, got {shown(url)}'
        )
    return {"type": "image_url", "image_url": {"url": url}}


def of_messages(block: Mapping[str, Any]) -> Part:
    """An ``image`` block of Anthropic's. Raises InvalidRequest for a source that is no base64."""
    source = block.get("source")
    fields: Mapping[str, Any] = source if isinstance(source, dict) else {}
    kind, data = fields.get("media_type"), fields.get("data")
    if fields.get("type") != "base64" or not isinstance(kind, str) or not isinstance(data, str):
        raise invalid_request(
            "messages",
            'the source of an image must have the type "base64", a "media_type" and "data": this '
            f"server fetches nothing, got a source of the type {shown(fields.get('type'))}",
        )
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}


def joined_contents(first: Any, second: Any) -> Any:
    """The content of two messages as that of one, which may be the first's own list."""
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n{second}"
    parts = _parts(first)
    for part in _parts(second):
        if part["type"] == "text" == parts[-1]["type"]:
            parts[-1] = {"type": "text", "text": f"{parts[-1]['text']}\n{part['text']}"}
        else:
            parts.append(part)
    return parts


def _parts(content: Any) -> list[Part]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
