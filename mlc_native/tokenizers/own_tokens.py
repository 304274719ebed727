"""OwnTokenEncoder: encodes prompts in which a text of a request never becomes a control token."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator

import tokenizers
from tokenizers import AddedToken

from mlc_native.template_sandbox import PromptText

# Tokens that mark turns, though some tokenizers do not call them special: <|user|>, <｜User｜>.
_LOOKS_SPECIAL = re.compile(r"<[|｜].+[|｜]>", re.DOTALL)


class OwnTokenEncoder:
    """Encodes as a tokenizer does, with control tokens only where the chat template wrote them.

    Control tokens are the special tokens, and others that look like ``<|user|>``. A second
    tokenizer, which shares the vocabulary, knows them by names that cannot be guessed. In a prompt,
    the template's own control tokens are replaced by those names; all other texts stay texts.
    Immutable; any thread.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        added = dict(sorted(tokenizer.get_added_tokens_decoder().items()))
        self._names = {
            token.content: f"\ue000{secrets.token_hex(16)}\ue001"
            for token in added.values()
            if token.special or _LOOKS_SPECIAL.fullmatch(token.content)
        }
        # Of several that begin at one place, the longest is found.
        texts = sorted(self._names, key=len, reverse=True)
        self._controls = re.compile("|".join(map(re.escape, texts)) if texts else r"(?!)")
        self._tokenizer = _with_names(tokenizer, added, self._names)
        self._ids: dict[int, int] = {}  # where the two tokenizers differ
        self._name_ids: set[int] = set()  # of the second tokenizer
        self._control_ids: set[int] = set()
        for token_id, token in added.items():
            name = self._names.get(token.content)
            own_id: int = self._tokenizer.token_to_id(name or token.content)  # type: ignore[assignment]
            self._ids[own_id] = token_id
            if name is not None:
                self._name_ids.add(own_id)
                self._control_ids.add(token_id)

    def is_needed(self, text: str) -> bool:
        """Whether a text of a request would become a control token."""
        if not isinstance(text, PromptText):
            return False
        return any(not _is_own(text, *found.span()) for found in self._controls.finditer(text))

    def encode(self, text: PromptText) -> list[int]:
        """The tokens of a prompt, without what the tokenizer puts around it."""
        named = "".join(self._named(text))
        ids = self._encode(named)
        if ids is None:  # the vocabulary has a control token as a word: its text is cut
            starts = [found.start() + 1 for found in self._controls.finditer(named)]
            parts = [named[i:j] for i, j in zip([0, *starts], [*starts, None], strict=True)]
            ids = [token_id for part in parts for token_id in self._encode(part) or []]
        return ids

    def _named(self, text: PromptText) -> Iterator[str]:
        """The pieces of a text, with names instead of the template's own control tokens."""
        at = 0
        for begin, end in text.own:
            for found in self._controls.finditer(text, begin, end):
                yield str.__getitem__(text, slice(at, found.start()))
                yield self._names[found[0]]
                at = found.end()
        yield str.__getitem__(text, slice(at, None))

    def _encode(self, named: str) -> list[int] | None:
        """The tokens of a text with names; None if they have a control token without a name."""
        (encoding,) = self._tokenizer.encode_batch([named], add_special_tokens=False)
        ids = [self._ids.get(own_id, own_id) for own_id in encoding.ids]
        for own_id, token_id in zip(encoding.ids, ids, strict=True):
            if token_id in self._control_ids and own_id not in self._name_ids:
                return None
        return ids


def _is_own(text: PromptText, begin: int, end: int) -> bool:
    return any(first <= begin and end <= last for first, last in text.own)


def _with_names(
    tokenizer: tokenizers.Tokenizer, added: dict[int, AddedToken], names: dict[str, str]
) -> tokenizers.Tokenizer:
    """A tokenizer of the same vocabulary, whose control tokens have other texts."""
    other = tokenizers.Tokenizer(tokenizer.model)
    if tokenizer.normalizer is not None:
        other.normalizer = tokenizer.normalizer
    if tokenizer.pre_tokenizer is not None:
        other.pre_tokenizer = tokenizer.pre_tokenizer
    tokens = []
    for token in added.values():
        name = names.get(token.content)
        if name is not None:
            token = AddedToken(name, lstrip=token.lstrip, rstrip=token.rstrip, normalized=False)
        tokens.append(token)
    other.add_tokens(tokens)  # all at once: each call looks at all tokens
    return other
