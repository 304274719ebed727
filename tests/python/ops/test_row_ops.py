"""Ops that work row by row, and products, against float64."""

from __future__ import annotations

import subprocess
import sys

import op_reference as reference
import pytest
import torch
from op_devices import Device
from op_reference import EPSILON, assert_close, f64

FORMATS = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "q8": None,
    "q4": None,
}


def strided(x: torch.Tensor) -> torch.Tensor:
    """The same values, rows far from each other and not aligned."""
    wide = torch.full((*x.shape[:-1], x.shape[-1] + 3), torch.nan, dtype=x.dtype, device=x.device)
    wide[..., 1:-2] = x
    return wide[..., 1:-2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("m", "k"), [(1, 1), (5, 37), (33, 256)])
def test_embedding(device: Device, dtype: torch.dtype, m: int, k: int) -> None:
    table = device(torch.randn(11, device.size(k)).to(dtype))
    ids = device(torch.randint(0, 11, (m,), dtype=torch.int32))
    want = 3 * f64(table)[ids.cpu().long()]
    assert_close(device.ops.embedding(table, ids, 3.0), want, 1e-6)
    assert_close(device.ops.embedding(strided(table), ids, 3.0), want, 1e-6)
    assert device.ops.embedding(table, ids[:0]).shape == (0, device.size(k))


@pytest.mark.parametrize("shape", [(1, 1), (3, 70), (2, 5, 128), (2, 3000)])
def test_rms_norm(device: Device, shape: tuple[int, ...]) -> None:
    shape = (*shape[:-1], device.size(shape[-1]))
    for dtype in device.dtypes:
        x = device(torch.randn(shape).to(dtype))
        weight = device(torch.randn(shape[-1]).to(dtype))
        want = reference.rms_norm(x, weight, 1e-3, 1.0)
        for given in (x, strided(x)):
            got = device.ops.rms_norm(given, weight, 1e-3, 1.0)
            assert got.dtype == dtype
            assert_close(got, want, EPSILON[dtype])


@pytest.mark.parametrize("has_post_norm", [False, True])
@pytest.mark.parametrize(("m", "dim"), [(1, 5), (9, 264)])
def test_add_rms_norm(device: Device, m: int, dim: int, has_post_norm: bool) -> None:
    dim = device.size(dim)
    for dtype in device.dtypes:
        residual = device(torch.randn(m, dim))
        x = device(torch.randn(m, dim).to(dtype))
        weight, post = (device(torch.randn(dim).to(dtype)) for _ in range(2))
        added = reference.rms_norm(x, post, 1e-5) if has_post_norm else f64(x)
        want = f64(residual) + added
        got = device.ops.add_rms_norm(
            residual, x, weight, post if has_post_norm else None, eps=1e-5
        )
        assert_close(residual, want, 1e-5)
        assert got.dtype == dtype
        assert_close(got, reference.rms_norm(want, weight, 1e-5), 4 * EPSILON[dtype])


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("shape", [(1, 1), (7, 33), (2, 3, 160)])
def test_gated_activation(device: Device, shape: tuple[int, ...], activation: str) -> None:
    for dtype in device.dtypes:
        x = device(4 * torch.randn(*shape[:-1], 2 * device.size(shape[-1])).to(dtype))
        want = reference.gated_activation(x, activation)
        assert_close(device.ops.gated_activation(x, activation), want, 2 * EPSILON[dtype])
        assert_close(device.ops.gated_activation(strided(x), activation), want, 2 * EPSILON[dtype])


def test_soft_cap(device: Device) -> None:
    x = device(50 * torch.randn(3, 37))
    want = 30 * torch.tanh(f64(x) / 30)
    assert device.ops.soft_cap_(x, 30.0) is x
    assert_close(x, want, 1e-6)


