"""The names of arguments that are declared elsewhere, and what a wrong one may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

# The names that vLLM, llama.cpp, transformers and OpenAI's library have for arguments of ours.
_NAMES_ELSEWHERE = {
    "cache_dtype": "kv_cache_dtype",
    "context_length": "max_single_sequence_length",
    "enable_prefix_caching": "prefix_cache_mode",
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
    "max_model_len": "max_single_sequence_length",
    "max_new_tokens": "max_tokens",
    "max_num_batched_tokens": "prefill_chunk_size",
    "max_num_seqs": "max_num_sequence",
    "n_batch": "prefill_chunk_size",
    "n_ctx": "max_single_sequence_length",
    "n_threads": "num_threads",
    "num_return_sequences": "n",
    "repeat_penalty": "repetition_penalty",
    "sampling_params": "generation_config",
    "speculative_config": "speculative_mode",
    "structured_outputs": "response_format",
    "tensor_parallel_size": "tensor_parallel_shards",
    "timeout": "timeout_s",
    "torch_dtype": "dtype",
    "use_tqdm": "progress",
}
_MIN_SIMILARITY = 0.75  # of names, by difflib


def name_hint(name: object, known: Collection[str]) -> str:
    """Returns "; did you mean 'x'?" for a name that is not known, or "" if no known one is near."""
    elsewhere = _NAMES_ELSEWHERE.get(str(name), "")
    similar = difflib.get_close_matches(str(name), known, n=1, cutoff=_MIN_SIMILARITY)
    meant = [elsewhere] if elsewhere in known else similar
    return f"; did you mean '{meant[0]}'?" if meant else ""


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
