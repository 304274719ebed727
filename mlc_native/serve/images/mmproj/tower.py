"""MmprojTower: the tower of a GGUF model, made of the keys and tensors of a second file.

Small files as of a Hugging Face folder are written to a temporary one, so that transformers makes
config, tokenizer and processor as for a folder. The weights stay in memory.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlc_native.errors import LoadError
from mlc_native.serve.images.families import FAMILIES, PIXTRAL
from mlc_native.serve.images.mmproj.file import MmprojFile
from mlc_native.serve.images.mmproj.plan import TextModel, TowerPlan
from mlc_native.serve.images.mmproj.weights import read_weights
from mlc_native.serve.images.tower import (
    LOCAL,
    TowerError,
    TowerParts,
    check_loaded,
    leave_out_layers,
    load_processor,
    without_language_model,
)
from mlc_native.support.regular_file import MAX_JSON_BYTES, read_bytes

_TOKENIZER = "tokenizer.json"
# Tokens that a processor asks for, and writes for other things than images.
_OPTIONAL = ("video_token",)
_ASKED_FOR_IMAGE_TOKEN = ("llava", "mistral3")  # their processors ask no tokenizer for it


def without_folder(message: str, path: Path) -> str:
    """A message about a file whose folder the clients of a server need not know."""
    return message.replace(str(path), path.name)


@dataclass(frozen=True)
class MmprojTower:
    """The tower.

    Attributes:
        model: the path of the text model.
        file: that of the tower.
        plan: how it is made.
        text: what is known of the text model.
    """

    model: Path
    file: MmprojFile
    plan: TowerPlan
    text: TextModel
    name = "model"
    problem = None

    @property
    def model_type(self) -> str:
        """That of the family."""
        return self.plan.model_type

    @property
    def inserted(self) -> str | None:
        """What a chat gets for an image where its template shows texts alone."""
        return self.plan.inserted

    def shows(self, placeholder_in: Callable[[str], bool]) -> bool:
        """Whether a chat template writes the placeholder of an image."""
        return placeholder_in(self.plan.placeholder)

    def load(self) -> TowerParts:
        """Reads everything."""
        try:
            return self._loaded()
        except TowerError:
            raise
        except LoadError as error:  # the file has changed since it was checked
            reason = without_folder(str(error), self.file.path)
            raise TowerError(without_folder(reason, self.model)) from error
        except Exception as error:  # whatever transformers raises
            reason = f"{self.file.path.name}: {type(error).__name__}: {error}"
            raise TowerError(reason[:500]) from error

    def _loaded(self) -> TowerParts:
        import torch
        import transformers

        plan = self.plan
        with tempfile.TemporaryDirectory(prefix="mlc-native-") as name:
            folder = Path(name)
            rows_id = self._write(folder)
            config = transformers.AutoConfig.from_pretrained(folder, **LOCAL)
            config.image_token_id = rows_id
            processor = load_processor(folder, plan.model_type, rows_id)
        leave_out_layers(config)
        kind: Any = transformers.AutoModel._model_mapping[type(config)]
        model, found = kind.from_pretrained(
            None,
            config=config,
            state_dict=dict(read_weights(self.file, plan.weights)),
            dtype=torch.float32,
            output_loading_info=True,
        )
        check_loaded(model, found)
        return TowerParts(
            config, processor, without_language_model(model), rows_id, plan.placeholder
        )

    def _write(self, folder: Path) -> int:
        """Writes the files, and returns the token that stands for a row."""
        import tokenizers

        plan = self.plan
        tokenizer = read_bytes(self.model / _TOKENIZER, MAX_JSON_BYTES)
        (folder / _TOKENIZER).write_bytes(tokenizer)
        library = tokenizers.Tokenizer.from_str(tokenizer.decode())
        rows_token, rows_id = self._rows_token(library)
        for name, text in plan.tokens.items():
            if name not in _OPTIONAL and library.token_to_id(text) is None:
                raise TowerError(f"{self.model.name}: the vocabulary lacks the token {text}")
        named = {**plan.tokens, "image_token": rows_token, "context_image_token": rows_token}
        family = FAMILIES[plan.model_type].processor
        processor = PIXTRAL if plan.image_processor.startswith("Pixtral") else family
        settings = {"processor_class": processor, **plan.processor}
        if plan.model_type in _ASKED_FOR_IMAGE_TOKEN:
            settings["image_token"] = rows_token
        for file, content in {
            "config.json": self._config(),
            "preprocessor_config.json": {
                "image_processor_type": plan.image_processor, **plan.image_settings
            },
            "processor_config.json": settings,
            "tokenizer_config.json": {
                "tokenizer_class": "PreTrainedTokenizerFast", "extra_special_tokens": named
            },
        }.items():  # fmt: skip
            (folder / file).write_text(json.dumps(content))
        return rows_id

    def _config(self) -> dict[str, Any]:
        """config.json, whose text model has no layers."""
        text = {
            "hidden_size": self.text.hidden_size, "num_hidden_layers": 0, "intermediate_size": 16,
            "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 1,
            **self.plan.config.get("text_config", {}),
        }  # fmt: skip
        if self.text.norm_eps is not None:
            text["rms_norm_eps"] = self.text.norm_eps
        return {**self.plan.config, "model_type": self.plan.model_type, "text_config": text}

    def _rows_token(self, library: Any) -> tuple[str, int]:
        """The image token, or one that takes its place in a vocabulary without it."""
        for text in (self.plan.rows_token, *self.plan.stand_ins):
            token_id = library.token_to_id(text)
            if token_id is not None and library.encode(text, add_special_tokens=False).ids == [
                token_id
            ]:
                return text, token_id
        raise TowerError(
            f"{self.model.name}: the vocabulary lacks the token {self.plan.rows_token}"
        )


@dataclass(frozen=True)
class RefusedTower:
    """Of a model whose images are refused, because of a file that lies beside it."""

    problem: str
    model_type = ""
    name = "model"
    inserted = None

    def shows(self, placeholder_in: Callable[[str], bool]) -> bool:
        """No image comes this far."""
        return True

    def load(self) -> TowerParts:
        """Raises the problem."""
        raise TowerError(self.problem)
