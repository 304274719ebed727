"""ChatImages: the images of one chat, from its messages to the pieces of its prompt."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from mlc_native.conversation import ChatTemplate
from mlc_native.errors import invalid_request
from mlc_native.protocol.openai_api_protocol import ChatCompletionRequest
from mlc_native.serve.data import Data, EmbeddingData, TokenData
from mlc_native.serve.images.encoder import ImageEncoder
from mlc_native.serve.images.parts import ImageSource, check_number_of_images, image_source
from mlc_native.serve.images.row_cache import EncodedImage
from mlc_native.template_sandbox import PromptText
from mlc_native.template_sandbox.prompt_text import joined, joined_by, split
from mlc_native.tokenizers import Tokenizer


class ChatImages:
    """Owned by a call; one thread at a time.

    The chat template writes a placeholder for each image. It is replaced by the text that the
    model's processor makes of the image, and the tokens of that text which stand for rows become
    the rows. Only what the template wrote itself is taken for a placeholder.
    """

    def __init__(self, encoder: ImageEncoder | None, max_rows: int) -> None:
        """``max_rows`` is the greatest length of a prompt: what is longer is encoded no further."""
        self._encoder = encoder
        self._max_rows = max_rows
        self._sources: list[ImageSource] = []

    def __bool__(self) -> bool:
        """Whether the chat has images."""
        return bool(self._sources)

    @property
    def model_sees(self) -> bool:
        """Whether the model is one with images."""
        return self._encoder is not None

    def add(self, part: Mapping[str, Any], place: str) -> None:
        """Adds the image of a part. Raises InvalidRequest if the part is wrong."""
        assert self._encoder is not None
        self._encoder.check_supported(place)
        self._sources.append(image_source(part, place))
        check_number_of_images(len(self._sources))

    def mark_for(self, template: ChatTemplate) -> str:
        """A text that stands for an image in a text, for a template that shows texts alone.

        It cannot be guessed, so that no text of a request is taken for it. "": the template shows
        images itself, or there are none.
        """
        if not self or self._encoder is None:
            return ""
        source = self._encoder.source
        if source.inserted is None or source.shows(template.shows_images):
            return ""
        return f"image{secrets.token_hex(16)}"

    def without_marks(self, text: str, mark: str) -> str:
        """A prompt with what the model's own template would write in place of each mark."""
        assert self._encoder is not None
        return joined_by(self._encoder.source.inserted or "", split(text, mark))

    def add_special_tokens(self, request: ChatCompletionRequest) -> bool:
        """Whether special tokens are put around the prompt, if the template does not write them.

        Unless the request says it, they are with images: the processors of transformers put them
        there, and its tokenizers leave them out of chats.
        """
        asked = request.add_special_tokens
        return bool(self) if asked is None else asked

    def token_ids(self, text: str, tokenizer: Tokenizer, *, add_special_tokens: bool) -> list[int]:
        """The tokens of a prompt. The image token stands for each row of an image.

        Args:
            text: what the chat template wrote.

        Raises:
            InvalidRequest: an image is wrong, or the texts of the chat have an image token.
        """
        return self._encoded(text, tokenizer, add_special_tokens)[0]

    def pieces(self, text: str, tokenizer: Tokenizer, *, add_special_tokens: bool) -> list[Data]:
        """The tokens of a prompt and, in place of image tokens, the rows of images.

        Raises:
            InvalidRequest: see ``token_ids``.
        """
        token_ids, images = self._encoded(text, tokenizer, add_special_tokens)
        pieces: list[Data] = list(_split(token_ids, self._image_token_id, images))
        self._check_whole(pieces)
        return pieces

    def _check_whole(self, pieces: list[Data]) -> None:
        most = None if self._encoder is None else self._encoder.max_whole_rows
        longest = max((len(each) for each in pieces if isinstance(each, EmbeddingData)), default=0)
        if most is not None and longest > most:
            raise invalid_request(
                "messages",
                f"an image of this model is computed in one step, which must hold its {longest} "
                f'tokens and holds {most}: "prefill_chunk_size" less "max_num_sequence", at most '
                "the window of its attention",
            )

    @property
    def _image_token_id(self) -> int:
        assert self._encoder is not None
        return self._encoder.image_token_id

    def _encoded(
        self, text: str, tokenizer: Tokenizer, add_special_tokens: bool
    ) -> tuple[list[int], list[EncodedImage]]:
        assert self._encoder is not None
        images = self._images(self._encoder)
        expanded = _expanded(text, self._encoder.placeholder, images)
        token_ids = tokenizer.encode(expanded)
        if add_special_tokens:
            token_ids = tokenizer.special_tokens.around(token_ids)
        num_rows = sum(len(image.rows) for image in images)
        found = token_ids.count(self._image_token_id)
        if found != num_rows:
            raise invalid_request(
                "messages",
                f"the prompt has {found} image tokens, and its images have {num_rows} rows: a text "
                f"of the chat has an image token, such as {self._encoder.placeholder!r}",
            )
        return token_ids, images

    def _images(self, encoder: ImageEncoder) -> list[EncodedImage]:
        images: list[EncodedImage] = []
        for source in self._sources:
            images.append(encoder.encode(source, is_alone=len(self._sources) == 1))
            num_rows = sum(len(image.rows) for image in images)
            if num_rows > self._max_rows:
                raise invalid_request(
                    "messages",
                    f"{source.place}: the images up to this one have {num_rows} tokens, and a "
                    f"prompt may have {self._max_rows}",
                    "context_length_exceeded",
                )
        return images


def _expanded(text: str, placeholder: str, images: list[EncodedImage]) -> str:
    """The prompt with the text of each image. What it knows of its origins remains known."""
    places = list(_own_places(text, placeholder))
    if len(places) != len(images):
        raise invalid_request(
            "messages",
            f"the chat template shows {len(places)} of the {len(images)} images of the messages",
        )
    pieces: list[str] = []
    at = 0
    for place, image in zip(places, images, strict=True):
        pieces += (text[at : place.start()], image.text)
        at = place.end()
    return joined([*pieces, text[at:]])


def _own_places(text: str, placeholder: str) -> Iterator[re.Match[str]]:
    """Where the template wrote a placeholder itself."""
    pattern = re.compile(re.escape(placeholder))
    if not isinstance(text, PromptText):
        yield from pattern.finditer(text)
        return
    for begin, end in text.own:
        yield from pattern.finditer(text, begin, end)


def _split(
    token_ids: list[int], image_token_id: int, images: list[EncodedImage]
) -> Iterator[TokenData | EmbeddingData]:
    """The runs of tokens, and for each run of image tokens its rows."""
    rest = iter(images)
    rows: Any = ()  # what the image at hand has left
    for is_rows, run in groupby(token_ids, lambda token_id: token_id == image_token_id):
        if not is_rows:
            yield TokenData(list(run))
            continue
        left = len(list(run))
        while left > 0:  # a run may have the rows of several images
            if len(rows) == 0:
                image = next(rest)
                rows = image.rows
                if image.grid is not None and left >= len(rows):  # all of it is in this run
                    yield EmbeddingData(rows, *_positions(*image.grid))
                    left, rows = left - len(rows), ()
                    continue
            yield EmbeddingData(rows[:left])
            left, rows = max(0, left - len(rows)), rows[left:]


def _positions(height: int, width: int) -> tuple[Any, int]:
    """Times, heights and widths of the rows of an image, and where the text behind it goes on."""
    import numpy as np

    axes = np.meshgrid([0], np.arange(height), np.arange(width), indexing="ij")
    return np.stack([axis.ravel() for axis in axes], axis=1), max(height, width)
