"""MLCChatConfig describes a model folder of either format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mlc_native.errors import load_error
from mlc_native.protocol.conversation_protocol import Conversation
from mlc_native.support.json_file import read_json_object
from mlc_native.support.regular_file import has_file

MLC_CHAT_CONFIG = "mlc-chat-config.json"
HF_CONFIG = "config.json"


class MLCChatConfig(BaseModel):
    """Description of a model folder, read from ``config.json`` or ``mlc-chat-config.json``.

    ``conv_template`` is only a name if MLC-LLM's converter did not know it.
    ``context_window_size`` is in tokens; 0 if the folder does not specify it. ``model_config_dict``
    is the content of the file.
    """

    model_config = ConfigDict(protected_namespaces=(), extra="ignore")

    model_type: str = ""
    quantization: str = "q0"
    vocab_size: int = 0
    context_window_size: int = 0
    sliding_window_size: int | None = None
    attention_sink_size: int | None = None
    prefill_chunk_size: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    pad_token_id: int | list[int] | None = None
    bos_token_id: int | list[int] | None = None
    eos_token_id: int | list[int] | None = None
    conv_template: Conversation | str | None = None
    version: str = "0.1.0"
    model_config_dict: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def from_folder(cls, folder: Path) -> MLCChatConfig:
        """Reads the description. Raises LoadError, which names a missing or damaged file."""
        for name in (HF_CONFIG, MLC_CHAT_CONFIG):
            if has_file(folder / name):
                break
        else:
            raise load_error(HF_CONFIG, f"{folder} is not a model folder: it has no {HF_CONFIG}")
        path = folder / name
        fields = read_json_object(path)
        known = {key: value for key, value in fields.items() if key in cls.model_fields}
        # A Hugging Face config of a larger model has the sizes of its text model one level down.
        text = fields.get("text_config")
        sizes = text if isinstance(text, dict) else fields
        known.setdefault("vocab_size", sizes.get("vocab_size") or 0)
        known.setdefault("context_window_size", sizes.get("max_position_embeddings") or 0)
        try:
            return cls(**{**known, "model_config_dict": fields})
        except ValidationError as error:
            raise load_error(str(path), f"{path} is damaged: {error}") from error
