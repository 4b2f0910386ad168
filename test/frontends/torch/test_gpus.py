"""Torch programs that once gave wrong results or did not run, most of them only on GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import qmlir
from qmlir.emulation.backends import emulated_targets

GPUS = [t for t in ("cuda:sm_90a", "rocm:gfx942", "rocm:gfx1100") if t in emulated_targets()]


class Of(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def compiled(function: Callable[..., Any], x: torch.Tensor, target: str, dynamic: bool = False) -> Any:
    axes = (dict.fromkeys(range(x.dim()), torch.export.Dim.AUTO),) if dynamic else None
    return qmlir.compile(torch.export.export(Of(function), (x,), dynamic_shapes=axes), target=target)


def check(function: Callable[..., Any], x: torch.Tensor, target: str, dynamic: bool = False) -> None:
    loaded = qmlir.load(compiled(function, x, target, dynamic), emulate=target in emulated_targets())
    got, want = loaded.main(x), function(x)
    for a, b in zip(
        got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,), strict=True
    ):
        np.testing.assert_allclose(torch.as_tensor(a), b.detach(), rtol=2e-5, atol=1e-5)


torch.manual_seed(0)
INTEGERS, NUMBERS = torch.randint(0, 99, (2, 5, 4)), torch.randn(2, 5, 4)
PARTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gather": lambda x: x[:, 1:4].gather(1, x[:, :1] % 3),
    "columns": lambda x: x[..., 1:3].gather(1, x[:, :1, 1:3] % 3),
    "rows": lambda x: x[:, 1:4][:, x[0, :2, 0] % 3],
    "row": lambda x: x[:, 2][:, x[0, :2, 0] % 4],
    "steps": lambda x: x[:, ::2][:, x[0, :2, 0] % 3],
    "transposed": lambda x: x[:, 1:4].transpose(1, 2)[:, x[0, :2, 0] % 4],
    "reshaped": lambda x: x[:, 1:4].reshape(2, 3, 2, 2)[:, x[0, :2, 0] % 3],
    "parts of parts": lambda x: x[:, 1:5][:, 1:3][:, x[0, :2, 0] % 2],
}


@pytest.mark.sweep(fast=24, slow=60)
@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize("name", PARTS)
def test_parts_that_are_read_by_index(name: str, target: str) -> None:
    """Regression: a slice was read as if it were contiguous, with wrong results from the second matrix on."""
    check(PARTS[name], INTEGERS, target)


@pytest.mark.sweep(fast=12, slow=60)
@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize(("axis", "dynamic"), [(0, False), (1, False), (2, False), (1, True)])
def test_running_sums_of_integers(axis: int, dynamic: bool, target: str) -> None:
    """Regression: all threads summed all lines, and read values that others were writing. The emulator found this."""
    check(lambda x: torch.cumsum(x * 2, axis), INTEGERS, target, dynamic)


OTHERS: dict[str, tuple[Callable[[torch.Tensor], Any], torch.Tensor, bool]] = {
    # Regression: a dispatch had more tensors than CUDA and HIP bind.
    "trilinear": (lambda x: torch.nn.functional.interpolate(x, scale_factor=1.7, mode="trilinear"),
                  torch.randn(1, 2, 3, 4, 5), False),
    "order": (torch.argsort, torch.randn(64), False),  # did not compile for CUDA
    "order, dynamic": (torch.argsort, torch.randn(9), True),
    "parts": (lambda x: torch.chunk(x, 5, 1), NUMBERS, True),  # failed IREE's check of command buffers
    "deviation": (torch.std, NUMBERS[0], True),
    "averages": (lambda x: torch.nn.functional.adaptive_avg_pool3d(x, (2, 3, 3)), torch.randn(1, 2, 4, 3, 7), True),
}  # fmt: skip


@pytest.mark.sweep(fast=18, slow=60)
@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize("name", OTHERS)
def test_others(name: str, target: str) -> None:
    function, x, dynamic = OTHERS[name]
    check(function, x, target, dynamic)


@pytest.mark.sweep(fast=2, slow=3)
@pytest.mark.parametrize("target", ["cuda:sm_90a", "vulkan:lavapipe"])
def test_a_count_of_nothing(target: str, lavapipe: str) -> None:
    """Regression: the device refused the empty launch, or the driver the empty buffer."""
    loaded = qmlir.load(
        compiled(torch.nonzero, torch.tensor([0, 1, 0, 2]), target), emulate=target in emulated_targets()
    )
    np.testing.assert_array_equal(torch.as_tensor(loaded.main(torch.tensor([0, 1, 0, 2]))), [[1], [3]])
    with pytest.raises(
        qmlir.QmlirError, match="the program has counted 0 elements: this target does not support empty tensors"
    ):
        loaded.main(torch.zeros(4, dtype=torch.int64))


def test_a_histogram_on_vulkan(lavapipe: str) -> None:
    """Regression: counts changed from call to call: some threads read values that others had not computed yet."""
    x = torch.randn(5, 5) * 3
    main = qmlir.load(compiled(lambda x: torch.histc(x, 100, 0, 10), x, lavapipe)).main
    for _ in range(10):
        np.testing.assert_array_equal(torch.as_tensor(main(x)), torch.histc(x, 100, 0, 10))


@pytest.mark.slow
def test_functions_of_f64_on_vulkan(lavapipe: str) -> None:
    """These functions are refused, because the drivers' 32-bit ones gave arbitrary results. Functions of constants are
    folded before."""
    x = torch.rand(4, dtype=torch.float64)
    with pytest.raises(qmlir.QmlirError, match="exp of f64: SPIR-V has it of f32 and f16 alone"):
        compiled(torch.exp, x, lavapipe)
    check(lambda x: x + torch.exp(torch.arange(4, dtype=torch.float64)), x, lavapipe)


@pytest.mark.sweep(fast=2, slow=3)
@pytest.mark.parametrize("shape", [(2, 8, 6, 6), (3, 4, 10)])
def test_group_norms_of_dynamic_sizes(shape: tuple[int, ...]) -> None:
    """Regression: group norms with a dynamic batch were refused."""
    check(torch.nn.GroupNorm(2, shape[1]).eval(), torch.randn(shape), "cpu", dynamic=True)


def test_running_logarithms_of_dynamic_sizes_are_refused() -> None:
    """Regression: the exponentials overflowed."""
    with pytest.raises(
        qmlir.QmlirError, match=r"logcumsumexp.* can be decomposed only under an assumption on dynamic sizes"
    ):
        compiled(lambda x: torch.logcumsumexp(x, 1), NUMBERS, "cpu", dynamic=True)
