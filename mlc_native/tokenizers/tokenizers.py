"""Tokenizer: the tokenizer in C++, or the ``tokenizers`` package, by the interface of MLC-LLM.

Texts are encoded in C++ where it has all parts of a tokenizer. The package, which takes about half
a second for a vocabulary of 128,000 tokens, reads the other tokenizers, and those of which more is
asked: the text of tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from mlc_native import _core
from mlc_native.errors import InvalidRequest, LoadError, invalid_request, load_error, shown
from mlc_native.support.git_lfs import refuse_lfs_pointer
from mlc_native.support.json_file import read_json_object
from mlc_native.support.regular_file import MAX_JSON_BYTES, has_file, read_bytes
from mlc_native.template_sandbox import PromptText
from mlc_native.tokenizers.library import library_errors
from mlc_native.tokenizers.linear_regex import is_linear
from mlc_native.tokenizers.special_tokens import SpecialTokens, read_special_tokens
from mlc_native.tokenizers.text_bound import TextBound

if TYPE_CHECKING:
    import tokenizers

    from mlc_native.tokenizers.own_tokens import OwnTokenEncoder

# About 10 ms of work. Of the package's functions only encode_batch releases the GIL.
LONG_TEXT_CHARS = 8192


@dataclass
class TokenizerInfo:
    """The relation between the texts of a vocabulary's tokens and bytes.

    Attributes:
        token_postproc_method: "byte_level" (GPT-2's characters for bytes) or "byte_fallback"
            ("<0x0A>" is a byte, U+2581 a space).
        prepend_space_in_encode: a space is put in front of the text.
        strip_space_in_decode: the first space of the decoded text is dropped.
    """

    token_postproc_method: Literal["byte_fallback", "byte_level"] = "byte_fallback"
    prepend_space_in_encode: bool = False
    strip_space_in_decode: bool = False

    def asjson(self) -> str:
        """The fields as a JSON object."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(json_str: str) -> TokenizerInfo:
        """The reverse of asjson."""
        return TokenizerInfo(**json.loads(json_str))


class Tokenizer:
    """The tokenizer of a model folder (``tokenizer.json``). Thread-safe.

    Args:
        tokenizer_path: the folder, or the file itself.
        trust_regexes: take regular expressions whose time may grow faster than the text.

    Attributes:
        special_tokens: what the tokenizer puts around a text, such as BOS.

    Raises:
        LoadError: the file is missing or damaged, or has such an expression. What only the package
            finds wrong with a file that C++ reads is raised when the package is first needed.
    """

    def __init__(self, tokenizer_path: str | Path, *, trust_regexes: bool = False) -> None:
        self.path = _tokenizer_json(Path(tokenizer_path))
        self._native = _native(self.path)
        patterns = self._regexes() if self._native is None else self._native.patterns
        skips_runs = self._native is not None
        refused = next((p for p in patterns if not is_linear(p, skips_runs=skips_runs)), None)
        if refused is not None and not trust_regexes:
            raise load_error(
                str(self.path),
                f"{self.path} has a regular expression whose time may grow faster than the "
                f"text: {refused[:200]!r}; trust_tokenizer_regexes=True loads it",
            )
        if refused is not None:
            self._native = None
        if self._native is None:
            with library_errors(self._damaged):
                self.special_tokens = read_special_tokens(self.library, self.path.parent)
        else:
            front, back = self._native.special_tokens
            self.special_tokens = SpecialTokens(tuple(front), tuple(back))

    @cached_property
    def library(self) -> tokenizers.Tokenizer:
        """The same tokenizer of the ``tokenizers`` package, which is made when it is asked for.

        Raises:
            LoadError: the package cannot read the file.
        """
        import tokenizers

        with library_errors(self._damaged):
            content = read_bytes(self.path, MAX_JSON_BYTES)
            tokenizer = tokenizers.Tokenizer.from_buffer(content)
            # A tokenizer.json may ask for truncation and padding; prompts are neither cut nor
            # padded.
            tokenizer.no_truncation()
            tokenizer.no_padding()
        return tokenizer

    def _damaged(self, reason: str) -> LoadError:
        refuse_lfs_pointer(self.path)
        return load_error(str(self.path), f"{self.path} is damaged: {reason}")

    def _regexes(self) -> Iterator[str]:
        tokenizer = self.library
        for component in (tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder):
            yield from _regexes(component)

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of ``text``. No special tokens are added.

        Of a rendered chat, which is a PromptText, only what the chat template wrote becomes control
        tokens.

        Raises:
            InvalidRequest: the text is not valid Unicode (lone surrogates).
        """
        _check_unicode(text)
        if self._native is not None:
            if isinstance(text, PromptText):
                return self._native.encode_prompt(text, text.own)
            return self._native.encode(text)
        if self._own_tokens.is_needed(text):
            with library_errors():
                return self._own_tokens.encode(cast(PromptText, text))
        if len(text) > LONG_TEXT_CHARS:
            return self.encode_batch([text])[0]
        with library_errors():
            ids: list[int] = self.library.encode(text, add_special_tokens=False).ids
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the token ids of each text. All control tokens in it are found."""
        if isinstance(texts, (str, bytes, bytearray)) or not isinstance(texts, Sequence):
            raise invalid_request("texts", f'"texts" must be a list of texts, got {shown(texts)}')
        for text in texts:
            _check_unicode(text)
        if self._native is not None:
            return self._native.encode_batch(texts)
        with library_errors():
            encodings = self.library.encode_batch(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Returns the text of ``token_ids``, without special tokens unless requested."""
        try:
            ids = list(token_ids)
        except TypeError:
            raise _not_ids("token_ids", token_ids) from None
        with library_errors(lambda _reason: _not_ids("token_ids", token_ids)):
            text: str = self.library.decode(ids, skip_special_tokens=bool(skip_special_tokens))
        return text

    def token_to_id(self, token: str) -> int | None:
        """Returns the id of a token as written in the vocabulary; None if there is none."""
        _check_unicode(token)
        if self._native is not None:
            return self._native.id_of(token)
        token_id: int | None = self.library.token_to_id(token)
        return token_id

    def id_to_token(self, token_id: int) -> str | None:
        """Returns a token as written in the vocabulary; None for an id that has none."""
        with library_errors(lambda _reason: _not_ids("token_id", token_id)):
            if self._native is not None and 0 <= token_id < 1 << 31:
                return self._native.token_of(token_id)
            token: str | None = self.library.id_to_token(token_id)
        return token

    @property
    def special_texts(self) -> list[str]:
        """The texts of the special tokens."""
        if self._native is not None:
            return self._native.special_texts
        added = self.library.get_added_tokens_decoder()
        return [token.content for token in added.values() if token.special]

    @property
    def vocab_size(self) -> int:
        """The number of tokens, including added ones. The model's vocabulary may be larger."""
        if self._native is not None:
            return self._native.vocab_size
        size: int = self.library.get_vocab_size()
        return size

    @cached_property
    def _own_tokens(self) -> OwnTokenEncoder:
        from mlc_native.tokenizers.own_tokens import OwnTokenEncoder

        return OwnTokenEncoder(self.library)

    @cached_property
    def token_table(self) -> _core.TokenTable:
        """The bytes that each token id stands for."""
        if self._native is not None:
            return self._native.token_table
        return _core.TokenTable.from_tokenizer_json(str(self.path))

    @cached_property
    def text_bound(self) -> TextBound:
        """How few tokens a text can have."""
        if self._native is not None and self._native.most_text_bytes > 0:
            return TextBound(self._native.most_text_bytes)
        return TextBound.of_file(read_json_object(self.path), self.token_table)

    @staticmethod
    def detect_tokenizer_info(tokenizer_path: str | Path) -> TokenizerInfo:
        """Returns how the vocabulary in ``tokenizer.json`` relates to bytes."""
        path = _tokenizer_json(Path(tokenizer_path))
        fields = read_json_object(path)
        info = TokenizerInfo()
        for decoder in _components(fields.get("decoder"), "decoders"):
            if decoder.get("type") == "ByteLevel":
                info.token_postproc_method = "byte_level"
            elif decoder.get("type") == "Strip":
                strips_one = decoder.get("start") == 1 and decoder.get("stop") == 0
                info.strip_space_in_decode |= decoder.get("content") == " " and strips_one
        for normalizer in _components(fields.get("normalizer"), "normalizers"):
            if normalizer.get("type") == "Prepend" and normalizer.get("prepend") == "\u2581":
                info.prepend_space_in_encode = True
        return info


def _native(path: Path) -> _core.Tokenizer | None:
    """The tokenizer in C++; None if it lacks a part of this one, or is stricter about the file."""
    try:
        return _core.Tokenizer.from_tokenizer_json(str(path))[0]
    except LoadError:
        return None


def _not_ids(name: str, value: object) -> InvalidRequest:
    what = "a list of token ids" if name == "token_ids" else "a token id"
    return invalid_request(name, f'"{name}" must be {what}, got {shown(value)}')


def _regexes(component: Any) -> Iterator[str]:
    """The regular expressions of a part of a tokenizer."""
    values = [] if component is None else [json.loads(component.__getstate__())]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            pattern = value.get("Regex")
            if isinstance(pattern, str):
                yield pattern
            values += value.values()
        elif isinstance(value, list):
            values += value


def _tokenizer_json(path: Path) -> Path:
    """Returns the path of tokenizer.json in a folder or a GGUF file, or of the file itself."""
    if path.is_dir() or path.suffix == ".gguf":
        path = path / "tokenizer.json"
    if not has_file(path):
        raise load_error(str(path), f"there is no tokenizer: {path} is missing")
    return path


def _components(component: Any, key: str) -> list[dict[str, Any]]:
    """A tokenizer component, or the members of a sequence of them."""
    if not isinstance(component, dict):
        return []
    members = component.get(key)
    return members if isinstance(members, list) else [component]


def _check_unicode(text: str) -> None:
    if not isinstance(text, str):
        raise invalid_request("prompt", f"a text must be a str, got {type(text).__name__}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise invalid_request("prompt", f"the text is not valid Unicode: {error}") from error
