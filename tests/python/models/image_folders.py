"""Folders of tiny models that see images: weights, tokenizer, chat template and processor."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from dense_shapes import QWEN_VISION
from image_shapes import IMAGE_SHAPES, PIXTRAL
from make_random_checkpoint import SPECIAL_TOKENS, byte_tokenizer, make_checkpoint

STD = 0.15  # of the tiny shapes
FIRST_ID = 256 + len(SPECIAL_TOKENS)

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['content'] is string %}"
    "{{ m['content'] }}{% else %}{% for p in m['content'] %}{% if p['type'] == 'image' %}"
    "PLACEHOLDER{% else %}{{ p['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# As those of many models with images, which show no texts that are not parts.
PARTS_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for p in m['content'] %}"
    "{% if p['type'] == 'image' %}PLACEHOLDER{% elif p['type'] == 'text' %}{{ p['text'] }}"
    "{% endif %}{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass
class Model:
    """How to make the folder of a model.

    Attributes:
        like: the shape of the weights.
        processor: processor_config.json, with the name of its class.
        images: preprocessor_config.json.
        tokens: special tokens beyond those of all tiny models.
        placeholder: what the chat template writes for an image.
        image_token: the token that stands for a row, if it is another one.
        named: names of tokens that the processor asks the tokenizer for.
        config: fields of config.json.
        template: of its chats.
    """

    like: str
    processor: dict[str, Any]
    images: dict[str, Any]
    tokens: list[str]
    placeholder: str
    image_token: str = ""
    named: dict[str, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    template: str = TEMPLATE


_SIZE = {"height": 16, "width": 16}
_CLIP = {
    "image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 16}, "crop_size": _SIZE,
}  # fmt: skip
_TILES = {
    "image_processor_type": "GotOcr2ImageProcessor", "size": _SIZE, "crop_to_patches": True,
    "min_patches": 1, "max_patches": 4,
}  # fmt: skip
_QWEN = {"patch_size": 4, "merge_size": 2, "size": {"shortest_edge": 64, "longest_edge": 1024}}
_GEMMA3 = {
    "image_processor_type": "Gemma3ImageProcessor", "size": {"height": 32, "width": 32},
    "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
}  # fmt: skip
_PINPOINTS = [[16, 32], [32, 16], [32, 32]]
_ROWS_AND_COLUMNS = [f"<row_{i}_col_{j}>" for i in range(1, 5) for j in range(1, 5)]

# The token of an image, of a video, and what stands around an image.
_QWEN_TOKENS = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
_GLM_TOKENS = ("<|image|>", "<|video|>", "<|begin_of_image|>", "<|end_of_image|>")


def _of_grid(
    like: str, processor: str, image_processor: str, image: str, video: str, begin: str, end: str
) -> Model:
    """A model whose rows have positions of three numbers."""
    return Model(
        like,
        {"processor_class": processor},
        {"image_processor_type": image_processor, **_QWEN},
        [image, video, begin, end],
        f"{begin}{image}{end}",
        named={"image_token": image, "video_token": video},
        image_token=image,
    )


MODELS = {
    "llava": Model(
        "image-llava-mistral",
        {"processor_class": "LlavaProcessor", "patch_size": 4, "num_additional_image_tokens": 1,
         "vision_feature_select_strategy": "default"},
        _CLIP,
        ["<image>"],
        "<image>",
        template=PARTS_TEMPLATE,
    ),
    "llava_next": Model(
        "image-llava_next-granite",
        {"processor_class": "LlavaNextProcessor", "patch_size": 4,
         "vision_feature_select_strategy": "full"},
        {"image_processor_type": "LlavaNextImageProcessor", "size": {"shortest_edge": 16},
         "crop_size": _SIZE, "image_grid_pinpoints": _PINPOINTS},
        ["<image>"],
        "<image>",
        config={"image_grid_pinpoints": _PINPOINTS, "vision_feature_select_strategy": "full"},
    ),
    "internvl": Model(
        "image-internvl",
        {"processor_class": "InternVLProcessor", "image_seq_length": 4},
        _TILES,
        ["<img>", "</img>", "<IMG_CONTEXT>", "<video>"],
        "<IMG_CONTEXT>",
        named={"start_image_token": "<img>", "end_image_token": "</img>",
               "context_image_token": "<IMG_CONTEXT>", "video_token": "<video>"},
    ),
    "idefics3": Model(
        "image-idefics3",
        {"processor_class": "Idefics3Processor", "image_seq_len": 4},
        {"image_processor_type": "Idefics3ImageProcessor", "size": {"longest_edge": 32},
         "max_image_size": {"longest_edge": 16}},
        ["<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>",
         *_ROWS_AND_COLUMNS],
        "<image>",
        config={"scale_factor": 2},
    ),
    "smolvlm": Model(
        "image-smolvlm",
        {"processor_class": "SmolVLMProcessor", "image_seq_len": 4},
        {"image_processor_type": "SmolVLMImageProcessor", "size": {"longest_edge": 32},
         "max_image_size": {"longest_edge": 16}},
        ["<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>",
         *_ROWS_AND_COLUMNS],
        "<image>",
        config={"scale_factor": 2},
    ),
    "vipllava": Model(
        "image-vipllava",
        {"processor_class": "LlavaProcessor", "patch_size": 4, "num_additional_image_tokens": 1,
         "vision_feature_select_strategy": "default"},
        _CLIP,
        ["<image>"],
        "<image>",
        config={"vision_feature_layers": [-2, -5, -8, 6]},
    ),
    "llava_onevision": Model(
        "image-llava_onevision",
        {"processor_class": "LlavaOnevisionProcessor", "num_image_tokens": 16,
         "vision_feature_select_strategy": "full"},
        {"image_processor_type": "LlavaOnevisionImageProcessor", "size": _SIZE,
         "image_grid_pinpoints": _PINPOINTS},
        ["<image>", "<video>"],
        "<image>",
        config={"image_grid_pinpoints": _PINPOINTS, "vision_feature_select_strategy": "full",
                "video_token_id": FIRST_ID + 1},
    ),
    "llava_next_video": Model(
        "image-llava_next_video",
        {"processor_class": "LlavaNextVideoProcessor", "patch_size": 4,
         "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1},
        {"image_processor_type": "LlavaNextImageProcessor", "size": {"shortest_edge": 16},
         "crop_size": _SIZE, "image_grid_pinpoints": _PINPOINTS},
        ["<image>", "<video>"],
        "<image>",
        config={"image_grid_pinpoints": _PINPOINTS, "video_token_id": FIRST_ID + 1},
    ),
    "aya_vision": Model(
        "image-aya_vision-cohere",
        {"processor_class": "AyaVisionProcessor", "patch_size": 4, "img_size": 16,
         "downsample_factor": 2},
        _TILES,
        ["<image>", "<|IMG_PATCH|>", "<|START_OF_IMG|>", "<|END_OF_IMG|>"],
        "<image>",
        image_token="<|IMG_PATCH|>",
        config={"downsample_factor": 2},
    ),
    "deepseek_vl": Model(
        "image-deepseek_vl",
        {"processor_class": "DeepseekVLProcessor", "num_image_tokens": 16},
        {"image_processor_type": "DeepseekVLImageProcessor", "size": _SIZE, "min_size": 4},
        ["<image_placeholder>"],
        "<image_placeholder>",
        named={"image_token": "<image_placeholder>"},
    ),
    "deepseek_vl_hybrid": Model(
        "image-deepseek_vl_hybrid",
        {"processor_class": "DeepseekVLHybridProcessor", "num_image_tokens": 16},
        {"image_processor_type": "DeepseekVLHybridImageProcessor", "size": _SIZE, "min_size": 4,
         "high_res_size": {"height": 16, "width": 16}},
        ["<image_placeholder>"],
        "<image_placeholder>",
        named={"image_token": "<image_placeholder>"},
    ),
    "janus": Model(
        "image-janus",
        {"processor_class": "JanusProcessor", "num_image_tokens": 16},
        {"image_processor_type": "JanusImageProcessor", "size": _SIZE, "min_size": 4},
        ["<image_placeholder>", "<begin_of_image>", "<end_of_image>"],
        "<image_placeholder>",
        named={"image_token": "<image_placeholder>", "boi_token": "<begin_of_image>",
               "eoi_token": "<end_of_image>"},
    ),
    "lighton_ocr": Model(
        "image-lighton_ocr",
        {"processor_class": "LightOnOcrProcessor", "patch_size": 4, "spatial_merge_size": 2},
        {"image_processor_type": "PixtralImageProcessor", "size": {"longest_edge": 32},
         "patch_size": 8},
        ["<|image_pad|>", "<|vision_pad|>", "<|vision_end|>"],
        "<|image_pad|>",
        named={"image_token": "<|image_pad|>", "image_break_token": "<|vision_pad|>",
               "image_end_token": "<|vision_end|>"},
        config={"spatial_merge_size": 2},
    ),
    "qianfan_ocr": Model(
        "image-qianfan_ocr",
        {"processor_class": "QianfanOCRProcessor", "image_seq_length": 4},
        _TILES,
        ["<img>", "</img>", "<IMG_CONTEXT>", "<image>"],
        "<image>",
        image_token="<IMG_CONTEXT>",
        named={"start_image_token": "<img>", "end_image_token": "</img>",
               "context_image_token": "<IMG_CONTEXT>"},
    ),
    "mistral3": Model(
        "tiny-mistral3",
        {"processor_class": "PixtralProcessor", "patch_size": 4, "spatial_merge_size": 2},
        {"image_processor_type": "PixtralImageProcessor", "size": {"longest_edge": 32},
         "patch_size": 4},
        ["[IMG]", "[IMG_BREAK]", "[IMG_END]"],
        "[IMG]",
        config={"spatial_merge_size": 2},
    ),
    "llava-pixtral": Model(
        "image-llava-mistral",
        {"processor_class": "PixtralProcessor", "patch_size": 4},
        {"image_processor_type": "PixtralImageProcessor", "size": {"longest_edge": 24},
         "patch_size": 4},
        ["[IMG]", "[IMG_BREAK]", "[IMG_END]"],
        "[IMG]",
        config={"vision_config": PIXTRAL, "vision_feature_layer": -1,
                "vision_feature_select_strategy": "full"},
    ),
    "gemma3": Model(
        "image-gemma3",
        {"processor_class": "Gemma3Processor", "image_seq_length": 16},
        _GEMMA3,
        ["<start_of_image>", "<end_of_image>", "<image_soft_token>"],
        "<start_of_image>",
        image_token="<image_soft_token>",
        named={"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>",
               "image_token": "<image_soft_token>"},
    ),
    "gemma3-crops": Model(  # "pan and scan": parts of an image behind the whole of it
        "image-gemma3",
        {"processor_class": "Gemma3Processor", "image_seq_length": 16},
        {**_GEMMA3, "do_pan_and_scan": True, "pan_and_scan_min_crop_size": 8,
         "pan_and_scan_max_num_crops": 4, "pan_and_scan_min_ratio_to_activate": 1.2},
        ["<start_of_image>", "<end_of_image>", "<image_soft_token>"],
        "<start_of_image>",
        image_token="<image_soft_token>",
        named={"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>",
               "image_token": "<image_soft_token>"},
    ),
    "exaone4_5": Model(
        "image-exaone4_5",
        {"processor_class": "Exaone4_5_Processor"},
        {"image_processor_type": "Qwen2VLImageProcessor", **_QWEN},
        ["<|image_pad|>", "<|video_pad|>"],
        "<|image_pad|>",
        named={"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"},
    ),
    "hyperclovax_vision_v2": Model(
        "image-hyperclovax_vision_v2",
        {"processor_class": "HyperCLOVAXVisionV2Processor"},
        {"image_processor_type": "Qwen2VLImageProcessor", **_QWEN},
        ["<|IMAGE_PAD|>", "<|VIDEO_PAD|>"],
        "<|IMAGE_PAD|>",
        named={"image_token": "<|IMAGE_PAD|>", "video_token": "<|VIDEO_PAD|>"},
    ),
    "video_llama_3": Model(
        "image-video_llama_3",
        {"processor_class": "VideoLlama3Processor"},
        {"image_processor_type": "VideoLlama3ImageProcessor", "patch_size": 4, "merge_size": 1,
         "size": {"shortest_edge": 64, "longest_edge": 1024}},
        ["<|image_pad|>", "<|video_pad|>"],
        "<|image_pad|>",
        named={"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"},
    ),
    "qwen2_vl": Model(
        "tiny-qwen2_vl",
        {"processor_class": "Qwen2VLProcessor"},
        {"image_processor_type": "Qwen2VLImageProcessor", **_QWEN},
        ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"],
        "<|vision_start|><|image_pad|><|vision_end|>",
        named={"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"},
        image_token="<|image_pad|>",
        config={"vision_config": {**QWEN_VISION, "embed_dim": 32, "hidden_size": 64}},
    ),
    "qwen2_5_vl": _of_grid(
        "tiny-qwen2_5_vl", "Qwen2_5_VLProcessor", "Qwen2VLImageProcessor", *_QWEN_TOKENS
    ),
    "qwen3_5": _of_grid("tiny-qwen3_5", "Qwen3VLProcessor", "Qwen2VLImageProcessor", *_QWEN_TOKENS),
    "qwen3_5_moe": _of_grid(
        "tiny-qwen3_5_moe", "Qwen3VLProcessor", "Qwen2VLImageProcessor", *_QWEN_TOKENS
    ),
    "qwen3_vl": _of_grid(
        "tiny-qwen3_vl", "Qwen3VLProcessor", "Qwen2VLImageProcessor", *_QWEN_TOKENS
    ),
    "qwen3_vl_moe": _of_grid(
        "tiny-qwen3_vl_moe", "Qwen3VLProcessor", "Qwen2VLImageProcessor", *_QWEN_TOKENS
    ),
    "glm4v": _of_grid("tiny-glm4v", "Glm4vProcessor", "Glm4vImageProcessor", *_GLM_TOKENS),
    "glm46v": _of_grid("tiny-glm46v", "Glm46VProcessor", "Glm46VImageProcessor", *_GLM_TOKENS),
    "glm4v_moe": _of_grid("tiny-glm4v_moe", "Glm4vProcessor", "Glm4vImageProcessor", *_GLM_TOKENS),
    "paddleocr_vl": Model(
        "tiny-paddleocr_vl",
        {"processor_class": "PaddleOCRVLProcessor"},
        {"image_processor_type": "PaddleOCRVLImageProcessor", **_QWEN},
        ["<|IMAGE_PLACEHOLDER|>", "<|video_pad|>", "<|IMAGE_START|>", "<|IMAGE_END|>"],
        "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>",
        named={"image_token": "<|IMAGE_PLACEHOLDER|>", "video_token": "<|video_pad|>"},
        image_token="<|IMAGE_PLACEHOLDER|>",
    ),
    "got_ocr2": Model(
        "image-got_ocr2",
        {"processor_class": "GotOcr2Processor"},
        {"image_processor_type": "GotOcr2ImageProcessor", "size": {"height": 256, "width": 256}},
        ["<imgpad>", "<img>", "</img>"],
        "<imgpad>",
        config={"vision_config": {**IMAGE_SHAPES["image-got_ocr2"]["vision_config"],
                                  "image_size": 256}},
    ),
}  # fmt: skip


def make_image_model(name: str, out: Path, **config: Any) -> Path:
    """Writes the folder of a model, whose config.json may have further fields."""
    model = MODELS[name]
    image_token = model.image_token or model.placeholder
    ids = {"image_token_id": FIRST_ID + model.tokens.index(image_token)}
    make_checkpoint(model.like, out, std=STD, overrides={**ids, **model.config, **config})
    core = byte_tokenizer().backend_tokenizer
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in model.tokens])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<|bos|>", eos_token="<|eos|>", pad_token="<|pad|>",
        extra_special_tokens=model.named,
    )  # fmt: skip
    tokenizer.chat_template = model.template.replace("PLACEHOLDER", model.placeholder)
    tokenizer.save_pretrained(out, save_jinja_files=False)
    (out / "preprocessor_config.json").write_text(json.dumps(model.images))
    (out / "processor_config.json").write_text(json.dumps(model.processor))
    return out


def picture(seed: int, width: int, height: int) -> PIL.Image.Image:
    """An image of random colours, in squares that survive a change of its size."""
    colours = np.random.default_rng(seed).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    return PIL.Image.fromarray(colours).resize((width, height), PIL.Image.Resampling.NEAREST)
