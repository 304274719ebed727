"""The programs in examples/clients, as a user starts them, against the demo model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from live_server import WAIT_S, LiveServer

CLIENTS = Path(__file__).resolve().parents[3] / "examples/clients"


@pytest.mark.nightly  # the libraries take seconds to import
@pytest.mark.parametrize("client", sorted(CLIENTS.glob("*.py")), ids=lambda path: path.stem)
def test_a_client(demo_server: LiveServer, client: Path) -> None:
    pytest.importorskip(client.stem.partition("_")[0])
    done = subprocess.run(
        [sys.executable, str(client), "--url", demo_server.url],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    first, second, *others = done.stdout.splitlines()
    assert first == "The capital of France is Paris."
    assert second.startswith("The capital of ")
    assert second.endswith(".")
    assert others == (["name='Anna' age=31"] if client.stem == "openai_chat" else [])
