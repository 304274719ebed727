"""Tiny rerankers and classifiers with random weights, and what transformers says of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PreTrainedTokenizerFast,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from make_random_checkpoint import make_checkpoint

SPECIAL = ("<|bos|>", "<|sep|>", "<|im_start|>", "<|im_end|>")
MERGES = [("y", "e"), ("ye", "s"), ("n", "o"), ("Y", "e"), ("Ye", "s")]
# That of Qwen3-Reranker, as its authors have published it.
PREFIX = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n"
)
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
# That of bge-reranker-v2-gemma.
GEMMA_PROMPT = (
    "Given a query A and a passage B, determine whether the passage contains an answer to the "
    "query by providing a prediction of either 'Yes' or 'No'."
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes and the words of rerankers; a text gets <|bos|>, and a pair <|sep|> in its middle."""
    vocab = {symbol: i for i, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    for left, right in MERGES:
        vocab.setdefault(left + right, len(vocab))
    core = Tokenizer(models.BPE(vocab=vocab, merges=MERGES))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    core.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A",
        pair="<|bos|> $A <|sep|> $B:1 <|sep|>:1",
        special_tokens=[(token, core.token_to_id(token)) for token in SPECIAL[:2]],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<|bos|>", eos_token="<|im_end|>", pad_token="<|sep|>"
    )


def make_generator(like: str, folder: Path, **fields: Any) -> Path:
    """A model that generates, as published rerankers are; ``fields`` of its config.json."""
    made = make_checkpoint(like, folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (made / name).unlink(missing_ok=True)
    make_tokenizer().save_pretrained(made)
    config = made / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **fields}))
    return made


def make_classifier(like: str, folder: Path, num_labels: int = 1, **fields: Any) -> Path:
    """A classifier of a family; ``fields`` of its config.json."""
    whole = make_checkpoint(like, folder / "whole")
    config = AutoConfig.from_pretrained(whole, num_labels=num_labels, pad_token_id=None)
    torch.manual_seed(7)
    model = AutoModelForSequenceClassification.from_pretrained(
        whole, config=config, dtype=torch.float32
    )
    torch.nn.init.normal_(model.score.weight, std=0.3)
    made = folder / "classifier"
    model.save_pretrained(made)
    make_tokenizer().save_pretrained(made)
    file = made / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))
    return made


def class_logits(folder: Path, ids: list[int]) -> np.ndarray:
    """The logits of a classifier for token ids, by transformers."""
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return np.asarray(model(torch.tensor([ids])).logits[0].numpy())


def next_logits(folder: Path, ids: list[int], tokens: list[str]) -> np.ndarray:
    """The logits of tokens behind token ids, by transformers."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    wanted = [make_tokenizer().convert_tokens_to_ids(token) for token in tokens]
    with torch.no_grad():
        return np.asarray(model(torch.tensor([ids])).logits[0, -1, wanted].numpy())


def plain_ids(text: str) -> list[int]:
    """The tokens of a text, in which special ones are letters."""
    core = make_tokenizer().backend_tokenizer
    ids: list[int] = []
    for part in text.split("<|"):  # what may begin a special token
        ids += core.encode("<|", add_special_tokens=False).ids if ids or text[:2] == "<|" else []
        ids += core.encode(part, add_special_tokens=False).ids
    return ids


def qwen3_ids(query: str, document: str, instruction: str = INSTRUCTION) -> list[int]:
    """The prompt of Qwen3-Reranker."""
    core = make_tokenizer().backend_tokenizer
    body = f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    front, back = (core.encode(text, add_special_tokens=False).ids for text in (PREFIX, SUFFIX))
    return [*front, *plain_ids(body), *back]
