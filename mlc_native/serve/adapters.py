"""Adapters as the engines' Python knows them: the setting, arguments of calls, and their names.

An adapter changes the linear layers of a model by a product of two small matrices (LoRA). The C++
engine loads it, and a request names it; see docs/adapters.md.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from mlc_native._core import AdapterInfo
from mlc_native.errors import invalid_config, invalid_request, shown
from mlc_native.support.model_source import resolve_adapter

_FORM = '"adapters" must be a dict of folders by name, or a list of "NAME=FOLDER"'


def adapter_entries(setting: object) -> list[str]:
    """The setting ``adapters`` as the C++ engine takes it: a list of "NAME=FOLDER".

    Raises:
        InvalidConfig: it is of another form, a name or a folder is empty, or a name comes twice.
    """
    return [f"{name}={folder}" for name, folder in _pairs(setting)]


def adapter_setting_names(setting: object) -> list[str]:
    """The names in the setting ``adapters``. Raises InvalidConfig."""
    return [name for name, _ in _pairs(setting)]


def resolved_adapters(setting: object, *, verbose: bool) -> list[str]:
    """The setting with the folders of hub ids, which are downloaded.

    Raises:
        InvalidConfig: see ``adapter_entries``.
        LoadError: there is no such folder, or a download failed.
    """
    return [
        f"{name}={resolve_adapter(folder, verbose=verbose)}" for name, folder in _pairs(setting)
    ]


def _pairs(setting: object) -> list[tuple[str, str]]:
    try:
        pairs = list(_given_pairs(setting))
    except Exception:  # what a method of a caller's object raises
        raise _wrong(setting) from None
    for i, (name, folder) in enumerate(pairs):
        if not (isinstance(name, str) and isinstance(folder, str) and name and folder):
            raise _wrong(setting)
        if "=" in name:
            raise invalid_config(
                "adapters", f'the name of an adapter must be without "=", got {shown(name)}'
            )
        if any(name == other for other, _ in pairs[:i]):
            raise invalid_config("adapters", f'"adapters" has the name {shown(name)} twice')
    return pairs


def _given_pairs(setting: object) -> Iterator[tuple[Any, Any]]:
    if isinstance(setting, Mapping):
        for name, folder in setting.items():
            yield name, os.fspath(folder)
        return
    entries = [setting] if isinstance(setting, str) else setting
    if not isinstance(entries, (list, tuple)):
        raise TypeError
    for entry in entries:
        name, _, folder = str.partition(entry, "=")
        yield name, folder


def _wrong(setting: object) -> Exception:
    return invalid_config("adapters", f"{_FORM}, got {shown(setting)}")


def adapter_folder(folder: object, *, verbose: bool) -> str:
    """The folder that an argument names: a path, or a hub id, which is downloaded.

    Raises:
        InvalidRequest: it is no path.
        LoadError: there is no such folder, or the download failed.
    """
    try:
        path = os.fspath(folder)  # type: ignore[call-overload]
        is_path = isinstance(path, str) and path != ""
        if is_path:
            path.encode()
    except Exception:  # what a method of a caller's object raises, or no valid Unicode
        is_path = False
    if not is_path:
        raise invalid_request(
            "folder", f'"folder" must be the path of an adapter, or a hub id, got {shown(folder)}'
        )
    return str(resolve_adapter(path, verbose=verbose))


def check_adapter(name: str | None, names: Collection[str]) -> None:
    """Raises InvalidRequest for an adapter that is not loaded; None and "" are the model itself."""
    if name and name not in names:
        there = "; there are " + ", ".join(f'"{each}"' for each in sorted(names))
        raise invalid_request(
            "adapter", f"There is no adapter {shown(name)}{there if names else '; none is loaded'}"
        )


class AdapterNames:
    """The names of a model's adapters after the last change. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: frozenset[str] = frozenset()

    def refresh(self, adapters: Callable[[], Iterable[AdapterInfo]]) -> None:
        """Takes the names from the engine after a change."""
        with self._lock:  # the last one to ask is the last one to write
            self._names = frozenset(adapter.name for adapter in adapters())

    @property
    def current(self) -> frozenset[str]:
        """The names."""
        return self._names
