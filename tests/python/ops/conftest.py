"""Every op is tested on each device, with memory that starts as NaN."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from op_devices import DEVICES, Device, namespace

import mlc_native.ops


@pytest.fixture(params=DEVICES, ids=lambda device: device.name)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    with namespace(request.param) as ops:
        monkeypatch.setattr(mlc_native.ops, "_ops", ops)
        yield request.param


@pytest.fixture(autouse=True)
def _poisoned_outputs() -> Iterator[None]:
    """torch.empty, here and in C++, is NaN: what an op leaves out is seen."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(False)
