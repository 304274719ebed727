"""GGUF files of models with images: the text model, and the tower as llama.cpp's converter has it.

Names and keys are those of the package ``gguf``, which is llama.cpp's. Where old converters wrote
others, as that for LLaVA 1.5 does, the names are here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import transformers
from gguf import GGMLQuantizationType as Type
from gguf_families import permute
from gguf_files import Metadata, write_gguf
from quantized_checkpoints import WEIGHTS, Tensors, load_file, save_file

# Of GGUF files, by the model_type of the text model.
TEXTS = {
    "gemma3_text": "Gemma3ForCausalLM",
    "llama": "LlamaForCausalLM",
    "ministral3": "Ministral3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen2_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
    "qwen3_vl_moe": "Qwen3VLMoeForConditionalGeneration",
}
# The names of their files, if they have positions of three numbers.
ARCHITECTURES = {
    "qwen2_5_vl": "qwen2vl", "qwen2_vl": "qwen2vl", "qwen3_5_text": "qwen35",
    "qwen3_5_moe_text": "qwen35moe",
    "qwen3_vl": "qwen3vl", "qwen3_vl_moe": "qwen3vlmoe",
}  # fmt: skip
QWEN3 = ("qwen3_5", "qwen3_5_moe", "qwen3_vl", "qwen3_vl_moe")
PROJECTORS = {
    "gemma3": "gemma3",
    "idefics3": "idefics3",
    "internvl": "internvl",
    "llava": "mlp",
    "llava-pixtral": "pixtral",
    "mistral3": "pixtral",
    "qwen2_5_vl": "qwen2.5vl_merger",
    "qwen2_vl": "qwen2vl_merger",
    **dict.fromkeys(QWEN3, "qwen3vl_merger"),
    "smolvlm": "idefics3",
}
_TEXT_PARTS = ("model.language_model.", "model.text_model.")


def write_text_gguf(
    folder: Path,
    path: Path,
    *,
    template: str | None = None,
    renamed: Mapping[str, str] | None = None,
    metadata: Metadata | None = None,
) -> Path:
    """Writes the text model of a folder, in float32.

    ``template``: that of its chats, if it is another one. ``renamed``: tokens with other names.
    ``metadata`` takes the place of keys of the positions and rows of images.
    """
    config = json.loads((folder / "config.json").read_text())
    inner = config["text_config"]
    kind = inner["model_type"].removesuffix("_text") if "vl" in inner["model_type"] else (
        inner["model_type"])  # fmt: skip
    text = path.parent / f"{path.stem}-text"
    text.mkdir()
    tied = config.get("tie_word_embeddings", inner.get("tie_word_embeddings"))
    plain = inner | {"architectures": [TEXTS[kind]], "tie_word_embeddings": tied}
    (text / "config.json").write_text(json.dumps(plain))
    tensors: Tensors = {}
    for name, tensor in load_file(folder / WEIGHTS).items():
        part = next((part for part in _TEXT_PARTS if name.startswith(part)), None)
        if part is not None:
            tensors["model." + name.removeprefix(part)] = tensor
        elif name.startswith("lm_head."):
            tensors[name] = tensor
    save_file(tensors, text / WEIGHTS)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["QQ"] = inner["vocab_size"] - 1
    tokenizer["model"]["merges"] = [["Q", "Q"]]  # of which no GGUF file has none
    for token in tokenizer["added_tokens"]:
        token["content"] = (renamed or {}).get(token["content"], token["content"])
    (text / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    if template is not None:
        settings["chat_template"] = template
    (text / "tokenizer_config.json").write_text(json.dumps(settings))
    about_images: Metadata = {}
    sections = (inner.get("rope_parameters") or {}).get("mrope_section")
    if kind in ARCHITECTURES:
        assert sections
        about_images[f"{ARCHITECTURES[kind]}.rope.dimension_sections"] = [*sections, 0]
    if kind.startswith("qwen3_vl"):
        layers = config["vision_config"]["deepstack_visual_indexes"]
        about_images[f"{ARCHITECTURES[kind]}.n_deepstack_layers"] = len(layers)
    return write_gguf(text, path, lambda _: Type.F32, pre="gpt-2",
                      metadata=about_images | (metadata or {}))  # fmt: skip


def write_mmproj(
    folder: Path,
    name: str,
    path: Path,
    kind: Type = Type.F32,
    *,
    swapped: bool = False,
    keys: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray | None] | None = None,
) -> Path:
    """Writes the tower of a folder.

    ``kind`` is that of matrices. ``swapped``: as old converters, which gave the matrices of
    feed-forward blocks the names of each other. ``keys`` and ``tensors`` take the place of those
    with their names; None: leave it out.
    """
    config = json.loads((folder / "config.json").read_text())
    vision = config["vision_config"]
    projector = PROJECTORS[name]
    writer = _Writer(path, keys or {})
    writer.add_clip_projector_type(projector)
    _add_sizes(writer, folder, config, name)
    layers = vision.get("depth", vision.get("num_hidden_layers"))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, layers + 1)
    made = dict(_tensors(folder, config, name, names))
    if swapped:
        exchanged = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
        made = {
            re.sub("ffn_(up|down)", lambda found: exchanged[found[0]], own): tensor
            for own, tensor in made.items()
        }
    changed = {**made, **(tensors or {})}
    for own, tensor in changed.items():
        if tensor is None:
            continue
        is_matrix = tensor.ndim > 1 and "embd" not in own
        fits = tensor.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] == 0
        type_of = kind if is_matrix and fits else Type.F16 if kind == Type.F16 and (
            tensor.ndim == 4) else Type.F32  # fmt: skip
        if type_of == Type.F32:
            writer.add_tensor(own, tensor.astype(np.float32))
        else:
            writer.add_tensor(own, gguf.quants.quantize(tensor, type_of), raw_dtype=type_of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class _Writer(gguf.GGUFWriter):
    """A writer with other values for some keys."""

    def __init__(self, path: Path, changed: dict[str, Any]) -> None:
        self._changed = changed
        super().__init__(path, "clip")
        for key, value in changed.items():
            if value is not None:
                self._add_changed(key, value)

    def add_key_value(self, key: str, val: Any, vtype: Any, *args: Any, **options: Any) -> None:
        if key not in self._changed:
            super().add_key_value(key, val, vtype, *args, **options)

    def _add_changed(self, key: str, value: Any) -> None:
        kind = gguf.GGUFValueType.get_type(value)
        if kind == gguf.GGUFValueType.INT32 and value >= 0:
            kind = gguf.GGUFValueType.UINT32
        of_parts = gguf.GGUFValueType.get_type(value[0]) if isinstance(value, list) else None
        super().add_key_value(key, value, kind, of_parts)


def _add_sizes(writer: _Writer, folder: Path, config: dict[str, Any], name: str) -> None:
    images = json.loads((folder / "preprocessor_config.json").read_text())
    vision = config["vision_config"]
    patch = _edge(vision["patch_size"])
    size = _edge(vision.get("image_size", 0)) or 560
    if "num_position_embeddings" in vision:
        size = int(vision["num_position_embeddings"] ** 0.5) * patch
    writer.add_clip_has_vision_encoder(True)
    writer.add_vision_projection_dim(config["text_config"]["hidden_size"])
    writer.add_vision_image_size(size)
    writer.add_vision_patch_size(patch)
    is_qwen2 = name == "qwen2_vl"
    hidden = vision["embed_dim"] if is_qwen2 else vision["hidden_size"]
    writer.add_vision_embedding_length(hidden)
    writer.add_vision_feed_forward_length(
        4 * hidden if is_qwen2 else vision.get("intermediate_size"))  # fmt: skip
    layers = vision.get("depth", vision.get("num_hidden_layers"))
    writer.add_vision_block_count(layers - 1 if name == "llava" else layers)
    writer.add_vision_head_count(vision.get("num_heads", vision.get("num_attention_heads")))
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    writer.add_vision_image_mean([float(number) for number in processor.image_mean])
    writer.add_vision_image_std([float(number) for number in processor.image_std])
    defaults = {"idefics3": 1e-6, "smolvlm": 1e-6, "llava": 1e-5}
    eps = vision.get("layer_norm_eps", defaults.get(name, 1e-6))
    if name in ("mistral3", "llava-pixtral"):
        eps = 1e-5
    writer.add_vision_attention_layernorm_eps(eps)
    if name in ("gemma3", "idefics3", "smolvlm", "internvl", *QWEN3):
        writer.add_vision_use_gelu(True)
    elif name == "llava":
        writer.add_bool("clip.use_gelu", False)
    elif name == "qwen2_5_vl" or vision.get("hidden_act") == "silu":
        writer.add_vision_use_silu(True)
    elif vision.get("hidden_act") == "gelu" or name in ("mistral3", "llava-pixtral"):
        writer.add_vision_use_gelu(True)
    if name == "gemma3":
        side = int(config["mm_tokens_per_image"] ** 0.5)
        writer.add_vision_projector_scale_factor(size // patch // side)
    if name in ("idefics3", "smolvlm"):
        writer.add_vision_projector_scale_factor(config["scale_factor"])
        writer.add_vision_preproc_image_size(images["size"]["longest_edge"])
    if name == "internvl":
        writer.add_vision_projector_scale_factor(int(1 / config.get("downsample_ratio", 0.5)))
        writer.add_vision_preproc_min_tiles(images["min_patches"])
        writer.add_vision_preproc_max_tiles(images["max_patches"])
    if name == "mistral3":
        writer.add_vision_spatial_merge_size(config["spatial_merge_size"])
    if name == "qwen2_5_vl":
        writer.add_vision_n_wa_pattern(vision["fullatt_block_indexes"][0] + 1)
    if "qwen" in name:  # which converters leave to the defaults of their models
        writer.add_vision_min_pixels(images["size"]["shortest_edge"])
        writer.add_vision_max_pixels(images["size"]["longest_edge"])
    if name in QWEN3:
        writer.add_vision_spatial_merge_size(vision.get("spatial_merge_size", 2))
        added = vision.get("deepstack_visual_indexes", [])
        writer.add_vision_is_deepstack_layers([i in added for i in range(layers)])


def _edge(size: Any) -> int:
    return size[0] if isinstance(size, list) else size


def _tensors(
    folder: Path, config: dict[str, Any], name: str, names: gguf.TensorNameMap
) -> Iterator[tuple[str, np.ndarray]]:
    """The tensors of a file."""
    vision = config["vision_config"]
    heads = vision.get("num_heads", vision.get("num_attention_heads"))
    for theirs, tensor in load_file(folder / WEIGHTS).items():
        if theirs.startswith(_TEXT_PARTS) or theirs.startswith("lm_head."):
            continue
        hub = _hub_name(theirs, name)
        if ".head." in hub or (name == "llava" and _is_behind(hub, vision)):
            continue
        if hub.endswith("patch_embed.proj.weight"):
            for frame, ending in enumerate(("", ".1")):
                yield f"v.patch_embd.weight{ending}", tensor[:, :, frame]
            continue
        if ".qkv." in hub and name not in QWEN3:
            for part, piece in zip("qkv", np.split(tensor, 3), strict=True):
                yield _own_name(names, hub.replace("qkv", part)), piece
            continue
        if hub.endswith("soft_emb_norm.weight"):
            tensor = tensor + np.float32(1)
        if "pixtral" in PROJECTORS[name] and re.search(r"[qk]_proj\.", hub):
            tensor = permute(tensor, heads)
        if merger := re.match(r"visual\.merger\.(.*)", hub) if name in QWEN3 else None:
            yield _qwen3_name(merger[1]), tensor
            continue
        if added := re.match(r"visual\.deepstack_merger_list\.(\d+)\.(.*)", hub):
            layer = vision["deepstack_visual_indexes"][int(added[1])]
            yield f"v.deepstack.{layer}.{added[2].replace('linear_', '')}", tensor
            continue
        own = _own_name(names, hub)
        if name == "llava":  # whose converter has names of its own for the projector
            own = {"mm.1": "mm.0"}.get(own[:4], own[:4]) + own[4:]
        yield own, tensor
    if name in ("mistral3", "llava-pixtral"):
        yield "v.token_embd.img_break", np.zeros(config["text_config"]["hidden_size"], np.float32)


def _hub_name(theirs: str, name: str) -> str:
    """The name that the converter meets: that of the folders on the hub."""
    hub = theirs.removeprefix("model.")
    if name in ("idefics3", "smolvlm"):
        return theirs
    if name == "internvl":
        projector = {"layer_norm": "mlp1.0", "linear_1": "mlp1.1", "linear_2": "mlp1.3"}
        if hub.startswith("multi_modal_projector."):
            _, part, ending = hub.split(".")
            return f"{projector[part]}.{ending}"
        has_ending = hub.endswith((".weight", ".bias")) or hub.endswith("cls_token")
        return theirs if has_ending else theirs + ".weight"
    if name in ("gemma3", "llava"):
        hub = hub.replace("vision_tower.", "vision_tower.vision_model.")
        return hub.replace("_projection_weight", "_projection.weight")
    return hub


def _own_name(names: gguf.TensorNameMap, hub: str) -> str:
    own = names.get_name(hub, (".weight", ".bias"))
    assert own is not None, hub
    return own


def _is_behind(hub: str, vision: dict[str, Any]) -> bool:
    """Of what the converter for LLaVA leaves out: behind the layer that is read."""
    last = f".layers.{vision['num_hidden_layers'] - 1}."
    return last in hub or "post_layernorm" in hub


def _qwen3_name(part: str) -> str:
    module, ending = part.split(".")
    return {"linear_fc1": "mm.0", "linear_fc2": "mm.2", "norm": "v.post_ln"}[module] + "." + ending
