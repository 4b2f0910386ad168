"""Buffers that a torch program changes are state of the loaded program. Compared with the module in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import qmlir
from qmlir.errors import FrontEndError

torch = pytest.importorskip("torch")
ROWS, WIDTH = 8, 4


class Counters(torch.nn.Module):  # type: ignore[misc]
    """Buffers of several types, with equal and with different elements; one of them is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("number", torch.tensor(3))
        self.register_buffer("seen", torch.zeros(ROWS, dtype=torch.bool))
        self.register_buffer("short", torch.full((2,), 1.5, dtype=torch.float16))
        self.register_buffer("weight", torch.arange(8.0).reshape(2, 4), persistent=False)

    def forward(self, x: Any, rows: Any) -> Any:
        self.count += 1
        self.number += 2
        self.seen[rows] = True
        self.short *= 2
        self.weight.mul_(0.5)
        return x + self.count, self.number * 1, self.seen, self.short + 1, self.weight * x


class Caches(torch.nn.Module):  # type: ignore[misc]
    """Static caches like those of transformers. Regression: IREE gave both caches of a layer one buffer, and wrote to
    it in place."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.register_buffer("k", torch.full((1, 2, ROWS, WIDTH), start))
        self.register_buffer("v", torch.full((1, 2, ROWS, WIDTH), start))
        self.register_buffer("table", torch.arange(ROWS * WIDTH * 2.0).reshape(1, 2, ROWS, WIDTH))
        self.register_buffer("other", torch.arange(ROWS * WIDTH * 2.0).reshape(1, 2, ROWS, WIDTH))

    def forward(self, x: Any, rows: Any) -> Any:
        self.k.index_copy_(2, rows, x)
        self.v.index_copy_(2, rows, x * 3)
        self.table.index_copy_(2, rows, x + 1)
        self.other.index_copy_(2, rows, x + 2)
        mask = (torch.arange(ROWS) <= rows)[None, None, None]
        y = torch.nn.functional.scaled_dot_product_attention(x, self.k, self.v, attn_mask=mask)
        return y, self.k, self.v * 1, self.table * 1, self.other


class Kept(torch.nn.Module):  # type: ignore[misc]
    """Keeps an argument, which the caller may change after the call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(64, 64))

    def forward(self, x: Any, rows: Any) -> Any:
        before = self.last * 2
        self.last.copy_(x)
        return before


CASES = {
    "counters": (Counters, (2, 4)),
    "caches-of-zeros": (lambda: Caches(0.0), (1, 2, 1, WIDTH)),
    "caches-of-ones": (lambda: Caches(1.0), (1, 2, 1, WIDTH)),
    "an-argument-that-is-kept": (Kept, (64, 64)),
}


@pytest.mark.sweep(fast=4, slow=26)
@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan:lavapipe", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_each_call_leaves_its_buffers_to_the_next(name: str, target: str) -> None:
    make, shape = CASES[name]
    program = torch.export.export(make(), (torch.randn(shape), torch.tensor([0])))
    artifact = qmlir.compile(program, target=target)
    assert len(artifact.functions["main"].inputs) == 2
    for _ in range(2):  # a program that is loaded again starts with the initial state
        main, module = qmlir.load(artifact).main, make()
        results = []
        for i in range(4):
            x, rows = torch.randn(shape), torch.tensor([i + 1])
            expected = module(x, rows)
            expected = expected if isinstance(expected, tuple) else (expected,)
            got = main(x, rows)
            got = got if isinstance(got, (list, tuple)) else (got,)
            x.fill_(777.0)
            results.append(([np.asarray(g) for g in got], [e.numpy().copy() for e in expected]))
        for got, expected in results:  # checked after the last call: later calls must not overwrite it
            for g, e in zip(got, expected, strict=True):
                np.testing.assert_allclose(g.astype(np.float64), e.astype(np.float64), rtol=1e-5, atol=1e-5)


def test_an_argument_that_is_changed_is_refused() -> None:
    class Writes(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            x.add_(1)
            return x * 2

    with pytest.raises(FrontEndError, match="user input mutation of 'x': return the new value"):
        qmlir.compile(torch.export.export(Writes(), (torch.ones(2),)))


def test_a_program_with_state_is_checked_against_the_reference() -> None:
    program = torch.export.export(Caches(0.0), (torch.ones(1, 2, 1, WIDTH), torch.tensor([2])))
    report = qmlir.check(program, arguments=[np.ones((1, 2, 1, WIDTH), np.float32), np.array([2])])
    assert report.ok, str(report)
