"""Tensors that are drawn and written to safetensors files piece by piece.

For make_random_checkpoint.py: a model needs disk and not memory.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch

DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}  # ours to safetensors'
STORED = {**DTYPES, "uint8": "U8", "int64": "I64"}
PIECE = 1 << 24  # elements drawn at a time


@dataclass
class Weight:
    """A tensor to be drawn from the normal distribution (mean, std)."""

    name: str
    shape: list[int]
    dtype: str
    mean: float
    std: float

    @property
    def num_bytes(self) -> int:
        """Size in the file."""
        return math.prod(self.shape) * getattr(torch, self.dtype).itemsize

    def draw(self, generator: torch.Generator) -> Iterator[torch.Tensor]:
        """The values in order, in pieces."""
        left = math.prod(self.shape)
        while left > 0:
            dtype = getattr(torch, self.dtype)
            piece = torch.empty(min(left, PIECE), dtype=dtype, device=generator.device)
            yield piece.normal_(self.mean, self.std, generator=generator).cpu()
            left -= piece.numel()


@dataclass
class Bytes(Weight):
    """A tensor of bytes that are drawn uniformly from [mean - std, mean + std]."""

    def draw(self, generator: torch.Generator) -> Iterator[torch.Tensor]:
        """The values in order, in pieces."""
        left = math.prod(self.shape)
        low, high = int(self.mean - self.std), int(self.mean + self.std) + 1
        while left > 0:
            piece = torch.empty(min(left, PIECE), dtype=torch.uint8, device=generator.device)
            yield piece.random_(low, high, generator=generator).cpu()
            left -= piece.numel()


@dataclass
class Numbers(Weight):
    """A tensor of integers (int64) that are drawn uniformly from [0, mean)."""

    def draw(self, generator: torch.Generator) -> Iterator[torch.Tensor]:
        """The values in order, in pieces."""
        left = math.prod(self.shape)
        while left > 0:
            piece = torch.empty(min(left, PIECE), dtype=torch.int64, device=generator.device)
            yield piece.random_(0, int(self.mean), generator=generator).cpu()
            left -= piece.numel()


@dataclass
class Ternary(Weight):
    """A tensor of bytes with four numbers of 0, 1 and 2 each."""

    def draw(self, generator: torch.Generator) -> Iterator[torch.Tensor]:
        """The values in order, in pieces."""
        left = math.prod(self.shape)
        shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8, device=generator.device)
        while left > 0:
            numbers = torch.empty(min(left, PIECE), 4, dtype=torch.uint8, device=generator.device)
            numbers.random_(0, 3, generator=generator)
            yield (numbers << shifts).sum(1, dtype=torch.uint8).cpu()
            left -= numbers.shape[0]


def in_ternary(weight: Weight) -> list[Weight]:
    """A matrix of a layer as BitNet has it: four rows in one, and a scale; others as they are."""
    if not weight.name.endswith("_proj.weight"):
        return [weight]
    rows, columns = weight.shape
    return [
        Ternary(weight.name, [rows // 4, columns], "uint8", 0, 0),
        Weight(f"{weight.name}_scale", [1], "bfloat16", weight.std, 0),
    ]


def in_mxfp4(weight: Weight) -> list[Weight]:
    """The blocks and scales of a tensor [experts, columns, rows]; other weights as they are."""
    if not weight.name.endswith(("experts.gate_up_proj", "experts.down_proj")):
        return [weight]
    experts, columns, rows = weight.shape
    groups = [experts, rows, columns // 32]
    exponent = 127 + round(math.log2(weight.std)) - 1
    return [
        Bytes(f"{weight.name}_blocks", [*groups, 16], "uint8", 127.5, 127.5),
        Bytes(f"{weight.name}_scales", groups, "uint8", exponent, 1),
    ]


def split(weights: list[Weight], shards: int) -> list[list[Weight]]:
    """Consecutive weights of about equal size in bytes."""
    if not 1 <= shards <= len(weights):
        raise ValueError(f"shards={shards}: there are {len(weights)} tensors to split")
    total = sum(weight.num_bytes for weight in weights)
    parts: list[list[Weight]] = [[]]
    done = 0
    for i, weight in enumerate(weights):
        needed = shards - len(parts)  # after this one
        full = done * shards >= total * len(parts) or len(weights) - i <= needed
        if parts[-1] and needed and full:
            parts.append([])
        parts[-1].append(weight)
        done += weight.num_bytes
    return parts


def write_weights(out: Path, parts: list[list[Weight]], generator: torch.Generator) -> None:
    """model.safetensors, or several files with an index."""
    count = len(parts)
    names = [f"model-{i:05}-of-{count:05}.safetensors" for i in range(1, count + 1)]
    if count == 1:
        names = ["model.safetensors"]
    for name, part in zip(names, parts, strict=True):
        with open(out / name, "wb") as file:
            _write_safetensors(file, part, generator)
    if count > 1:
        index = {
            "metadata": {"total_size": sum(w.num_bytes for part in parts for w in part)},
            "weight_map": {
                w.name: name for name, part in zip(names, parts, strict=True) for w in part
            },
        }
        (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))


def _write_safetensors(file: BinaryIO, part: list[Weight], generator: torch.Generator) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for w in part:
        header[w.name] = {"dtype": STORED[w.dtype], "shape": w.shape,
                          "data_offsets": [end, end + w.num_bytes]}  # fmt: skip
        end += w.num_bytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # aligns the data
    file.write(struct.pack("<Q", len(text)) + text)
    for w in part:
        for piece in w.draw(generator):
            file.write(piece.view(torch.uint8).numpy())
