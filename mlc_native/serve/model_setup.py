"""Resolves a model name to the data that an engine needs to load it and that its requests need.

Every error of the caller is found here, before anything is loaded or unloaded.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from mlc_native import _core
from mlc_native.conversation import ChatTemplate, load_chat_template
from mlc_native.errors import ModelLibraryNotFound, ModelNotLoaded, invalid_config, shown
from mlc_native.protocol.conversation_protocol import Conversation
from mlc_native.protocol.mlc_chat_config import MLCChatConfig
from mlc_native.serve.adapters import AdapterNames, resolved_adapters
from mlc_native.serve.answer_formats import AnswerFormats, choose_formats
from mlc_native.serve.class_labels import ClassLabels
from mlc_native.serve.config import (
    EngineConfig,
    additional_model_names,
    device_argument,
    path_argument,
)
from mlc_native.serve.echo_settings import MOCK_ECHO
from mlc_native.serve.embedding_prompts import EmbeddingPrompts
from mlc_native.serve.images.encoder import ImageEncoder
from mlc_native.serve.images.mmproj.find import image_encoder
from mlc_native.serve.load_report import LoadSummary
from mlc_native.serve.pair_prompts import PairPrompts
from mlc_native.support.cuda_build import CudaBuildError, cuda_library
from mlc_native.support.json_file import read_text
from mlc_native.support.model_source import resolve_model
from mlc_native.support.regular_file import MAX_TEMPLATE_BYTES, has_file
from mlc_native.tokenizers import Tokenizer

logger = logging.getLogger(__name__)

Mode = Literal["auto", "local", "interactive", "server"]
KV_PAGE_SIZE = 16
REPLACED = "the model was unloaded or replaced while the request was prepared"


@dataclass
class ModelInfo:
    """A model folder and the plug-in library that creates the model, if any."""

    model: str
    model_lib: str | None = None


def check_engine_config(
    model: str, model_lib: str | None, mode: Mode, engine_config: EngineConfig
) -> None:
    """Raises InvalidConfig if arguments and config contradict each other, or a field is wrong."""
    arguments = {"model": model, "model_lib": model_lib, "mode": mode}
    for name, argument in arguments.items():
        configured = getattr(engine_config, name)
        if configured is not None and argument is not None and configured != argument:
            raise invalid_config(
                name,
                f'The argument "{name}" of engine constructor is "{argument}", while the "{name}" '
                f'field in argument "engine_config" is "{configured}". Please set the '
                f'"engine_config.{name}" to None or set it to the same as the argument "{name}".',
            )
    page_size = engine_config.kv_cache_page_size
    if not isinstance(page_size, int) or page_size != KV_PAGE_SIZE:
        raise invalid_config(
            "kv_cache_page_size",
            f"KV cache only supports page size {KV_PAGE_SIZE}, while the "
            f'"kv_cache_page_size" field in argument "engine_config" is '
            f"{shown(page_size)}.",
        )
    _core.check_engine_config(replace(engine_config, model=model, mode=mode).engine_json())


def resolve_models(model: str, engine_config: EngineConfig) -> tuple[list[Path], EngineConfig]:
    """Returns the folders of all models, and a config that names them and those of adapters."""
    model_lib = engine_config.model_lib
    if model_lib not in (None, MOCK_ECHO) and not Path(str(model_lib)).is_file():
        raise ModelLibraryNotFound(f'the "model_lib" {model_lib} does not exist')
    names = additional_model_names(engine_config.additional_models)
    folders = [resolve_model(name, verbose=engine_config.verbose) for name in (model, *names)]
    config = replace(
        engine_config,
        model=str(folders[0]),
        additional_models=[str(folder) for folder in folders[1:]],
        adapters=resolved_adapters(engine_config.adapters, verbose=engine_config.verbose),
    )
    return folders, config


def detect_device(device: str, model_lib: str | None, verbose: bool) -> tuple[str, str | None]:
    """Returns the device to run on ("auto" is the best available one) and the library it needs.

    A ``model_lib`` determines its own devices. Without one, and if the package has no CUDA library,
    the library for a GPU is built or taken from the cache of earlier builds. If that fails, "auto"
    is the CPU.

    Raises:
        InvalidConfig: the device does not exist, or its library cannot be built. The message names
            what is missing.
    """
    if model_lib == MOCK_ECHO:
        return "cpu", model_lib
    if model_lib is None and not _core.cuda_library_path():
        gpu = _core.find_gpu(device)
        if gpu is not None:
            try:
                library = cuda_library(gpu.compute_capability, verbose=verbose)
                return f"cuda:{gpu.index}", str(library)
            except CudaBuildError as error:
                if device != "auto":
                    raise invalid_config(
                        "device", f'"device" {device} is not available: {error}'
                    ) from error
                logger.warning("Running on the CPU, %s is not used: %s", gpu.name, error)
                return "cpu", None
    return _core.resolve_device(device, model_lib or ""), model_lib


def load_tokenizer(
    folder: Path,
    chat_config: MLCChatConfig,
    chat_template: str | None = None,
    *,
    trust_regexes: bool = False,
) -> tuple[Tokenizer | None, ChatTemplate | None]:
    """Returns the tokenizer and chat template of a model folder; None for a missing one.

    A folder without tokenizer.json may have the tokenizer in another form (``MadeText`` in
    csrc/model_files/model_files.h).

    The template of the model's authors (tokenizer_config.json, chat_template.jinja), if there is
    one, renders the messages, because the ``conv_template`` of an MLC folder cannot show tools. The
    stop strings of a ``conv_template`` end answers in either case. ``chat_template`` is the setting
    of this name, and ``trust_regexes`` is ``trust_tokenizer_regexes``.
    """
    if not has_file(folder / "tokenizer.json"):
        return None, None
    tokenizer = Tokenizer(folder, trust_regexes=trust_regexes)
    source = None if chat_template is None else _template_source(chat_template)
    conversation = chat_config.conv_template
    if not isinstance(conversation, Conversation):
        return tokenizer, load_chat_template(folder, source=source)
    template = load_chat_template(folder, stop_strs=conversation.stop_str, source=source)
    if template is None:
        prefix = conversation.system_prefix_token_ids or []
        text = tokenizer.decode(prefix, skip_special_tokens=False)
        template = conversation.chat_template(text)
    return tokenizer, template


def _template_source(setting: str) -> str:
    """The template that is or is named by the setting ``chat_template``."""
    if "{" in setting or "\n" in setting:
        return setting
    path = Path(setting)
    try:
        is_file = path.is_file()
    except (OSError, ValueError):  # as of a name that is too long
        is_file = False
    if not is_file:
        raise invalid_config(
            "chat_template",
            '"chat_template" must be a Jinja template or the path of a file with one, got '
            f"{shown(setting)}, which is neither",
        )
    return read_text(path, MAX_TEMPLATE_BYTES)


def parse_default_config(engine_config: EngineConfig | None, model_lib: str | None) -> EngineConfig:
    """Returns a copy of the config, so that the caller's object is never changed."""
    config = replace(engine_config) if engine_config is not None else EngineConfig()
    if config.model_lib is None:
        config.model_lib = model_lib
    return config


