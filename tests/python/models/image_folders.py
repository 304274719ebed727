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
from make_random_checkpoint import SPECIAL_TOKENS, byte_tokenizer, make_checkpoint

STD = 0.15  # of the tiny shapes
FIRST_ID = 256 + len(SPECIAL_TOKENS)

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['content'] is string %}"
    "{{ m['content'] }}{% else %}{% for p in m['content'] %}{% if p['type'] == 'image' %}"
    "PLACEHOLDER\n{% else %}{{ p['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# As those of many models with images, which show no texts that are not parts.
PARTS_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for p in m['content'] %}"
    "{% if p['type'] == 'image' %}PLACEHOLDER\n{% elif p['type'] == 'text' %}{{ p['text'] }}"
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
_PINPOINTS = [[16, 32], [32, 16], [32, 32]]
_ROWS_AND_COLUMNS = [f"<row_{i}_col_{j}>" for i in range(1, 5) for j in range(1, 5)]

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
