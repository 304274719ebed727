"""PixtralParts: what transformers' PixtralProcessor makes of one image.

That class cannot be imported without torchvision, which nothing of it uses for images.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class PixtralParts:
    """As a processor of transformers, as far as ``Tower`` calls one.

    Args:
        image_processor: transformers' own.
        settings: processor_config.json.
        image_token_id: the token whose rows the model takes from images.
    """

    def __init__(
        self, image_processor: Any, settings: Mapping[str, Any], image_token_id: int
    ) -> None:
        self._image_processor = image_processor
        self._image_token_id = image_token_id
        self._patch_size = int(settings.get("patch_size", 16))
        self._patch_size *= int(settings.get("spatial_merge_size", 1))
        self.image_token = str(settings.get("image_token", "[IMG]"))
        self._break = str(settings.get("image_break_token", "[IMG_BREAK]"))
        self._end = str(settings.get("image_end_token", "[IMG_END]"))

    def __call__(self, images: list[Any], **_: Any) -> dict[str, Any]:
        """The inputs of the tower, and the text of the image."""
        import torch

        inputs = self._image_processor(images, patch_size=self._patch_size, return_tensors="pt")
        height, width = (int(size) // self._patch_size for size in inputs["image_sizes"][0])
        text = self._break.join([self.image_token * width] * height) + self._end
        return {
            **inputs,
            "input_ids": torch.full((1, height * width), self._image_token_id),
            "text_replacement_offsets": [[{"replacement": text}]],
        }
