"""The C++ engine of mlc_native."""

from collections.abc import Mapping, Sequence
from typing import Any

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

    @property
    def n(self) -> int:
        """number of answers, >= 1."""

    @n.setter
    def n(self, arg: int, /) -> None: ...

    @property
    def max_tokens(self) -> int:
        """
        tokens per answer; -1 is unlimited, 0 an empty answer. None: max_new_tokens of the model's generation_config.json, else unlimited.
        """

    @max_tokens.setter
    def max_tokens(self, arg: int, /) -> None: ...

    @property
    def min_tokens(self) -> int:
        """
        tokens that an answer has at least, >= 0: before, no end-of-sequence token and no token of `stop_token_ids` is drawn, and stop strings are looked for in the text behind them.
        """

    @min_tokens.setter
    def min_tokens(self, arg: int, /) -> None: ...

    @property
    def stop_strs(self) -> list[str]:
        """texts at which an answer ends; not part of the answer."""

    @stop_strs.setter
    def stop_strs(self, arg: Sequence[str], /) -> None: ...

    @property
    def stop_token_ids(self) -> list[int]:
        """
        tokens at which an answer ends; not part of the answer. An empty list leaves only the model's end-of-sequence ids, which `ignore_eos` turns off.
        """

    @stop_token_ids.setter
    def stop_token_ids(self, arg: Sequence[int], /) -> None: ...

    @property
    def include_stop_str_in_output(self) -> bool:
        """the stop string or stop token that ends an answer is part of it."""

    @include_stop_str_in_output.setter
    def include_stop_str_in_output(self, arg: bool, /) -> None: ...

    @property
    def skip_special_tokens(self) -> bool:
        """special tokens add nothing to the text of an answer."""

    @skip_special_tokens.setter
    def skip_special_tokens(self, arg: bool, /) -> None: ...

    @property
    def truncate_prompt_tokens(self) -> int | None:
        """use only this many of the prompt's last tokens, >= 1."""

    @truncate_prompt_tokens.setter
    def truncate_prompt_tokens(self, value: int | None) -> None: ...

    @property
    def response_format(self) -> ResponseFormat:
        """what the answer must look like."""

    @response_format.setter
    def response_format(self, arg: ResponseFormat, /) -> None: ...

    @property
    def temperature(self) -> float:
        """[0, inf); below 1e-5 is greedy."""

    @temperature.setter
    def temperature(self, arg: float, /) -> None: ...

    @property
    def top_p(self) -> float:
        """[0, 1], the most likely tokens that have this probability together."""

    @top_p.setter
    def top_p(self, arg: float, /) -> None: ...

    @property
    def top_k(self) -> int:
        """the k most likely tokens; 0 is off."""

    @top_k.setter
    def top_k(self, arg: int, /) -> None: ...

    @property
    def min_p(self) -> float:
        """[0, 1], relative to the most likely token."""

    @min_p.setter
    def min_p(self, arg: float, /) -> None: ...

    @property
    def frequency_penalty(self) -> float:
        """[-2, 2], per occurrence of a token in the answer."""

    @frequency_penalty.setter
    def frequency_penalty(self, arg: float, /) -> None: ...

    @property
    def presence_penalty(self) -> float:
        """[-2, 2], once for each token of the answer."""

    @presence_penalty.setter
    def presence_penalty(self, arg: float, /) -> None: ...

    @property
    def repetition_penalty(self) -> float:
        """(0, inf), divides the logits of tokens of the answer."""

    @repetition_penalty.setter
    def repetition_penalty(self, arg: float, /) -> None: ...

    @property
    def logit_bias(self) -> dict[int, float]:
        """token id -> [-100, 100]."""

    @logit_bias.setter
    def logit_bias(self, arg: Mapping[int, float], /) -> None: ...

    @property
    def allowed_token_ids(self) -> list[int]:
        """the only tokens that an answer may have; not empty."""

    @allowed_token_ids.setter
    def allowed_token_ids(self, arg: Sequence[int], /) -> None: ...

    @property
    def bad_words(self) -> list[list[int]]:
        """
        texts that an answer never has, as the tokens that the tokenizer makes of them at the beginning of a text and behind a space.
        """

    @bad_words.setter
    def bad_words(self, arg: Sequence[Sequence[int]], /) -> None: ...

    @property
    def seed(self) -> int | None:
        """of the draws; None draws one."""

    @seed.setter
    def seed(self, value: int | None) -> None: ...

    @property
    def logprobs(self) -> bool:
        """report the log probability of each token."""

    @logprobs.setter
    def logprobs(self, arg: bool, /) -> None: ...

    @property
    def top_logprobs(self) -> int:
        """and of this many alternatives, [0, 20]."""

    @top_logprobs.setter
    def top_logprobs(self, arg: int, /) -> None: ...

    @property
    def prompt_logprobs(self) -> int | None:
        """
        report the log probability of each token of the prompt but the first, and of this many alternatives, [0, 20]. The prompt is computed without the prefix cache.
        """

    @prompt_logprobs.setter
    def prompt_logprobs(self, value: int | None) -> None: ...

    @property
    def priority(self) -> str:
        """
        "high" requests are started before waiting "normal" ones, and those before "low" ones; each waiting request is overtaken by only a few. First come, first served among equals.
        """

    @priority.setter
    def priority(self, arg: str, /) -> None: ...

    @property
    def queue_timeout_s(self) -> float | None:
        """
        seconds from the submission until work on the request must have started, (0, 1e9]. Else it ends with finish reason "timeout".
        """

    @queue_timeout_s.setter
    def queue_timeout_s(self, value: float | None) -> None: ...

    @property
    def timeout_s(self) -> float | None:
        """
        seconds until its end, (0, 1e9]. It ends with "timeout" and what it has by then.
        """

    @timeout_s.setter
    def timeout_s(self, value: float | None) -> None: ...

    @property
    def cache_salt(self) -> int:
        """
        a secret text: prompts find only what the prefix cache has of requests with the same one, so others cannot find out by the times of answers what it has. None: what it has of requests without one.
        """

    @cache_salt.setter
    def cache_salt(self, arg: int, /) -> None: ...

    @property
    def ignore_eos(self) -> bool:
        """
        the model's end-of-sequence ids do not stop; stop strings and `stop_token_ids` still do.
        """

    @ignore_eos.setter
    def ignore_eos(self, arg: bool, /) -> None: ...

    @property
    def pinned_system_prompt(self) -> bool:
        """
        pin the prompt in the prefix cache; `pinned_prefixes` lists it and `unpin_prefix` releases it. A prompt that exceeds the room for pins is refused. When other pins have taken the room, the request is served without a pin: `usage.extra["pinned_tokens"]` is the length of the prompt or 0.
        """

    @pinned_system_prompt.setter
    def pinned_system_prompt(self, arg: bool, /) -> None: ...

    @property
    def special_request(self) -> str:
        """
        "query_engine_metrics" answers with the engine's metrics in the usage chunk (`usage.extra`); needs streaming with `include_usage`.
        """

    @special_request.setter
    def special_request(self, arg: str, /) -> None: ...

    @property
    def grammar_execution_mode(self) -> str:
        """how a grammar is applied: "jump_forward" or "constraint"."""

    @grammar_execution_mode.setter
    def grammar_execution_mode(self, arg: str, /) -> None: ...

    def validate(self, vocab_size: int) -> None:
        """
        Raises InvalidRequest that names the field, the value and the allowed range.
        """

    def as_json(self) -> str: ...

    def copy(self) -> GenerationConfig: ...

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

