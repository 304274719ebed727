"""MmprojFile: the keys and tensors of a GGUF file with a vision tower.

Everything in the file may be wrong. What is, is named in a LoadError with the file and the key or
tensor. Immutable; any thread. Tensors are read from the file when they are asked for.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from mlc_native.errors import LoadError, load_error
from mlc_native.support.regular_file import open_regular

if TYPE_CHECKING:
    import numpy as np

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_HEADER_BYTES = 16 << 20  # a tower has no vocabulary
_MAX_COUNT = 1 << 16  # of keys and of tensors
_MAX_NAME_BYTES = 1024
_MAX_DIMENSIONS = 4
_MAX_ALIGNMENT = 1 << 20
_MAX_ELEMENTS = 1 << 40
_ALIGNMENT = "general.alignment"

# The types of values of keys, by their numbers.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
            12: "d"}  # fmt: skip
_TEXT, _LIST = 8, 9


@dataclass(frozen=True)
class TensorType:
    """How numbers are stored: in blocks of so many elements and bytes."""

    name: str
    elements: int
    bytes: int


# Those that are read, by the numbers in files. Other ones are not known to be used for towers.
TYPES = {
    0: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    8: TensorType("Q8_0", 32, 34),
    30: TensorType("BF16", 1, 2),
}
_OTHER_TYPES = {2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
                13: "Q5_K", 14: "Q6_K", 20: "IQ4_NL", 23: "IQ4_XS"}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """Where a tensor is: its shape as that of an array, and the bytes from the begin of data."""

    shape: tuple[int, ...]
    type: int
    offset: int


class MmprojFile:
    """The file.

    Attributes:
        path: where it is.
        size: in bytes.
        values: of the keys: numbers, booleans, texts and lists.
        tensors: by their names.

    Raises:
        LoadError: the file is damaged, or no GGUF file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, Any] = {}
        self.tensors: dict[str, Tensor] = {}
        with open_regular(path) as file:
            self.size = size = os.fstat(file.fileno()).st_size
            header = _Header(path, file, size)
            try:
                self._read(header)
            except RecursionError:  # lists of lists are refused before
                raise header.damage("its keys are nested too deeply") from None
            self._data_begin = header.position
        alignment = self.values.get(_ALIGNMENT, 32)
        if not isinstance(alignment, int) or not 0 < alignment <= _MAX_ALIGNMENT:
            self.fail(_ALIGNMENT, f"must be in [1, {_MAX_ALIGNMENT}], is {alignment!r:.40}")
        self._data_begin += -self._data_begin % alignment
        for name, tensor in self.tensors.items():
            kind = TYPES.get(tensor.type)
            if kind is not None and self._data_begin + tensor.offset + _bytes(tensor, kind) > size:
                self.fail_tensor(name, "lies behind the end of the file, which is cut")

    def fail(self, key: str, what: str) -> NoReturn:
        """Raises the LoadError about a key."""
        raise load_error(key, f'{self.path}: "{key}" {what}')

    def fail_tensor(self, name: str, what: str) -> NoReturn:
        """Raises the LoadError about a tensor."""
        raise load_error(name, f'{self.path}: tensor "{name}" {what}')

    def read(self, name: str) -> np.ndarray:
        """A tensor's numbers as float32. Raises LoadError for one that is missing."""
        import numpy as np

        tensor = self.tensors.get(name)
        if tensor is None:
            self.fail_tensor(name, "is missing")
        kind = self.type_of(name)
        with open_regular(self.path) as file:
            file.seek(self._data_begin + tensor.offset)
            data = bytearray(_bytes(tensor, kind))
            view, count = memoryview(data), 0
            while count < len(data) and (read := file.readinto(view[count:])):
                count += read
        if count < len(data):
            self.fail_tensor(name, "lies behind the end of the file, which is cut")
        return _as_floats(np.frombuffer(data, np.uint8), kind.name).reshape(tensor.shape)

    def type_of(self, name: str) -> TensorType:
        """How a tensor is stored. Raises LoadError for a type that is not read."""
        number = self.tensors[name].type
        if number not in TYPES:
            known = ", ".join(kind.name for kind in TYPES.values())
            found = _OTHER_TYPES.get(number, f"number {number}")
            self.fail_tensor(name, f"has the type {found}; types of a tower that are read: {known}")
        return TYPES[number]

    def _read(self, header: _Header) -> None:
        if header.take(len(_MAGIC)) != _MAGIC:
            raise header.damage('it does not begin with "GGUF"')
        version = header.number("I")
        if version not in _VERSIONS:
            raise header.damage(f"it has version {version} of GGUF, supported are 2 and 3")
        num_tensors, num_keys = header.count("tensors"), header.count("keys")
        for _ in range(num_keys):
            key = header.name("key")
            if key in self.values:
                self.fail(key, "is there twice")
            self.values[key] = header.value(key)
        for _ in range(num_tensors):
            name = header.name("tensor")
            if name in self.tensors:
                self.fail_tensor(name, "is there twice")
            self.tensors[name] = self._tensor(name, header)

    def _tensor(self, name: str, header: _Header) -> Tensor:
        dimensions = header.number("I")
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            self.fail_tensor(name, f"has {dimensions} dimensions, must have 1 to {_MAX_DIMENSIONS}")
        shape = tuple(header.number("Q") for _ in range(dimensions))[::-1]
        if not all(shape) or math.prod(shape) > _MAX_ELEMENTS:
            self.fail_tensor(name, f"has the shape {list(shape)}, which is not allowed")
        tensor = Tensor(shape, header.number("I"), header.number("Q"))
        kind = TYPES.get(tensor.type)
        if kind is not None and shape[-1] % kind.elements != 0:
            self.fail_tensor(name, f"has rows of {shape[-1]} elements, {kind.name} has blocks of "
                                   f"{kind.elements}")  # fmt: skip
        return tensor


