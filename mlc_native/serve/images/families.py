"""The models whose images the engine reads: one table.

A family belongs here if its language model reads the rows of an image as it reads tokens: each
row sees what precedes it, or, where the engine knows that of the model (Gemma 3), all rows of its
image. Their positions may be three numbers each. The texts of all other models
with images are served, and their images are refused. A family is added with a row here and a tiny
model in tests/python/models/image_folders.py, which is compared with transformers.
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
        several_differ: an image of several is read in another way than one alone.
        grid: the rows of an image have positions of a time, a height and a width (M-RoPE).
        whole: transformers finds the weights of the tower only along with the head.
    """

    processor: str
    several_differ: bool = False
    grid: bool = False
    whole: bool = False


# By the model_type of config.json.
FAMILIES: Mapping[str, ImageFamily] = {
    "aya_vision": ImageFamily("AyaVisionProcessor"),
    "deepseek_vl": ImageFamily("DeepseekVLProcessor"),
    "deepseek_vl_hybrid": ImageFamily("DeepseekVLHybridProcessor"),
    "exaone4_5": ImageFamily("Exaone4_5_Processor"),
    "gemma3": ImageFamily("Gemma3Processor"),
    "got_ocr2": ImageFamily("GotOcr2Processor"),
    "hyperclovax_vision_v2": ImageFamily("HyperCLOVAXVisionV2Processor"),
    "idefics3": ImageFamily("Idefics3Processor"),
    "internvl": ImageFamily("InternVLProcessor"),
    "janus": ImageFamily("JanusProcessor"),
    "lighton_ocr": ImageFamily("LightOnOcrProcessor", whole=True),
    "llava": ImageFamily("LlavaProcessor"),
    "llava_next": ImageFamily("LlavaNextProcessor"),
    "llava_next_video": ImageFamily("LlavaNextVideoProcessor"),
    "llava_onevision": ImageFamily("LlavaOnevisionProcessor", several_differ=True),
    "mistral3": ImageFamily("PixtralProcessor"),
    "qianfan_ocr": ImageFamily("QianfanOCRProcessor"),
    "smolvlm": ImageFamily("SmolVLMProcessor"),
    "video_llama_3": ImageFamily("VideoLlama3Processor"),
    "glm46v": ImageFamily("Glm46VProcessor", grid=True),
    "glm4v": ImageFamily("Glm4vProcessor", grid=True),
    "glm4v_moe": ImageFamily("Glm4vProcessor", grid=True),
    "paddleocr_vl": ImageFamily("PaddleOCRVLProcessor", grid=True),
    "qwen2_5_vl": ImageFamily("Qwen2_5_VLProcessor", grid=True, whole=True),
    "qwen2_vl": ImageFamily("Qwen2VLProcessor", grid=True, whole=True),
    "qwen3_5": ImageFamily("Qwen3VLProcessor", grid=True),
    "qwen3_5_moe": ImageFamily("Qwen3VLProcessor", grid=True),
    "qwen3_vl": ImageFamily("Qwen3VLProcessor", grid=True),
    "qwen3_vl_moe": ImageFamily("Qwen3VLProcessor", grid=True),
    "vipllava": ImageFamily("LlavaProcessor"),
}

PIXTRAL = "PixtralProcessor"

# The modules of transformers that have them. A folder cannot name code of another one.
PROCESSORS: Mapping[str, tuple[str, str]] = {
    "AyaVisionProcessor": ("aya_vision", "AyaVisionProcessor"),
    "DeepseekVLProcessor": ("deepseek_vl", "DeepseekVLProcessor"),
    "DeepseekVLHybridProcessor": ("deepseek_vl_hybrid", "DeepseekVLHybridProcessor"),
    "Exaone4_5_Processor": ("exaone4_5", "Exaone4_5_Processor"),
    "Gemma3Processor": ("gemma3", "Gemma3Processor"),
    "GotOcr2Processor": ("got_ocr2", "GotOcr2Processor"),
    "HyperCLOVAXVisionV2Processor": ("hyperclovax_vision_v2", "HyperCLOVAXVisionV2Processor"),
    "Idefics3Processor": ("idefics3", "Idefics3Processor"),
    "InternVLProcessor": ("internvl", "InternVLProcessor"),
    "JanusProcessor": ("janus", "JanusProcessor"),
    "LightOnOcrProcessor": ("lighton_ocr", "LightOnOcrProcessor"),
    "LlavaNextProcessor": ("llava_next", "LlavaNextProcessor"),
    "LlavaNextVideoProcessor": ("llava_next_video", "LlavaNextVideoProcessor"),
    "LlavaOnevisionProcessor": ("llava_onevision", "LlavaOnevisionProcessor"),
    "LlavaProcessor": ("llava", "LlavaProcessor"),
    "PixtralProcessor": ("pixtral", PIXTRAL),
    "QianfanOCRProcessor": ("qianfan_ocr", "QianfanOCRProcessor"),
    # Its own one requires a package for videos; for images, both write the same.
    "SmolVLMProcessor": ("idefics3", "Idefics3Processor"),
    "Glm46VProcessor": ("glm46v", "Glm46VProcessor"),
    "Glm4vProcessor": ("glm4v", "Glm4vProcessor"),
    "PaddleOCRVLProcessor": ("paddleocr_vl", "PaddleOCRVLProcessor"),
    "Qwen2_5_VLProcessor": ("qwen2_5_vl", "Qwen2_5_VLProcessor"),
    "Qwen2VLProcessor": ("qwen2_vl", "Qwen2VLProcessor"),
    "Qwen3VLProcessor": ("qwen3_vl", "Qwen3VLProcessor"),
    "VideoLlama3Processor": ("video_llama_3", "VideoLlama3Processor"),
}


def sees_images(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is of a model with images."""
    return isinstance(config.get("vision_config"), dict)