def loaded_config(given: EngineConfig, engine_json: str, summary: LoadSummary) -> EngineConfig:
    """The settings in effect, from what the engine made of those that were given.

    Says what is in effect instead of a length that the other settings leave no room for.
    """
    resolved = EngineConfig.from_json(engine_json)
    _warn_about_cut_lengths(given, resolved)
    formats = summary.weight_format.split()
    if formats:  # a plug-in may not say
        integers = [name for name in ("q4", "q6", "q8") if name in formats]
        if not (integers and "." in (resolved.quantization or "")):  # else a budget of bits
            resolved.quantization = integers[0] if integers else "off"
    return resolved


def _warn_about_cut_lengths(given: EngineConfig, resolved: EngineConfig) -> None:
    name = "max_single_sequence_length"
    asked, effective = getattr(given, name), getattr(resolved, name)
    if asked is not None and asked > effective:
        logger.warning(
            '"%s" is %d instead of %d: "max_total_sequence_length" has no room for more',
            *(name, effective, asked),
        )


# ------------------------------------------------------------------------- the model of an engine


@dataclass(frozen=True)
class ModelSetup:
    """A model as its requests see it. A reload replaces it as a whole.

    Attributes:
        name: the name that the caller gave.
        device: the device that it runs on.
        engine_config: the settings, with all inferred ones filled in once the model is loaded.
        max_input_sequence_length: greatest length of a prompt in tokens; 0 before it is loaded.
        input_length_reason: what sets it, for messages.
        num_classes: of texts that it classifies; 0: it has none, or is not loaded yet.
        chat_stop_token_ids: the chat template's end-of-turn token; config.json may not list it.
        answer_formats: how its answers write reasoning and calls of tools.
        embedding_prompts: what it puts in front of texts that it embeds.
        class_labels: the names of its classes, and what becomes of their logits.
        pair_prompts: how two texts become the prompt of a reranker.
        image_encoder: of a model that sees images; None of others.
        summary: what was loaded; None before it is loaded.
        adapters: the names of its adapters, which change while it is loaded.
    """

    name: str
    device: str
    engine_config: EngineConfig
    model_config_dicts: list[dict[str, Any]]
    tokenizer: Tokenizer | None
    conv_template: ChatTemplate | None
    chat_stop_token_ids: list[int]
    answer_formats: AnswerFormats
    embedding_prompts: EmbeddingPrompts
    class_labels: ClassLabels
    pair_prompts: PairPrompts
    image_encoder: ImageEncoder | None
    max_input_sequence_length: int = 0
    input_length_reason: str = ""
    num_classes: int = 0
    summary: LoadSummary | None = None
    adapters: AdapterNames = field(default_factory=AdapterNames)

    @property
    def chat_stop_strs(self) -> tuple[str, ...]:
        """Texts of the chat template that end an answer."""
        return () if self.conv_template is None else self.conv_template.stop_strs

    def loaded(
        self, limits: _core.RequestLimits, engine_config: EngineConfig, summary: LoadSummary
    ) -> ModelSetup:
        """The setup with what the loaded model says."""
        if self.image_encoder is not None:
            self.image_encoder.takes_rows = limits.input_size > 0
            self.image_encoder.max_whole_rows = limits.max_whole_rows
        return replace(
            self,
            engine_config=engine_config,
            max_input_sequence_length=limits.max_sequence_length,
            input_length_reason=limits.length_reason,
            num_classes=limits.num_classes,
            summary=summary,
        )


