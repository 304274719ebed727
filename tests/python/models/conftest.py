"""What the tests of models share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from paged_driver import PagedModel

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

DEMO = Path(__file__).resolve().parents[3] / "mlc_native" / "demo_model"


# "": the best of this machine.
ISAS = ["", "avx512_bf16", "avx512_vnni", "avx512", "avx2_vnni", "avx2", "portable"]


def force_isa(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLC_NATIVE_ISA", isa)
    try:
        PagedModel(DEMO)
    except ValueError:
        pytest.skip(f"this machine lacks {isa}")


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """An ISA of this machine, forced on every model that the test loads."""
    force_isa(request.param, monkeypatch)
    return str(request.param)


@pytest.fixture(
    params=[pytest.param(isa, marks=[pytest.mark.slow, pytest.mark.nightly] if isa else [])
            for isa in ISAS]
)  # fmt: skip
def best_isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """As isa, for tests that take long: other ISAs than the best only at night."""
    force_isa(request.param, monkeypatch)
    return str(request.param)


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """A folder of a tiny Llama that the test may damage."""
    return make_checkpoint("tiny-llama", tmp_path / "llama")
