"""Packs the text into rows of token ids with a mask of what is learned."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer

from .example import Example
from .text import Focus, examples, long_chats
from .tokenizer import ASSISTANT, END, PAD, render, template

TOKENS_PER_STEP = 2048
SHORT_ROW, LONG_ROW = 256, 1024
LONG_EVERY = 10  # every tenth step has long rows, so that late positions are trained too


@dataclass(frozen=True)
class Batch:
    """ids [rows, length]; learned [rows, length]: predict this token; document [rows, length]."""

    ids: torch.Tensor
    learned: torch.Tensor
    document: torch.Tensor

    def attention_mask(self) -> torch.Tensor:
        """[rows, 1, length, length] bool: causal, and no look into another document."""
        length = self.ids.shape[1]
        same = self.document[:, :, None] == self.document[:, None, :]
        return (same & torch.ones(length, length, dtype=torch.bool).tril())[:, None]


def learned_mask(ids: list[int]) -> list[bool]:
    """In chats the assistant's tokens and their end mark; in documents all but the first."""
    if ASSISTANT not in ids:
        return [False] + [True] * (len(ids) - 1)
    mask, inside = [], False
    for token in ids:
        mask.append(inside)
        if token == ASSISTANT:
            inside = True
        elif token == END:
            inside = False
    return mask


class Packer:
    """Fills rows with whole documents, first fit over a small set of open rows."""

    def __init__(self, tokenizer: Tokenizer, stream: Iterator[Example], length: int) -> None:
        self._tokenizer, self._stream, self._length = tokenizer, stream, length
        self._template = template()
        self._open: list[list[list[int]]] = []

    def row(self) -> list[list[int]]:
        """The documents of the next row, fullest row first once none of eight takes the next."""
        while True:
            text = render(self._template, next(self._stream))
            ids = self._tokenizer.encode(text).ids[: self._length]
            for row in self._open:
                if sum(map(len, row)) + len(ids) <= self._length:
                    row.append(ids)
                    break
            else:
                self._open.append([ids])
                if len(self._open) > 8:
                    self._open.sort(key=lambda row: sum(map(len, row)))
                    return self._open.pop()

    def batch(self) -> Batch:
        """Rows of TOKENS_PER_STEP tokens in all, padded at their ends."""
        shape = (TOKENS_PER_STEP // self._length, self._length)
        ids = torch.full(shape, PAD)
        learned = torch.zeros(shape, dtype=torch.bool)
        document = torch.full(shape, -1)
        for index in range(shape[0]):
            at = 0
            for number, tokens in enumerate(self.row()):
                end = at + len(tokens)
                ids[index, at:end] = torch.tensor(tokens)
                learned[index, at:end] = torch.tensor(learned_mask(tokens))
                document[index, at:end] = number
                at = end
        return Batch(ids, learned, document)


def batches(tokenizer: Tokenizer, seed: int, focus: Focus = None) -> Iterator[Batch]:
    """The endless stream of training batches of a seed; `focus` as in text.examples."""
    short = Packer(tokenizer, examples(seed, focus), SHORT_ROW)
    long = Packer(tokenizer, long_chats(seed, focus), LONG_ROW)
    for step in itertools.count(1):
        yield (long if step % LONG_EVERY == 0 else short).batch()
