"""The devices that every op is tested on."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import mlc_native.ops

EMULATED = Path(mlc_native.ops.__file__).parent / "lib/libmlc_native_cuda_emulated_ops.so"


@dataclass(frozen=True)
class Device:
    """Where ops run. `ops` is mlc_native.ops, bound to this device's kernels."""

    name: str
    torch_name: str
    is_cuda_code: bool  # the CUDA kernels, be it on the emulator
    dtypes: tuple[torch.dtype, ...]  # of activations
    ops: ModuleType = mlc_native.ops

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.torch_name, copy=True)

    def size(self, n: int) -> int:
        """An odd size, or the next that CUDA's rows may have."""
        return (n + 7) // 8 * 8 if self.is_cuda_code else n

    def kv_dtypes(self, dtype: torch.dtype) -> list[torch.dtype]:
        """KV types for activations of this type."""
        if not self.is_cuda_code:
            return [torch.float32, torch.bfloat16, torch.float16, torch.int8]
        return [dtype] if dtype == torch.float32 else [dtype, torch.float8_e4m3fn]


ALL_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
DEVICES = [
    Device("cpu", "cpu", False, (torch.float32,)),
    Device("cuda_emulated", "cpu", True, ALL_DTYPES),
    Device("cuda", "cuda", True, ALL_DTYPES),
]


@contextmanager
def namespace(device: Device) -> Iterator[Any]:
    """The ops of a device. CPU tensors that are made here are the emulated device's memory, if the
    device is emulated."""
    if device.name == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    if device.name != "cuda_emulated":
        yield torch.ops.mlc_native
        return
    if not EMULATED.exists():
        pytest.skip("built without MLC_NATIVE_BUILD_TESTS=1")
    torch.ops.load_library(EMULATED)
    emulator = ctypes.CDLL(str(EMULATED))
    emulator.mlc_native_emulated_allocate_tensors(1)
    yield torch.ops.mlc_native_emulated
    emulator.mlc_native_emulated_allocate_tensors(0)
