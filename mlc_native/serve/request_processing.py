"""From an OpenAI request to prompt tokens and settings. One place for all façades."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from itertools import groupby
from numbers import Integral
from typing import Any, Literal, cast

from mlc_native.errors import invalid_request, shown
from mlc_native.protocol.debug_protocol import DebugConfig
from mlc_native.protocol.generation_config import GenerationConfig, SamplingOptions
from mlc_native.protocol.openai_api_protocol import (
    MAX_PROMPT_MEMBERS,
    ChatCompletionRequest,
    CompletionRequest,
    count_members,
    is_list,
)
from mlc_native.protocol.validation import unreadable
from mlc_native.serve import data
from mlc_native.serve.config import EngineConfig
from mlc_native.serve.request_caps import check_id_length
from mlc_native.tokenizers import Tokenizer

Prompt = str | Sequence[int] | data.Data | Sequence[str | int | Sequence[int] | data.Data]

# Where rows begin among the tokens of a prompt, and EmbeddingData.placed of each.
PlacedRows = list[tuple[Any, ...]]
PLACE_OF_ROW = -1

_MOST_BYTES_PER_CHARACTER = 4  # of UTF-8

# Computes and pins a prompt: the request generates one token, which is discarded.
PIN_CONFIG = GenerationConfig(
    max_tokens=1, temperature=0, debug_config=DebugConfig(pinned_system_prompt=True)
)


def random_request_id(prefix: str) -> str:
    """A fresh id: "chatcmpl-..." or "cmpl-..."."""
    return f"{prefix}-{uuid.uuid4().hex}"


def ids_of_prompts(request_id: str, num_prompts: int) -> list[str]:
    """The ids of the requests that a call with several prompts becomes."""
    return [request_id, *(f"{request_id}-{i}" for i in range(1, num_prompts))]


def check_name(field: str, value: object) -> None:
    """Raises InvalidRequest for what is no text, or an empty one: an id, the name of a function."""
    try:
        is_name = isinstance(value, str) and value != "" and _is_unicode(value)
    except Exception:  # what a method of a caller's object raises
        is_name = False
    if not is_name:
        raise invalid_request(
            field, f'"{field}" must be a text that is not empty, got {shown(value)}'
        )


def check_request_id(request_id: object, config: EngineConfig | None = None) -> None:
    """Raises InvalidRequest for what cannot be the id of a request, or of one with this config."""
    check_name("request_id", request_id)
    if config is not None:
        check_id_length(str(request_id), config)


def checked_pin_id(pin_id: object) -> int:
    """The id of a pin as the engine takes it. Raises InvalidRequest for what can be none."""
    if not isinstance(pin_id, int) or not 0 <= pin_id < 1 << 63:
        raise invalid_request("pin_id", f'"pin_id" must be an id of a pin, got {shown(pin_id)}')
    return pin_id


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def generation_config(
    request: CompletionRequest | ChatCompletionRequest,
    extra_stop_token_ids: Sequence[int] = (),
    extra_stop_strs: Sequence[str] = (),
) -> GenerationConfig:
    """The settings that a request asks for. The request is left as it is.

    ``extra_stop_token_ids`` come on top of the request's, unless those are an empty list.
    """
    stop_strs = [request.stop] if isinstance(request.stop, str) else list(request.stop or [])
    stop_strs += [text for text in extra_stop_strs if text not in stop_strs]
    debug_config = request.debug_config or DebugConfig()
    if request.ignore_eos is not None:
        debug_config = debug_config.model_copy(update={"ignore_eos": request.ignore_eos})
    stop_token_ids = request.stop_token_ids
    # An empty list is an answer of its own: stop at no token.
    if stop_token_ids != [] and not debug_config.ignore_eos:
        stop_token_ids = [*(stop_token_ids or []), *extra_stop_token_ids] or None
    if isinstance(request, ChatCompletionRequest):
        logprobs, top_logprobs = request.logprobs, request.top_logprobs
    else:
        logprobs, top_logprobs = request.logprobs is not None, request.logprobs or 0
    options = {name: getattr(request, name) for name in SamplingOptions.model_fields}
    options["stop_token_ids"] = stop_token_ids
    options["prompt_logprobs"] = _num_prompt_logprobs(request)
    return GenerationConfig(
        **options,
        stop_strs=stop_strs or None,
        logprobs=logprobs,
        top_logprobs=top_logprobs,
        debug_config=debug_config,
    )


def _num_prompt_logprobs(request: CompletionRequest | ChatCompletionRequest) -> int | None:
    """``logprobs`` of a completion with ``echo`` are those of the prompt, too."""
    if isinstance(request, ChatCompletionRequest) or not request.echo or request.logprobs is None:
        return request.prompt_logprobs
    return max(request.logprobs, request.prompt_logprobs or 0)


def check_unsupported(request: CompletionRequest) -> None:
    """Raises InvalidRequest for a field that is known and not served."""
    if request.best_of not in (None, 1):
        raise invalid_request("best_of", 'Request fields "best_of" are not supported right now.')
    if request.suffix:
        raise invalid_request(
            "suffix",
            '"suffix" is not supported: a completion continues the prompt and does not lead to a '
            "given text",
        )


# ------------------------------------------------------------------------------------- the prompt


def prompt_token_ids(
    prompt: Prompt, tokenizer: Tokenizer | None, *, add_special_tokens: bool = True
) -> list[int]:
    """Token ids of a prompt: text, ids, data, or a list of pieces of these kinds.

    Args:
        add_special_tokens: a prompt that begins with text gets what the tokenizer puts in front of
            a text (BOS), unless the text begins with it; one that ends with text, what it puts
            behind.

    Raises:
        InvalidRequest: the prompt is of another kind or no valid text, or the model has no
            tokenizer and the prompt is text.
    """
    try:
        token_ids = _plain_token_ids(prompt, tokenizer)
    except RecursionError:
        raise invalid_request("prompt", "the lists of the prompt are nested too deeply") from None
    if not add_special_tokens or tokenizer is None:
        return token_ids
    return tokenizer.special_tokens.around(
        token_ids, front=_is_text(prompt, 0), back=_is_text(prompt, -1)
    )


def _is_text(prompt: Any, end: Literal[0, -1]) -> bool:
    """Whether a prompt is text at its beginning (0) or its end (-1)."""
    if isinstance(prompt, (str, data.TextData)):
        return True
    return isinstance(prompt, Sequence) and len(prompt) > 0 and _is_text(prompt[end], end)


def _plain_token_ids(prompt: Prompt, tokenizer: Tokenizer | None) -> list[int]:
    if isinstance(prompt, str):
        if tokenizer is None:
            raise invalid_request(
                "prompt", "the model folder has no tokenizer.json: give the prompt as token ids"
            )
        return tokenizer.encode(prompt)
    if isinstance(prompt, data.TextData):
        return _plain_token_ids(prompt.text, tokenizer)
    if isinstance(prompt, data.TokenData):
        return _plain_token_ids(prompt.token_ids, tokenizer)
    num_pieces = count_members(prompt)
    if num_pieces > MAX_PROMPT_MEMBERS:  # a range may be small in memory
        raise invalid_request(
            "prompt", f"a prompt may have {MAX_PROMPT_MEMBERS} pieces, got {num_pieces}"
        )
    pieces: Any = prompt
    if hasattr(prompt, "tolist"):  # an array or a tensor
        try:
            pieces = prompt.tolist()
        except Exception as error:
            raise unreadable("prompt", error) from error
    if not is_list(pieces):
        raise invalid_request(
            "prompt",
            f"Invalid request prompt of type {type(prompt).__name__}: "
            "it must be a str, a list of token ids, or a list of such pieces",
        )
    token_ids: list[int] = []
    for piece in pieces:
        if isinstance(piece, Integral):  # also those of numpy
            token_ids.append(int(piece))
        else:
            token_ids += _plain_token_ids(piece, tokenizer)
    return token_ids


def _texts(prompt: Prompt) -> Iterator[str]:
    """The texts of a prompt, as far as it is one."""
    if isinstance(prompt, str):
        yield prompt
    elif isinstance(prompt, data.TextData):
        yield prompt.text
    elif isinstance(prompt, (list, tuple)):
        for piece in prompt:
            if isinstance(piece, (str, data.TextData)):
                yield from _texts(piece)


def _placed(
    prompt: Any, tokenizer: Tokenizer | None, *, add_special_tokens: bool
) -> tuple[list[int], PlacedRows]:
    """The tokens of a prompt with rows, and where rows take the places of some of them."""
    token_ids: list[int] = []
    places: PlacedRows = []
    listed = [prompt] if isinstance(prompt, data.EmbeddingData) else prompt
    for is_rows, run in groupby(listed, lambda piece: isinstance(piece, data.EmbeddingData)):
        found: list[Any] = list(run)
        if not is_rows:
            token_ids += prompt_token_ids(found, tokenizer, add_special_tokens=False)
            continue
        for piece in found:
            places.append((len(token_ids), *piece.placed))
            token_ids += [PLACE_OF_ROW] * len(piece)
    if not add_special_tokens or tokenizer is None:
        return token_ids, places
    ends = {"front": _is_text(listed, 0), "back": _is_text(listed, -1)}
    complete = tokenizer.special_tokens.around(token_ids, **ends)
    added = len(tokenizer.special_tokens.around(token_ids, front=ends["front"], back=False))
    added -= len(token_ids)  # in front
    return complete, [(at + added, *placed) for at, *placed in places]


def has_rows(prompt: Prompt) -> bool:
    """Whether a prompt has rows in place of embeddings."""
    if isinstance(prompt, (list, tuple)):
        return any(isinstance(piece, data.EmbeddingData) for piece in prompt)
    return isinstance(prompt, data.EmbeddingData)


def bounded_inputs(
    prompt: Prompt,
    tokenizer: Tokenizer | None,
    config: GenerationConfig,
    max_length: int,
    reason: str,
    *,
    add_special_tokens: bool,
) -> tuple[list[int], dict[str, PlacedRows]]:
    """What ``create_request`` of the engine takes of a prompt that must fit: tokens and keywords.

    Raises:
        InvalidRequest: see ``bounded_token_ids``.
    """
    if not has_rows(prompt):
        token_ids = bounded_token_ids(
            *(prompt, tokenizer, config, max_length, reason), add_special_tokens=add_special_tokens
        )
        return token_ids, {}
    _check_text_length(prompt, tokenizer, config, max_length, reason)
    try:
        token_ids, places = _placed(prompt, tokenizer, add_special_tokens=add_special_tokens)
    except RecursionError:
        raise invalid_request("prompt", "the lists of the prompt are nested too deeply") from None
    _check_prompt_length(token_ids, config, max_length, reason)
    return token_ids, {"embeddings": places}


def bounded_token_ids(
    prompt: Prompt,
    tokenizer: Tokenizer | None,
    config: GenerationConfig,
    max_length: int,
    reason: str,
    *,
    add_special_tokens: bool,
) -> list[int]:
    """``prompt_token_ids`` of a prompt that must fit; ``reason`` says what sets ``max_length``.

    Raises:
        InvalidRequest: see ``prompt_token_ids``; or no empty engine could hold the prompt.
    """
    _check_text_length(prompt, tokenizer, config, max_length, reason)
    token_ids = prompt_token_ids(prompt, tokenizer, add_special_tokens=add_special_tokens)
    _check_prompt_length(token_ids, config, max_length, reason)
    return token_ids


def encoded_texts(
    prompts: Sequence[Prompt],
    configs: Sequence[GenerationConfig],
    tokenizer: Tokenizer | None,
    max_length: int,
    reason: str,
    *,
    add_special_tokens: bool,
) -> list[Prompt]:
    """The prompts, with token ids in place of texts, which are encoded together.

    Raises:
        InvalidRequest: a text cannot be encoded, or no empty engine could hold it.
    """
    # The control tokens of a rendered chat depend on where the template wrote them.
    places = [i for i, prompt in enumerate(prompts) if type(prompt) is str]
    encoded = list(prompts)
    if tokenizer is None or len(places) < 2:
        return encoded
    for i in places:
        _check_text_length(prompts[i], tokenizer, configs[i], max_length, reason)
    texts = [cast(str, prompts[i]) for i in places]
    for i, token_ids in zip(places, tokenizer.encode_batch(texts), strict=True):
        around = tokenizer.special_tokens.around
        encoded[i] = around(token_ids) if add_special_tokens else token_ids
    return encoded


def _check_text_length(
    prompt: Prompt,
    tokenizer: Tokenizer | None,
    config: GenerationConfig,
    max_length: int,
    reason: str,
) -> None:
    """Raises InvalidRequest for a text that has too many bytes to fit, before it is tokenized."""
    if tokenizer is None or config.truncate_prompt_tokens is not None:
        return
    texts = list(_texts(prompt))
    if sum(map(len, texts)) * _MOST_BYTES_PER_CHARACTER <= max_length:
        return
    bound = tokenizer.text_bound
    num_tokens = sum(map(bound.least_tokens, texts))
    if num_tokens > max_length:
        raise invalid_request(
            "prompt",
            f"Request prompt has at least {num_tokens} tokens in total, larger than the model "
            f"input length limit {max_length} ({reason}): it has "
            f"{sum(map(bound.num_bytes, texts))} bytes, and a token at most {bound.most_bytes}.",
            "context_length_exceeded",
        )


def _check_prompt_length(
    token_ids: Sequence[int], config: GenerationConfig, max_length: int, reason: str
) -> None:
    """Raises InvalidRequest for a prompt that no empty engine could hold."""
    for token_id in (min(token_ids), max(token_ids)) if token_ids else ():
        if not -(1 << 63) <= token_id < 1 << 63:  # C++ checks the ids that it can represent
            raise invalid_request(
                "prompt", f'"prompt" must be token ids in [0, 2^31), got {shown(token_id)}'
            )
    num_tokens = len(token_ids)
    if config.truncate_prompt_tokens is not None:
        num_tokens = min(num_tokens, config.truncate_prompt_tokens)
    if num_tokens > max_length:
        raise invalid_request(
            "prompt",
            f"Request prompt has {num_tokens} tokens in total, "
            f"larger than the model input length limit {max_length} ({reason}).",
            "context_length_exceeded",
        )
