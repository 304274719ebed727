"""The FastAPI app of docs/guide.md on a port of its own, which is printed.

    python fastapi_app.py FOLDER

It runs in the interpreter that has mlc_native. FOLDER has FastAPI and what it needs.
"""

from __future__ import annotations

import re
import signal
import socket
import sys
from pathlib import Path
from typing import Any

sys.path.append(sys.argv[1])

import uvicorn

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide.md"
BLOCK = re.compile(r"^## In FastAPI\n.*?```python\n(?P<code>.*?)```", re.DOTALL | re.MULTILINE)


def guide_app() -> Any:
    """The app of the guide, made by its code as it stands."""
    block = BLOCK.search(GUIDE.read_text())
    assert block is not None
    names: dict[str, Any] = {}
    exec(compile(block["code"], str(GUIDE), "exec", dont_inherit=True), names)
    return names["app"]


def main() -> None:
    # uvicorn repeats the signal that ended it, when the app has ended.
    signal.signal(signal.SIGTERM, lambda *_: None)
    app = guide_app()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # requests wait here for the engine
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
