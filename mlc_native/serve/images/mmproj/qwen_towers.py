"""The towers of Qwen2-VL, Qwen2.5-VL and Qwen3-VL, which read images of any size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlc_native.serve.images.mmproj.clip_towers import MOST_FACTOR, colours
from mlc_native.serve.images.mmproj.file import MmprojFile
from mlc_native.serve.images.mmproj.keys import Keys
from mlc_native.serve.images.mmproj.plan import (
    Sizes,
    TextModel,
    TowerPlan,
    check_text_size,
    ffn_names,
)
from mlc_native.serve.images.mmproj.weights import Weight, frames, joined, linear, norm, vector

_WINDOW = 112  # pixels
# To which images are enlarged, and at which they remain as they are.
_MOST_SMALL_PIXELS, _MOST_PIXELS = 1 << 22, 1 << 26
# Of their models, in pixels: the smallest and the largest that images are made.
_PIXELS_OF_QWEN2 = (56 * 56, 28 * 28 * 16384)
_PIXELS_OF_QWEN3 = (1 << 16, 1 << 24)


def qwen2_plan(keys: Keys, text: TextModel) -> TowerPlan:
    """Of files of the type "qwen2vl_merger"."""
    sizes, merge = _sizes(keys, text)
    if sizes.ffn % sizes.hidden != 0:
        name = ffn_names(keys.file, sizes.hidden, 0)[0] + ".weight"
        keys.file.fail_tensor(name, f"has {sizes.ffn} rows, must be a multiple of {sizes.hidden}")
    vision: dict[str, Any] = {
        "depth": sizes.layers, "embed_dim": sizes.hidden, "hidden_size": sizes.text,
        "num_heads": sizes.heads, "mlp_ratio": sizes.ffn // sizes.hidden,
        "hidden_act": keys.activation("quick_gelu", "gelu"),
    }  # fmt: skip
    weights = [*_front(sizes)]
    for i in range(sizes.layers):
        name, own = f"visual.blocks.{i}", f"v.blk.{i}"
        up, down = ffn_names(keys.file, sizes.hidden, i)
        weights += [
            *_attention(keys.file, i, sizes),
            *norm(f"{name}.norm1", f"{own}.ln1", sizes.hidden),
            *norm(f"{name}.norm2", f"{own}.ln2", sizes.hidden),
            *linear(f"{name}.mlp.fc1", up, sizes.ffn, sizes.hidden),
            *linear(f"{name}.mlp.fc2", down, sizes.hidden, sizes.ffn),
        ]
    weights += norm("visual.merger.ln_q", "v.post_ln", sizes.hidden)
    return _plan("qwen2_vl", keys, sizes, merge, vision, weights, _PIXELS_OF_QWEN2)


def qwen2_5_plan(keys: Keys, text: TextModel) -> TowerPlan:
    """Of files of the type "qwen2.5vl_merger"."""
    sizes, merge = _sizes(keys, text)
    vision: dict[str, Any] = {
        "depth": sizes.layers, "hidden_size": sizes.hidden, "out_hidden_size": sizes.text,
        "num_heads": sizes.heads, "intermediate_size": sizes.ffn,
        "hidden_act": keys.activation(None, "gelu"),
        "window_size": keys.integer("window_size", sizes.patch * merge, 1 << 13, _WINDOW),
        "fullatt_block_indexes": _whole_layers(keys, sizes),
    }  # fmt: skip
    weights = [*_front(sizes)]
    for i in range(sizes.layers):
        name, own = f"visual.blocks.{i}", f"v.blk.{i}"
        weights += [
            *_attention(keys.file, i, sizes),
            *norm(f"{name}.norm1", f"{own}.ln1", sizes.hidden, bias=False),
            *norm(f"{name}.norm2", f"{own}.ln2", sizes.hidden, bias=False),
            *linear(f"{name}.mlp.gate_proj", f"{own}.ffn_gate", sizes.ffn, sizes.hidden),
            *linear(f"{name}.mlp.up_proj", f"{own}.ffn_up", sizes.ffn, sizes.hidden),
            *linear(f"{name}.mlp.down_proj", f"{own}.ffn_down", sizes.hidden, sizes.ffn),
        ]
    weights += norm("visual.merger.ln_q", "v.post_ln", sizes.hidden, bias=False)
    return _plan("qwen2_5_vl", keys, sizes, merge, vision, weights, _PIXELS_OF_QWEN2)


def _whole_layers(keys: Keys, sizes: Sizes) -> list[int]:
    """The layers without windows: every n-th."""
    if keys.has("wa_layer_indexes"):
        keys.file.fail("clip.vision.wa_layer_indexes", "is not supported for this projector type")
    every = keys.integer("n_wa_pattern", 1, 1 << 8)
    return list(range(every - 1, sizes.layers, every))


def qwen3_plan(keys: Keys, text: TextModel) -> TowerPlan:
    """Of files of the type "qwen3vl_merger"."""
    sizes, merge = _sizes(keys, text)
    name = "v.position_embd.weight"
    if name not in keys.file.tensors:
        keys.file.fail_tensor(name, "is missing")
    positions = keys.file.tensors[name].shape[0]
    if positions != sizes.side**2:
        keys.file.fail_tensor(name, f"has {positions} rows, must have those of {sizes.side} x "
                                    f"{sizes.side} patches")  # fmt: skip
    flags = keys.flags("is_deepstack_layers", sizes.layers)
    added = [i for i in range(sizes.layers) if flags[i]]
    if len(added) != text.num_added:
        keys.file.fail("clip.vision.is_deepstack_layers", f"has {len(added)} layers, and the model "
                       f"adds the parts of {text.num_added}")  # fmt: skip
    vision: dict[str, Any] = {
        "depth": sizes.layers, "hidden_size": sizes.hidden, "out_hidden_size": sizes.text,
        "num_heads": sizes.heads, "intermediate_size": sizes.ffn,
        "num_position_embeddings": positions, "deepstack_visual_indexes": added,
        "hidden_act": keys.activation("gelu_pytorch_tanh", "gelu_pytorch_tanh", None),
    }  # fmt: skip
    weights = [
        *_front(sizes),
        *vector("visual.patch_embed.proj.bias", "v.patch_embd.bias", sizes.hidden),
        *vector("visual.pos_embed.weight", name, positions, sizes.hidden),
    ]
    for i in range(sizes.layers):
        block, own = f"visual.blocks.{i}", f"v.blk.{i}"
        weights += [
            *_attention(keys.file, i, sizes),
            *norm(f"{block}.norm1", f"{own}.ln1", sizes.hidden),
            *norm(f"{block}.norm2", f"{own}.ln2", sizes.hidden),
            *linear(f"{block}.mlp.linear_fc1", f"{own}.ffn_up", sizes.ffn, sizes.hidden),
            *linear(f"{block}.mlp.linear_fc2", f"{own}.ffn_down", sizes.hidden, sizes.ffn),
        ]
    merged = sizes.hidden * merge * merge
    for at, layer in enumerate(added):
        part, own = f"visual.deepstack_merger_list.{at}", f"v.deepstack.{layer}"
        weights += [
            *norm(f"{part}.norm", f"{own}.norm", merged),
            *linear(f"{part}.linear_fc1", f"{own}.fc1", merged, merged),
            *linear(f"{part}.linear_fc2", f"{own}.fc2", sizes.text, merged),
        ]
    weights += norm("visual.merger.norm", "v.post_ln", sizes.hidden)
    return _plan("qwen3_vl", keys, sizes, merge, vision, weights, _PIXELS_OF_QWEN3,
                 ("linear_fc1", "linear_fc2"))  # fmt: skip


def _sizes(keys: Keys, text: TextModel) -> tuple[Sizes, int]:
    check_text_size(keys.file, "mm.2.weight", 0, text)
    sizes = Sizes.of_file(keys, text)
    if sizes.hidden // sizes.heads % 4 != 0:
        keys.file.fail("clip.vision.attention.head_count", f"= {sizes.heads} makes heads of "
                       f"{sizes.hidden // sizes.heads}, which must be a multiple of 4")  # fmt: skip
    return sizes, keys.integer("spatial_merge_size", 1, MOST_FACTOR, 2)


def _front(sizes: Sizes) -> list[Weight]:
    return frames("visual.patch_embed.proj", "v.patch_embd", sizes.hidden, 3, sizes.patch)


def _attention(file: MmprojFile, layer: int, sizes: Sizes) -> list[Weight]:
    """q, k and v are three tensors or one."""
    own, size = f"v.blk.{layer}", sizes.hidden
    owns = [f"{own}.attn_{part}" for part in "qkv"]
    if not any(f"{each}.weight" in file.tensors for each in owns):
        owns = [f"{own}.attn_qkv"]
    name = f"visual.blocks.{layer}.attn"
    return [
        *joined(f"{name}.qkv", owns, 3 * size, size),
        *linear(f"{name}.proj", f"{own}.attn_out", size, size),
    ]


def _plan(
    model_type: str,
    keys: Keys,
    sizes: Sizes,
    merge: int,
    vision: dict[str, Any],
    weights: list[Weight],
    pixels: tuple[int, int],
    mergers: Sequence[str] = ("mlp.0", "mlp.2"),
) -> TowerPlan:
    merged = sizes.hidden * merge * merge
    least = keys.integer("image_min_pixels", 1, _MOST_SMALL_PIXELS, pixels[0])
    most = keys.integer("image_max_pixels", least, _MOST_PIXELS, max(least, pixels[1]))
    return TowerPlan(
        model_type,
        {"vision_config": vision | {"patch_size": sizes.patch, "spatial_merge_size": merge,
                                    "temporal_patch_size": 2, "in_channels": 3}},
        "Qwen2VLImageProcessor",
        colours(keys) | {"patch_size": sizes.patch, "merge_size": merge, "temporal_patch_size": 2,
                         "size": {"shortest_edge": least, "longest_edge": most}},
        "<|image_pad|>",
        "<|image_pad|>",
        "<|vision_start|><|image_pad|><|vision_end|>",
        [
            *weights,
            *linear(f"visual.merger.{mergers[0]}", "mm.0", merged, merged),
            *linear(f"visual.merger.{mergers[1]}", "mm.2", sizes.text, merged),
        ],
        tokens={"video_token": "<|video_pad|>"},
        stand_ins=(),
        # The first converter for Qwen2-VL wrote one that is not read.
        unused=() if model_type == "qwen3_vl" else ("v.position_embd.weight",),
    )  # fmt: skip
