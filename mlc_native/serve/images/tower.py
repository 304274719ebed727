"""The vision tower and projector of a model, and its processor, run by transformers.

torch and transformers are imported when the first image arrives. No code of the folder runs. The
weights of the language model are not kept, and those of its layers are not read.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mlc_native.errors import invalid_request
from mlc_native.serve.images.families import FAMILIES, PIXTRAL, PROCESSORS
from mlc_native.serve.images.pixtral import PixtralParts
from mlc_native.serve.images.row_cache import EncodedImage
from mlc_native.support.json_file import read_optional_json_object

EXTRA = 'pip install "mlc_native[images]"'
_CONFIGS = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")
_LIBRARIES = ("PIL", "torch", "transformers")
LOCAL = {"local_files_only": True, "trust_remote_code": False}
_LANGUAGE_MODELS = ("language_model", "text_model")
_HEAD = "lm_head"


class TowerError(Exception):
    """The folder lacks what its images need."""


def check_libraries() -> None:
    """Raises InvalidRequest if a library that images need is missing. Imports none of them."""
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise invalid_request(
            "messages",
            f"images need the libraries of an extra, of which {', '.join(missing)} is not "
            f"installed: {EXTRA}",
        )


@dataclass(frozen=True)
class TowerParts:
    """What a tower is made of.

    Attributes:
        config: of the whole model, of transformers.
        processor: as of transformers, as far as ``Tower`` calls one.
        model: of transformers, without its language model.
        image_token_id: the token whose rows the model takes from images.
        placeholder: the text of an image in a rendered chat; None: that of the processor.
    """

    config: Any
    processor: Any
    model: Any
    image_token_id: int
    placeholder: str | None = None


class TowerSource(Protocol):
    """Where a tower comes from.

    Attributes:
        model_type: a key of FAMILIES, unless its images are refused.
        name: what it is, for messages.
        inserted: what a chat gets for an image where its template shows texts alone; None: such a
            chat is refused.
    """

    @property
    def model_type(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def inserted(self) -> str | None: ...
    @property
    def problem(self) -> str | None:
        """Why its images cannot be read, if that is known before anything is loaded."""

    def shows(self, placeholder_in: Callable[[str], bool]) -> bool:
        """Whether a chat template shows images. Is given what tells if it writes a text."""

    def load(self) -> TowerParts:
        """Reads everything. Raises TowerError, or whatever transformers raises."""


@dataclass(frozen=True)
class FolderTower:
    """The tower of a Hugging Face folder."""

    folder: Path
    model_type: str
    name = "model folder"
    inserted = None
    problem = None

    def shows(self, placeholder_in: Callable[[str], bool]) -> bool:
        """Folders have the templates that go with their processors."""
        return True

    def load(self) -> TowerParts:
        """Reads processor, tower and projector."""
        import transformers

        try:
            config = transformers.AutoConfig.from_pretrained(self.folder, **LOCAL)
            image_token_id = int(config.image_token_id)
            processor = load_processor(self.folder, self.model_type, image_token_id)
            model = _load_model(self.folder, config, whole=FAMILIES[self.model_type].whole)
        except TowerError:
            raise
        except Exception as error:  # transformers raises what it meets in the files
            reason = str(error).replace(str(self.folder), self.folder.name)  # clients need not know
            raise TowerError(f"{type(error).__name__}: {reason[:500]}") from error
        return TowerParts(config, processor, model, image_token_id)


class Tower:
    """Runs a processor and a tower. Not thread-safe.

    Attributes:
        placeholder: the text of an image in a rendered chat.
        image_token_id: the token whose rows the model takes from images.

    Raises:
        TowerError: the files lack weights or settings, or are of another form.
    """

    def __init__(self, source: TowerSource) -> None:
        import transformers

        if int(transformers.__version__.partition(".")[0]) < 5:
            raise TowerError(f"transformers 5 is needed, and {transformers.__version__} is there")
        with _quiet():
            parts = source.load()
        self.image_token_id = parts.image_token_id
        self._processor, self._model = parts.processor, parts.model
        self._placeholder: str = getattr(
            self._processor, "image_placeholder_token", self._processor.image_token
        )
        self.placeholder = parts.placeholder or self._placeholder
        names = inspect.signature(self._model.get_image_features).parameters
        is_grid = FAMILIES[source.model_type].grid
        self._merge = int(parts.config.vision_config.spatial_merge_size) if is_grid else None
        self._inputs = [name for name in names if not name.startswith("vision_feature")]

    def encode(self, image: Any, copies: int = 1) -> EncodedImage:
        """What the language model reads of an RGB image.

        Args:
            copies: of the image in the request that the processor is given.

        Raises:
            TowerError: there are as many rows as image tokens in no way.
        """
        import torch

        # An image on its own, so that nothing about it depends on the others of its request.
        inputs = self._processor(
            images=[image] if copies == 1 else [[image] * copies],
            text=[self._placeholder * copies],
            add_special_tokens=False,
            return_text_replacement_offsets=True,
            return_tensors="pt",
        )
        text: str = inputs["text_replacement_offsets"][0][0]["replacement"]
        given = {name: inputs[name] for name in self._inputs if name in inputs}
        with torch.inference_mode():
            found = self._model.get_image_features(**given)
        # What the first layers add, if they do, stands behind each row (DeepStack of Qwen3-VL).
        added = getattr(found, "deepstack_features", None) or []
        rows = torch.cat([_joined(part) for part in (found.pooler_output, *added)], dim=1)
        expected = int((inputs["input_ids"][0] == self.image_token_id).sum())
        if len(rows) != expected:
            raise TowerError(
                f"the processor makes {expected} image tokens of an image, and the vision tower "
                f"{len(rows)} rows: the settings in {_CONFIGS[0]} do not fit the model"
            )
        rows = rows[: expected // copies]
        array = rows.to(torch.float32).contiguous().numpy().copy()
        array.flags.writeable = False
        if self._merge is None:
            return EncodedImage(text, array)
        _, height, width = (int(size) for size in inputs["image_grid_thw"][0])
        return EncodedImage(text, array, (height // self._merge, width // self._merge))


def _joined(features: Any) -> Any:
    """The rows of an image, which may be in several tensors."""
    import torch

    parts = [features] if torch.is_tensor(features) else list(features)
    return torch.cat([part.reshape(-1, part.shape[-1]) for part in parts])


def load_processor(folder: Path, model_type: str, image_token_id: int) -> Any:
    """The processor of a folder, with image processing by Pillow and numpy alone."""
    import transformers

    name = _processor_name(folder, model_type)
    image_processor = transformers.AutoImageProcessor.from_pretrained(
        folder, backend="pil", **LOCAL
    )
    if name == PIXTRAL:
        settings = read_optional_json_object(folder / _CONFIGS[0])
        return PixtralParts(image_processor, settings, image_token_id)
    kind = _processor_class(name)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **LOCAL)
    given = {"image_processor": image_processor, "tokenizer": tokenizer}
    settings, _ = kind.get_processor_dict(folder, **LOCAL)
    return kind.from_args_and_dict([given.get(name) for name in kind.get_attributes()], settings)


def _processor_name(folder: Path, model_type: str) -> str:
    for file in _CONFIGS:
        named = read_optional_json_object(folder / file).get("processor_class")
        if isinstance(named, str) and named in PROCESSORS:
            return named
    return FAMILIES[model_type].processor


def _processor_class(name: str) -> Any:
    """A processor's class, of which one for videos is not required: it needs torchvision."""
    package, class_name = PROCESSORS[name]
    module = importlib.import_module(f"transformers.models.{package}.processing_{package}")
    kind: Any = getattr(module, class_name)

    class ImageProcessorOnly(kind):
        def check_argument_for_proper_class(self, argument_name: str, argument: Any) -> Any:
            if argument is None and argument_name == "video_processor":
                return type(None)
            return super().check_argument_for_proper_class(argument_name, argument)

    return ImageProcessorOnly


