"""Towers of CLIP and SigLIP: Gemma 3, Idefics 3 with SmolVLM, and LLaVA."""

from __future__ import annotations

from typing import Any

from mlc_native.serve.images.mmproj.file import MmprojFile
from mlc_native.serve.images.mmproj.keys import Keys
from mlc_native.serve.images.mmproj.plan import (
    Sizes,
    TextModel,
    TowerPlan,
    check_text_size,
    ffn_names,
)
from mlc_native.serve.images.mmproj.weights import Weight, linear, minus_one, norm, vector

_MOST_TILES = 16  # of an image, along an edge
MOST_FACTOR = 16  # by which the patches along an edge are merged


def gemma3_plan(keys: Keys, text: TextModel) -> TowerPlan:
    """Of files of the type "gemma3"."""
    check_text_size(keys.file, "mm.input_projection.weight", 1, text)
    sizes = Sizes.of_file(keys, text)
    factor = keys.integer("projector.scale_factor", 1, MOST_FACTOR, 4)
    side = sizes.side // factor
    if side * factor != sizes.side:
        keys.file.fail(
            "clip.vision.projector.scale_factor",
            f"= {factor} must divide the {sizes.side} patches along an edge of an image",
        )
    vision = vision_config(keys, sizes) | {"model_type": "siglip_vision_model"}
    vision |= {"vision_use_head": False, "hidden_act": keys.activation(
        "gelu_pytorch_tanh", "gelu_pytorch_tanh", None)}  # fmt: skip
    projector = "multi_modal_projector"
    return TowerPlan(
        "gemma3",
        {"vision_config": vision, "mm_tokens_per_image": side * side,
         "text_config": {"model_type": "gemma3_text"}},
        "Gemma3ImageProcessor",
        colours(keys) | {"size": square(sizes.image)},
        "<image_soft_token>",
        "<start_of_image>",
        "<start_of_image>",
        [
            *siglip("vision_tower", keys.file, sizes),
            *vector(f"{projector}.mm_input_projection_weight", "mm.input_projection.weight",
                    sizes.hidden, sizes.text),
            *vector(f"{projector}.mm_soft_emb_norm.weight", "mm.soft_emb_norm.weight",
                    sizes.hidden, make=minus_one),
        ],
        processor={"image_seq_length": side * side},
        tokens={"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"},
        # The vocabulary of a file may end in front of its image token.
        stand_ins=("<unused6241>", "<unused98>", "<unk>", "<pad>"),
    )  # fmt: skip


