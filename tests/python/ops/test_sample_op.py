"""The op `sample` against a float64 model of it."""

from __future__ import annotations

import random
from typing import Any

import op_reference as reference
import pytest
import torch
from op_devices import Device
from op_reference import Row

from mlc_native.ops import Sampled

FLOATS = (
    "temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
)  # fmt: skip
INTS = ("sequences", "top_k")


def sample(device: Device, logits: torch.Tensor, rows: list[Row], **more: Any) -> Sampled:
    def column(name: str, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([getattr(row, name) for row in rows], dtype=dtype)

    settings = {name: column(name, torch.float64) for name in FLOATS}
    return device.ops.sample(
        device(logits.clone()),
        column("position", torch.int64),
        column("seed", torch.int64),
        sequences=column("sequence", torch.int64),
        top_k=column("top_k", torch.int32),
        counts=[row.counts for row in rows],
        biases=[row.biases for row in rows],
        **settings,
        **more,
    )


def random_row(draw: random.Random, vocab: int) -> Row:
    def some(value: Any, default: Any) -> Any:
        return value if draw.random() < 0.4 else default

    def tokens() -> list[int]:
        return draw.sample(range(vocab), min(vocab, 5))

    return Row(
        seed=draw.randrange(-(2**63), 2**63),
        sequence=draw.randrange(4),
        position=draw.randrange(1000),
        temperature=draw.choice([0.3, 1.0, 2.0]),
        top_k=some(draw.randrange(1, vocab + 2), 0),
        top_p=some(draw.uniform(0.1, 0.99), 1.0),
        min_p=some(draw.uniform(0, 0.3), 0.0),
        presence_penalty=some(draw.uniform(-2, 2), 0.0),
        frequency_penalty=some(draw.uniform(-2, 2), 0.0),
        repetition_penalty=some(draw.uniform(0.5, 2), 1.0),
        biases=some({token: draw.uniform(-5, 5) for token in tokens()}, {}),
        counts=some({token: draw.randrange(1, 4) for token in tokens()}, {}),
    )


def pack_mask(allowed: torch.Tensor) -> torch.Tensor:
    """bool [m, vocab] -> int32 [m, ceil(vocab / 32)]"""
    m, vocab = allowed.shape
    bits = torch.zeros(m, (vocab + 31) // 32 * 32, dtype=torch.int64)
    bits[:, :vocab] = allowed
    words = (bits.view(m, -1, 32) << torch.arange(32)).sum(-1)
    return words.to(torch.int32)


@pytest.mark.parametrize(
    ("vocab", "has_mask"), [(1, False), (37, False), (37, True), (1000, False), (5003, True)]
)
def test_draws(device: Device, vocab: int, has_mask: bool) -> None:
    draw = random.Random(vocab)
    rows = [random_row(draw, vocab) for _ in range(20 if vocab < 1000 else 6)]
    logits = 3 * torch.randn(len(rows), vocab)
    allowed = torch.rand(len(rows), vocab) < 0.5 if has_mask else None
    if allowed is not None:
        allowed[:, vocab // 2] = True
    mask = device(pack_mask(allowed)) if allowed is not None else None
    drawn = sample(device, logits, rows, mask=mask)
    assert drawn.logprobs.shape == (0,)
    for i, row in enumerate(rows):
        mine = reference.processed(logits[i], row, None if allowed is None else allowed[i])
        odds = reference.token_odds(mine, row)
        u = reference.uniform(row.seed, row.sequence, row.position)
        assert reference.is_drawn(int(drawn.tokens[i]), odds, u), (i, row)
    for i in (0, 5):
        one = slice(i, i + 1)
        alone = sample(device, logits[one], rows[one], mask=mask[one] if mask is not None else None)
        assert alone.tokens[0] == drawn.tokens[i]


def test_greedy_and_logprobs(device: Device) -> None:
    vocab, n = 700, 4
    logits = torch.randn(4, vocab)
    logits[1, [3, 600]] = 9.0  # a tie: the lower id
    logits[2, 2:] = -torch.inf
    rows = [
        Row(temperature=0.0),
        Row(temperature=0.0),
        Row(top_p=0.0),
        Row(temperature=0.0, biases={7: 100.0}),
    ]
    drawn = sample(device, logits, rows, num_top_logprobs=n)
    best = logits.argmax(-1)
    assert drawn.tokens.tolist() == [best[0], 3, best[2], 7]
    want = torch.log_softmax(logits.double(), -1)
    for i, token in enumerate(drawn.tokens.tolist()):
        assert abs(drawn.logprobs[i].item() - want[i, token].item()) < 1e-5
        known = (drawn.top_ids[i] >= 0).tolist()
        assert known == ([True, True, False, False] if i == 2 else [True] * n)
        count = sum(known)
        ids = drawn.top_ids[i, :count].long().cpu()
        order = sorted(range(vocab), key=lambda t: (-logits[i, t].item(), t))
        assert ids.tolist() == order[:count]
        torch.testing.assert_close(
            drawn.top_logprobs[i, :count].cpu().double(), want[i, ids], atol=1e-5, rtol=0
        )
        assert bool((drawn.top_logprobs[i, count:] == -torch.inf).all())


def test_rows_that_cannot_be_sampled_from(device: Device) -> None:
    logits = torch.randn(5, 70)
    logits[0, 5] = torch.nan
    logits[1, 6] = torch.inf
    logits[2] = -torch.inf
    mask = torch.full((5, 3), -1, dtype=torch.int32)
    mask[3] = 0
    drawn = sample(device, logits, [Row()] * 5, mask=device(mask), num_top_logprobs=0)
    assert drawn.tokens[:4].tolist() == [-1, -1, -2, -2]
    assert drawn.tokens[4] >= 0
    assert drawn.top_ids.shape == (5, 0)


WRONG: dict[str, dict[str, Any]] = {
    "seeds must have shape": {"seeds": torch.zeros(1, dtype=torch.int64)},
    '"temperature"': {"temperature": torch.tensor([1.0, -1.0])},
    "bias_ids must be in": {"biases": [{}, {40: 1.0}]},
    "count_starts must have": {"counts": [{}]},
    "mask must have shape": {"mask": torch.zeros(2, 1, dtype=torch.int32)},
    "num_top_logprobs": {"num_top_logprobs": 21},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments(device: Device, message: str) -> None:
    numbers = torch.zeros(2, dtype=torch.int64)
    arguments = {"logits": device(torch.zeros(2, 40)), "positions": numbers, "seeds": numbers}
    wrong = {
        name: device(value) if name == "mask" else value for name, value in WRONG[message].items()
    }
    with pytest.raises(ValueError, match=message):
        device.ops.sample(**{**arguments, **wrong})


def test_schema_and_shape_inference(device: Device) -> None:
    torch.use_deterministic_algorithms(False)  # opcheck compares runs, NaN is not equal
    numbers = device(torch.tensor([1, 2]))
    torch.library.opcheck(
        device.ops._ops.sample.default,
        (device(torch.randn(2, 40)), numbers, numbers),
        test_utils=("test_schema", "test_faketensor"),
    )
