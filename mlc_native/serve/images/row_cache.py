"""RowCache: the rows of recent images, because each turn of a chat sends all its images again.

The least recently used ones go when there are too many bytes. Any thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from mlc_native.serve.images.limits import CACHE_BYTES


@dataclass(frozen=True)
class EncodedImage:
    """What the language model reads of an image.

    Attributes:
        text: the text that stands for the image in a prompt; each of its image tokens is a row.
        rows: float32 [n, hidden_size], read-only.
        grid: height and width of the rows, if their positions depend on it.
    """

    text: str
    rows: Any
    grid: tuple[int, int] | None = None

    @property
    def num_bytes(self) -> int:
        """What it takes in memory."""
        return int(self.rows.nbytes) + len(self.text)


class RowCache:
    """Images by their keys."""

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._images: OrderedDict[bytes, EncodedImage] = OrderedDict()
        self._num_bytes = 0

    def get(self, key: bytes) -> EncodedImage | None:
        """The image, which becomes the most recent one; None if it is not there."""
        with self._lock:
            image = self._images.get(key)
            if image is not None:
                self._images.move_to_end(key)
            return image

    def put(self, key: bytes, image: EncodedImage) -> None:
        """Keeps an image, unless it is larger than the whole cache."""
        with self._lock:
            old = self._images.pop(key, None)
            self._num_bytes -= old.num_bytes if old is not None else 0
            if image.num_bytes > self._max_bytes:
                return
            self._images[key] = image
            self._num_bytes += image.num_bytes
            while self._num_bytes > self._max_bytes:
                self._num_bytes -= self._images.popitem(last=False)[1].num_bytes

    @property
    def num_bytes(self) -> int:
        """What the images in it take."""
        with self._lock:
            return self._num_bytes

    def __len__(self) -> int:
        with self._lock:
            return len(self._images)
