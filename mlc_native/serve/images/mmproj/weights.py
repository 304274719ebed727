"""Weights: which tensors of a file make each weight of a module of transformers, and how.

Shapes are those of arrays, the rows of a matrix first. Extents of 1 do not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlc_native.serve.images.mmproj.file import MmprojFile

if TYPE_CHECKING:
    import numpy as np

    Make = Callable[[list[np.ndarray]], np.ndarray]

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Weight:
    """One weight of the module.

    Attributes:
        name: that of the module.
        sources: the tensors of the file, and the shape of each.
        make: what becomes of them before they have the shape of the weight; None: nothing.
        shape: of the weight, if it is another one.
    """

    name: str
    sources: tuple[tuple[str, Shape], ...]
    make: Make | None = None
    shape: Shape | None = None


def linear(
    name: str, own: str, rows: int, columns: int, *, bias: bool = True, make: Make | None = None
) -> list[Weight]:
    """A matrix and, perhaps, its bias."""
    weights = [Weight(f"{name}.weight", ((f"{own}.weight", (rows, columns)),), make)]
    return weights + (vector(f"{name}.bias", f"{own}.bias", rows, make=make) if bias else [])


def norm(name: str, own: str, size: int, *, bias: bool = True) -> list[Weight]:
    """The weight of a norm and, perhaps, its bias."""
    kinds = ("weight", "bias") if bias else ("weight",)
    return [w for kind in kinds for w in vector(f"{name}.{kind}", f"{own}.{kind}", size)]


def vector(name: str, own: str, *shape: int, make: Make | None = None) -> list[Weight]:
    """One tensor as it is."""
    return [Weight(name, ((own, shape),), make)]


def joined(name: str, owns: Sequence[str], rows: int, columns: int) -> list[Weight]:
    """A matrix and its bias whose rows are in several tensors, one behind the other."""
    part = rows // len(owns)
    return [
        Weight(
            f"{name}.{kind}",
            tuple((f"{own}.{kind}", (part, *shape)) for own in owns),
            _concatenated,
            (rows, *shape),
        )
        for kind, shape in (("weight", (columns,)), ("bias", ()))
    ]


def frames(name: str, own: str, rows: int, colours: int, size: int) -> list[Weight]:
    """The kernel of a convolution of two frames, of which each is a tensor."""
    shape = (rows, colours, size, size)
    sources = ((f"{own}.weight", shape), (f"{own}.weight.1", shape))
    return [Weight(f"{name}.weight", sources, _stacked, (rows, colours, 2, size, size))]


def _concatenated(parts: list[np.ndarray]) -> np.ndarray:
    import numpy as np

    return np.concatenate(parts)


def _stacked(parts: list[np.ndarray]) -> np.ndarray:
    import numpy as np

    return np.stack(parts, axis=2)


def minus_one(parts: list[np.ndarray]) -> np.ndarray:
    """The weight of a norm that multiplies by 1 + weight, and is stored as that sum."""
    return parts[0] - 1


def halves_of_heads(num_heads: int) -> Make:
    """Undoes the order for ropes of neighbours: in each head, rows alternate between its halves."""

    def make(parts: list[np.ndarray]) -> np.ndarray:
        stored = parts[0]
        of_heads = stored.reshape(num_heads, -1, 2, *stored.shape[1:])
        return of_heads.swapaxes(1, 2).reshape(stored.shape)

    return make


def check_weights(file: MmprojFile, weights: Sequence[Weight], unused: Sequence[str]) -> None:
    """Checks that the file has all tensors, of fitting shapes and of known types, and no others.

    Args:
        file: the file.
        weights: those of the module.
        unused: tensors that may be there.

    Raises:
        LoadError: it does not, which names a tensor.
    """
    known = set(unused)
    for name, shape in _sources(weights):
        known.add(name)
        tensor = file.tensors.get(name)
        if tensor is None:
            file.fail_tensor(name, "is missing")
        if _squeezed(tensor.shape) != _squeezed(shape):
            file.fail_tensor(name, f"has the shape {list(tensor.shape)}, must be {list(shape)}")
        file.type_of(name)
    for name in file.tensors:
        if name not in known:
            file.fail_tensor(name, "is not known for this projector type")


def read_weights(file: MmprojFile, weights: Sequence[Weight]) -> Mapping[str, Any]:
    """The weights as tensors of torch in float32, by their names in the module."""
    import numpy as np
    import torch

    state: dict[str, Any] = {}
    for weight in weights:
        parts = [file.read(name).reshape(shape) for name, shape in weight.sources]
        array = parts[0] if weight.make is None else weight.make(parts)
        state[weight.name] = torch.from_numpy(np.ascontiguousarray(array, np.float32))
    return state


def _sources(weights: Sequence[Weight]) -> Iterator[tuple[str, Shape]]:
    for weight in weights:
        yield from weight.sources


def _squeezed(shape: Shape) -> Shape:
    return tuple(extent for extent in shape if extent != 1)
