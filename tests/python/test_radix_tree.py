"""PagedRadixTree: the calls of MLC-LLM's class, and a random history against a dict of lists."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from mlc_native.errors import InvalidRequest
from mlc_native.serve import PagedRadixTree


def test_add() -> None:
    tree = PagedRadixTree()
    tree.add(0)
    assert list(tree.get(0)) == []
    tree.add(1)
    assert tree.get_length(1) == 0
    with pytest.raises(InvalidRequest):
        tree.add(1)


def test_remove() -> None:
    tree = PagedRadixTree()
    capacity = tree.free_capacity()
    for seq_id in range(4):
        tree.add(seq_id)
    tree.extend(0, list(range(200)))
    tree.extend(1, list(range(200)))  # a duplicate
    tree.extend(2, [*range(100), *range(500, 600)])  # a shared prefix
    assert tree.free_capacity() == capacity - 300
    for seq_id in (1, 3, 0, 2):
        tree.remove(seq_id)
    assert tree.free_capacity() == capacity
    with pytest.raises(InvalidRequest):
        tree.remove(0)


@pytest.mark.parametrize("start", [0, 32, 64, 96])
@pytest.mark.parametrize("length", [16, 32, 64, 128])
def test_extend(start: int, length: int) -> None:
    tree = PagedRadixTree(capacity=1000)
    tree.add(0)
    tree.extend(0, list(range(start)))
    tree.extend(0, list(range(start, start + length)))
    assert list(tree.get(0)) == list(range(start + length))
    with pytest.raises(InvalidRequest):
        tree.extend(0, [1] * 1000)


def test_fork() -> None:
    tree = PagedRadixTree()
    tokens = list(range(64))
    tree.add(0)
    tree.extend(0, tokens)
    for offset in range(65):
        tree.fork(offset + 1, 0, offset)
        assert list(tree.get(offset + 1)) == tokens[:offset]


def test_fork_2() -> None:
    tree = PagedRadixTree()
    tree.add(0)
    tree.extend(0, [0, 1, 2, 3])
    tree.fork(1, 0, 3)
    tree.extend(1, [4])
    tree.fork(2, 0, 3)
    tree.extend(2, [5])
    assert tree.match([0, 1, 2, 4]) == (4, (1,))
    assert tree.match([0, 1, 2, 5]) == (4, (2,))
    assert tree.match([0, 1, 2]) == (3, (0, 1, 2))
    assert tree.match([9]) == (0, ())


def test_rollback() -> None:
    tree = PagedRadixTree()
    tokens = list(range(100))
    for count in range(1, 100, 7):
        tree.add(0)
        tree.extend(0, tokens)
        tree.fork(1, 0, 100)
        tree.rollback(1, count)
        assert list(tree.get(0)) == tokens
        assert list(tree.get(1)) == tokens[:-count]
        tree.rollback(0, count)
        assert list(tree.get(0)) == tokens[:-count]
        tree.remove(0)
        tree.remove(1)
    with pytest.raises(InvalidRequest):
        tree.rollback(0, 1)


class RadixTreeMachine(RuleBasedStateMachine):
    """The tree against a dict of lists."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = PagedRadixTree()
        self.capacity = self.tree.free_capacity()
        self.lists: dict[int, list[int]] = {}
        self.next_id = 0

    def _pick(self, index: int) -> int:
        return sorted(self.lists)[index % len(self.lists)]

    @rule()
    def add(self) -> None:
        self.tree.add(self.next_id)
        self.lists[self.next_id] = []
        self.next_id += 1

    @precondition(lambda self: self.lists)
    @rule(index=st.integers(0), tokens=st.lists(st.integers(0, 2), max_size=8))
    def extend(self, index: int, tokens: list[int]) -> None:
        seq_id = self._pick(index)
        self.tree.extend(seq_id, tokens)
        self.lists[seq_id] = self.lists[seq_id] + tokens

    @precondition(lambda self: self.lists)
    @rule(index=st.integers(0), cut=st.integers(0))
    def fork(self, index: int, cut: int) -> None:
        parent = self._pick(index)
        offset = cut % (len(self.lists[parent]) + 1)
        self.tree.fork(self.next_id, parent, offset)
        self.lists[self.next_id] = self.lists[parent][:offset]
        self.next_id += 1

    @precondition(lambda self: self.lists)
    @rule(index=st.integers(0), cut=st.integers(0))
    def rollback(self, index: int, cut: int) -> None:
        seq_id = self._pick(index)
        length = cut % (len(self.lists[seq_id]) + 1)
        self.tree.rollback(seq_id, len(self.lists[seq_id]) - length)
        self.lists[seq_id] = self.lists[seq_id][:length]

    @precondition(lambda self: self.lists)
    @rule(index=st.integers(0))
    def remove(self, index: int) -> None:
        seq_id = self._pick(index)
        self.tree.remove(seq_id)
        del self.lists[seq_id]

    @rule(tokens=st.lists(st.integers(0, 2), max_size=12))
    def match(self, tokens: list[int]) -> None:
        length, seq_ids = self.tree.match(tokens)
        prefixes = {
            tuple(tokens[:n])
            for n in range(len(tokens) + 1)
            if any(own[:n] == tokens[:n] for own in self.lists.values() if len(own) >= n)
        }
        assert length == max((len(prefix) for prefix in prefixes), default=0)
        found = [i for i, own in sorted(self.lists.items()) if own[:length] == tokens[:length]]
        assert list(seq_ids) == (found if length else [])

    @invariant()
    def same_sequences(self) -> None:
        for seq_id, tokens in self.lists.items():
            assert list(self.tree.get(seq_id)) == tokens
            assert self.tree.get_length(seq_id) == len(tokens)
        distinct = {tuple(t[: n + 1]) for t in self.lists.values() for n in range(len(t))}
        assert self.tree.free_capacity() == self.capacity - len(distinct)


TestRadixTree = RadixTreeMachine.TestCase
TestRadixTree.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
