"""Folders of models with images whose settings or weights of the tower are wrong.

An image is encoded, or refused with an error that says so and not where the folder lies.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostile.frame import Case, HostileClass

_MODELS = Path(__file__).resolve().parents[1] / "python" / "models"
_IMAGES, _PROCESSOR, _CONFIG = "preprocessor_config.json", "processor_config.json", "config.json"
_WEIGHTS, _TOKENIZER = "model.safetensors", "tokenizer.json"
_folders: dict[str, Path] = {}  # in this child: the good one, and the one that a case changes


@dataclass(frozen=True)
class _Damage:
    """What changes a folder, and the outcome if there is only one."""

    apply: Callable[[Path], object]
    wanted: str | None


def _set(file: str, path: str, value: Any) -> Callable[[Path], object]:
    def apply(folder: Path) -> None:
        content = json.loads((folder / file).read_text())
        *outer, last = path.split(".")
        place = content
        for name in outer:
            place = place[name]
        place[last] = value
        (folder / file).write_text(json.dumps(content))

    return apply


def _write(file: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / file).write_bytes(data)


def _edit(file: str, edit: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda folder: (folder / file).write_bytes(edit((folder / file).read_bytes()))


def _pickled(folder: Path) -> None:
    (folder / _WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'exit 3'\ntR.")


def _damages() -> Iterator[tuple[str, _Damage]]:
    yield "nothing", _Damage(lambda folder: None, "served")
    odd = (0, -1, 1 << 40, "x", None, [1], 2.5, {"a": 1})
    for field in ("size", "crop_size"):
        for value in odd:
            both = {"height": value, "width": value}
            yield f"{field} of {value}", _Damage(_set(_IMAGES, field, both), None)
    for field in ("image_mean", "image_std", "rescale_factor", "resample", "do_resize"):
        for value in (0, [], "x", [0, 0, 0], 1e400):
            yield f"{field} = {value}", _Damage(_set(_IMAGES, field, value), None)
    for value in (0, -4, 3, 8, 1 << 40, "x", None, 0.5):
        wanted = None if value == -4 else "refused"  # as many rows as of 4
        yield f"patch_size = {value}", _Damage(_set(_PROCESSOR, "patch_size", value), wanted)
    for value in (-1, 3, 1 << 62, "x"):
        field = "num_additional_image_tokens"
        yield f"{field} = {value}", _Damage(_set(_PROCESSOR, field, value), "refused")
    for value in ("os.system", "../x", "", "LlavaProcessor\0", 5, "Gemma3Processor"):
        yield (
            f"processor_class = {value}",
            _Damage(_set(_PROCESSOR, "processor_class", value), None),
        )
        kind = _set(_IMAGES, "image_processor_type", value)
        yield f"image_processor_type = {value}", _Damage(kind, None)
    for field in ("hidden_size", "image_size", "patch_size", "num_hidden_layers"):
        for value in (0, -1, 7, "x", None):
            yield (
                f"{field} of the tower = {value}",
                _Damage(_set(_CONFIG, f"vision_config.{field}", value), None),
            )
    for value in ("os", "llama", "", 5, None):
        yield f"a tower of {value}", _Damage(_set(_CONFIG, "vision_config.model_type", value), None)
    for value in (-1, 1 << 40, "x", None, 5):
        yield f"image_token_index = {value}", _Damage(_set(_CONFIG, "image_token_id", value), None)
    for value in (99, -99, "x", [], [99]):
        yield (
            f"vision_feature_layer = {value}",
            _Damage(_set(_CONFIG, "vision_feature_layer", value), None),
        )
    for file in (_IMAGES, _PROCESSOR, _CONFIG, _TOKENIZER, "tokenizer_config.json"):
        for name, data in (("is empty", b""), ("is no JSON", b"{"), ("is a list", b"[]"),
                           ("is deep", b"[" * 100_000), ("is no text", b"\xff\xfe\0")):  # fmt: skip
            yield f"{file} {name}", _Damage(_write(file, data), None)
        yield f"no {file}", _Damage(lambda folder, f=file: (folder / f).unlink(), None)
    yield "weights that are cut", _Damage(_edit(_WEIGHTS, lambda d: d[: len(d) // 2]), "refused")
    yield "weights without a header", _Damage(_write(_WEIGHTS, b"\xff" * 64), "refused")
    yield "no weights", _Damage(lambda folder: (folder / _WEIGHTS).unlink(), "refused")
    yield "pickled weights", _Damage(_pickled, "refused")
    yield (
        "a pickle named safetensors",
        _Damage(_write(_WEIGHTS, b"\x80\x04cos\nsystem\n(S'exit 3'\ntR."), "refused"),
    )
    yield "an index of missing weights", _Damage(_missing_shards, "refused")


def _missing_shards(folder: Path) -> None:
    (folder / _WEIGHTS).unlink()
    shards = {"vision_tower.x": "../../etc/passwd", "a": "missing.safetensors"}
    index = {"metadata": {"total_size": 1 << 60}, "weight_map": shards}
    (folder / (_WEIGHTS + ".index.json")).write_text(json.dumps(index))


def hostile_class() -> HostileClass:
    """The class."""
    cases = [Case(name, damage) for name, damage in _damages()]
    return HostileClass(
        "image_settings", cases, _attempt, cpu_s=6, memory_mib=400, sample=40, prepared=_prepared
    )


@contextmanager
def _prepared() -> Iterator[None]:
    sys.path[:0] = [str(_MODELS)]
    from image_folders import make_image_model

    with tempfile.TemporaryDirectory(prefix="mlc-native-hostile-") as folder:
        _folders["good"] = make_image_model("llava", Path(folder) / "good")
        _folders["changed"] = Path(folder) / "changed"
        assert _attempt(_Damage(lambda folder: None, "served")) == "served"
        yield


def _attempt(damage: _Damage) -> str:
    from mlc_native.errors import InvalidRequest
    from mlc_native.serve.images.encoder import ImageEncoder
    from mlc_native.serve.images.parts import ImageSource

    folder = _folders["changed"]
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(_folders["good"], folder)
    damage.apply(folder)
    encoder = ImageEncoder.of_folder(folder)
    if encoder is None:
        return "refused"  # texts of it are what the engine makes of the folder
    outcome = "served"
    try:
        encoder.check_supported("here")
        rows = encoder.encode(ImageSource("here", _picture()), is_alone=True).rows
        if rows.ndim != 2:
            return f"rows of the shape {rows.shape}"
    except InvalidRequest as error:
        outcome = "refused"
        text = str(error)
        if str(folder) in text or len(text) > 1000 or error.field is None:
            return f"an error that says where the folder lies, or is long: {text[:300]}"
    return outcome if damage.wanted in (None, outcome) else f"it was {outcome}"


def _picture() -> bytes:
    from hostile.image_files import file_of

    return file_of("PNG")
