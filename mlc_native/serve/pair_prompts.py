"""The prompt that a reranker reads: a query and a document in one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from mlc_native.conversation import ChatTemplate
from mlc_native.errors import invalid_request, load_error, shown
from mlc_native.serve.embedding_prompts import EmbeddingPrompts
from mlc_native.serve.request_processing import Prompt
from mlc_native.support.json_file import read_optional_json_object
from mlc_native.support.regular_file import has_file

# Of Qwen3-Reranker, whose published folders have the chat template of Qwen3. A template loses the
# end of a line behind a block, and its last one.
_QWEN3 = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: {{ messages[0].content if messages[0].role == 'system' else "
    "'Given a web search query, retrieve relevant passages that answer the query' }}\n"
    "<Query>: {{ messages[-2].content }}\n<Document>: {{ messages[-1].content }}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>{{ '\\n\\n' }}"
)
# Of bge-reranker-v2-gemma.
_BGE_GEMMA = (
    "{{ bos_token }}A: {{ messages[-2].content }}\nB: {{ messages[-1].content }}\n"
    "{{ messages[0].content if messages[0].role == 'system' else \"Given a query A and a passage "
    "B, determine whether the passage contains an answer to the query by providing a prediction of "
    "either 'Yes' or 'No'.\" }}"
)
# By the family of the architecture and the tokens that classify.
_BUILT_IN = {("Qwen3", ("no", "yes")): _QWEN3, ("Gemma", ("Yes",)): _BGE_GEMMA}
_CONFIG = "config.json"
# A template for pairs looks for messages with these roles, as those of sentence-transformers and
# vLLM do.
_ROLES = [re.compile(rf"""["']{role}["']""") for role in ("query", "document")]


@dataclass(frozen=True)
class PairItem:
    """What the tokenizer of a model puts together of a pair.

    Attributes:
        part: 0 or 1 for a text, or tokens.
        type: 1 of the second text, for models that tell both apart.
    """

    part: int | list[int]
    type: int = 0


_TEXTS = (PairItem(0), PairItem(1))


class PairPrompts:
    """How the texts of a pair become the prompt of a model. Immutable.

    Args:
        template: renders messages with the roles system (the instruction), query and document.
        items: without a template, what the tokenizer puts together.
        prompts: of the folder, whose default one is the instruction.
    """

    def __init__(
        self,
        template: ChatTemplate | None = None,
        items: Sequence[PairItem] = _TEXTS,
        prompts: EmbeddingPrompts | None = None,
    ) -> None:
        self._template = template
        self._items = list(items)
        self._prompts = prompts or EmbeddingPrompts()

    @classmethod
    def of_folder(
        cls,
        folder: Path,
        tokens: Sequence[str],
        template: ChatTemplate | None,
        prompts: EmbeddingPrompts,
    ) -> PairPrompts:
        """What a model folder says.

        Args:
            tokens: the setting ``classifier_from_token``.
            template: the chat template of the folder or of the setting.

        Raises:
            LoadError: a file is damaged.
        """
        if template is not None and all(role.search(template.source) for role in _ROLES):
            return cls(template, prompts=prompts)
        config = read_optional_json_object(folder / _CONFIG)
        names = config.get("architectures")
        name = str(names[0]) if isinstance(names, list) and names else ""
        named = config.get("classifier_from_token")
        tokens = tokens or (named if isinstance(named, list) else ())
        source = _BUILT_IN.get((name.partition("For")[0], tuple(map(str, tokens))))
        if source is not None:
            special_tokens = None if template is None else template.special_tokens
            special_tokens = special_tokens or {"bos_token": _bos_token(folder)}
            return cls(ChatTemplate(source, special_tokens), prompts=prompts)
        if not tokens and not name.endswith("ForSequenceClassification"):
            return cls()  # and a file of megabytes is not read
        return cls(items=_pair_items(folder / "tokenizer.json"))

    def prompt(self, query: str, document: str, instruction: str | None) -> Prompt:
        """The prompt of a pair, to which no special tokens are added.

        Raises:
            InvalidRequest: the prompt has no place for an instruction, or the template refused the
                texts.
        """
        texts = query, document
        if self._template is None or _is_prompt(query):
            if instruction is not None:
                raise invalid_request(
                    "instruction",
                    "the prompt of this model has no place for an instruction: its chat template "
                    'would have to show messages with the roles "system", "query" and "document"',
                )
            return _pieces(self._items if self._template is None else _TEXTS, texts)
        instruction = self._prompts.text(None) if instruction is None else instruction
        messages = [{"role": "query", "content": query}, {"role": "document", "content": document}]
        if instruction:
            messages.insert(0, {"role": "system", "content": instruction})
        return self._template.render(messages)

    def first_text(self, query: str, document: str) -> Prompt | None:
        """What is in front of the second text of the prompt of a pair, for models that tell both
        texts apart; None for others.
        """
        in_front = list(takewhile(lambda item: item.type != 1, self._items))
        if self._template is not None or len(in_front) == len(self._items):
            return None
        return _pieces(in_front, (query, document))


def _pieces(items: Sequence[PairItem], texts: tuple[str, str]) -> list[Any]:
    pieces: list[Any] = []
    for item in items:
        pieces += item.part if isinstance(item.part, list) else [texts[item.part]]
    return pieces


def _is_prompt(query: str) -> bool:
    """Whether a caller has put the beginning of the prompt around a query, as for vLLM."""
    return query.startswith("<|im_start|>system\n")


def _bos_token(folder: Path) -> str:
    token = read_optional_json_object(folder / "tokenizer_config.json").get("bos_token")
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else ""


# ---- the pair of a tokenizer.json


def _pair_items(path: Path) -> list[PairItem]:
    """What a tokenizer.json makes of a pair of texts; both behind one another if it does not say.

    Raises:
        LoadError: the file is damaged.
    """
    if not has_file(path):
        return list(_TEXTS)
    processor = read_optional_json_object(path).get("post_processor")
    try:
        return _items_of(processor)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise load_error(
            "tokenizer.json", f'{path}: its "post_processor" is damaged: {error!r}'
        ) from error


def _items_of(processor: Any) -> list[PairItem]:
    if processor is None:
        return list(_TEXTS)
    kind = processor["type"]
    if kind == "Sequence":
        found = [_items_of(each) for each in processor["processors"]]
        return next((items for items in found if items != list(_TEXTS)), list(_TEXTS))
    if kind == "TemplateProcessing":
        return [_template_item(item, processor["special_tokens"]) for item in processor["pair"]]
    if kind in ("BertProcessing", "RobertaProcessing"):
        begin, end = [_token_id(processor["cls"][1])], [_token_id(processor["sep"][1])]
        if kind == "RobertaProcessing":
            return [PairItem(part) for part in (begin, 0, end, end, 1, end)]
        first = [PairItem(part) for part in (begin, 0, end)]
        return [*first, PairItem(1, type=1), PairItem(end, type=1)]
    return list(_TEXTS)  # as ByteLevel


def _template_item(item: Any, special_tokens: Any) -> PairItem:
    if "Sequence" in item:
        found = item["Sequence"]
        return PairItem(["A", "B"].index(found["id"]), int(found.get("type_id", 0)))
    found = item["SpecialToken"]
    ids = [_token_id(id_) for id_ in special_tokens[found["id"]]["ids"]]
    return PairItem(ids, int(found.get("type_id", 0)))


def _token_id(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise ValueError(f"a token id must be an integer in [0, 2^31), got {shown(value)}")
    return value
