"""TowerPlan: how the tower of a file is made of transformers' classes. Immutable; any thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlc_native.serve.images.mmproj.file import MmprojFile
from mlc_native.serve.images.mmproj.keys import Keys
from mlc_native.serve.images.mmproj.weights import Weight, check_weights


@dataclass(frozen=True)
class TextModel:
    """The model that reads the rows.

    Attributes:
        architecture: as config.json names it.
        hidden_size: of its rows.
        num_added: the number of its layers that add a part of each row (DeepStack).
        norm_eps: of its norms, which some projectors take over; None: it says none.
    """

    architecture: str
    hidden_size: int
    num_added: int = 0
    norm_eps: float | None = None

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> TextModel | None:
        """That of a config.json made of a GGUF file; None if it lacks what the engine reports."""
        architectures, size = config.get("architectures"), config.get("hidden_size")
        if not isinstance(architectures, list) or not architectures or not isinstance(size, int):
            return None
        vision = config.get("vision_config")
        added = vision.get("deepstack_visual_indexes", []) if isinstance(vision, dict) else []
        return cls(str(architectures[0]), size, len(added), config.get("rms_norm_eps"))


@dataclass(frozen=True)
class TowerPlan:
    """How to make tower and processor.

    Attributes:
        model_type: that of the family in transformers, a key of FAMILIES.
        config: fields of its config.json.
        image_processor: the class of transformers, and its settings.
        processor: settings of the processor.
        tokens: tokens that the processor asks the tokenizer for, by their names there.
        rows_token: the text of the token that stands for a row.
        stand_ins: tokens that take its place in vocabularies without it.
        placeholder: the text of an image in a rendered chat.
        inserted: what a chat gets for an image where its template shows texts alone.
        weights: of the module.
        unused: tensors that the file may have besides.
    """

    model_type: str
    config: dict[str, Any]
    image_processor: str
    image_settings: dict[str, Any]
    rows_token: str
    placeholder: str
    inserted: str
    weights: Sequence[Weight]
    processor: dict[str, Any] = field(default_factory=dict)
    tokens: Mapping[str, str] = field(default_factory=dict)
    stand_ins: Sequence[str] = ("<unk>", "<pad>")
    unused: Sequence[str] = ()

    def check(self, file: MmprojFile) -> None:
        """Raises LoadError if the tensors of the file are not those of the tower."""
        check_weights(file, self.weights, self.unused)


@dataclass(frozen=True)
class Sizes:
    """Those that all towers have.

    Attributes:
        hidden: of a row of the tower.
        ffn: of its feed-forward blocks.
        layers: their number.
        heads: of attention.
        patch: the edge of a patch in pixels.
        image: the edge of an image in pixels.
        text: of a row of the text model.
    """

    hidden: int
    ffn: int
    layers: int
    heads: int
    patch: int
    image: int
    text: int

    @classmethod
    def of_file(cls, keys: Keys, text: TextModel) -> Sizes:
        """Those that the keys and the first feed-forward block say."""
        hidden = keys.integer("embedding_length", 1, 1 << 14)
        heads = keys.integer("attention.head_count", 1, 1 << 10)
        if hidden % heads != 0:
            keys.file.fail(
                "clip.vision.attention.head_count", f"= {heads} must divide the length {hidden}"
            )
        patch = keys.integer("patch_size", 1, 1 << 8)
        return cls(
            hidden,
            _ffn(keys.file, hidden),
            keys.integer("block_count", 1, 1 << 8),
            heads,
            patch,
            keys.integer("image_size", patch, 1 << 13),
            text.hidden_size,
        )

    @property
    def side(self) -> int:
        """The patches along an edge of an image."""
        return self.image // self.patch


def ffn_names(file: MmprojFile, hidden: int, layer: int) -> tuple[str, str]:
    """The tensors that go up and down. Old converters gave each the name of the other."""
    names = (f"v.blk.{layer}.ffn_up", f"v.blk.{layer}.ffn_down")
    down = file.tensors.get(names[1] + ".weight")
    is_swapped = down is not None and down.shape[-1] == hidden and down.shape[0] != hidden
    return names[::-1] if is_swapped else names


def _ffn(file: MmprojFile, hidden: int) -> int:
    name = ffn_names(file, hidden, 0)[0] + ".weight"
    if name not in file.tensors:
        file.fail_tensor(name, "is missing")
    rows = file.tensors[name].shape[0]
    if rows > 1 << 17:
        file.fail_tensor(name, f"has {rows} rows, allowed are {1 << 17}")
    return rows


def check_text_size(file: MmprojFile, tensor: str, axis: int, text: TextModel) -> None:
    """Raises LoadError if the projector makes rows for another model."""
    key = "clip.vision.projection_dim"
    found = file.tensors.get(tensor)
    if found is None:
        file.fail_tensor(tensor, "is missing")
    rows = found.shape[axis] if len(found.shape) == 2 else 0
    if rows != text.hidden_size:
        file.fail(
            key if file.values.get(key) == rows else tensor,
            f"says that rows have {rows} numbers, and those of the model have {text.hidden_size}: "
            "the file is for another model",
        )
