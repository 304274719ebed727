"""From the bytes of an image to its pixels, within limits.

What a header says is checked before pixels are decoded, so that a small file cannot become a large
image. Needs Pillow.
"""

from __future__ import annotations

import io
import re
import warnings
from pathlib import Path
from typing import Any

from mlc_native.errors import InvalidRequest, invalid_request, shown
from mlc_native.serve.images.limits import (
    FORMATS,
    MAX_ASPECT_RATIO,
    MAX_IMAGE_BYTES,
    MAX_IMAGE_PIXELS,
    MAX_JPEG_SCANS,
    MIN_READS,
    READS_PER_KIB,
)


def decoded_image(source: object, place: str) -> Any:
    """A PIL image in RGB, as a camera held it.

    Args:
        source: the bytes of a file, its path, an array of bytes [height, width, 3], or a PIL image.
        place: the part of the request, for messages.

    Raises:
        InvalidRequest: the image is damaged, of another kind, or too large.
    """
    import PIL.Image
    import PIL.ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of damage that does not matter
            image = _opened(source, place)
            width, height = image.size
            _check_size(width, height, place)
            # As transformers loads an image.
            return PIL.ImageOps.exif_transpose(image).convert("RGB")
    except InvalidRequest:
        raise
    except PIL.Image.DecompressionBombError:
        raise _too_many_pixels(place, "more than 178 million") from None
    except MemoryError:
        raise invalid_request("messages", f"{place}: there is no memory for the image") from None
    except Exception as error:  # whatever a damaged file makes of a decoder
        raise invalid_request(
            "messages", f"{place}: the image is damaged: {str(error)[:200]}"
        ) from None


def _opened(source: object, place: str) -> Any:
    import PIL.Image

    if isinstance(source, PIL.Image.Image):
        return source
    if isinstance(source, Path):
        source = _file_bytes(source, place)
    if isinstance(source, (bytes, bytearray, memoryview)):
        check_bytes(len(source), place)
        try:
            image = PIL.Image.open(_FewReads(source, place), formats=FORMATS)
            _check_scans(image, source, place)
            return image
        except PIL.UnidentifiedImageError:
            raise invalid_request(
                "messages", f"{place}: the image is none of {', '.join(FORMATS)}"
            ) from None
    return _of_array(source, place)


class _FewReads(io.BytesIO):
    """A file that is read in few pieces: a decoder goes through millions of tiny ones slowly."""

    def __init__(self, data: bytes | bytearray | memoryview, place: str) -> None:
        super().__init__(data)
        self._place = place
        self._left = MIN_READS + READS_PER_KIB * (len(data) >> 10)

    def read(self, size: int | None = -1, /) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise _too_many_pieces(self._place)
        return super().read(size)


def _check_scans(image: Any, data: bytes | bytearray | memoryview, place: str) -> None:
    """Goes from marker to marker up to the end of a JPEG. Behind that, files may have a video."""
    if image.format not in ("JPEG", "MPO"):
        return
    position = scans = 0
    for _ in range(MIN_READS):
        found = _MARKER.search(data, position)
        if found is None or found[0] == b"\xff\xd9":
            return
        scans += found[0] == b"\xff\xda"
        if scans > MAX_JPEG_SCANS:
            raise invalid_request("messages", f"{place}: a JPEG may have {MAX_JPEG_SCANS} scans")
        position = found.end()
        if found[0] != b"\xff\xd8":
            position += int.from_bytes(data[position : position + 2], "big")
    raise _too_many_pieces(place)


# All but those that stand alone, within data.
_MARKER = re.compile(rb"\xff[\x02-\xcf\xd8-\xfe]")


def _too_many_pieces(place: str) -> InvalidRequest:
    return invalid_request("messages", f"{place}: the image has too many small pieces")


def _of_array(source: Any, place: str) -> Any:
    import numpy as np
    import PIL.Image

    if not isinstance(source, np.ndarray):
        raise invalid_request(
            "messages",
            f"{place} must be a PIL image, bytes, a pathlib.Path or an array, got {shown(source)}",
        )
    if source.dtype != np.uint8 or source.ndim != 3 or source.shape[2] != 3 or source.size == 0:
        raise invalid_request(
            "messages",
            f"{place}: an array must be uint8 of shape [height, width, 3], got {source.dtype} of "
            f"shape {list(source.shape)}",
        )
    _check_size(source.shape[1], source.shape[0], place)
    return PIL.Image.fromarray(source)


def _file_bytes(path: Path, place: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_IMAGE_BYTES + 1)
    except OSError as error:
        raise invalid_request("messages", f"{place}: {error}") from None


def check_bytes(size: int, place: str) -> None:
    """Raises InvalidRequest for an image that has too many bytes."""
    if size > MAX_IMAGE_BYTES:
        raise invalid_request(
            "messages", f"{place}: an image may have {MAX_IMAGE_BYTES} bytes, got {size}"
        )


def _check_size(width: int, height: int, place: str) -> None:
    if max(width, height) > MAX_ASPECT_RATIO * min(width, height):
        raise invalid_request(
            "messages",
            f"{place}: an edge of an image may be {MAX_ASPECT_RATIO} times as long as the other, "
            f"got {width} x {height}",
        )
    if width * height > MAX_IMAGE_PIXELS:
        raise _too_many_pixels(place, f"{width} x {height}")


def _too_many_pixels(place: str, size: str) -> InvalidRequest:
    return invalid_request(
        "messages", f"{place}: an image may have {MAX_IMAGE_PIXELS} pixels, got {size}"
    )
