"""The prompts that a model folder has for texts that are embedded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mlc_native.errors import invalid_request, load_error, shown
from mlc_native.support.json_file import read_optional_json_object

_PROMPTS_FILE = "config_sentence_transformers.json"


class EmbeddingPrompts:
    """The texts that a model folder has for the beginnings of inputs, by name. Immutable."""

    def __init__(self, prompts: Mapping[str, str] | None = None, default: str | None = None):
        self._prompts = dict(prompts or {})
        self._default = default

    @classmethod
    def of_folder(cls, folder: Path) -> EmbeddingPrompts:
        """Those that sentence-transformers has written; none without its file.

        Raises:
            LoadError: the file is damaged.
        """
        path = folder / _PROMPTS_FILE
        fields = read_optional_json_object(path)
        prompts = fields.get("prompts") or {}
        default = fields.get("default_prompt_name")
        if not isinstance(prompts, dict) or not all(
            isinstance(text, str) for text in prompts.values()
        ):
            raise load_error(_PROMPTS_FILE, f'{path}: "prompts" must be an object of texts')
        if default is not None and not (isinstance(default, str) and default in prompts):
            raise load_error(
                _PROMPTS_FILE,
                f'{path}: "default_prompt_name" must be a name in "prompts", got {shown(default)}',
            )
        return cls(prompts, default)

    @property
    def names(self) -> list[str]:
        """The names of all prompts."""
        return list(self._prompts)

    def text(self, name: str | None) -> str:
        """The prompt of this name; None is the default one, "" is none.

        Raises:
            InvalidRequest: there is no such prompt.
        """
        name = self._default if name is None else name
        if not name:
            return ""
        if name not in self._prompts:
            there = ", ".join(f'"{each}"' for each in self._prompts) or "none"
            raise invalid_request(
                "prompt_name",
                f"the model folder has no prompt {shown(name)}; the prompts in its "
                f"{_PROMPTS_FILE} are: {there}",
            )
        return self._prompts[name]
