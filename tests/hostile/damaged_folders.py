"""Small model folders that are damaged: what the classes of such inputs share.

A case changes the config.json, the tensors or the file of weights of a small model. The folder is
then loaded, and computes three rows. It works, or a typed error names the field or the tensor; what
could not be computed must be refused.
"""

from __future__ import annotations

import copy
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hostile.frame import Case, HostileClass

_MODELS = Path(__file__).resolve().parents[1] / "python" / "models"
_WEIGHTS = "model.safetensors"
_OUTCOMES = ("served", "refused")
Tensors = dict[str, np.ndarray]
# In this child, set by ``_prepared``.
_state: dict[str, Path] = {}


@dataclass
class Folder:
    """What a case may change before it is written, and the file afterwards."""

    config: dict[str, Any]
    tensors: Tensors
    edit_file: Callable[[bytes], bytes] = lambda content: content


@dataclass(frozen=True)
class Damage:
    """A change of the folder that ``make`` makes, and the outcome if there is only one."""

    make: Callable[[], Folder]
    apply: Callable[[Folder], object]
    wanted: str | None = "refused"


class Damages:
    """Makes the damages of one model.

    Args:
        config: its config.json.
        tensors: makes its tensors, the same ones each time.
    """

    def __init__(self, config: dict[str, Any], tensors: Callable[[], Tensors]) -> None:
        self._make = lambda: Folder(copy.deepcopy(config), tensors())

    def __call__(self, apply: Callable[[Folder], object], must_be_refused: bool = True) -> Damage:
        return Damage(self._make, apply, "refused" if must_be_refused else None)

    def nothing(self) -> Damage:
        """A folder as it should be."""
        return Damage(self._make, lambda folder: None, "served")

    def set(self, field: str, value: Any, must_be_refused: bool = True) -> Damage:
        """Another value for a field of config.json."""
        return self(lambda folder: folder.config.update({field: value}), must_be_refused)

    def drop(self, *names: str) -> Damage:
        """A folder without these tensors."""
        return self(lambda folder: [folder.tensors.pop(name) for name in names])

    def change(
        self, name: str, edit: Callable[[np.ndarray], np.ndarray], must_be_refused: bool = True
    ) -> Damage:
        """Another tensor of this name."""
        return self(lambda folder: folder.tensors.update({name: edit(folder.tensors[name])}),
                    must_be_refused)  # fmt: skip

    def add(self, name: str, *shape: int) -> Damage:
        """One tensor more."""
        return self(lambda folder: folder.tensors.update({name: np.zeros(shape, np.float32)}))

    def file(self, edit: Callable[[bytes], bytes]) -> Damage:
        """Another file of weights."""
        return self(lambda folder: setattr(folder, "edit_file", edit))

    def of_tensors(self, names: Iterable[str]) -> Iterator[tuple[str, Damage]]:
        """Tensors of other shapes and types."""
        for name in names:
            yield f"{name} with a row less", self.change(name, lambda t: t[:-1].copy())
            yield f"{name} with a dimension more", self.change(name, lambda t: t[None])
            yield f"{name} without rows", self.change(name, lambda t: t[:0])
            yield f"{name} of integers", self.change(name, lambda t: np.zeros(t.shape, np.int32))
            shape = self._make().tensors[name].shape
            if len(shape) == 1:
                continue
            yield f"{name} with a column less", self.change(name, lambda t: t[..., :-1].copy())
            yield f"{name} as a vector", self.change(name, lambda t: t.reshape(-1))
            if shape != shape[::-1]:
                yield f"{name} transposed", self.change(name, lambda t: t.T.copy())

    def of_fields(
        self, values: dict[str, list[Any]], harmless: Iterable[tuple[str, Any]] = ()
    ) -> Iterator[tuple[str, Damage]]:
        """Odd values of fields; those of ``harmless`` may be computed."""
        for field, odd in values.items():
            for i, value in enumerate(odd):
                is_harmless = any(field == of and value == other for of, other in harmless)
                damage = self.set(field, value, must_be_refused=not is_harmless)
                yield f"{field} = {str(value)[:40]} ({i})", damage


def folder_class(name: str, damages: Iterable[tuple[str, Damage]], sample: int) -> HostileClass:
    """A class of damaged folders; the first one is as it should be."""
    cases = [Case(what, damage) for what, damage in damages]

    @contextmanager
    def prepared() -> Iterator[None]:
        sys.path[:0] = [str(_MODELS)]
        with tempfile.TemporaryDirectory(prefix="mlc-native-hostile-") as folder:
            _state["folder"] = Path(folder) / "model"
            assert _attempt(cases[0].value) == "served"
            yield

    return HostileClass(
        name, cases, _attempt, cpu_s=2, memory_mib=64, sample=sample, prepared=prepared
    )


def _attempt(damage: Damage) -> str:
    from quantized_checkpoints import save_file

    folder = damage.make()
    damage.apply(folder)
    path = _state["folder"]
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    (path / "config.json").write_text(json.dumps(folder.config))
    save_file(folder.tensors, path / _WEIGHTS)
    (path / _WEIGHTS).write_bytes(folder.edit_file((path / _WEIGHTS).read_bytes()))
    outcome = _compute(path)
    if outcome in _OUTCOMES and outcome != (damage.wanted or outcome):
        return f"it was {outcome}"
    return outcome


def _compute(path: Path) -> str:
    """The logits of three rows."""
    from mlc_native._core import testing
    from mlc_native.errors import MAX_MESSAGE, LoadError

    try:
        model = testing.TestModel(str(path))
        model.allocate(4, 16, 16)
        model.forward([([1, 2, 3], 0, [0])], "all")
    except LoadError as error:
        if len(str(error)) > MAX_MESSAGE + 10:
            return f"an error of {len(str(error))} characters: {str(error)[:100]}"
        return "refused" if error.field else f"an error without a field: {error}"
    return "served"
