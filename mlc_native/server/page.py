"""Page: the chat page at ``/``, one static file that may run nothing except itself."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

_FILE = Path(__file__).with_name("page.html")
_PARTS = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


def _policy(html: str) -> str:
    """The content security policy: requests to this server, and the file's own script and style."""
    allowed: dict[str, list[str]] = {"script": [], "style": []}
    for kind, text in _PARTS.findall(html):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        allowed[kind].append(f"'sha256-{digest}'")
    return "; ".join(
        [
            "default-src 'none'",
            "connect-src 'self'",
            "img-src data:",
            *(f"{kind}-src {' '.join(hashes)}" for kind, hashes in allowed.items()),
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )


class Page:
    """GET /. Needs no key: what the page asks the server for does."""

    def __init__(self) -> None:
        html = _FILE.read_text(encoding="utf-8")
        self._body = html.encode()
        self._headers = {
            "content-type": "text/html; charset=utf-8",
            "cache-control": "no-cache",
            "etag": f'"{hashlib.sha256(self._body).hexdigest()[:32]}"',
            "content-security-policy": _policy(html),
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
            "x-frame-options": "DENY",
        }

    async def get(self, request: Request) -> Response:
        """A Starlette endpoint."""
        if request.headers.get("if-none-match") == self._headers["etag"]:
            return Response(status_code=304, headers=self._headers)
        return Response(self._body, headers=self._headers)