def _load_model(folder: Path, config: Any, *, whole: bool) -> Any:
    """The model without its language model. Raises TowerError if any of its weights is missing."""
    import torch
    import transformers

    if getattr(config, "quantization_config", None) is not None:
        del config.quantization_config  # towers are stored as they are, or found incomplete below
    leave_out_layers(config)
    kind: Any = transformers.AutoModelForImageTextToText if whole else transformers.AutoModel
    model, found = kind.from_pretrained(
        folder,
        config=config,
        dtype=torch.float32,
        use_safetensors=True,  # other files are pickles
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # which are looked at below
        **LOCAL,
    )
    model = model.model if whole else model
    check_loaded(model, found)
    return without_language_model(model)


def leave_out_layers(config: Any) -> None:
    """Makes the config that of a model without layers and embeddings, which are not read."""
    text = config.get_text_config()
    text.num_hidden_layers = 0
    text.vocab_size, text.pad_token_id = 1, None  # its embeddings, which are large, do not fit
    if getattr(text, "layer_types", None) is not None:
        text.layer_types = []


def check_loaded(model: Any, found: Any) -> None:
    """Raises TowerError if a weight of the tower was missing, or did not fit."""
    parts = {name for name, _ in model.named_children() if name not in _LANGUAGE_MODELS}
    damaged = sorted(
        str(key)
        for kind in ("missing_keys", "mismatched_keys", "unexpected_keys")
        for key in found[kind]
        if _is_of_tower(key[0] if isinstance(key, tuple) else key, parts)
        or (kind == "missing_keys" and not _is_of_language_model(key))
    )
    if damaged or found["error_msgs"]:
        raise TowerError(
            f"its weights do not fit: {', '.join(damaged[:3]) or found['error_msgs'][0][:300]}"
        )


def without_language_model(model: Any) -> Any:
    """The model, which only makes rows."""
    for name in _LANGUAGE_MODELS:
        if hasattr(model, name):
            setattr(model, name, None)
    return model.eval()


def _is_of_tower(key: str, parts: set[str]) -> bool:
    return key.removeprefix("model.").partition(".")[0] in parts


def _is_of_language_model(key: str) -> bool:
    return key.removeprefix("model.").partition(".")[0] in (*_LANGUAGE_MODELS, _HEAD)


@contextmanager
def _quiet() -> Iterator[None]:
    """No bars and no report of the weights that are left out, which is what is meant here."""
    from transformers.utils import logging as their_logging

    logger = logging.getLogger("transformers")
    level, had_bars = logger.level, their_logging.is_progress_bar_enabled()
    logger.setLevel(logging.ERROR)
    their_logging.disable_progress_bar()
    try:
        yield
    finally:
        logger.setLevel(level)
        if had_bars:
            their_logging.enable_progress_bar()
