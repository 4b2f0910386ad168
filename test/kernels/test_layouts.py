"""A weight layout gives the same bytes in numpy and as MLIR ops."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import qmlir
from qmlir.core.mlir import context, func, ir
from qmlir.kernels.layouts import WeightLayout


@st.composite
def layouts(draw: Any) -> tuple[WeightLayout, tuple[int, ...], bool]:
    """A layout, the shape of codes that it takes, and whether their top bits are inverted."""
    bits = draw(st.sampled_from((8, 4, 2)))
    factors = [tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))) for _ in range(2)]
    if bits < 8:
        factors[1] = (*factors[1], 8 // bits)
    padded = tuple(prod(f) for f in factors)
    count = sum(len(f) for f in factors)
    order = tuple(draw(st.permutations(range(count))))
    field = order.index(count - 1) if bits < 8 else None
    offset = draw(st.sampled_from((0, -128) if bits == 8 else (0, -8, 3)))
    shape = (*draw(st.sampled_from(((), (3,)))), *(draw(st.integers(1, size)) for size in padded))
    return WeightLayout(padded, tuple(factors), order, bits, field, offset), shape, draw(st.booleans())


def emitted(layout: WeightLayout, shape: tuple[int, ...], flipped: bool) -> Any:
    """A program that applies the layout by MLIR ops."""
    with context():
        module = ir.Module.create()
        t = ir.RankedTensorType.get(shape, ir.IntegerType.get_signless(8))
        with ir.InsertionPoint(module.body):

            @func.FuncOp.from_py_func(t)
            def main(codes: Any) -> Any:
                return layout.emit(codes, flipped)

        return qmlir.load(qmlir.compile(str(module), target="cpu")).main


@settings(max_examples=4)
@given(layouts())
def test_emitted_as_applied(case: tuple[WeightLayout, tuple[int, ...], bool]) -> None:
    _emitted_as_applied(case)


@pytest.mark.slow
@settings(max_examples=24, derandomize=False)
@given(layouts())
def test_many_emitted_as_applied(case: tuple[WeightLayout, tuple[int, ...], bool]) -> None:
    _emitted_as_applied(case)


def _emitted_as_applied(case: tuple[WeightLayout, tuple[int, ...], bool]) -> None:
    layout, shape, flipped = case
    low, high = (-128, 127) if layout.bits == 8 else (layout.offset, layout.offset + (1 << layout.bits) - 1)
    codes = np.random.default_rng(0).integers(low, high + 1, shape).astype(np.int8)
    given_ = (codes.view(np.uint8) ^ 0x80).view(np.int8) if flipped else codes
    np.testing.assert_array_equal(emitted(layout, shape, flipped)(given_), layout.each(codes))
