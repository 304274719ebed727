"""The towers of InternVL and of Pixtral, which Mistral Small 3.1 has too."""

from __future__ import annotations

from mlc_native.serve.images.mmproj.clip_towers import MOST_FACTOR, colours, square, vision_config
from mlc_native.serve.images.mmproj.keys import Keys
from mlc_native.serve.images.mmproj.plan import Sizes, TextModel, TowerPlan, check_text_size
from mlc_native.serve.images.mmproj.weights import (
    Weight,
    halves_of_heads,
    linear,
    norm,
    vector,
)

_MOST_TILES = 256


def internvl_plan(keys: Keys, text: TextModel) -> TowerPlan:
    """Of files of the type "internvl"."""
    check_text_size(keys.file, "mm.model.mlp.3.weight", 0, text)
    sizes = Sizes.of_file(keys, text)
    factor = keys.integer("projector.scale_factor", 1, MOST_FACTOR)
    tensors = keys.file.tensors
    fewest = keys.integer("preproc_min_tiles", 1, _MOST_TILES, 1)
    vision = vision_config(keys, sizes) | {
        "image_size": [sizes.image] * 2,
        "patch_size": [sizes.patch] * 2,
        "hidden_act": keys.activation(None, "gelu"),
        "attention_bias": "v.blk.0.attn_q.bias" in tensors,
        "use_qk_norm": "v.blk.0.attn_q_norm.weight" in tensors,
        "norm_type": "layer_norm" if "v.blk.0.ln1.bias" in tensors else "rms_norm",
    }
    tower, projector = "vision_tower", "multi_modal_projector"
    merged = sizes.hidden * factor * factor
    patches = f"{tower}.embeddings.patch_embeddings.projection"
    return TowerPlan(
        "internvl",
        {"vision_config": vision, "downsample_ratio": 1 / factor, "projector_hidden_act": "gelu",
         "vision_feature_layer": -1, "vision_feature_select_strategy": "default",
         "text_config": {"model_type": "qwen2"}},
        "GotOcr2ImageProcessor",
        colours(keys) | {
            "size": square(sizes.image), "crop_to_patches": True, "min_patches": fewest,
            "max_patches": keys.integer("preproc_max_tiles", fewest, _MOST_TILES, max(12, fewest)),
        },
        "<IMG_CONTEXT>",
        "<IMG_CONTEXT>",
        "<IMG_CONTEXT>\n",
        [
            *vector(f"{tower}.embeddings.cls_token", "v.class_embd", 1, 1, sizes.hidden),
            *vector(f"{tower}.embeddings.position_embeddings", "v.position_embd.weight",
                    1, sizes.side**2 + 1, sizes.hidden),
            *vector(f"{patches}.weight", "v.patch_embd.weight",
                    sizes.hidden, 3, sizes.patch, sizes.patch),
            *vector(f"{patches}.bias", "v.patch_embd.bias", sizes.hidden),
            *_internvl_layers(keys, sizes, vision["attention_bias"], vision["use_qk_norm"],
                              vision["norm_type"] == "layer_norm"),
            *norm(f"{projector}.layer_norm", "mm.model.mlp.0", merged),
            *linear(f"{projector}.linear_1", "mm.model.mlp.1", sizes.text, merged),
            *linear(f"{projector}.linear_2", "mm.model.mlp.3", sizes.text, sizes.text),
        ],
        processor={"image_seq_length": sizes.side * sizes.side // (factor * factor)},
        tokens={"start_image_token": "<img>", "end_image_token": "</img>",
                "video_token": "<video>"},
        stand_ins=(),
    )  # fmt: skip


def _internvl_layers(
    keys: Keys, sizes: Sizes, has_bias: bool, has_qk_norm: bool, norms_have_bias: bool
) -> list[Weight]:
    weights: list[Weight] = []
    size = sizes.hidden
    for i in range(sizes.layers):
        name, own = f"vision_tower.encoder.layer.{i}", f"v.blk.{i}"
        for part in "qkv":
            weights += linear(f"{name}.attention.{part}_proj", f"{own}.attn_{part}", size, size,
                              bias=has_bias)  # fmt: skip
        for part in "qk" if has_qk_norm else "":
            weights += norm(f"{name}.attention.{part}_norm", f"{own}.attn_{part}_norm", size,
                            bias=False)  # fmt: skip
        weights += linear(f"{name}.attention.projection_layer", f"{own}.attn_out", size, size)
        weights += norm(f"{name}.layernorm_before", f"{own}.ln1", size, bias=norms_have_bias)
        weights += norm(f"{name}.layernorm_after", f"{own}.ln2", size, bias=norms_have_bias)
        for place in (1, 2):
            weights += vector(f"{name}.lambda_{place}", f"{own}.ls{place}.weight", size)
        weights += linear(f"{name}.mlp.fc1", f"{own}.ffn_up", sizes.ffn, size)
        weights += linear(f"{name}.mlp.fc2", f"{own}.ffn_down", size, sizes.ffn)
    return weights


def pixtral_plan(keys: Keys, text: TextModel) -> TowerPlan:
    """Of files of the type "pixtral": with a merger, that of Mistral Small 3.1."""
    check_text_size(keys.file, "mm.2.weight", 0, text)
    sizes = Sizes.of_file(keys, text)
    tensors = keys.file.tensors
    has_merger = "mm.patch_merger.weight" in tensors
    factor = keys.integer("spatial_merge_size", 1, MOST_FACTOR, 1)
    if has_merger != (factor > 1):
        keys.file.fail(
            "clip.vision.spatial_merge_size",
            f'= {factor} does not fit the tensor "mm.patch_merger.weight", which is '
            + ("there" if has_merger else "missing"),
        )
    if sizes.hidden // sizes.heads % 4 != 0:
        keys.file.fail("clip.vision.attention.head_count", f"= {sizes.heads} makes heads of "
                       f"{sizes.hidden // sizes.heads}, which must be a multiple of 4")  # fmt: skip
    vision = vision_config(keys, sizes) | {
        "model_type": "pixtral",
        "head_dim": sizes.hidden // sizes.heads,
        "hidden_act": keys.activation(None, "gelu"),
        "rope_parameters": {"rope_type": "default", "rope_theta": keys.rope_base()},
    }
    projector = "multi_modal_projector"
    bias = "mm.1.bias" in tensors
    config = {"vision_config": vision, "projector_hidden_act": "gelu", "vision_feature_layer": -1,
              "multimodal_projector_bias": bias}  # fmt: skip
    weights = [
        *vector("vision_tower.patch_conv.weight", "v.patch_embd.weight",
                sizes.hidden, 3, sizes.patch, sizes.patch),
        *norm("vision_tower.ln_pre", "v.pre_ln", sizes.hidden, bias=False),
        *_pixtral_layers(sizes),
        *linear(f"{projector}.linear_1", "mm.1", sizes.text, sizes.hidden, bias=bias),
        *linear(f"{projector}.linear_2", "mm.2", sizes.text, sizes.text, bias=bias),
    ]  # fmt: skip
    if has_merger:
        config |= {"spatial_merge_size": factor, "text_config": {"model_type": "mistral"}}
        merging = f"{projector}.patch_merger.merging_layer"
        weights += norm(f"{projector}.norm", "mm.input_norm", sizes.hidden, bias=False)
        weights += linear(merging, "mm.patch_merger", sizes.hidden, sizes.hidden * factor * factor,
                          bias=False)  # fmt: skip
    else:
        config |= {"vision_feature_select_strategy": "full", "text_config": {"model_type": "llama"}}
    return TowerPlan(
        "mistral3" if has_merger else "llava",
        config,
        "PixtralImageProcessor",
        colours(keys) | {"size": {"longest_edge": sizes.image}, "patch_size": sizes.patch},
        "[IMG]",
        "[IMG]",
        "[IMG]",
        weights,
        processor={"patch_size": sizes.patch, "spatial_merge_size": factor},
        unused=("v.token_embd.img_break",),  # which the text model has
        stand_ins=(),
    )


def _pixtral_layers(sizes: Sizes) -> list[Weight]:
    weights: list[Weight] = []
    size = sizes.hidden
    unpermuted = halves_of_heads(sizes.heads)
    for i in range(sizes.layers):
        name, own = f"vision_tower.transformer.layers.{i}", f"v.blk.{i}"
        for part, theirs in {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_out"}.items():
            weights += linear(
                f"{name}.attention.{part}_proj", f"{own}.{theirs}", size, size, bias=False,
                make=unpermuted if part in "qk" else None,
            )  # fmt: skip
        weights += norm(f"{name}.attention_norm", f"{own}.ln1", size, bias=False)
        weights += norm(f"{name}.ffn_norm", f"{own}.ln2", size, bias=False)
        for part in ("gate", "up", "down"):
            shape = (size, sizes.ffn) if part == "down" else (sizes.ffn, size)
            weights += linear(f"{name}.feed_forward.{part}_proj", f"{own}.ffn_{part}", *shape,
                              bias=False)  # fmt: skip
    return weights