WEIGHT = torch.randn(19, 192, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def cpu_values() -> dict[str, torch.Tensor]:
    """What WEIGHT becomes on the CPU, by format."""
    cpu = torch.ops.mlc_native
    return {f: cpu.unpack_weight(cpu.pack_weight(WEIGHT, f), f, 192) for f in ("q8", "q4")}


@pytest.mark.parametrize(
    ("format", "group", "steps", "bound"), [("q8", 64, 127, 0.51), ("q4", 32, 7, 1.1)]
)
def test_quantization_error(
    cpu_values: dict[str, torch.Tensor],
    device: Device,
    format: str,
    group: int,
    steps: int,
    bound: float,
) -> None:
    """No value is further off than half a step of its group's largest one; q4, which keeps the sum
    of all squares small, may be a step off. All devices hold the same values."""
    packed = device.ops.pack_weight(device(WEIGHT), format)
    values = device.ops.unpack_weight(packed, format, 192).cpu()
    error = (values - WEIGHT).abs().view(19, -1, group)
    step = WEIGHT.abs().view(19, -1, group).amax(-1, keepdim=True) / steps
    assert bool((error <= bound * step).all())
    assert torch.equal(values, cpu_values[format])
    zeros = device.ops.pack_weight(device(torch.zeros(3, 72)), format)
    assert bool((device.ops.unpack_weight(zeros, format, 72) == 0).all())


def linear_types(device: Device, format: str) -> list[torch.dtype]:
    """Activations that a device multiplies by such a weight."""
    if not device.is_cuda_code:
        return [torch.float32]
    return [
        t
        for t in device.dtypes
        if FORMATS[format] in (t, None) and (FORMATS[format] is not None or t != torch.float32)
    ]


def linear_tolerance(
    x: torch.Tensor, weight: torch.Tensor, device: Device, format: str
) -> torch.Tensor:
    """Of sums. CPUs may round x to the type of the products: six standard deviations of that."""
    x = f64(x)
    tolerance = 1e-6 * (x.abs() @ weight.abs().T)
    if device.is_cuda_code or FORMATS[format] not in (None, torch.bfloat16):
        return tolerance
    step = x.abs() * 2**-7
    if format != "bfloat16":
        group = 64 if format == "q8" else 32
        padded = torch.nn.functional.pad(x.abs(), (0, -x.shape[-1] % group))
        step = padded.view(len(x), -1, group).amax(-1) / (127 if format == "q8" else 63.5)
        step = step.repeat_interleave(group, -1)[:, : x.shape[-1]]
    return tolerance + 6 * torch.sqrt(step.square() @ weight.square().T / 12)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (3, 37, 70), (9, 100, 264), (40, 24, 96)])
def test_linear(device: Device, format: str, m: int, n: int, k: int) -> None:
    k = device.size(k)
    weight = torch.randn(n, k)
    packed = device.ops.pack_weight(device(weight), format)
    values = f64(device.ops.unpack_weight(packed, format, k))
    if FORMATS[format] is not None:
        assert torch.equal(values, f64(weight.to(FORMATS[format])))
    for dtype in linear_types(device, format):
        x = device(torch.randn(m, k).to(dtype))
        bias = device(torch.randn(n).to(dtype))
        want = f64(x) @ values.T + f64(bias)
        tolerance = linear_tolerance(x, values, device, format)
        for given, float_output in ((x, False), (strided(x), True)):
            got = device.ops.linear(given, packed, format, bias, float_output)
            assert got.dtype == (torch.float32 if float_output else dtype)
            rounding = 0 if float_output else EPSILON[dtype] * want.abs()
            assert bool(((f64(got) - want).abs() <= tolerance + rounding + 1e-6).all())
        shaped = device.ops.linear(x.view(m, 1, k), packed, format, bias)
        assert torch.equal(shaped.view(m, n), device.ops.linear(x, packed, format, bias))


@pytest.mark.parametrize("format", FORMATS)
def test_rows_do_not_depend_on_the_batch(device: Device, format: str) -> None:
    n, k = 56, 144
    packed = device.ops.pack_weight(device(torch.randn(n, k)), format)
    for dtype in linear_types(device, format):
        x = device(torch.randn(35, k).to(dtype))
        norm = device(torch.randn(k).to(dtype))
        for run in (
            lambda x: device.ops.linear(x, packed, format),
            lambda x: device.ops.rms_norm(x, norm),  # noqa: B023
            device.ops.gated_activation,
        ):
            whole = run(x)
            for rows in (slice(0, 1), slice(7, 20), slice(34, 35)):
                assert torch.equal(run(x[rows]), whole[rows])


def test_linear_of_no_rows(device: Device) -> None:
    packed = device.ops.pack_weight(device(torch.randn(16, 8)), "float32")
    for shape in ((0, 8), (2, 0, 8)):
        x = device(torch.randn(shape))
        assert device.ops.linear(x, packed, "float32").shape == (*shape[:-1], 16)


FORK = """
import os, signal, sys, torch, mlc_native.ops as ops
torch.set_num_threads(2)
x = torch.randn(64, 256)
packed = ops.pack_weight(torch.randn(1024, 256), "float32")
want = ops.linear(x, packed, "float32")
child = os.fork()
if child == 0:
    signal.alarm(50)  # ends a child that waits for ever
    if sys.argv[1] == "use":
        torch.set_num_threads(1)
        assert torch.equal(ops.linear(x, packed, "float32"), want)
    sys.exit(0)
print(os.waitpid(child, 0)[1], torch.equal(ops.linear(x, packed, "float32"), want))
"""


@pytest.mark.parametrize("what", ["use", "exit"])
def test_a_forked_process_has_threads_of_its_own(what: str) -> None:
    """It ends, and changes their number, without waiting for those of its parent."""
    command = [sys.executable, "-W", "ignore", "-c", FORK, what]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (run.stdout, run.stderr) == ("0 True\n", "")


def test_threads_do_not_show() -> None:
    weight, x = torch.randn(300, 264), torch.randn(17, 264)
    ops = torch.ops.mlc_native
    threads = torch.get_num_threads()
    results = []
    for n in (1, 2, 3):
        torch.set_num_threads(n)
        results.append(ops.linear(x, ops.pack_weight(weight, "q4"), "q4"))
    torch.set_num_threads(threads)
    assert all(torch.equal(result, results[0]) for result in results)
