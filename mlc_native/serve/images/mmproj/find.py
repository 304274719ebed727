"""Which file has the tower of a GGUF model, and whether it fits."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlc_native.errors import LoadError, invalid_config, shown
from mlc_native.serve.images.encoder import ImageEncoder
from mlc_native.serve.images.mmproj.families import plan_of
from mlc_native.serve.images.mmproj.file import MmprojFile
from mlc_native.serve.images.mmproj.plan import TextModel
from mlc_native.serve.images.mmproj.tower import MmprojTower, RefusedTower, without_folder

logger = logging.getLogger(__name__)

SETTING = "mmproj"
NONE = "none"
_MARK = "mmproj"  # in the names of files
_MOST_FILES = 8  # beside a model
_SUFFIX = ".gguf"


def image_encoder(
    model: Path, setting: str | None, config: Mapping[str, Any]
) -> ImageEncoder | None:
    """The encoder of a model; None for a model that sees no images.

    Args:
        model: a Hugging Face folder, a GGUF file or a folder with one.
        setting: the path of the tower's file, "none", or None: one beside the model.
        config: the model's config.json.

    Raises:
        InvalidConfig: the setting names no file, or the model is none of a GGUF file.
        LoadError: the file that the setting names is damaged, or is not for this model.
    """
    is_gguf = _is_gguf(model)
    if setting is not None and setting != NONE:
        if not is_gguf:
            raise invalid_config(
                SETTING, f'"{SETTING}" is for models of GGUF files, and {model} is none'
            )
        return _of_setting(model, setting, config)
    if not is_gguf:
        return ImageEncoder.of_folder(model)
    return None if setting == NONE else _beside(model, config)


def _is_gguf(model: Path) -> bool:
    if model.is_file():
        return model.suffix == _SUFFIX
    others = ("config.json", "mlc-chat-config.json")
    return model.is_dir() and not any((model / name).exists() for name in others)


def _of_setting(model: Path, setting: str, config: Mapping[str, Any]) -> ImageEncoder:
    path = Path(setting).expanduser()
    try:
        is_file = path.is_file()
    except (OSError, ValueError):  # as of a name that is too long
        is_file = False
    if not is_file:
        raise invalid_config(
            SETTING,
            f'"{SETTING}" must be "{NONE}" or the path of a GGUF file with a vision tower, got '
            f"{shown(setting)}, which is no file",
        )
    text = TextModel.of_config(config)
    if text is None:
        raise invalid_config(SETTING, f'"{SETTING}" is not for this model, whose sizes are unknown')
    return ImageEncoder(_tower(model, path, text))


def _tower(model: Path, path: Path, text: TextModel) -> MmprojTower:
    file = MmprojFile(path)
    return MmprojTower(model, file, plan_of(file, text), text)


def _beside(model: Path, config: Mapping[str, Any]) -> ImageEncoder | None:
    """That of the file that fits. One that does not is no error, since texts need none."""
    text = TextModel.of_config(config)
    paths = _candidates(model)
    if not paths or text is None:
        return None
    towers: list[MmprojTower] = []
    problem = ""
    for path in paths:
        try:
            towers.append(_tower(model, path, text))
        except LoadError as error:
            problem = problem or without_folder(str(error), path)
    if not towers:
        logger.warning("images are refused: %s", problem)
        return ImageEncoder(RefusedTower(problem))
    best = max(towers, key=lambda tower: tower.file.size)
    for tower in towers:
        if _own_keys(tower.file) != _own_keys(best.file):
            names = ", ".join(sorted(each.file.path.name for each in towers))
            problem = (
                f'several files beside the model have towers for it ({names}): set "{SETTING}"'
            )
            logger.warning("images are refused: %s", problem)
            return ImageEncoder(RefusedTower(problem))
    return ImageEncoder(best)


def _candidates(model: Path) -> list[Path]:
    folder = model if model.is_dir() else model.parent
    try:
        paths = [
            path
            for path in folder.iterdir()
            if _MARK in path.name.lower() and path.name.lower().endswith(_SUFFIX)
        ]
    except OSError:  # the engine says what is wrong with the folder
        return []
    return sorted(path for path in paths if path.is_file() and path != model)[:_MOST_FILES]


def _own_keys(file: MmprojFile) -> dict[str, Any]:
    """What the tower is. Files of one model differ in how its weights are stored."""
    return {key: value for key, value in file.values.items() if key.startswith("clip.")}
