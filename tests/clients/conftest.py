"""A live `mlc-native serve demo` for the libraries that talk to it.

The tests run in an environment of their own, which has the libraries and not mlc_native:
tools/clients.sh makes it. $MLC_NATIVE_PYTHON is the interpreter that has mlc_native.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 120
SERVE = ("-m", "mlc_native.cli.main", "serve", "--port", "0")
SERVER_PYTHON = os.environ.get("MLC_NATIVE_PYTHON", sys.executable)

sys.path.insert(0, str(Path(__file__).parent))


class Server:
    """`mlc-native serve` with these arguments. ``stop`` ends it, which must succeed.

    Another ``program`` prints its address, too, and has the server's app below ``prefix``.
    """

    def __init__(self, *arguments: str, program: tuple[str, ...] = SERVE, prefix: str = "") -> None:
        self._prefix = prefix
        self._process = subprocess.Popen(
            [SERVER_PYTHON, *program, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        assert self.url.startswith("http://"), self.url
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        """Returns when the model is loaded: until then the server answers, with status 503."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                urllib.request.urlopen(f"{self.url}{self._prefix}/ready", timeout=WAIT_S).close()
                return
            except urllib.error.HTTPError as error:
                error.close()
                assert time.monotonic() < deadline, "the model is not loaded in time"
                time.sleep(0.05)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            assert self._process.wait(WAIT_S) == 0
        finally:
            self._process.kill()
            assert self._process.stdout is not None
            self._process.stdout.close()


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """The address of a server with the demo model, which it calls "demo"."""
    server = Server("demo", "--device", "cpu", "--api-key", "secret")
    yield server.url
    server.stop()
