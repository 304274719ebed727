"""EngineConfig: how an engine is set up."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from mlc_native.errors import invalid_config

# Fields of MLC-LLM's compiler. Accepted with the only value that has a meaning here.
_COMPILER_FIELDS: dict[str, tuple[Any, ...]] = {
    "tensor_parallel_shards": (None, 1),
    "pipeline_parallel_stages": (None, 1),
    "opt": (None, "O0", "O1", "O2", "O3"),
    "kv_state_kind": (None, "kv_cache"),
}


@dataclass
class EngineConfig:
    """Settings of an engine. ``None`` means: inferred from mode, model and free memory.

    Ranges are checked by the engine before anything is loaded; what is wrong is named in an
    InvalidConfig.

    Attributes:
        model: model folder, demo model or hub id; the constructor argument of the engine.
        model_lib: plug-in library that creates the model; None is the decoder of the device.
        additional_models: draft models of speculative decoding.
        mode: "local" (a few requests), "interactive" (one) or "server" (as many as fit).
        dtype: "auto" (the checkpoint's), "float32", "bfloat16" or "float16".
        quantization: of the matrices. None: as the checkpoint has them; "q8", "q4": quantized to
            that many bits as they are loaded, unless the checkpoint has fewer (with "q4", the first
            layer and the output head (tied: the embeddings) to 8 bits); "off": all are of `dtype`.
        weight_cache_dir: folder where packed weights are kept, so that the next start maps them;
            None keeps none. What is in it may be deleted at any time.
        kv_cache_dtype: of the keys and values in the KV cache: "auto" (the type of the weights
            that are floats), "bfloat16", "float16", "float32", "int8" (a scale per token and head;
            on the CPU only) or "float8" (e4m3; on GPUs only).
        num_threads: CPU threads of the model; default: all cores the process may use.
        gpu_memory_utilization: (0, 1], share of the memory of the device that is free after the
            weights are loaded; default 0.85.
        kv_cache_page_size: tokens per page of the KV cache; only 16.
        max_num_sequence: sequences that run at the same time.
        max_total_sequence_length: tokens in the KV cache.
        max_single_sequence_length: tokens of one sequence, prompt and answer.
        prefill_chunk_size: tokens in one forward.
        sliding_window_size, attention_sink_size: override the model's, in tokens.
        max_history_size: only 0; recurrent models are not supported.
        max_queue_length: requests that may wait for their start, or -1 for any number; beyond it a
            request is refused with QueueFull. Default: 16 * max_num_sequence in mode "server",
            -1 in the others.
        queue_timeout_s: seconds a request may wait for its start, if it does not say itself.
        timeout_s: seconds a request may take in all, if it does not say itself.
        speculative_mode: "disable"; the others are not supported yet.
        spec_draft_length, spec_tree_width: of speculative decoding.
        prefix_cache_mode: "radix" or "disable".
        prefix_cache_max_num_recycling_seqs: finished sequences kept for reuse, the ones used last;
            0 keeps none, -1 (the default) as many as fit, since what the cache holds is given up
            as soon as a request needs the room.
        prefill_mode: "hybrid" (decoding goes on beside a prefill) or "chunked".
        grammar_compile_timeout_s: for the grammar of one response_format, (0, 3600] seconds.
        grammar_cache_bytes: compiled grammars that are kept for reuse; 0 keeps none.
        verbose: report the settings, and the build of a CUDA library, on stderr.
    """

    model: str | None = None
    model_lib: str | None = None
    additional_models: list[str | tuple[str, str]] = field(default_factory=list)
    mode: Literal["local", "interactive", "server"] | None = None
    tensor_parallel_shards: int | None = None
    pipeline_parallel_stages: int | None = None
    opt: str | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    quantization: Literal["off", "q8", "q4"] | None = None
    weight_cache_dir: str | None = None
    kv_cache_dtype: Literal["auto", "bfloat16", "float16", "float32", "int8", "float8"] = "auto"
    num_threads: int | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_page_size: int = 16
    max_num_sequence: int | None = None
    max_total_sequence_length: int | None = None
    max_single_sequence_length: int | None = None
    prefill_chunk_size: int | None = None
    sliding_window_size: int | None = None
    attention_sink_size: int | None = None
    max_history_size: int | None = None
    max_queue_length: int | None = None
    queue_timeout_s: float | None = None
    timeout_s: float | None = None
    kv_state_kind: Literal["kv_cache", "rnn_state"] | None = None
    speculative_mode: Literal["disable", "small_draft", "eagle", "medusa"] = "disable"
    spec_draft_length: int = 0
    spec_tree_width: int = 1
    prefix_cache_mode: Literal["disable", "radix"] = "radix"
    prefix_cache_max_num_recycling_seqs: int | None = None
    prefill_mode: Literal["chunked", "hybrid"] = "hybrid"
    grammar_compile_timeout_s: float = 10
    grammar_cache_bytes: int = 256 << 20
    verbose: bool = True

    def asjson(self) -> str:
        """All fields as a JSON object."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(json_str: str) -> EngineConfig:
        """The reverse of asjson. Raises InvalidConfig naming a field that does not exist."""
        try:
            values = json.loads(json_str)
        except ValueError as error:
            raise invalid_config("engine_config", f"invalid JSON: {error}") from error
        if not isinstance(values, dict):
            raise invalid_config("engine_config", "an engine config must be a JSON object")
        known = {field.name for field in fields(EngineConfig)}
        for name in values:
            if name not in known:
                raise invalid_config(name, f'the engine config has no field "{name}"')
        return EngineConfig(**values)

    def engine_json(self) -> str:
        """What the C++ engine reads: the fields that are set and that it knows.

        Raises:
            InvalidConfig: a setting of MLC-LLM's compiler that has no meaning here.
        """
        if not isinstance(self.additional_models, list):
            raise invalid_config(
                "additional_models",
                f'"additional_models" must be a list, got {self.additional_models!r}',
            )
        values = asdict(self)
        for name, allowed in _COMPILER_FIELDS.items():
            value = values.pop(name)
            if value not in allowed:
                raise invalid_config(
                    name, f'"{name}" must be one of {list(allowed)}, got {value!r}'
                )
        values["additional_models"] = [
            model[0] if isinstance(model, tuple) else model for model in self.additional_models
        ]
        set_values = {name: value for name, value in values.items() if value is not None}
        try:
            return json.dumps(set_values)
        except TypeError as error:
            raise invalid_config("engine_config", f"a setting has a wrong type: {error}") from error
