"""What the ops should give, in float64 on the CPU, and how near they must come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

EPSILON = {torch.float32: 2e-6, torch.float16: 2**-10, torch.bfloat16: 2**-7}


def f64(x: Tensor) -> Tensor:
    return x.detach().cpu().to(torch.float64)


def assert_close(got: Tensor, want: Tensor, tolerance: float) -> None:
    """|got - want| <= tolerance * (1 + |want|); NaN is never near."""
    assert got.shape == want.shape
    error = (f64(got) - want).abs() / (1 + want.abs())
    assert bool((error <= tolerance).all()), f"off by {error.max()}, not {tolerance}"


def rms_norm(x: Tensor, weight: Tensor, eps: float, offset: float = 0.0) -> Tensor:
    x = f64(x)
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * (f64(weight) + offset)


def gated_activation(x: Tensor, activation: str) -> Tensor:
    gate, up = f64(x).chunk(2, -1)
    act = torch.nn.functional
    return (act.silu(gate) if activation == "silu" else act.gelu(gate, approximate="tanh")) * up


def rope(x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x: [m, heads, head_dim]"""
    x = f64(x).clone()
    c, s = (f64(t)[positions.cpu().long()].unsqueeze(1) for t in (cos, sin))
    half = c.shape[-1]
    a, b = x[..., :half].clone(), x[..., half : 2 * half].clone()
    x[..., :half] = a * c - b * s
    x[..., half : 2 * half] = b * c + a * s
    return x


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, soft_cap: float = 0.0, window: int = 0
) -> Tensor:
    """q: [rows, q_heads, dim], the last positions of k, v: [length, kv_heads, dim] float64."""
    rows, q_heads, _ = q.shape
    length, kv_heads, _ = k.shape
    k, v = (t.repeat_interleave(q_heads // kv_heads, dim=1) for t in (k, v))
    scores = torch.einsum("qhd,khd->hqk", f64(q), k) * scale
    if soft_cap > 0:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    position = torch.arange(length - rows, length).unsqueeze(1)
    key = torch.arange(length).unsqueeze(0)
    seen = (key <= position) & ((key > position - window) | (window == 0))
    scores = scores.masked_fill(~seen, -torch.inf)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)


@dataclass
class Router:
    """How ``moe`` chooses experts."""

    num_chosen: int
    score: str = "softmax"
    correction: Tensor | None = None
    num_groups: int = 1
    num_chosen_groups: int = 1
    renormalize: bool = False
    scale: float = 1.0

    def weights(self, logits: Tensor) -> Tensor:
        """[m, experts], 0 for those that are not chosen."""
        logits = f64(logits)
        scores = logits.softmax(-1) if self.score == "softmax" else logits.sigmoid()
        choice = scores if self.correction is None else scores + f64(self.correction)
        groups = choice.unflatten(-1, (self.num_groups, -1))
        best = groups.topk(min(2, groups.shape[-1])).values.sum(-1)
        left = torch.zeros_like(best).scatter(-1, best.topk(self.num_chosen_groups).indices, 1.0)
        choice = groups.masked_fill(left.unsqueeze(-1) == 0, -torch.inf).flatten(-2)
        chosen = torch.zeros_like(scores).scatter(-1, choice.topk(self.num_chosen).indices, 1.0)
        weights = scores * chosen
        if self.renormalize:
            weights = weights / weights.sum(-1, keepdim=True)
        return self.scale * weights


def clamped_swiglu(x: Tensor, limit: float, sharpness: float) -> Tensor:
    gate, up = f64(x).chunk(2, -1)
    gate = gate.clamp(max=limit)
    return gate * torch.sigmoid(sharpness * gate) * (up.clamp(-limit, limit) + 1)


_WORD = (1 << 64) - 1


def _mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _WORD
    return x ^ (x >> 31)


def uniform(seed: int, sequence: int, position: int) -> float:
    """csrc/support/random.h"""
    return (_mix(_mix(_mix(seed & _WORD) ^ sequence) ^ position) >> 11) * 2.0**-53


@dataclass
class Row:
    """Settings of one row of `sample`."""

    seed: int = 0
    sequence: int = 0
    position: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    biases: Mapping[int, float] = field(default_factory=dict)
    counts: Mapping[int, int] = field(default_factory=dict)


def processed(logits: Tensor, row: Row, allowed: Tensor | None = None) -> Tensor:
    """Logits after biases, penalties and mask."""
    logits = f64(logits).clone()
    for token, bias in row.biases.items():
        logits[token] += bias
    for token, count in row.counts.items():
        value = logits[token] - row.presence_penalty - count * row.frequency_penalty
        r = row.repetition_penalty
        logits[token] = value / r if value > 0 else value * r
    return logits if allowed is None else logits.masked_fill(~allowed, -torch.inf)


def token_odds(logits: Tensor, row: Row) -> Tensor:
    """The weights from which a token is drawn, zero where truncation leaves it out."""
    weights = torch.exp((logits - logits.max()) / row.temperature)
    order = sorted(range(len(weights)), key=lambda i: (-weights[i].item(), i))
    kept = order[: row.top_k] if row.top_k > 0 else order
    total = weights[kept].sum()
    before = torch.cumsum(weights[kept], 0) - weights[kept]
    kept = [
        token
        for token, sum_before in zip(kept, before, strict=True)
        if sum_before < row.top_p * total and weights[token] >= row.min_p
    ]
    odds = torch.zeros_like(weights)
    odds[kept] = weights[kept]
    return odds


def is_drawn(token: int, odds: Tensor, u: float, tolerance: float = 1e-5) -> bool:
    """Whether u falls on the token, or so near that rounding may have moved it there."""
    share = odds / odds.sum()
    end = share[: token + 1].sum().item()
    return share[token] > 0 and end - share[token].item() - tolerance <= u <= end + tolerance
