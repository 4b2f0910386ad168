"""Sorts of torch programs, long ones by the network of qmlir-sort-in-stages."""

from __future__ import annotations

import pytest
import torch

import qmlir
from qmlir.emulation.backends import emulated_targets


class Sort(torch.nn.Module):
    def __init__(self, dim: int, descending: bool) -> None:
        super().__init__()
        self.dim, self.descending = dim, descending

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.sort(x, dim=self.dim, descending=self.descending, stable=True)


class Top(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return *torch.topk(x, 5, dim=1), torch.argsort(x, dim=1, stable=True)


def _ties(*shape: int) -> torch.Tensor:
    return torch.randint(-5, 5, shape, generator=torch.Generator().manual_seed(0))


def _with_nan(*shape: int) -> torch.Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    x[:, ::7] = torch.nan
    return x


CASES = {
    "few": (Sort(1, False), _ties(3, 50).float()),
    "short lines": (Sort(1, False), _ties(40, 20).float()),
    "a power of two": (Sort(1, True), _ties(2, 128)),
    "another axis": (Sort(0, False), _ties(200, 3).to(torch.bfloat16)),
    "NaN": (Sort(1, True), _with_nan(2, 300)),
    "places alone": (Top(), torch.randn(2, 150, generator=torch.Generator().manual_seed(1))),
}


@pytest.mark.sweep(fast=12, slow=4)
@pytest.mark.parametrize("target", ["cpu", "vulkan:lavapipe", "cuda:sm_90a", "rocm:gfx942"])
@pytest.mark.parametrize("case", CASES)
def test_sorts_as_torch(case: str, target: str) -> None:
    module, x = CASES[case]
    program = qmlir.compile(torch.export.export(module, (x,)), target=target)
    found = qmlir.load(program, emulate=target in emulated_targets()).main(x)
    for ours, theirs in zip(found, module(x), strict=True):
        assert torch.equal(torch.nan_to_num(torch.as_tensor(ours), 99.0), torch.nan_to_num(theirs, 99.0))


@pytest.mark.sweep(fast=4, slow=3)
@pytest.mark.parametrize("target", ["cpu", "vulkan:lavapipe", "cuda:sm_90a", "rocm:gfx942"])
def test_a_number_of_elements_that_is_not_known(target: str) -> None:
    """A long sort of dynamic size has loops for stages; IREE does not know the sizes of the loops' tensors."""
    sizes = torch.export.Dim("b", max=8), torch.export.Dim("n", max=100_000)
    exported = torch.export.export(Sort(1, False), (_ties(3, 50),), dynamic_shapes=({0: sizes[0], 1: sizes[1]},))
    program = qmlir.compile(exported, target=target)
    call = qmlir.load(program, emulate=target in emulated_targets()).main
    for shape in ((2, 1), (2, 5), (1, 128), (2, 130)):
        x = _ties(*shape)
        for ours, theirs in zip(call(x), torch.sort(x, dim=1, stable=True), strict=True):
            assert torch.equal(torch.as_tensor(ours), theirs), shape


@pytest.mark.slow
def test_what_was_found() -> None:
    """The positions that a mask selects are sorted; there may be none."""

    class Places(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = torch.nonzero(x > 0)[:, 0]
            return torch.cat([torch.sort(found, descending=True)[0], torch.zeros(1, dtype=torch.int64)])

    x = torch.randn(300, generator=torch.Generator().manual_seed(0))
    call = qmlir.load(qmlir.compile(torch.export.export(Places(), (x,)), target="cpu")).main
    one = torch.full((300,), -1.0)
    one[7] = 1
    for given in (x, -x.abs(), one):
        assert torch.equal(torch.as_tensor(call(given)), Places()(given))


@pytest.mark.slow
def test_a_vocabulary() -> None:
    """A sort of a whole vocabulary, for which IREE's own sort takes seconds."""
    x = torch.randperm(50_000, generator=torch.Generator().manual_seed(0)).float()[None]
    program = qmlir.compile(torch.export.export(Top(), (x,)), target="cpu")
    values, places, order = qmlir.load(program).main(x)
    assert torch.equal(torch.as_tensor(values), torch.topk(x, 5).values)
    assert torch.equal(torch.as_tensor(places), torch.topk(x, 5).indices)
    assert torch.equal(torch.as_tensor(order), torch.argsort(x))