class _Header:
    """Reads the front of the file from left to right."""

    def __init__(self, path: Path, file: FileIO, size: int) -> None:
        self._path = path
        self._file = file
        self._left = min(size, _MAX_HEADER_BYTES)
        self._is_cut = size <= _MAX_HEADER_BYTES
        self.position = 0

    def damage(self, what: str) -> LoadError:
        return load_error(str(self._path), f"{self._path} is damaged: {what}")

    def take(self, count: int) -> bytes:
        if count > self._left:
            limit = "the end of the file" if self._is_cut else f"{_MAX_HEADER_BYTES} bytes"
            raise self.damage(f"its header goes on behind {limit}")
        data = b"".join(_pieces(self._file, count))
        if len(data) < count:
            raise self.damage("its header goes on behind the end of the file")
        self._left -= count
        self.position += count
        return data

    def number(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def count(self, what: str) -> int:
        count: int = self.number("Q")
        if count > _MAX_COUNT:
            raise self.damage(f"it has {count} {what}, allowed are {_MAX_COUNT}")
        return count

    def name(self, what: str) -> str:
        data = self.take(min(self.number("Q"), _MAX_HEADER_BYTES + 1))
        if not 0 < len(data) <= _MAX_NAME_BYTES or not all(0x20 < byte < 0x7F for byte in data):
            raise self.damage(f"the name of a {what} at byte {self.position - len(data)} is none")
        return data.decode("ascii")

    def value(self, key: str) -> Any:
        kind = self.number("I")
        if kind != _LIST:
            return self._single(key, kind)
        kind, count = self.number("I"), self.number("Q")
        if kind == _TEXT:
            if count > self._left // 8:
                raise self.damage(f'its list "{key}" goes on behind the end of the header')
            return [self._single(key, kind) for _ in range(count)]
        code = self._code(key, kind)
        size = struct.calcsize("<" + code)
        if count > self._left // size:
            raise self.damage(f'its list "{key}" goes on behind the end of the header')
        return list(struct.unpack(f"<{count}{code}", self.take(count * size)))

    def _single(self, key: str, kind: int) -> Any:
        if kind == _TEXT:
            length: int = self.number("Q")
            return self.take(length).decode("utf-8", "replace")
        return self.number(self._code(key, kind))

    def _code(self, key: str, kind: int) -> str:
        if kind not in _NUMBERS:
            raise load_error(key, f'{self._path}: "{key}" has the unknown type {kind}')
        return _NUMBERS[kind]


def _pieces(file: FileIO, count: int) -> Iterator[bytes]:
    while count > 0 and (piece := file.read(count)):
        count -= len(piece)
        yield piece


def _bytes(tensor: Tensor, kind: TensorType) -> int:
    return math.prod(tensor.shape) // kind.elements * kind.bytes


def _as_floats(data: np.ndarray, kind: str) -> np.ndarray:
    import numpy as np

    if kind == "F32":
        return data.view("<f4").astype(np.float32)
    if kind == "F16":
        return data.view("<f2").astype(np.float32)
    if kind == "BF16":
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
    blocks = data.reshape(-1, TYPES[8].bytes)  # a scale and 32 integers
    scales = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float32)
    return (blocks[:, 2:].view(np.int8) * scales).astype(np.float32)
