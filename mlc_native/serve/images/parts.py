"""The parts of a message's content: texts and images, as a request has them."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlc_native.errors import InvalidRequest, invalid_request, shown
from mlc_native.serve.images.decoding import check_bytes
from mlc_native.serve.images.limits import MAX_IMAGE_BYTES, MAX_IMAGES

_DATA_URL = re.compile(r"data:(?P<kind>[^,]{0,8192}),", re.IGNORECASE)
_SHOWN_CHARS = 64  # of a URL


@dataclass(frozen=True)
class ImageSource:
    """An image that is not decoded yet, and the part of the request that has it."""

    place: str
    source: object


def is_image(part: Mapping[str, Any]) -> bool:
    """Whether a part is of a kind that has an image."""
    return part.get("type") in ("image_url", "image")


def image_source(part: Mapping[str, Any], place: str) -> ImageSource:
    """The image of a part.

    Raises:
        InvalidRequest: the part is wrong, or its URL is one that would have to be fetched.
    """
    kind = part["type"]
    place = f"{place}.{kind}"
    value = part.get(kind)
    if kind == "image":
        if value is None or isinstance(value, (str, Mapping)):
            raise invalid_request(
                "messages",
                f"{place} must be a PIL image, bytes, a pathlib.Path or an array, got "
                f"{shown(value)}; a data URL belongs into a part of type image_url",
            )
        return ImageSource(place, value)
    url = value.get("url") if isinstance(value, Mapping) else value
    if not isinstance(url, str):
        raise invalid_request(
            "messages", f'{place} must be {{"url": "data:image/...;base64,..."}}, got {shown(url)}'
        )
    return ImageSource(place, _bytes_of_url(url, place))


def check_number_of_images(number: int) -> None:
    """Raises InvalidRequest for more images than a request may have."""
    if number > MAX_IMAGES:
        raise invalid_request("messages", f"a request may have {MAX_IMAGES} images, got {number}")


def _bytes_of_url(url: str, place: str) -> bytes:
    match = _DATA_URL.match(url)
    if match is None:
        raise _refused_url(url, place)
    if ";base64" not in match["kind"].lower():
        raise invalid_request("messages", f"{place}: a data URL must be in base64")
    check_bytes((len(url) - match.end()) // 4 * 3 - 2, place)  # before it is decoded
    try:
        data = base64.b64decode(url[match.end() :].translate(_NO_SPACES), validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid_request("messages", f"{place} is no valid base64: {error}") from None
    check_bytes(len(data), place)
    return data


_NO_SPACES = {ord(space): None for space in " \t\r\n"}


def _refused_url(url: str, place: str) -> InvalidRequest:
    scheme = url.partition(":")[0]
    if url[:_SHOWN_CHARS].lower().startswith("data:"):
        return invalid_request("messages", f"{place} is no valid data URL")
    return invalid_request(
        "messages",
        f"{place} must be a data URL (data:image/png;base64,...): this engine fetches nothing, got "
        f"{shown(url[:_SHOWN_CHARS])}"
        + (f" of the scheme {shown(scheme[:16])}" if "://" in url[:_SHOWN_CHARS] else ""),
    )


__all__ = ["MAX_IMAGE_BYTES", "ImageSource", "check_number_of_images", "image_source", "is_image"]