def idefics3_plan(keys: Keys, text: TextModel) -> TowerPlan:
    """Of files of the type "idefics3"."""
    check_text_size(keys.file, "mm.model.fc.weight", 0, text)
    sizes = Sizes.of_file(keys, text)
    factor = keys.integer("projector.scale_factor", 1, MOST_FACTOR)
    longest = keys.integer(
        "preproc_image_size", sizes.image, _MOST_TILES * sizes.image, 4 * sizes.image
    )
    vision = vision_config(keys, sizes)
    vision |= {"hidden_act": keys.activation("gelu_pytorch_tanh", "gelu_pytorch_tanh", None)}
    merged = sizes.hidden * factor * factor
    return TowerPlan(
        "idefics3",
        {"vision_config": vision, "scale_factor": factor, "text_config": {"model_type": "llama"}},
        "Idefics3ImageProcessor",
        colours(keys) | {"size": {"longest_edge": longest},
                         "max_image_size": {"longest_edge": sizes.image}},
        "<image>",
        "<image>",
        "<image>",
        [
            *siglip("vision_model", keys.file, sizes),
            *linear("connector.modality_projection.proj", "mm.model.fc", sizes.text, merged,
                    bias=False),
        ],
        processor={"image_seq_len": sizes.side * sizes.side // (factor * factor)},
        stand_ins=(),
    )  # fmt: skip


def llava_plan(keys: Keys, text: TextModel) -> TowerPlan:
    """Of files of the type "mlp", with two layers in the projector, as LLaVA 1.5 has them."""
    check_text_size(keys.file, "mm.2.weight", 0, text)
    sizes = Sizes.of_file(keys, text)
    read = _feature_layer(keys, sizes)
    for key in ("clip.vision.image_grid_pinpoints", "clip.vision.mm_patch_merge_type"):
        if key in keys.file.values:
            keys.file.fail(key, "is not supported: only LLaVA 1.5 is, which has no crops")
    vision = vision_config(keys, sizes) | {"model_type": "clip_vision_model"}
    vision |= {"hidden_act": keys.activation("quick_gelu", "gelu", None)}
    tower, projector = "vision_tower", "multi_modal_projector"
    # The norm behind the layers has no effect on what is read, and most files lack it.
    has_end = "v.post_ln.weight" in keys.file.tensors
    end = norm(f"{tower}.post_layernorm", "v.post_ln" if has_end else "v.pre_ln", sizes.hidden)
    return TowerPlan(
        "llava",
        {"vision_config": vision, "vision_feature_layer": read, "projector_hidden_act": "gelu",
         "vision_feature_select_strategy": "default", "text_config": {"model_type": "llama"}},
        "CLIPImageProcessor",
        colours(keys) | {"size": {"shortest_edge": sizes.image}, "crop_size": square(sizes.image)},
        "<image>",
        "<image>",
        "<image>\n",
        [
            *vector(f"{tower}.embeddings.class_embedding", "v.class_embd", sizes.hidden),
            *embeddings(tower, sizes, sizes.side**2 + 1, bias=False),
            *norm(f"{tower}.pre_layrnorm", "v.pre_ln", sizes.hidden),
            *layers(tower, keys.file, sizes),
            *end,
            *linear(f"{projector}.linear_1", "mm.0", sizes.text, sizes.hidden),
            *linear(f"{projector}.linear_2", "mm.2", sizes.text, sizes.text),
        ],
        processor={"patch_size": sizes.patch, "num_additional_image_tokens": 1,
                   "vision_feature_select_strategy": "default"},
    )  # fmt: skip


def _feature_layer(keys: Keys, sizes: Sizes) -> int:
    """The layer that is read: the last one, as converters leave out those behind it."""
    given = keys.layers("feature_layer", sizes.layers)
    if given is None:
        return sizes.layers
    if len(given) != 1:
        keys.file.fail(
            "clip.vision.feature_layer", "must name one layer, several are not supported"
        )
    return given[0]


def vision_config(keys: Keys, sizes: Sizes) -> dict[str, Any]:
    """The fields that these towers share."""
    return {
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.ffn,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "image_size": sizes.image,
        "patch_size": sizes.patch,
        "layer_norm_eps": keys.number("attention.layer_norm_epsilon", 0, 1),
    }


def colours(keys: Keys) -> dict[str, Any]:
    """The settings of image processors that all files have."""
    return {
        "image_mean": keys.colours("image_mean", -10.0),
        "image_std": keys.colours("image_std", 0.0),
    }


def square(edge: int) -> dict[str, int]:
    """A size of images."""
    return {"height": edge, "width": edge}


def siglip(tower: str, file: MmprojFile, sizes: Sizes) -> list[Weight]:
    """The tower of SigLIP."""
    return [
        *embeddings(tower, sizes, sizes.side**2, bias=True),
        *layers(tower, file, sizes),
        *norm(f"{tower}.post_layernorm", "v.post_ln", sizes.hidden),
    ]


def embeddings(tower: str, sizes: Sizes, positions: int, *, bias: bool) -> list[Weight]:
    """Those of patches and of positions."""
    name, own = f"{tower}.embeddings.patch_embedding", "v.patch_embd"
    return [
        *vector(f"{name}.weight", f"{own}.weight", sizes.hidden, 3, sizes.patch, sizes.patch),
        *(vector(f"{name}.bias", f"{own}.bias", sizes.hidden) if bias else ()),
        *vector(f"{tower}.embeddings.position_embedding.weight", "v.position_embd.weight",
                positions, sizes.hidden),
    ]  # fmt: skip


def layers(tower: str, file: MmprojFile, sizes: Sizes) -> list[Weight]:
    """Attention and feed-forward blocks."""
    weights: list[Weight] = []
    for i in range(sizes.layers):
        name, own = f"{tower}.encoder.layers.{i}", f"v.blk.{i}"
        up, down = ffn_names(file, sizes.hidden, i)
        for part in ("q", "k", "v", "out"):
            weights += linear(f"{name}.self_attn.{part}_proj", f"{own}.attn_{part}",
                              sizes.hidden, sizes.hidden)  # fmt: skip
        weights += norm(f"{name}.layer_norm1", f"{own}.ln1", sizes.hidden)
        weights += norm(f"{name}.layer_norm2", f"{own}.ln2", sizes.hidden)
        weights += linear(f"{name}.mlp.fc1", up, sizes.ffn, sizes.hidden)
        weights += linear(f"{name}.mlp.fc2", down, sizes.hidden, sizes.ffn)
    return weights
