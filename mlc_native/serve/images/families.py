"""The models whose images the engine reads: one table.

A family belongs here if its language model reads the rows of an image as it reads tokens: one
position each, and each row sees what precedes it. The texts of all other models with images are
served, and their images are refused. A family is added with a row here and a tiny model in
tests/python/models/image_folders.py, which compares it with transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ImageFamily:
    """What is known of a family.

    Attributes:
        processor: the processor of transformers, unless the model folder names another one of
            PROCESSORS.
    """

    processor: str


# By the model_type of config.json.
FAMILIES: Mapping[str, ImageFamily] = {
    "aya_vision": ImageFamily("AyaVisionProcessor"),
    "deepseek_vl": ImageFamily("DeepseekVLProcessor"),
    "got_ocr2": ImageFamily("GotOcr2Processor"),
    "idefics3": ImageFamily("Idefics3Processor"),
    "internvl": ImageFamily("InternVLProcessor"),
    "janus": ImageFamily("JanusProcessor"),
    "lighton_ocr": ImageFamily("LightOnOcrProcessor"),
    "llava": ImageFamily("LlavaProcessor"),
    "llava_next": ImageFamily("LlavaNextProcessor"),
    "llava_onevision": ImageFamily("LlavaOnevisionProcessor"),
    "mistral3": ImageFamily("PixtralProcessor"),
    "ovis2": ImageFamily("Ovis2Processor"),
    "smolvlm": ImageFamily("SmolVLMProcessor"),
    "vipllava": ImageFamily("LlavaProcessor"),
}

# Where transformers has each processor. A folder cannot name code of another module.
PROCESSORS: Mapping[str, str] = {
    "AyaVisionProcessor": "aya_vision",
    "DeepseekVLProcessor": "deepseek_vl",
    "GotOcr2Processor": "got_ocr2",
    "Idefics3Processor": "idefics3",
    "InternVLProcessor": "internvl",
    "JanusProcessor": "janus",
    "LightOnOcrProcessor": "lighton_ocr",
    "LlavaNextProcessor": "llava_next",
    "LlavaOnevisionProcessor": "llava_onevision",
    "LlavaProcessor": "llava",
    "Ovis2Processor": "ovis2",
    "PixtralProcessor": "pixtral",
    "SmolVLMProcessor": "smolvlm",
}


def sees_images(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is of a model with images."""
    return isinstance(config.get("vision_config"), dict)
