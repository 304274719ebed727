"""Debug options of a request, outside the OpenAI fields."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class DebugConfig(BaseModel):
    """Options for measurements and for engine features that OpenAI's interface has no name for.

    Attributes:
        ignore_eos: the model's end-of-sequence ids do not stop; stop strings and
            ``stop_token_ids`` still do.
        pinned_system_prompt: pin the prompt in the prefix cache; ``pinned_prefixes`` lists it and
            ``unpin_prefix`` releases it. A prompt that exceeds the room for pins is refused. When
            other pins have taken the room, the request is served without a pin:
            ``usage.extra["pinned_tokens"]`` is the length of the prompt or 0.
        special_request: "query_engine_metrics" answers with the engine's metrics in the usage
            chunk (``usage.extra``); needs streaming with ``include_usage``.
        grammar_execution_mode: how a grammar is applied: "jump_forward" or "constraint".
    """

    model_config = ConfigDict(extra="forbid")

    ignore_eos: bool = False
    pinned_system_prompt: bool = False
    special_request: Literal["query_engine_metrics"] | None = None
    grammar_execution_mode: Literal["constraint", "jump_forward"] = "jump_forward"
