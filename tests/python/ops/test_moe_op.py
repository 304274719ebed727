"""The mixture of experts against float64."""

from __future__ import annotations

from typing import Any

import op_reference as reference
import pytest
import torch
from op_devices import Device
from op_reference import EPSILON, Router, f64

EXPERTS, K, FFN = 12, 72, 40
FORMATS = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "q8": None,
    "q4": None,
}


def distinct_logits(m: int, experts: int = EXPERTS) -> torch.Tensor:
    """No two of a row are nearly equal."""
    return torch.stack([torch.linspace(-2, 1, experts)[torch.randperm(experts)] for _ in range(m)])


def types(device: Device, format: str) -> list[torch.dtype]:
    """Activations that a device multiplies by such a weight."""
    if not device.is_cuda_code:
        return [torch.float32]
    return [t for t in device.dtypes if FORMATS[format] in (t, None) and (
        FORMATS[format] is not None or t != torch.float32)]  # fmt: skip


class Experts:
    """Random experts, packed and as the values that the kernels see."""

    def __init__(self, device: Device, format: str, experts: int = EXPERTS) -> None:
        self.format = format
        gate_up, down = torch.randn(experts, 2 * FFN, K) / 8, torch.randn(experts, K, FFN) / 6
        self.gate_up = device.ops.pack_weight(device(gate_up), format)
        self.down = device.ops.pack_weight(device(down), format)
        self.values = [
            torch.stack([self.unpacked(device, w) for w in weight]) for weight in (gate_up, down)
        ]

    def unpacked(self, device: Device, weight: torch.Tensor) -> torch.Tensor:
        packed = device.ops.pack_weight(device(weight), self.format)
        return f64(device.ops.unpack_weight(packed, self.format, weight.shape[-1]))

    def run(self, device: Device, x: torch.Tensor, logits: torch.Tensor, **rule: Any) -> Any:
        return device.ops.moe(x, logits, self.gate_up, self.down, self.format, **rule)

    def want(
        self,
        x: torch.Tensor,
        weights: torch.Tensor,
        biases: tuple[torch.Tensor, torch.Tensor] | None = None,
        limit: float = 0.0,
        sharpness: float = 1.0,
    ) -> torch.Tensor:
        """Every expert on every row."""
        gate_up, down = self.values
        h = torch.einsum("mk,enk->men", f64(x), gate_up)
        if biases is not None:
            h = h + f64(biases[0])
        if limit:
            h = reference.clamped_swiglu(h, limit, sharpness)
        else:
            h = reference.gated_activation(h, "silu")
        y = torch.einsum("mef,ekf->mek", h, down)
        if biases is not None:
            y = y + f64(biases[1])
        return torch.einsum("me,mek->mk", weights, y)


def assert_near(got: torch.Tensor, want: torch.Tensor, format: str) -> None:
    """Up to the rounding of inputs to the type, and of q8 and q4's inputs to 8 bits on the CPU."""
    assert got.shape == want.shape
    rounded = format in ("q8", "q4", "bfloat16")
    tolerance = max(EPSILON[got.dtype] * 4, 2e-2 if rounded else 1e-5)
    error = (f64(got) - want).abs().max() / want.abs().max()
    assert bool(error <= tolerance), f"off by {error}, not {tolerance}"


@pytest.mark.parametrize("format", FORMATS)
def test_every_format(device: Device, format: str) -> None:
    experts = Experts(device, format)
    router = Router(3, renormalize=True)
    for dtype in types(device, format):
        for m in (1, 9):
            x = device(torch.randn(m, K).to(dtype))
            logits = device(distinct_logits(m))
            got = experts.run(device, x, logits, num_chosen=3, renormalize=True)
            assert got.dtype == dtype
            assert_near(got, experts.want(x, router.weights(logits)), format)


RULES: list[dict[str, Any]] = [
    {"num_chosen": 1},
    {"num_chosen": 4, "score": "sigmoid", "scale": 2.5, "correction": torch.randn(EXPERTS) / 4},
    {"num_chosen": 3, "num_groups": 4, "num_chosen_groups": 2, "renormalize": True},
]


@pytest.mark.parametrize("rule", RULES, ids=["best", "corrected", "groups"])
def test_every_rule(device: Device, rule: dict[str, Any]) -> None:
    experts = Experts(device, "float32")
    x, logits = device(torch.randn(5, K)), device(distinct_logits(5))
    given = {k: device(v) if isinstance(v, torch.Tensor) else v for k, v in rule.items()}
    got = experts.run(device, x, logits, **given)
    assert_near(got, experts.want(x, Router(**rule).weights(logits)), "float32")


def test_sparse_mixer(device: Device) -> None:
    """Near 2 within a fifth of its size: 1.9 alone. Near 1.9: of the others, 1.6."""
    experts = Experts(device, "float32", 4)
    x, logits = device(torch.randn(1, K)), device(torch.tensor([[1.6, 2.0, -3.0, 1.9]]))
    got = experts.run(device, x, logits, num_chosen=2, score="sparse_mixer", jitter=0.1)
    tenth, third = torch.tensor([0.1, 0.3], dtype=torch.float64)
    first = 1 / (1 + torch.exp(-tenth) + torch.exp(-tenth - third))
    second = 1 / (1 + torch.exp(-third))
    weights = torch.tensor([[0.0, first, 0.0, second]], dtype=torch.float64)
    assert_near(got, experts.want(x, weights), "float32")


def test_biases_and_clamped_activation(device: Device) -> None:
    experts = Experts(device, "float32")
    biases = torch.randn(EXPERTS, 2 * FFN), torch.randn(EXPERTS, K)
    x, logits = device(4 * torch.randn(6, K)), device(distinct_logits(6))
    got = experts.run(
        device, x, logits, num_chosen=4, gate_up_bias=device(biases[0]),
        down_bias=device(biases[1]), limit=1.5, sharpness=1.702,
    )  # fmt: skip
    want = experts.want(x, Router(4).weights(logits), biases, 1.5, 1.702)
    assert_near(got, want, "float32")


@pytest.mark.parametrize("format", FORMATS)
def test_rows_do_not_depend_on_the_batch(device: Device, format: str) -> None:
    experts = Experts(device, format)
    for dtype in types(device, format):
        x, logits = device(torch.randn(40, K).to(dtype)), device(torch.randn(40, EXPERTS))
        whole = experts.run(device, x, logits, num_chosen=5)
        for rows in (slice(0, 1), slice(7, 20), slice(39, 40)):
            assert torch.equal(
                experts.run(device, x[rows], logits[rows], num_chosen=5), whole[rows]
            )


def test_strides_do_not_show(device: Device) -> None:
    experts = Experts(device, "float32")
    x, logits = device(torch.randn(3, K)), device(distinct_logits(3))
    wide_x, wide_logits = device(torch.zeros(3, 2 * K + 1)), device(torch.zeros(EXPERTS, 3))
    wide_x[:, 1 : K + 1], wide_logits[:] = x, logits.T
    got = experts.run(device, wide_x[:, 1 : K + 1], wide_logits.T, num_chosen=2)
    assert torch.equal(got, experts.run(device, x, logits, num_chosen=2))


def test_no_rows(device: Device) -> None:
    experts = Experts(device, "float32")
    x, logits = device(torch.randn(0, K)), device(torch.randn(0, EXPERTS))
    assert experts.run(device, x, logits, num_chosen=2).shape == (0, K)
