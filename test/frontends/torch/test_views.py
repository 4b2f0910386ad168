"""Views of tensors with dynamic sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from support.torch_models import Called  # noqa: E402
from torch.export import Dim, export  # noqa: E402

import qmlir  # noqa: E402
from conformance.opened import opened  # noqa: E402
from qmlir.errors import InputError  # noqa: E402
from qmlir.frontends.torch.views import axes_together  # noqa: E402

VIEWS: dict[str, Any] = {
    "merge-two-dynamic": lambda x: x.reshape(-1, 12),
    "merge-dynamic-and-static": lambda x: x.reshape(x.shape[0], -1),
    "split-static": lambda x: x.reshape(x.shape[0], x.shape[1], 3, 4),
    "split-static-unflatten": lambda x: x.unflatten(-1, (3, 4)),
    "flatten-dynamic": lambda x: x.flatten(0, 1),
    "split-two-dynamic": lambda x: (x.flatten(0, 1) + 1).unflatten(0, (x.shape[0], x.shape[1])),
    "heads": lambda x: x.view(x.shape[0], x.shape[1], 3, 4).transpose(1, 2).transpose(1, 2).reshape(-1, 12),
    "one-more-axis": lambda x: x.reshape(1, x.shape[0], 1, x.shape[1], 12),
    "everything": lambda x: x.reshape(-1),
}


class Module(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, view: Any) -> None:
        super().__init__()
        self.view = view

    def forward(self, x: Any) -> Any:
        return self.view(x * 2) + 1


@pytest.mark.sweep(fast=16, slow=60)
@pytest.mark.parametrize("name", VIEWS)
def test_is_torch_s_view(name: str) -> None:
    """torch-mlir on its own takes the second dynamic size of "heads" to be 1."""
    module = Module(VIEWS[name])
    sizes = ({0: Dim("b", min=2, max=64), 1: Dim("t", min=2, max=64)},)
    program = export(module, (torch.zeros(4, 6, 12),), dynamic_shapes=sizes)
    function = opened(qmlir.compile(program)).main
    for b, t in ((4, 6), (3, 5)):
        x = torch.arange(b * t * 12, dtype=torch.float32).reshape(b, t, 12)
        assert torch.equal(function(x), module(x))


@pytest.mark.sweep(fast=6, slow=60)
@pytest.mark.parametrize("equation", ["bsd,bsd->bs", "bsd,bse->bsde", "bsd,de->bse", "bsd,btd->bst", "bsd,sbd->"])
def test_einsum_of_several_dynamic_axes(equation: str) -> None:
    """torch-mlir on its own takes one of the sizes to be 1."""

    class Sum(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, y: Any) -> Any:
            return torch.einsum(equation, x, y)

    axes = {name: Dim(name, min=2, max=64) for name in "bst"}
    terms = equation.split("->")[0].split(",")
    dynamic = tuple({i: axes[a] for i, a in enumerate(term) if a in axes} for term in terms)

    def inputs(b: int, s: int, t: int) -> tuple[Any, ...]:
        sizes = {"b": b, "s": s, "t": t, "d": 8, "e": 4}
        return tuple(torch.randn([sizes[a] for a in term]) for term in terms)

    program = export(Sum(), inputs(2, 5, 6), dynamic_shapes=dynamic)
    function = opened(qmlir.compile(program)).main
    for given in (inputs(2, 5, 6), inputs(3, 7, 4)):
        torch.testing.assert_close(torch.as_tensor(function(*given)), Sum()(*given), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "groups"),
    [
        ((2, 3, 4), (6, 4), [([0, 1], [0]), ([2], [1])]),
        ((6, 4), (2, 3, 4), [([0], [0, 1]), ([1], [2])]),
        ((4, 6), (6, 4), [([0, 1], [0, 1])]),
        ((5,), (5, 1, 1), [([0], [0, 1, 2])]),
        ((1, 5), (5,), [([0, 1], [0])]),
    ],
)
def test_axes_that_hold_the_same_elements(old: Any, new: Any, groups: Any) -> None:
    assert axes_together(old, new) == groups


def parts(x: Any, y: Any) -> Any:
    """Slices of the last axis that begin between two vectors, and padding by less than a vector."""
    return (x[:, 1:5] + y, x[:, 3:5].sum(1), x[:, 1:5].softmax(1), x[:, 1:5].t() * 2, x.half()[:, 1:5] + 1,
            (4 * x).to(torch.int8)[:, 1:5] + 1, x[:, 1:5] - x[:, :4], F.pad(x + 1, (3, 1)),
            x[:, 1:5] @ y.t())  # fmt: skip


@pytest.mark.sweep(fast=2, slow=3)
def test_parts_of_the_last_axis(target: str) -> None:
    """Regression: on Vulkan `x[:, 1:5] + y` was computed from `x[:, 0:4]`."""
    torch.manual_seed(0)
    x, y = torch.randn(8, 8), torch.randn(8, 4)
    program = export(Called(parts), (x, y))
    for got, want in zip(qmlir.load(qmlir.compile(program, target=target)).main(x, y), parts(x, y), strict=True):
        torch.testing.assert_close(torch.as_tensor(got), want, rtol=2e-3, atol=1e-5)


def bias_of_distance(x: Any) -> Any:
    """What MPT adds to its scores: the last `n` places of a table for 32."""
    table = torch.arange(4 * 32, dtype=torch.float32).reshape(4, 1, 32)
    return x + table[:, max(0, 1 - x.shape[-2]) :, max(0, 32 - x.shape[-1]) :]


@pytest.mark.parametrize("saved", [False, True])
def test_a_size_that_is_always_one_broadcasts(saved: bool, tmp_path: Path) -> None:
    """Regression: `1 - max(0, 1 - n)`, which torch does not simplify, was taken for a size that is not repeated, and
    the sum read other places and memory behind the table. A file does not hold the exporter's lower bound of 2."""
    program = export(Called(bias_of_distance), (torch.zeros(2, 4, 9, 9),),
                     dynamic_shapes=(({2: Dim("n", max=20), 3: Dim("n", max=20)},),))  # fmt: skip
    if saved:
        torch.export.save(program, tmp_path / "program.pt2")
    function = opened(qmlir.compile(tmp_path / "program.pt2" if saved else program)).main
    for n in (9, 20, 1):
        x = torch.rand(2, 4, n, n)
        assert torch.equal(function(x), bias_of_distance(x))
    with pytest.raises(InputError, match=r"axis 2 has 0 elements, and the program is for 1 to 20"):
        function(torch.zeros(2, 4, 0, 0))
