"""The log of requests: what each one asks for, as a line of JSON. Off by default.

The texts of a request are only logged as far as ``max_log_len`` allows, which is 0 by default. Of a
setting that is long, or that is wrong and therefore long, its length is logged.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from mlc_native.server.config import ServerConfig
from mlc_native.server.fields import Fields

request_logger = logging.getLogger("mlc_native.requests")

# Fields that hold texts of a conversation, or what was made of one.
_TEXTS = (
    *("messages", "prompt", "tools", "documents", "response_format", "stop", "bad_words"),
    *("prediction", "chat_template", "chat_template_kwargs", "input"),
)
_MAX_SETTING_LEN = 200  # characters of its JSON


def log_request(
    config: ServerConfig, request_id: str, model_name: str, answer_id: str, fields: Fields
) -> None:
    """Logs a request that was read; ``fields`` are those that the engine gets."""
    if not config.request_log:
        return
    hidden = {*_TEXTS, "cache_salt"}
    settings = {n: _shortened(value) for n, value in fields.items() if n not in hidden}
    entry: dict[str, Any] = {
        "request_id": request_id,
        "answer_id": answer_id,
        "model": model_name,
        "settings": settings,
    }
    if config.max_log_len:
        texts = {name: fields[name] for name in _TEXTS if name in fields}
        entry["texts"] = json.dumps(texts, ensure_ascii=False)[: config.max_log_len]
    request_logger.info(json.dumps(entry, default=str))


def _shortened(value: Any) -> Any:
    length = len(json.dumps(value, default=str))
    return value if length <= _MAX_SETTING_LEN else f"({length} characters)"