def prepare_model(
    model: str | os.PathLike[str],
    device: object,
    model_lib: str | os.PathLike[str] | None,
    mode: Mode,
    engine_config: EngineConfig | None,
) -> ModelSetup:
    """Finds a model and checks everything that can be checked without loading it."""
    model = path_argument("model", model)
    model_lib = None if model_lib is None else path_argument("model_lib", model_lib)
    config = parse_default_config(engine_config, model_lib)
    check_engine_config(model, model_lib, mode, config)
    folders, config = resolve_models(model, replace(config, mode=mode))
    chat_configs = [MLCChatConfig.from_folder(folder) for folder in folders]
    tokenizer, template = load_tokenizer(
        *(folders[0], chat_configs[0], config.chat_template),
        trust_regexes=config.trust_tokenizer_regexes,
    )
    formats = choose_formats(config, tokenizer, template)
    encoder = image_encoder(folders[0], config.mmproj, chat_configs[0].model_config_dict)
    prompts = EmbeddingPrompts.of_folder(folders[0])
    # Last, as it may build.
    name, config.model_lib = detect_device(
        device_argument(device), config.model_lib, config.verbose
    )
    return ModelSetup(
        model,
        name,
        config,
        [chat_config.model_config_dict for chat_config in chat_configs],
        tokenizer,
        template,
        _template_stop_token_ids(tokenizer, template),
        formats,
        prompts,
        ClassLabels.of_folder(folders[0]),
        PairPrompts.of_folder(folders[0], config.classifier_from_token or (), template, prompts),
        encoder,
    )


def _template_stop_token_ids(
    tokenizer: Tokenizer | None, template: ChatTemplate | None
) -> list[int]:
    if template is None or tokenizer is None:
        return []
    token_id = tokenizer.token_to_id(template.special_tokens.get("eos_token", ""))
    return [] if token_id is None else [token_id]


def describe_engine(kind: str, setup: ModelSetup | None, status: str) -> str:
    """The ``repr`` of an engine: ``<MLCEngine "demo" on cpu: ..., running>``."""
    if setup is None:
        return f"<{kind}: {status}>"
    config = setup.engine_config
    return (
        f'<{kind} "{setup.name}" on {setup.device}: {setup.summary}; mode {config.mode}, '
        f"{config.max_num_sequence} sequences of up to {config.max_single_sequence_length:,} "
        f"tokens; {status}>"
    )


class ModelSlot:
    """The loaded model, or none.

    A request holds the model while it is handed over to the engine. Taking the model out waits for
    such requests and refuses others, so each request reaches the model that it was made for.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._setup: ModelSetup | None = None
        self._num_holders = 0

    @property
    def current(self) -> ModelSetup:
        """The loaded model. Raises ModelNotLoaded if there is none."""
        setup = self._setup
        if setup is None:
            raise ModelNotLoaded
        return setup

    def peek(self) -> ModelSetup | None:
        """The loaded model, or None."""
        return self._setup

    @contextmanager
    def hold(self, setup: ModelSetup) -> Iterator[None]:
        """Holds the model. Raises ModelNotLoaded if another one, or none, is loaded now."""
        with self._changed:
            if self._setup is not setup:
                raise ModelNotLoaded(REPLACED)
            self._num_holders += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_holders -= 1
                self._changed.notify_all()

    def take_out(self) -> ModelSetup | None:
        """Takes the model out, waits until no request holds it, and returns it."""
        with self._changed:
            setup, self._setup = self._setup, None
            try:
                self._changed.wait_for(lambda: self._num_holders == 0)
            except BaseException:  # Ctrl-C
                self._setup = setup
                raise
        return setup

    def put(self, setup: ModelSetup | None) -> None:
        """Sets the model that requests use from now on."""
        self._setup = setup
