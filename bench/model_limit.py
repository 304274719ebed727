"""The least time that a machine needs for steps of a decoder: bytes over bandwidth, or operations
over peak, each counted once, as in end_to_end.cc for CPUs.

Bytes: the weights of all matrices as stored, the keys and values of every context (read), and those
of new rows (written). Operations: 2 n k for each row of a matrix (for the head, only rows that need
logits), and 4 heads head_dim for each pair of a row and a key. Activations are not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

BF16 = 2  # bytes


@dataclass(frozen=True)
class Machine:
    """Limits of the machine, measured in the same run as the figures to compare.

    Attributes:
        bytes_per_s: read plus written by a large copy.
        operations_per_s: of a large product of bfloat16 matrices.
    """

    bytes_per_s: float
    operations_per_s: float

    def seconds(self, num_bytes: float, operations: float) -> float:
        """The larger of the two times."""
        return max(num_bytes / self.bytes_per_s, operations / self.operations_per_s)


@dataclass(frozen=True)
class Step:
    """`rows` new tokens of each of `sequences`, whose context is `context` tokens before it."""

    sequences: int
    rows: int
    context: int


@dataclass(frozen=True)
class Decoder:
    """Sizes of a model, from the fields of its config.json.

    Attributes:
        layer: elements of a layer's matrices.
        head: elements of the output matrix, which is the embedding's where they are tied.
        weight_bytes: of all matrices as they are stored; a step reads all of them.
    """

    layers: int
    layer: int
    head: int
    q_size: int
    kv_bytes_per_token: int
    weight_bytes: float

    @classmethod
    def of(cls, config: dict[str, Any], stored_bytes: float | None = None) -> Decoder:
        """`stored_bytes` is the size of all loaded weights; None means bfloat16."""
        hidden, heads = config["hidden_size"], config["num_attention_heads"]
        head_dim = config.get("head_dim") or hidden // heads
        kv_size = config["num_key_value_heads"] * head_dim
        attention = 2 * hidden * (heads * head_dim + kv_size)
        layer = attention + 3 * hidden * config["intermediate_size"]
        layers, head = config["num_hidden_layers"], config["vocab_size"] * hidden
        if stored_bytes is None:
            weights: float = BF16 * (layers * layer + head)
        else:  # of an embedding of its own, a step reads some rows only
            weights = stored_bytes - (0 if config["tie_word_embeddings"] else BF16 * head)
        kv_bytes = BF16 * 2 * layers * kv_size
        return cls(layers, layer, head, heads * head_dim, kv_bytes, weights)

    def step_bytes(self, step: Step) -> float:
        tokens = step.sequences * (step.context + 2 * step.rows)
        return self.weight_bytes + tokens * self.kv_bytes_per_token

    def step_operations(self, step: Step) -> float:
        rows = step.sequences * step.rows
        keys = rows * step.context + step.sequences * step.rows * (step.rows + 1) / 2
        linear = 2 * (rows * self.layers * self.layer + step.sequences * self.head)
        return linear + 4 * self.q_size * self.layers * keys

    def step_seconds(self, machine: Machine, step: Step) -> float:
        """The least time of one step."""
        return machine.seconds(self.step_bytes(step), self.step_operations(step))

    def requests_seconds(self, machine: Machine, requests: Sequence[tuple[int, int]]) -> float:
        """The least time for requests (prompt tokens, generated tokens) that form one batch.

        Weights are read once for each token of the longest answer; each generated token reads the
        keys and values of its context.
        """
        num_bytes = operations = 0.0
        for prompt, answer in requests:
            prefill = Step(1, prompt, 0)
            decode = Step(1, 1, prompt + answer // 2)
            num_bytes += self.step_bytes(prefill) + (answer - 1) * self.step_bytes(decode)
            operations += self.step_operations(prefill) + (answer - 1) * self.step_operations(
                decode
            )
        steps = sum(answer for _, answer in requests)
        num_bytes -= (steps - max(answer for _, answer in requests)) * self.weight_bytes
        return machine.seconds(num_bytes, operations)
