"""ImageEncoder: from images of requests to what the language model reads of them.

Owned by the setup of a model; any thread. Images are encoded one at a time, on the thread that
asks, and wait for each other; nothing else waits for them.
"""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Any

from mlc_native.errors import InvalidRequest, LoadError, invalid_request
from mlc_native.serve.images.decoding import decoded_image
from mlc_native.serve.images.families import FAMILIES, sees_images
from mlc_native.serve.images.parts import ImageSource
from mlc_native.serve.images.row_cache import EncodedImage, RowCache
from mlc_native.serve.images.tower import (
    FolderTower,
    Tower,
    TowerError,
    TowerSource,
    check_libraries,
)
from mlc_native.support.json_file import read_optional_json_object

NO_TOKEN = -1  # stands for a row that is of no image


class ImageEncoder:
    """The images of one model.

    Attributes:
        source: where the tower comes from.
        model_type: that of its config.json.
        is_supported: whether the model's images are read at all.
        takes_rows: whether the engine that has the model reads rows in place of tokens, which a
            plug-in may not. It is known when the model is loaded, as is ``max_whole_rows``.
        max_whole_rows: the most rows of an image that a step holds, if it must hold all; or None.
        cache: the rows of recent images.
    """

    def __init__(self, source: TowerSource) -> None:
        self.source = source
        self.model_type = source.model_type
        self.is_supported = source.problem is not None or self.model_type in FAMILIES
        self.takes_rows = True
        self.max_whole_rows: int | None = None
        self.cache = RowCache()
        self._lock = threading.Lock()
        self._tower: Tower | None = None
        self._problem = source.problem

    @classmethod
    def of_folder(cls, folder: Path) -> ImageEncoder | None:
        """The encoder of a model folder; None for a model that sees no images."""
        if not folder.is_dir():
            return None
        try:
            config = read_optional_json_object(folder / "config.json")
        except LoadError:  # the engine says what is wrong with it
            return None
        model_type = config.get("model_type")
        if not sees_images(config) or not isinstance(model_type, str):
            return None
        return cls(FolderTower(folder, model_type))

    def check_supported(self, place: str) -> None:
        """Raises InvalidRequest if an image at this place of a request cannot be read."""
        if not self.is_supported:
            raise invalid_request(
                "messages",
                f"{place}: images of the model type {self.model_type} are not supported; texts "
                f"are. Images are read by models of the types {', '.join(sorted(FAMILIES))}",
            )
        if not self.takes_rows:
            raise invalid_request(
                "messages",
                f"{place}: images are not read by this plug-in, which takes no rows in place of "
                "tokens; texts are",
            )
        if self._problem is not None:
            raise self._refused(self._problem)
        check_libraries()

    @property
    def placeholder(self) -> str:
        """The text of an image in a rendered chat. Loads the tower."""
        return self._loaded().placeholder

    @property
    def image_token_id(self) -> int:
        """The token that stands for a row of an image. Loads the tower."""
        return self._loaded().image_token_id

    @property
    def row_token_id(self) -> int:
        """``image_token_id`` without loading anything: NO_TOKEN before the first image."""
        tower = self._tower
        return NO_TOKEN if tower is None else tower.image_token_id

    def encode(self, source: ImageSource, *, is_alone: bool) -> EncodedImage:
        """The text and the rows of an image, which may be the only one of its request.

        Raises:
            InvalidRequest: the image is wrong, or the folder lacks what images need.
        """
        copies = 2 if not is_alone and FAMILIES[self.model_type].several_differ else 1
        value = source.source
        image = None
        if isinstance(value, (bytes, bytearray)):
            key = _key(f"file {copies}", value)
        else:
            image = decoded_image(value, source.place)
            key = _key(f"{image.size} {copies}", image.tobytes())
        encoded = self.cache.get(key)
        if encoded is not None:
            return encoded
        if image is None:
            image = decoded_image(value, source.place)
        tower = self._loaded()
        with self._lock:
            encoded = self.cache.get(key)  # of another request, meanwhile
            if encoded is None:
                encoded = self._encoded(tower, image, copies, source.place)
                self.cache.put(key, encoded)
        return encoded

    def _encoded(self, tower: Tower, image: Any, copies: int, place: str) -> EncodedImage:
        try:
            return tower.encode(image, copies)
        except TowerError as error:
            raise self._refused(str(error)) from error
        except Exception as error:  # as of an image of 1 x 1 that some processors cannot resize
            raise invalid_request(
                "messages",
                f"{place}: the model's processor refused the image of {image.size[0]} x "
                f"{image.size[1]} pixels: {str(error)[:300]}",
            ) from error

    def _loaded(self) -> Tower:
        with self._lock:
            if self._problem is not None:
                raise self._refused(self._problem)
            if self._tower is None:
                check_libraries()
                try:
                    self._tower = Tower(self.source)
                except TowerError as error:
                    self._problem = str(error)
                    raise self._refused(self._problem) from error
            return self._tower

    def _refused(self, problem: str) -> InvalidRequest:
        return invalid_request(
            "messages", f"the images of this {self.source.name} cannot be read: {problem}"
        )


def _key(kind: str, data: bytes | bytearray) -> bytes:
    digest = hashlib.blake2b(digest_size=32)
    digest.update(kind.encode() + b"\0")
    digest.update(data)
    return digest.digest()
