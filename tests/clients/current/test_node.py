"""OpenAI's library for Node and Vercel's ai SDK: tests/clients/node. Nightly, where npm is."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from demo_chat import KEY

SOURCES = Path(__file__).resolve().parents[1] / "node"


@pytest.mark.skipif("MLC_NATIVE_NPM_CLIENTS" not in os.environ, reason="nightly")
@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no npm")
def test_clients(url: str, tmp_path: Path) -> None:
    folder = shutil.copytree(SOURCES, tmp_path / "node")
    install = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    for command in (install, ["node", "clients.mjs", url, KEY]):
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        assert done.returncode == 0, done.stderr[-8000:]
    assert done.stdout.split() == ["ok", "openai", "ok", "vercel"]
