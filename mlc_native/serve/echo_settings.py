"""What an EchoEngine does with the settings of a request: it ends at stop strings, refuses what it
cannot do, and reports the rest.
"""

from __future__ import annotations

import json
from typing import Any

from mlc_native import _core
from mlc_native.errors import invalid_request

MOCK_ECHO = "mock://echo"
# The formats that MLC-LLM's programs expect in the report. An echo does not follow them.
_REPORTED_FORMATS = ("text", "json_object", "json_schema")


class StopText:
    """The text of an answer up to its first stop string. What may begin one is withheld."""

    def __init__(self, config: _core.GenerationConfig) -> None:
        self._stop_strs = list(config.stop_strs)
        self._keeps_stop = config.include_stop_str_in_output
        self._held = ""
        self.is_triggered = False

    def put(self, text: str, is_last: bool) -> str:
        """Adds a text. Returns what is certain to belong to the answer."""
        self._held += text
        found = [(at, s) for s in self._stop_strs if (at := self._held.find(s)) >= 0]
        if found:
            at, stop = min(found)
            self.is_triggered = True
            return self._held[: at + len(stop) if self._keeps_stop else at]
        end = len(self._held) - (0 if is_last else self._num_withheld())
        released, self._held = self._held[:end], self._held[end:]
        return released

    def _num_withheld(self) -> int:
        """The length of the longest end of the text that a stop string begins with."""
        longest = max(map(len, self._stop_strs), default=1) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            if any(s.startswith(self._held[-length:]) for s in self._stop_strs):
                return length
        return 0


def refuse_unserved(config: _core.GenerationConfig, has_tokenizer: bool) -> None:
    """Raises InvalidRequest for a setting that would change the answer of a model."""
    form = config.response_format.type
    unserved = {
        "logprobs": config.logprobs or config.top_logprobs > 0,
        "prompt_logprobs": config.prompt_logprobs is not None,
        "response_format": form not in _REPORTED_FORMATS,
        "bad_words": bool(config.bad_words),
        "allowed_token_ids": bool(config.allowed_token_ids),
        "adapter": config.adapter != "",
        "stop": bool(config.stop_strs) and not has_tokenizer,
    }
    for name, is_given in unserved.items():
        if is_given:
            what = f'{name} of type "{form}"' if name == "response_format" else name
            raise invalid_request(name, f"{MOCK_ECHO} samples nothing and cannot serve {what}")


def reported_settings(config: _core.GenerationConfig) -> dict[str, Any]:
    """The settings by name; a schema is a ``json_object`` with ``schema``, as in MLC-LLM."""
    settings: dict[str, Any] = json.loads(config.as_json())
    form = config.response_format
    settings["response_format"] = {"type": form.type}
    if form.type == "json_schema":
        settings["response_format"] = {"type": "json_object", "schema": form.text}
    return settings
