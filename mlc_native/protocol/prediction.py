"""``prediction``: OpenAI's parameter for a text that the answer is expected to repeat.

It makes an answer come faster and never changes it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from mlc_native.errors import InvalidRequest, invalid_request
from mlc_native.tokenizers import Tokenizer

MAX_PREDICTION_CHARS = 1 << 20


class PredictionPart(BaseModel):
    """A part of the text."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["text"] = "text"
    text: str


class Prediction(BaseModel):
    """``{"type": "content", "content": text}``; the content may also be a list of parts."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["content"] = "content"
    content: str | list[PredictionPart]

    def token_ids(self, tokenizer: Tokenizer | None) -> list[int]:
        """Returns the tokens of the text.

        Raises:
            InvalidRequest: there is no tokenizer, or the text is too long for it.
        """
        parts = self.content if isinstance(self.content, list) else [self.content]
        text = "".join(part if isinstance(part, str) else part.text for part in parts)
        if len(text) > MAX_PREDICTION_CHARS:
            raise invalid_request(
                "prediction",
                f'"prediction" must have at most {MAX_PREDICTION_CHARS} characters, '
                f"got {len(text)}",
            )
        if tokenizer is None:
            raise invalid_request(
                "prediction", '"prediction" needs a model folder with tokenizer.json'
            )
        try:
            return tokenizer.encode(text)
        except InvalidRequest as error:
            raise invalid_request("prediction", str(error)) from None