class Request:
    """A validated request. Immutable."""

    @property
    def id(self) -> str: ...

    @property
    def inputs(self) -> list[list[int]]: ...

    @property
    def generation_config(self) -> GenerationConfig: ...

    @property
    def prompt_len(self) -> int: ...

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

class Engine:
    """The single-threaded engine; one thread at a time."""

    @staticmethod
    def create(config_json: str, device: str, callback: object | None = None, trace_recorder: EventTraceRecorder | None = None, progress: object | None = None) -> Engine:
        """Loads the model named in the config. Raises InvalidConfig, LoadError."""

    def create_request(self, id: str, token_ids: Sequence[int], generation_config: GenerationConfig, begins_turn: bool = False) -> Request:
        """
        Validates, and compiles a grammar without the GIL. Raises InvalidRequest, InvalidConfig.
        """

    def add_request(self, request: Request) -> None: ...

    def abort_request(self, request_id: str) -> None: ...

    def abort_all_requests(self) -> None: ...

    def step(self) -> None: ...

    def reset(self) -> None: ...

    def empty(self) -> bool: ...

    def json_metrics(self) -> str: ...

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

    def init_threaded_engine(self, device: str, callback: object, trace_recorder: EventTraceRecorder | None = None) -> None: ...

    def run_background_loop(self) -> None: ...

    def run_background_stream_back_loop(self) -> None: ...

    def exit_background_loop(self) -> None: ...

    def reload(self, engine_config_json: str, progress: object | None = None) -> None:
        """Blocks until the model is loaded. Raises InvalidConfig, LoadError."""

    def unload(self) -> None: ...

    def reset(self) -> None: ...

    def create_request(self, id: str, token_ids: Sequence[int], generation_config: GenerationConfig, begins_turn: bool = False) -> Request:
        """
        Validates against the loaded model, and compiles a grammar without the GIL. Raises InvalidRequest, InvalidConfig.
        """

    def add_request(self, request: Request) -> None: ...

    def abort_request(self, request_id: str) -> None: ...

    def abort_all_requests(self) -> None: ...

    def get_default_generation_config(self) -> GenerationConfig: ...

    def get_complete_engine_config(self) -> str: ...

    def get_request_limits(self) -> RequestLimits: ...

    def get_token_table(self) -> TokenTable: ...

    def json_metrics(self) -> str: ...

    def pin_prefix(self, token_ids: Sequence[int]) -> int: ...

    def unpin_prefix(self, pin_id: int) -> None: ...

    def pinned_prefixes(self) -> list[PinnedPrefix]: ...

    def debug_call_func_on_all_worker(self, name: str) -> str: ...
