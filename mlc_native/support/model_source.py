"""Resolves the name of a model or an adapter: a folder, the demo model, or a hub id."""

from __future__ import annotations

import re
import threading
from importlib import resources
from pathlib import Path
from typing import Any

from mlc_native.errors import LoadError, load_error

DEMO_MODEL = "demo"
_DEMO_FOLDERS = {
    DEMO_MODEL: "demo_model",
    "demo-draft": "demo_model/draft",
    "demo-eagle3": "demo_model/eagle3",
    "demo-mtp": "demo_model/mtp",
}
_HUB_PREFIX = "HF://"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w./-]+)?")
# The last ones are those of tokenizers without tokenizer.json.
_HUB_FILES = [
    *("*.json", "*.safetensors", "*.jinja", "*.bin"),
    *("*.model", "*.tiktoken", "merges.txt", "vocab.txt"),
]
HUB_TIMEOUT_S = 2.0  # for the hub's first answer
_ADAPTER_FILES = ["adapter_config.json", "adapter_model.safetensors"]
_ARTICLES = {"model": "a model", "adapter": "an adapter"}
_HUB_IGNORED = ["*.onnx*", "original/*", "pytorch_model*", "consolidated*", "training_args.bin"]


def resolve_model(model: str | Path, *, verbose: bool = True) -> Path:
    """Returns the folder or GGUF file of a model, and downloads it if the name is a hub id.

    Args:
        model: a folder; a GGUF file; "demo", the model inside this package; or "HF://org/name" or
            "org/name", optionally with "@revision".
        verbose: show the progress of a download.

    Raises:
        LoadError: there is no such folder, or the download failed.
    """
    name = str(model)
    if name.startswith(_HUB_PREFIX):
        return _download("model", name.removeprefix(_HUB_PREFIX), _HUB_FILES, verbose)
    path = Path(name).expanduser()
    if path.is_dir() or (path.is_file() and path.suffix == ".gguf"):
        return path
    if path.exists():
        raise load_error(
            "model", f'"{name}" is a file; a model is a folder with config.json, or a .gguf file'
        )
    if name in _DEMO_FOLDERS:
        return demo_model_folder(name)
    if _HUB_ID.fullmatch(name):
        return _download("model", name, _HUB_FILES, verbose)
    raise load_error("model", f'there is no model folder "{name}"')


def resolve_adapter(folder: str | Path, *, verbose: bool = True) -> Path:
    """Returns the folder of an adapter, and downloads it if the name is a hub id.

    Args:
        folder: a folder; or "HF://org/name" or "org/name", optionally with "@revision".
        verbose: show the progress of a download.

    Raises:
        LoadError: there is no such folder, or the download failed.
    """
    name = str(folder)
    if name.startswith(_HUB_PREFIX):
        return _download("adapter", name.removeprefix(_HUB_PREFIX), _ADAPTER_FILES, verbose)
    try:
        path = Path(name).expanduser()
        if path.is_dir():
            return path
        exists = path.exists()
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, no such user, a NUL
        raise load_error("adapter", f'there is no adapter folder "{name}": {error}') from None
    if exists:
        raise load_error(
            "adapter",
            f'"{name}" is a file; an adapter is a folder with {" and ".join(_ADAPTER_FILES)}',
        )
    if _HUB_ID.fullmatch(name):
        return _download("adapter", name, _ADAPTER_FILES, verbose)
    raise load_error("adapter", f'there is no adapter folder "{name}"')


def demo_model_folder(name: str = DEMO_MODEL) -> Path:
    """Returns the folder of a model in this package. Raises LoadError if it was left out."""
    folder = Path(str(resources.files("mlc_native"))) / _DEMO_FOLDERS[name]
    if not (folder / "config.json").is_file():
        raise load_error("model", f"this installation does not contain the model in {folder}")
    return folder


def _download(kind: str, hub_id: str, files: list[str], verbose: bool) -> Path:
    """Downloads a snapshot of a repository on the hub, or finds it in the hub's cache."""
    from huggingface_hub import snapshot_download

    repo, _, revision = hub_id.partition("@")
    is_online = hub_answers()
    try:
        return Path(
            snapshot_download(
                repo,
                revision=revision or None,
                allow_patterns=files,
                ignore_patterns=_HUB_IGNORED,
                local_files_only=not is_online,
                tqdm_class=None if verbose else _silent_bar(),
            )
        )
    except Exception as error:
        raise _download_error(kind, hub_id, error, is_online) from error


def hub_answers() -> bool:
    """Whether the hub answers anything within HUB_TIMEOUT_S."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    answered = threading.Event()

    def ask() -> None:
        try:
            get_session().head(constants.ENDPOINT, timeout=HUB_TIMEOUT_S)
        except Exception:
            return
        answered.set()

    # The timeout does not cover the look-up of the host's name, which may take a minute.
    thread = threading.Thread(target=ask, name="mlc-native-hub", daemon=True)
    thread.start()
    thread.join(HUB_TIMEOUT_S)
    return answered.is_set()


def _silent_bar() -> type[Any]:
    """A progress bar that shows nothing."""
    from huggingface_hub.utils import tqdm

    class SilentBar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "disable": True})

    return SilentBar


def _download_error(kind: str, hub_id: str, error: Exception, is_online: bool) -> LoadError:
    if not is_online:
        return load_error(
            kind,
            f'"{hub_id}" is not a folder and could not be downloaded: the Hugging Face hub did not '
            f"answer within {HUB_TIMEOUT_S:g} s, and its cache does not have the {kind}; check the "
            f"network, or give the folder of {_ARTICLES[kind]}",
        )
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return load_error(
        kind,
        f'"{hub_id}" is not a folder and could not be downloaded from the Hugging Face hub: '
        f"{type(error).__name__}: {reason}",
    )
