"""PopenServer: ``mlc-native serve`` in a process of its own, for tests and notebooks."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import IO, Any, Self

from mlc_native.errors import EngineTerminatedError
from mlc_native.serve.adapters import adapter_entries
from mlc_native.serve.config import EngineConfig
from mlc_native.serve.model_setup import Mode

START_TIMEOUT_S = 600
END_TIMEOUT_S = 60
_POLL_S = 0.1
_OWN_FLAGS = ("model", "model_lib", "mode")


class PopenServer:
    """A server as a process: started by ``start`` or ``with``, ended by ``terminate``.

    Args:
        model: model folder, "demo" or hub id.
        device: as for MLCEngine.
        model_lib: as for MLCEngine.
        mode: as for MLCEngine.
        engine_config: further settings, also as a dict.
        enable_debug: serve ``/debug/*`` and honour ``debug_config``.
        enable_tracing: record events of requests.
        host: where the server listens.
        port: where the server listens; 0 is a free one.

    Attributes:
        base_url: the server's address; "" before it is started.
        openai_v1_base_url: ``base_url`` for OpenAI's clients.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        device: object = "auto",
        *,
        model_lib: str | os.PathLike[str] | None = None,
        mode: Mode = "local",
        engine_config: EngineConfig | Mapping[str, Any] | None = None,
        enable_debug: bool = True,
        enable_tracing: bool = False,
        host: str = "127.0.0.1",
        port: int = 8082,
    ) -> None:
        self.model = os.fspath(model)
        self.device = str(device)
        self.model_lib = None if model_lib is None else os.fspath(model_lib)
        self.mode = mode
        self.engine_config = EngineConfig.of(engine_config, {}, "PopenServer")
        self.enable_debug = enable_debug
        self.enable_tracing = enable_tracing
        self.host = host
        self.port = port
        self.base_url = ""
        self.openai_v1_base_url = ""
        self._process: subprocess.Popen[str] | None = None

    def command(self) -> list[str]:
        """The command line of the server."""
        command = [sys.executable, "-m", "mlc_native", "serve", self.model]
        command += ["--served-model-name", self.model]  # which MLC-LLM's answers carry
        command += ["--device", self.device, "--mode", self.mode]
        command += ["--host", self.host, "--port", str(self.port)]
        if self.model_lib is not None:
            command += ["--model-lib", self.model_lib]
        if self.enable_debug:
            command.append("--enable-debug")
        if self.enable_tracing:
            command.append("--enable-tracing")
        defaults = EngineConfig()
        settings = {
            field.name: value
            for field in dataclasses.fields(EngineConfig)
            if (value := getattr(self.engine_config, field.name)) != getattr(defaults, field.name)
            and field.name not in _OWN_FLAGS
        }
        if "adapters" in settings:  # which may have paths
            settings["adapters"] = adapter_entries(settings["adapters"])
        texts = [f"{name}={json.dumps(value)}" for name, value in settings.items()]
        return command + (["--overrides", ";".join(texts)] if texts else [])

    def start(self, extra_env: Mapping[str, str] | None = None) -> None:
        """Starts the server and waits until it is ready. One that runs already stays.

        Raises:
            RuntimeError: it ended, or is not ready after ten minutes. It has written why to stderr.
        """
        if self._process is not None and self._process.poll() is None:
            return
        environment = {**os.environ, **(extra_env or {})}
        self._process = subprocess.Popen(
            self.command(), env=environment, stdout=subprocess.PIPE, text=True
        )
        try:
            self.base_url = self._address(self._process)
            self.openai_v1_base_url = f"{self.base_url}/v1"
            self._wait_until_ready(self._process)
        except BaseException:
            self.terminate()
            raise

    def _address(self, process: subprocess.Popen[str]) -> str:
        """What the server writes first, when it listens: another may listen where it cannot."""
        assert process.stdout is not None
        address = process.stdout.readline()
        if not address:
            process.wait()
            raise self._ended(process)
        print(address, end="", flush=True)
        threading.Thread(target=_pass_on, args=(process.stdout,), daemon=True).start()
        return address.strip()

    def _ended(self, process: subprocess.Popen[str]) -> EngineTerminatedError:
        return EngineTerminatedError(
            f'the server of "{self.model}" ended with status {process.returncode}'
        )

    def _wait_until_ready(self, process: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._is_ready():
            if process.poll() is not None:
                raise self._ended(process)
            if time.monotonic() > deadline:
                raise EngineTerminatedError(f"the server is not ready after {START_TIMEOUT_S} s")
            time.sleep(_POLL_S)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.base_url}/ready", timeout=END_TIMEOUT_S):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def terminate(self) -> None:
        """Ends the server: running requests may end, then it is killed. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.terminate()


def _pass_on(output: IO[str]) -> None:
    """Writes what a server writes to its stdout to the stdout of this process."""
    with output:
        for line in output:
            print(line, end="", flush=True)
