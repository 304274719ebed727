"""An HTTP server with OpenAI's interface, as an ASGI app over engines of this process.

Needs the extra ``serve``. ``mlc-native serve MODEL`` runs it; ``create_app`` is for servers and
apps of your own.
"""

from __future__ import annotations

from mlc_native.errors import invalid_config

try:
    from mlc_native.server.app import create_app
    from mlc_native.server.config import ServerConfig
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "starlette":
        raise
    raise invalid_config(
        "server", 'the server needs further packages: pip install "mlc_native[serve]"'
    ) from None

__all__ = ["ServerConfig", "create_app"]
