"""The models that a server serves, by the names that requests use."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlc_native.errors import ModelNotLoaded, invalid_config
from mlc_native.serve.async_engine import AsyncMLCEngine
from mlc_native.server.errors import HttpError

ANY_NAME = "*"


@dataclass
class ServedModel:
    """A model under one or more names; the first one is what answers carry.

    Attributes:
        names: "*" stands for every name that no model has.
        engine: None while the model loads.
        folder: a further name that requests may use and that no answer shows.
        first_adapters: names of the adapters that are loaded with the model.
        embeds: it gets the requests for embeddings that name no model.
    """

    names: tuple[str, ...]
    engine: AsyncMLCEngine | None = None
    folder: str | None = None
    first_adapters: Sequence[str] = ()
    embeds: bool = False
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def name(self) -> str:
        """What answers carry."""
        return self.names[0]

    def loaded(self) -> AsyncMLCEngine:
        """The engine. Raises HttpError (503) while the model loads."""
        if self.engine is None:
            raise loading_error()
        return self.engine

    @property
    def adapter_names(self) -> frozenset[str]:
        """The names of its adapters; while it loads, of those that are loaded with it."""
        if self.engine is None:
            return frozenset(self.first_adapters)
        try:
            return self.engine.adapter_names
        except ModelNotLoaded:
            return frozenset()

    @property
    def max_model_len(self) -> int | None:
        """The greatest length of a prompt; None while no model is there, as during a reload."""
        if self.engine is None:
            return None
        try:
            return self.engine.max_input_sequence_length
        except ModelNotLoaded:
            return None

    def describe(self) -> list[dict[str, Any]]:
        """OpenAI's object of the model for each of its names, and one for each adapter."""
        max_model_len = self.max_model_len
        parents: dict[str, str | None] = {name: None for name in self.names if name != ANY_NAME}
        for name in sorted(self.adapter_names):
            parents.setdefault(name, self.name)
        return [
            {
                "id": name,
                "object": "model",
                "created": self.created,
                "owned_by": "MLC-LLM",
                "root": self.name,
                "parent": parent,
                "max_model_len": max_model_len,
            }
            for name, parent in parents.items()
        ]


@dataclass(frozen=True)
class Found:
    """What a request names.

    Attributes:
        adapter: the adapter of the model that it names; None: the model itself.
    """

    model: ServedModel
    adapter: str | None = None

    @property
    def name(self) -> str:
        """What the answer carries."""
        return self.adapter or self.model.name


def served_as(model: str, names: Sequence[str] = ()) -> ServedModel:
    """A model that is not loaded yet, under the given names or its own: of a path, the last part.

    Whoever asks for the path gets it, too; its path is not told to others.
    """
    if names:
        return ServedModel(tuple(names))
    path = Path(model)
    return (
        ServedModel((path.resolve().name,), folder=model)
        if path.is_dir() or (path.is_file() and path.suffix == ".gguf")
        else ServedModel((model,))
    )


def loading_error() -> HttpError:
    """The answer while a model loads."""
    return HttpError(503, "Loading model", code="loading", headers={"retry-after": "1"})


class Models:
    """All models of a server. The first one serves requests that name none."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        """Raises InvalidConfig when two models have the same name, or there is none."""
        if not models:
            raise invalid_config("engines", "a server needs at least one model")
        self.all = list(models)
        self._by_name: dict[str, ServedModel] = {}
        for model in models:
            if not model.names or model.names[0] == ANY_NAME or "" in model.names:
                raise invalid_config("engines", f"a model needs a name, got {model.names!r}")
            for name in (*model.names, *([model.folder] if model.folder else [])):
                if self._by_name.setdefault(name, model) is not model:
                    raise invalid_config("engines", f'two models have the name "{name}"')
        self._check_adapter_names()

    def _check_adapter_names(self) -> None:
        taken = set(self._by_name)
        for model in self.all:
            for name in sorted(model.adapter_names):
                if name in taken:
                    raise invalid_config(
                        "adapters",
                        f'"adapters" of {model.name} has the name "{name}", which is taken',
                    )
                taken.add(name)

    @classmethod
    def of(cls, engines: AsyncMLCEngine | Mapping[str, AsyncMLCEngine]) -> Models:
        """The models of running engines: one under its own name, or several by name."""
        if not isinstance(engines, Mapping):
            model = served_as(engines.model_name)
            model.engine = engines
            return cls([model])
        return cls([ServedModel((name,), engine) for name, engine in engines.items()])

    def find(self, name: object) -> Found:
        """The model or adapter that a request names. Raises HttpError: 404 when there is none."""
        if name is None:
            return Found(self.all[0])
        if not isinstance(name, str):
            raise HttpError(400, '"model" must be a text', param="model")
        found = self._found(name)
        if found is None and ANY_NAME in self._by_name:
            found = Found(self._by_name[ANY_NAME])
        if found is None:
            names = (each["id"] for model in self.all for each in model.describe())
            raise HttpError(
                404,
                f"the model `{name[:200]}` does not exist; this server has: {', '.join(names)}",
                param="model",
                code="model_not_found",
            )
        return found

    def find_for_embeddings(self, name: object) -> Found:
        """``find`` for a request for embeddings."""
        if name is None:
            chosen = next((model for model in self.all if model.embeds), self.all[0])
            return Found(chosen)
        return self.find(name)

    def _found(self, name: str) -> Found | None:
        if name in self._by_name:
            return Found(self._by_name[name])
        for model in self.all:
            if name in model.adapter_names:
                return Found(model, name)
        return None

    def find_adapter(self, name: str) -> ServedModel | None:
        """The model that has an adapter; None if none has."""
        return next((model for model in self.all if name in model.adapter_names), None)

    def is_taken(self, name: str) -> bool:
        """Whether a model or an adapter has a name."""
        return self._found(name) is not None

    @property
    def is_loaded(self) -> bool:
        """Whether every model can serve requests."""
        return all(model.max_model_len is not None for model in self.all)
