"""What the tests of models share."""

from __future__ import annotations

from pathlib import Path

import pytest
from paged_driver import PagedModel

DEMO = Path(__file__).resolve().parents[3] / "mlc_native" / "demo_model"


@pytest.fixture(params=["", "avx512", "avx2", "portable"])
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """An ISA of this machine ("": the best), forced on every model that the test loads."""
    monkeypatch.setenv("MLC_NATIVE_ISA", request.param)
    try:
        PagedModel(DEMO)
    except ValueError:
        pytest.skip(f"this machine lacks {request.param}")
    return str(request.param)
