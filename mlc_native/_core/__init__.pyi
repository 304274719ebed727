"""The C++ engine of mlc_native."""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy
from numpy.typing import NDArray

from mlc_native._core import testing as testing
from mlc_native.errors import (
    InternalError as InternalError,
    InvalidConfig as InvalidConfig,
    InvalidRequest as InvalidRequest,
    LoadError as LoadError,
    QueueFull as QueueFull
)


class ResponseFormat:
    """What an answer must look like."""

    def __init__(self, type: str, text: str = '', choices: Sequence[str] = [], strict: bool = True) -> None:
        """Raises InvalidRequest for an unknown type."""

    @property
    def type(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def choices(self) -> list[str]: ...

    @property
    def strict(self) -> bool: ...

class GenerationConfig:
    """How one request is generated. Checked when the request is created."""

    def __init__(self) -> None: ...

    def validate(self, vocab_size: int) -> None:
        """
        Raises InvalidRequest that names the field, the value and the allowed range.
        """

    def as_json(self) -> str: ...

    def copy(self) -> GenerationConfig: ...

    def __getattr__(self, name: str, /) -> Any: ...
    def __setattr__(self, name: str, value: Any, /) -> None: ...

class AdapterInfo:
    """An adapter (LoRA) that is loaded beside a model."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str:
        """Its folder."""

    @property
    def rank(self) -> int:
        """The most that one of its matrices has."""

    @property
    def num_bytes(self) -> int:
        """Of its weights in memory."""

    def __repr__(self) -> str: ...

class RequestLimits:
    """What a loaded engine can serve."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_num_sequence(self) -> int: ...

    @property
    def max_sequence_length(self) -> int: ...

    @property
    def length_reason(self) -> str: ...

    @property
    def generates(self) -> bool:
        """
        False: the model embeds texts only: it has no head, or attends in both directions.
        """

    @property
    def embedding_size(self) -> int:
        """Numbers of an embedding; 0: the model gives none."""

    @property
    def num_classes(self) -> int:
        """Of texts that are classified; 0: the model has none."""

    @property
    def input_size(self) -> int:
        """Numbers of a row in place of a token; 0: the model takes tokens only."""

    @property
    def row_positions(self) -> bool:
        """Whether rows may have positions of three numbers."""

    @property
    def max_whole_rows(self) -> int | None:
        """
        The most rows of one piece, if all are computed at once; None: any number.
        """

    @property
    def whole_prompts(self) -> bool:
        """
        Whether a prompt is computed in one step: the model attends in both directions.
        """

    @property
    def pooling(self) -> str:
        """Of embeddings whose requests name none."""

    @property
    def normalizes(self) -> bool:
        """Whether they have length 1."""

    @property
    def embedding_refusal(self) -> str:
        """What the model folder asks for and is not supported; "" if nothing."""

def check_engine_config(json: str) -> str:
    """
    Reads an engine config and returns it in full. Raises InvalidConfig that names the wrong field.
    """

def generation_field_docs() -> dict[str, str]:
    """The documentation of each field of a generation config."""

def describe_engine_fields() -> list[dict[str, Any]]:
    """
    {"name", "type", "default", "choices", "doc"} of each field of an engine config.
    """

class CudaDevice:
    """A GPU as its driver describes it."""

    @property
    def index(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def compute_capability(self) -> int:
        """90 is 9.0."""

def available_devices() -> list[str]: ...

def cuda_library_path() -> str:
    """The library that runs models on GPUs; "" when there is none."""

def find_gpu(device: str) -> CudaDevice | None:
    """
    The GPU that "cuda[:i]" or "auto" means, whether or not there is a library for it. Raises InvalidConfig for a GPU that is not there.
    """

def resolve_device(device: str, model_lib: str = '') -> str:
    """
    "auto" is the best there is. Raises InvalidConfig for a device that is not there.
    """

def has_model_file(path: str) -> bool:
    """
    Whether there is such a file, or a text of this path that is made of other files.
    """

def made_text(path: str) -> str | None:
    """
    The text of a file that is not there, such as x.gguf/config.json, made of a GGUF file's metadata or of a folder's tokenizer in another form. None for the path of a file, and for what does not exist. Raises LoadError.
    """

class Request:
    """A validated request. Immutable."""

    @property
    def id(self) -> str: ...

    @property
    def inputs(self) -> list:
        """
        Lists of token ids, and arrays [n, hidden_size] of rows in place of tokens.
        """

    @property
    def generation_config(self) -> GenerationConfig: ...

    @property
    def prompt_len(self) -> int: ...

class Cancellation:
    """Lets any thread give up a create_request that compiles a grammar."""

    def __init__(self) -> None: ...

    def cancel(self) -> None:
        """
        From now on the request, or a later one, ends with "abort" as soon as it is added.
        """

    @property
    def cancelled(self) -> bool: ...

class SequenceDelta:
    """What one sequence of a request has new."""

    @property
    def token_ids(self) -> list[int]: ...

    @property
    def text(self) -> str: ...

    @property
    def logprob_json_strs(self) -> list[str]: ...

    @property
    def finish_reason(self) -> str | None:
        """"stop", "length", "abort", "error", "timeout" or None."""

    @property
    def extra_prefix_string(self) -> str: ...

class RequestStreamOutput:
    """The new output of one request; the last one has is_final set."""

    @property
    def request_id(self) -> str: ...

    @property
    def group(self) -> list[SequenceDelta]:
        """One SequenceDelta per sequence, or empty."""

    @property
    def has_prompt_results(self) -> bool:
        """Whether it has a scored prompt or an embedding."""

    @property
    def embedding(self) -> bytes | None:
        """
        Of a request that embeds its tokens: float32, little-endian. Else None.
        """

    @property
    def has_scored_prompt(self) -> bool: ...

    @property
    def scored_prompt(self) -> list[str] | None:
        """
        One JSON object per token of the prompt, with its log-probability and those of its alternatives. The first token has none: its "logprob" means nothing. None except in the first output of a request with prompt_logprobs. Made on each access, without the GIL.
        """

    @property
    def request_final_usage_json_str(self) -> str | None: ...

    @property
    def error_message(self) -> str: ...

    @property
    def is_final(self) -> bool: ...

    def unpack_deltas(self) -> list:
        """
        All of `group` in one call: (text with its extra prefix, token_ids, logprob_json_strs or None, finish_reason or None) per sequence.
        """

class Tokenizer:
    """The tokenizer of a tokenizer.json. Immutable."""

    @staticmethod
    def from_tokenizer_json(path: str) -> tuple[Tokenizer | None, str]:
        """
        The tokenizer, or None and the part of the file that is not supported. Raises LoadError for a missing or damaged file.
        """

    def encode(self, text: str) -> list[int]:
        """
        Token ids of a text. Raises InvalidRequest for one that cannot be encoded.
        """

    def encode_prompt(self, text: str, own: Sequence[tuple[int, int]]) -> list[int]:
        """The same with control tokens in these ranges of characters alone."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """
        Token ids of each text. Many texts are encoded on all cores that the process may use.
        """

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool) -> str: ...

    def id_of(self, token: str) -> int | None: ...

    def token_of(self, token_id: int) -> str | None: ...

    @property
    def special_tokens(self) -> tuple[list[int], list[int]]: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def most_text_bytes(self) -> int:
        """No token stands for more bytes of a text; 0: that is not known."""

    @property
    def patterns(self) -> list[str]:
        """The regular expressions of the file."""

    @property
    def special_texts(self) -> list[str]:
        """The texts of the special tokens, by id."""

    @property
    def token_table(self) -> TokenTable: ...

class TokenTable:
    """The bytes of every token id. Immutable."""

    @staticmethod
    def from_tokenizer_json(path: str) -> TokenTable:
        """Raises LoadError for a missing, damaged or unsupported tokenizer.json."""

    @property
    def size(self) -> int: ...

    def bytes(self, token_id: int) -> bytes: ...

    def is_special(self, token_id: int) -> bool: ...

class TextStreamer:
    """Token ids to valid UTF-8 text, piece by piece."""

    def __init__(self, token_table: TokenTable) -> None: ...

    def put(self, token_ids: Sequence[int]) -> str: ...

    def finish(self) -> str: ...

class StopStrHandler:
    """Withholds what may belong to a stop string."""

    def __init__(self, stop_strs: Sequence[str], token_table: TokenTable) -> None: ...

    def put(self, token_id: int) -> list[int]:
        """Returns the token ids that are released."""

    def finish(self) -> list[int]: ...

    def take_text(self) -> bytes:
        """Bytes released since the last call, cut exactly before a stop string."""

    @property
    def stop_triggered(self) -> bool: ...

class TemplateError(Exception):
    pass

class ChatTemplate:
    """
    A compiled chat template. Immutable. Its errors are TemplateErrors, whose arguments are the kind ("syntax", "not_supported", "failed", "raised", "limit"), a message and the line.
    """

    @staticmethod
    def compile(source: str) -> ChatTemplate: ...

    def render(self, given: dict, own: dict, trusted: bool, seconds: float, steps: int, memory_bytes: int, output_chars: int) -> tuple:
        """
        Returns the prompt and the ranges of it that the template wrote, None for all of it.
        """

class EventTraceRecorder:
    """Bounded recorder of request events. Thread-safe."""

    def __init__(self, capacity: int = 65536) -> None: ...

    def add_event(self, request_id: str, event: str) -> None: ...

    def dump_json(self) -> str:
        """Chrome trace JSON."""

    @property
    def num_dropped(self) -> int: ...

class PinnedPrefix:
    """A prompt that the prefix cache never evicts."""

    @property
    def id(self) -> int: ...

    @property
    def num_tokens(self) -> int: ...

    @property
    def num_pages(self) -> int:
        """Pages, some maybe shared with other pins."""

    @property
    def owner(self) -> str:
        """
        The id of the request that pinned it; empty if the host did (pin_prefix).
        """

    def __repr__(self) -> str: ...

class PagedRadixTree:
    """
    Token sequences by id that store their common prefixes once.

    Unknown or used ids, lengths out of range and more tokens than the free capacity raise
    InvalidRequest and change nothing. One thread at a time.
    """

    def __init__(self, capacity: int = 1048576) -> None:
        """capacity: tokens stored at most."""

    def match(self, tokens: Sequence[int]) -> tuple:
        """
        The length of the longest prefix of the tokens that a sequence begins with, and the ids of all sequences that do (none for length 0).
        """

    def add(self, seq_id: int) -> None:
        """Adds an empty sequence."""

    def remove(self, seq_id: int) -> None: ...

    def extend(self, seq_id: int, tokens: Sequence[int]) -> None:
        """Appends tokens."""

    def rollback(self, seq_id: int, num_tokens: int) -> None:
        """Drops the last num_tokens tokens."""

    def fork(self, seq_id: int, parent_seq_id: int, forked_offset: int) -> None:
        """Adds a sequence with the first forked_offset tokens of the parent."""

    def get(self, seq_id: int) -> list[int]: ...

    def get_length(self, seq_id: int) -> int: ...

    def free_capacity(self) -> int:
        """Tokens that may still be added."""

def inspect_model(path: str, quantization: str | None = None) -> str:
    """
    What a model folder holds and whether it loads, as JSON (csrc/models/inspect.h). Raises LoadError if it is no model folder, InvalidConfig.
    """

class PackedFile:
    """The packed weights of a model on disk."""

    @property
    def path(self) -> str: ...

    @property
    def bytes(self) -> int:
        """Of the weights."""

    @property
    def was_there(self) -> bool:
        """It was valid and is the same as before."""

    @property
    def weight_format(self) -> str: ...

    @property
    def num_parameters(self) -> int: ...

    @property
    def num_calibration_tokens(self) -> int:
        """That were computed; 0: there is no calibration."""

    @property
    def num_not_reached(self) -> int:
        """Matrices that no such token has reached, in a new file."""

def pack_model(engine_config_json: str, progress: object | None = None, log: object | None = None, calibration: Sequence[int] | None = None) -> PackedFile:
    """
    Writes the packed weights of a model to its weight_cache_dir, rounded for the tokens of `calibration` if they are given (csrc/models/calibration.h). Raises LoadError, InvalidConfig.
    """

class Engine:
    """The single-threaded engine; one thread at a time."""

    @staticmethod
    def create(config_json: str, device: str, callback: object | None = None, trace_recorder: EventTraceRecorder | None = None, progress: object | None = None, log: object | None = None) -> Engine:
        """Loads the model named in the config. Raises InvalidConfig, LoadError."""

    def create_request(self, id: str, token_ids: Sequence[int], generation_config: GenerationConfig, begins_turn: bool = False, cancellation: Cancellation | None = None, embeddings: Sequence[tuple[int, Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)]] | tuple[int, Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int32], dict(shape=(None, 3), order='C', device='cpu', writable=False)], int]] = []) -> Request:
        """
        Validates, and compiles a grammar without the GIL. Raises InvalidRequest, InvalidConfig.
        """

    def create_embedding_request(self, id: str, token_ids: Sequence[int], pooling: str | None, dimensions: int | None, normalize: bool | None, service: GenerationConfig, embeddings: Sequence[tuple[int, Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)]] | tuple[int, Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int32], dict(shape=(None, 3), order='C', device='cpu', writable=False)], int]] = [], classify: bool = False, second_text: int = 0) -> Request:
        """
        A request for the embedding of the tokens, or for the logits of their classes; None is what the model folder says. Raises InvalidRequest.
        """

    def add_request(self, request: Request) -> None: ...

    def abort_request(self, request_id: str) -> None: ...

    def abort_all_requests(self) -> None: ...

    def step(self) -> None: ...

    def reset(self) -> None: ...

    def empty(self) -> bool: ...

    def json_metrics(self) -> str: ...

    def load_adapter(self, name: str, path: str) -> None:
        """Raises InvalidRequest, InvalidConfig, LoadError."""

    def unload_adapter(self, name: str) -> None:
        """Raises InvalidRequest."""

    def adapters(self) -> list[AdapterInfo]: ...

    def pin_prefix(self, token_ids: Sequence[int]) -> int: ...

    def unpin_prefix(self, pin_id: int) -> None: ...

    def pinned_prefixes(self) -> list[PinnedPrefix]: ...

    def debug_call(self, name: str) -> str: ...

    def set_request_stream_callback(self, callback: object | None) -> None: ...

    def get_request_stream_callback(self) -> object: ...

    def default_generation_config(self) -> GenerationConfig: ...

    def config_json(self) -> str: ...

    def request_limits(self) -> RequestLimits: ...

    def token_table(self) -> TokenTable: ...

class ThreadedEngine:
    """The engine behind its two loops. Thread-safe."""

    def __init__(self) -> None: ...

    def init_threaded_engine(self, device: str, callback: object, trace_recorder: EventTraceRecorder | None = None, log: object | None = None) -> None: ...

    def run_background_loop(self) -> None: ...

    def run_background_stream_back_loop(self) -> None: ...

    def exit_background_loop(self) -> None: ...

    def reload(self, engine_config_json: str, progress: object | None = None) -> None:
        """Blocks until the model is loaded. Raises InvalidConfig, LoadError."""

    def unload(self) -> None: ...

    def reset(self) -> None: ...

    def create_request(self, id: str, token_ids: Sequence[int], generation_config: GenerationConfig, begins_turn: bool = False, cancellation: Cancellation | None = None, embeddings: Sequence[tuple[int, Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)]] | tuple[int, Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int32], dict(shape=(None, 3), order='C', device='cpu', writable=False)], int]] = []) -> Request:
        """
        Validates against the loaded model, and compiles a grammar without the GIL. Raises InvalidRequest, InvalidConfig.
        """

    def create_embedding_request(self, id: str, token_ids: Sequence[int], pooling: str | None, dimensions: int | None, normalize: bool | None, service: GenerationConfig, embeddings: Sequence[tuple[int, Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)]] | tuple[int, Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int32], dict(shape=(None, 3), order='C', device='cpu', writable=False)], int]] = [], classify: bool = False, second_text: int = 0) -> Request:
        """
        A request for the embedding of the tokens, or for the logits of their classes; None is what the model folder says. Raises InvalidRequest.
        """

    def add_request(self, request: Request) -> None: ...

    def abort_request(self, request_id: str) -> None: ...

    def abort_all_requests(self) -> None: ...

    def get_default_generation_config(self) -> GenerationConfig: ...

    def get_complete_engine_config(self) -> str: ...

    def get_request_limits(self) -> RequestLimits: ...

    def get_token_table(self) -> TokenTable: ...

    def json_metrics(self) -> str: ...

    def load_adapter(self, name: str, path: str) -> None:
        """Raises InvalidRequest, InvalidConfig, LoadError."""

    def unload_adapter(self, name: str) -> None:
        """Raises InvalidRequest."""

    def adapters(self) -> list[AdapterInfo]: ...

    def pin_prefix(self, token_ids: Sequence[int]) -> int: ...

    def unpin_prefix(self, pin_id: int) -> None: ...

    def pinned_prefixes(self) -> list[PinnedPrefix]: ...

    def debug_call_func_on_all_worker(self, name: str) -> str: ...
