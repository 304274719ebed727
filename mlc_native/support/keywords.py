"""The names of arguments that are declared elsewhere, and what a wrong one may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

# The names that vLLM, llama.cpp, Ollama, transformers and OpenAI's library have for arguments of
# ours, some of them as flags.
_NAMES_ELSEWHERE = {
    "cache_dtype": "kv_cache_dtype",
    "context_length": "max_single_sequence_length",
    "ctx_size": "max_single_sequence_length",
    "device_map": "device",
    "draft_model": "additional_models",
    "enable_prefix_caching": "prefix_cache_mode",
    "enable_thinking": "chat_template_kwargs",
    "functions": "tools",
    "grammar": "response_format",
    "guided_choice": "response_format",
    "guided_decoding": "response_format",
    "guided_grammar": "response_format",
    "guided_json": "response_format",
    "guided_regex": "response_format",
    "json_schema": "response_format",
    "load_in_4bit": "quantization",
    "load_in_8bit": "quantization",
    "max_batch_size": "max_num_sequence",
    "max_length": "max_tokens",
    "max_model_len": "max_single_sequence_length",
    "max_new_tokens": "max_tokens",
    "max_num_batched_tokens": "prefill_chunk_size",
    "max_num_seqs": "max_num_sequence",
    "max_seq_len": "max_single_sequence_length",
    "n_batch": "prefill_chunk_size",
    "n_ctx": "max_single_sequence_length",
    "n_parallel": "max_num_sequence",
    "n_predict": "max_tokens",
    "n_threads": "num_threads",
    "num_ctx": "max_single_sequence_length",
    "num_predict": "max_tokens",
    "num_return_sequences": "n",
    "parallel": "max_num_sequence",
    "reasoning_effort": "chat_template_kwargs",
    "prompt_token_ids": "prompt",
    "repeat_penalty": "repetition_penalty",
    "sampling_params": "generation_config",
    "speculative_config": "speculative_mode",
    "stop": "stop_strs",
    "stop_sequences": "stop",
    "stop_strings": "stop",
    "structured_outputs": "response_format",
    "tensor_parallel_size": "tensor_parallel_shards",
    "threads": "num_threads",
    "timeout": "timeout_s",
    "torch_dtype": "dtype",
    "use_tqdm": "progress",
}
_MIN_SIMILARITY = 0.75  # of names, by difflib


def meant_name(name: object, known: Collection[str]) -> str | None:
    """The known name that a wrong one may have meant, or None."""
    elsewhere = _NAMES_ELSEWHERE.get(str(name), "")
    if elsewhere in known:
        return elsewhere
    similar = difflib.get_close_matches(str(name), known, n=1, cutoff=_MIN_SIMILARITY)
    return similar[0] if similar else None


def name_hint(name: object, known: Collection[str]) -> str:
    """Returns "; did you mean 'x'?" for a name that is not known, or "" if no known one is near."""
    meant = meant_name(name, known)
    return f"; did you mean '{meant}'?" if meant else ""


def check_keywords(
    function: str, given: Iterable[str], known: Collection[str], advice: str = ""
) -> None:
    """Raises TypeError, as Python does, for a keyword argument that a function does not have.

    ``advice`` ends the message where no known name is near.
    """
    for name in given:
        if name not in known:
            hint = name_hint(name, known) or advice
            raise TypeError(f"{function}() got an unexpected keyword argument '{name}'{hint}")
