"""Products by constant weights whose results are masked. Regression: a kernel cannot address bools, and IREE could not
compile the program ("failed to emulate bit width")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import qmlir

WEIGHT, SECOND = torch.randn(2, 32, 32, generator=torch.Generator().manual_seed(0))
MASKED: dict[str, Callable[[Any, Any], Any]] = {
    "chosen": lambda x, m: torch.where(m, x + 1, x @ WEIGHT),
    "times a comparison": lambda x, m: (x @ WEIGHT) * (x > 0),
    "compared": lambda x, m: ((x @ WEIGHT) > 0) & m,
    "filled between two products": lambda x, m: (x @ WEIGHT).relu().masked_fill(m[:, :1], 0.0) @ SECOND + x,
    "chosen as a whole": lambda x, m: torch.where(x[0, 0] > 0, x, (x @ WEIGHT).relu() @ SECOND),
}


class Masked(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.function = MASKED[name]

    def forward(self, x: Any, mask: Any) -> Any:
        return self.function(x, mask)


@pytest.mark.sweep(fast=18, slow=60)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", MASKED)
def test_masked_products_compile(name: str, dynamic: bool) -> None:
    x, mask = torch.randn(40, 32), torch.rand(40, 32) > 0.5
    batch = torch.export.Dim("batch", min=4)
    shapes = ({0: batch}, {0: batch}) if dynamic else None
    program = qmlir.load(qmlir.compile(torch.export.export(Masked(name), (x, mask), dynamic_shapes=shapes)))
    for rows in (40, 7) if dynamic else (40,):
        args = (x[:rows], mask[:rows])
        torch.testing.assert_close(program.main(*args), MASKED[name](*args), rtol=1e-5, atol=1e-4)
