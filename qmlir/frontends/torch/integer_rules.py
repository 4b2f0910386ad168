"""Decompositions of integer operators that torch-mlir converts only for floats, or not at all."""

from __future__ import annotations

import torch

from .graph import aten
from .rules import rule

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@rule(aten.bitwise_xor.Scalar)
def bitwise_xor(x: torch.Tensor, number: int) -> torch.Tensor:
    """With the number as a tensor, which promotes bools to integers."""
    return aten.bitwise_xor.Tensor(x, torch.tensor(number, dtype=torch.result_type(x, number)))


@rule(aten.bitwise_or.Scalar)
def bitwise_or(x: torch.Tensor, number: int) -> torch.Tensor:
    """With the number as a tensor, which promotes bools to integers."""
    return aten.bitwise_or.Tensor(x, torch.tensor(number, dtype=torch.result_type(x, number)))


@rule(aten.abs.default)
def absolute(x: torch.Tensor) -> torch.Tensor:
    """The absolute value of integers."""
    if x.dtype not in INTEGERS:
        return NotImplemented
    return torch.where(x < 0, -x, x)


@rule(aten.pow.Tensor_Tensor, aten.pow.Scalar)
def power(x: torch.Tensor | int, y: torch.Tensor) -> torch.Tensor:
    """Integer powers by squaring; with a negative exponent 0 unless the base is 1 or -1, as in torch."""
    kind = torch.result_type(x, y)
    if kind not in INTEGERS:
        return NotImplemented
    x, y = torch.broadcast_tensors(torch.as_tensor(x).to(kind), y.to(kind))
    one = torch.ones((), dtype=kind)
    found, square = one, x
    for bit in range(8 * kind.itemsize - kind.is_signed):
        found = torch.where((y >> bit) & 1 == 1, found * square, found)
        square = square * square
    below = torch.where((x == 1) | (x == -1), torch.where(y & 1 == 1, x, one), 0 * one)
    return torch.where(y < 0, below, found) if kind.is_signed else found


@rule(aten.pow.Tensor_Scalar)
def power_of_number(x: torch.Tensor, y: float) -> torch.Tensor:
    """Integer powers by squaring, with one exponent for all elements; torch itself refuses negative exponents."""
    kind = torch.result_type(x, y)
    if kind not in INTEGERS or y < 0:
        return NotImplemented
    found, square, rest = torch.ones_like(x), x, int(y)
    while rest:
        found, square, rest = found * square if rest & 1 else found, square * square, rest >> 1
    return found
